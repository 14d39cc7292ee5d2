"""Evaluate and use models when the records are disguised.

Measures of a classifier on disguised test records; `disguised_view`, a model that predicts rows disguised by
a policy; and the information lost to a disguise: `kl`, `ckl`, `odds_ratio`, `density_distance`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import overload

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group, Policy
from masquerade.core.answered_tally import AnsweredTally, MissingAnswers, people_who_answered
from masquerade.core.axes import Floats, contract
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.tally import Selected, Tally
from masquerade.learn.classifiers.bayes import NaiveBayes
from masquerade.learn.classifiers.disguised_views import (
    DisguisedLinearView,
    DisguisedNetworkView,
    DisguisedTreeView,
    DisguisedView,
    ReportChances,
    linear_view,
)
from masquerade.learn.classifiers.linear import LinearClassifier
from masquerade.learn.classifiers.outcomes import (
    Classifier,
    Codes,
    Outcomes,
    auc_of,
    balanced_accuracy_of,
    calibration_of,
    check_categories,
    confusion_of,
    count_levels,
    cut_evenly,
    measure_performance,
    positive_code,
    predict_codes,
    score_function,
)
from masquerade.learn.classifiers.performance import (
    Accuracy,
    Calibration,
    Confusion,
    Measure,
    Performance,
    ThresholdCurve,
)
from masquerade.learn.classifiers.tree_model import DecisionTree
from masquerade.learn.networks.information_loss import ckl, density_distance, kl, odds_ratio, positive_rows
from masquerade.learn.networks.network import BayesianNetwork
from masquerade.sources.expectation import MOST_TRUTHS
from masquerade.sources.group_counts import count_groups, mean_over
from masquerade.sources.query_plan import marginal_group

__all__ = [
    "Accuracy",
    "Calibration",
    "Confusion",
    "DisguisedView",
    "Measure",
    "Performance",
    "ThresholdCurve",
    "accuracy",
    "balanced_accuracy",
    "calibration",
    "ckl",
    "confusion",
    "density_distance",
    "disguised_view",
    "kl",
    "odds_ratio",
    "performance",
    "positive_rows",
    "roc_auc",
]


LARGEST_USEFUL = 0.05  # standard error of an accuracy above which a warning is given


def accuracy(model: Classifier, source: Tally, target: str | None = None) -> Accuracy:
    """Estimate the share of true records that a classifier predicts correctly.

    Parameters
    ----------
    model : Classifier
        The model.
    source : Tally
        Test records, clear or disguised by any policy. A source that cannot compute the mean of a function is
        queried for the whole table of features and target, if it has at most 65,536 cells.
    target : str, optional
        Variable with the true class, if its name differs from the model's target.

    Returns
    -------
    Accuracy
        Estimate with its standard error. Unbiased, so it may be outside [0, 1].

    Raises
    ------
    InputError
        If the categories of model and source differ, or the table is too large.

    Notes
    -----
    Formula: the mean of 1{prediction(x) = c} over the truths (x, c) of the records: see
    `masquerade.sources.expectation.expect`. On clear records this is the plain share, with the binomial
    error.
    Reference: Zhan, Chang & Matwin (2004) §3.5, for any policy.
    Error: unbiased. The standard error is multiplied by a factor for each disguised variable that the model
    reads. Above 0.05 the estimate is useless, and a `MasqueradeWarning` says so.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.evaluate.accuracy(mq.learn.naive_bayes(source, "sleep"), source).summary())
    accuracy 0.7333 ± 0.0181 (n = 600)
    """
    source = _source_for(model, source)
    over = check_categories(model, source.schema, target)

    def right(codes: NDArray[np.intp]) -> NDArray[np.bool_]:
        rows = {feature.name: codes[:, i] for i, feature in enumerate(model.features)}
        return np.asarray(predict_codes(model, rows) == codes[:, -1])

    mean = Accuracy(*mean_over(source, right, over))
    stderr = mean.stderr
    warning = _warn_if_useless(stderr)
    if mean.spread is not None:  # all records are predicted correctly, or none is
        stderr = float(mean.spread.standard_error(np.asarray((stderr * mean.total) ** 2))) / mean.total
    return replace(mean, stderr=stderr, warning=warning)


def _warn_if_useless(stderr: float) -> str | None:
    """Warn if the standard error of an accuracy is too large; return the warning."""
    if stderr <= LARGEST_USEFUL:
        return None
    warning = (
        f"The accuracy is useless: its standard error is {stderr:.2g}, more than {LARGEST_USEFUL}. "
        "More records, less disguise, or a model that reads fewer disguised variables would help."
    )
    warnings.warn(warning, MasqueradeWarning, stacklevel=3)
    return warning


def _source_for(model: Classifier, source: Tally) -> Tally:
    """Return the source, restricted to the people who answered if the model was learned from them."""
    missing: MissingAnswers | None = getattr(model, "missing", None)
    if missing is None or missing.taken != "answered" or isinstance(source, AnsweredTally):
        return source
    return people_who_answered(source)


THRESHOLDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def confusion(model: Classifier, source: Tally, target: str | None = None) -> Confusion:
    """Estimate the confusion matrix of a classifier from clear or disguised test records.

    Parameters
    ----------
    model : Classifier
        The model.
    source : Tally
        Test records, clear or disguised.
    target : str, optional
        Variable with the true class, if its name differs from the model's target.

    Returns
    -------
    Confusion
        Share of records by true and predicted class, with standard errors.

    Raises
    ------
    InputError
        If categories differ, the table is too large, or a class has no records.

    Notes
    -----
    Formula: shares are means over the truths, as in `accuracy`. The balanced accuracy is the mean, over the
    true classes, of the share predicted correctly; its error follows by the delta method.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.evaluate.confusion(mq.learn.naive_bayes(source, "sleep", ["pills"]), source).summary())
    Confusion of sleep: balanced accuracy 0.6552 ± 0.0190 (n = 600)
    true predicted  share  stderr  lower  upper
     bad       bad 0.1400  0.0142 0.1145 0.1701
     bad      good 0.1967  0.0162 0.1668 0.2304
    good       bad 0.0700  0.0104 0.0522 0.0933
    good      good 0.5933  0.0201 0.5536 0.6319
    """
    classes = len(model.target)
    outcomes = _outcomes(model, source, target, lambda rows: predict_codes(model, rows), classes)
    return confusion_of(outcomes, model.target)


def balanced_accuracy(model: Classifier, source: Tally, target: str | None = None) -> Measure:
    """Estimate the mean, over the true classes, of the share predicted correctly.

    Parameters
    ----------
    model : Classifier
        The model.
    source : Tally
        Test records, clear or disguised.
    target : str, optional
        Variable with the true class, if its name differs from the model's target.

    Returns
    -------
    Measure
        Estimate with its standard error.

    Raises
    ------
    InputError
        If categories differ, the table is too large, or a class has no records.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> model = mq.learn.naive_bayes(source, "sleep", ["pills"])
    >>> print(mq.evaluate.balanced_accuracy(model, source).summary())
    balanced accuracy 0.6552 ± 0.0190 (n = 600)
    """
    outcomes = _outcomes(model, source, target, lambda rows: predict_codes(model, rows), len(model.target))
    return balanced_accuracy_of(outcomes)


def roc_auc(
    model: Classifier, source: Tally, target: str | None = None, positive: Category | None = None
) -> Measure:
    """Estimate the area under the ROC curve.

    Parameters
    ----------
    model : Classifier
        The model.
    source : Tally
        Test records, clear or disguised.
    target : str, optional
        Variable with the true class, if its name differs from the model's target.
    positive : category, optional
        The positive class; required with more than two classes. Default: the second of two.

    Returns
    -------
    Measure
        Estimate with its standard error.

    Raises
    ------
    InputError
        If categories differ, the table is too large, or one class has no records.

    Notes
    -----
    Formula: P(score of a positive record > score of a negative record) + half of P(equal scores), over the
    truths; its error by the delta method. Beyond 256 distinct scores, neighbouring scores count as equal.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.evaluate.roc_auc(mq.learn.naive_bayes(source, "sleep", ["pills"]), source).summary())
    AUC 0.6552 ± 0.0190 (n = 600)
    """
    code = positive_code(model.target, positive)
    score = score_function(model, code)
    _, outcomes = count_levels(partial(_outcomes, model, source, target), score)
    area = auc_of(outcomes, code)
    return Measure("AUC", area.value, area.stderr, outcomes.n)


def calibration(
    model: Classifier,
    source: Tally,
    target: str | None = None,
    positive: Category | None = None,
    bins: int = 10,
) -> Calibration:
    """Estimate the observed share of a class by bins of its predicted probability.

    Parameters
    ----------
    model : Classifier
        The model, with `predict_proba`.
    source : Tally
        Test records, clear or disguised.
    target : str, optional
        Variable with the true class, if its name differs from the model's target.
    positive : category, optional
        The class; required with more than two classes. Default: the second of two.
    bins : int, default 10
        Number of bins of equal width.

    Returns
    -------
    Calibration
        One row per bin with records.

    Raises
    ------
    InputError
        If categories differ or the table is too large.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> model = mq.learn.naive_bayes(source, "sleep", ["pills"])
    >>> print(mq.evaluate.calibration(model, source, positive="bad", bins=2).summary())
    Calibration of P(bad)
     predicted  lowest  highest  observed  stderr  lower  upper  records
        0.2491  0.2491   0.2491    0.2489  0.0199 0.2121 0.2898 474.0000
        0.6630  0.6630   0.6630    0.6667  0.0420 0.5805 0.7430 126.0000
    """
    code = positive_code(model.target, positive)
    score = score_function(model, code, probability=True)
    count, cuts = partial(_outcomes, model, source, target), [i / bins for i in range(bins)]
    levels, outcomes = count_levels(count, score, cuts)
    return calibration_of(outcomes, model.target, code, cut_evenly(levels, bins), levels)


def performance(
    model: Classifier,
    source: Tally,
    target: str | None = None,
    positive: Category | None = None,
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    bins: int = 10,
    level: float = 0.95,
) -> Performance:
    """Test a classifier: all measures, corrected for the disguise, next to the trivial classifier.

    Accuracy alone misleads where a class is rare: predicting the other class for every record is accurate.

    Parameters
    ----------
    model : Classifier
        The model.
    source : Tally
        Test records, clear or disguised. Records that the model was learned from make it look better than it
        is.
    target : str, optional
        Variable with the true class, if its name differs from the model's target.
    positive : category, optional
        The positive class. Default: of two classes, the class with fewer test records. With more classes and
        no positive class there is no AUC, calibration or curve.
    thresholds : sequence of float, optional
        Thresholds of the probability of the positive class.
    bins : int, default 10
        Number of bins of the calibration, with about equal numbers of records.
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Performance
        Measures, confusion matrix, calibration and threshold curve.

    Raises
    ------
    InputError
        If categories differ, the table is too large, or there are no records.

    Notes
    -----
    Formula: measures are means over the truths, as in `accuracy`, and ratios of such means. Intervals of
    ratios are those of `masquerade.core.report_moments.share_interval`: Wilson's for clear records, Fieller's
    where the disguise dominates.
    Error: `benchmarks/classifier_tests.py` measures the coverage of every interval.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> mq.evaluate.performance(mq.learn.naive_bayes(source, "sleep", ["pills"]), source)
    Test of a classifier of sleep = bad, n = 600
                      measure estimate stderr   lower  upper trivial
                   prevalence   0.3367 0.0193  0.3000 0.3754       –
                     accuracy   0.7333 0.0181  0.6965 0.7672  0.6633
       accuracy above trivial   0.0700 0.0185  0.0339 0.1070  0.0000
            balanced accuracy   0.6552 0.0190  0.6183 0.6928  0.5000
                  sensitivity   0.4158 0.0347  0.3501 0.4848  0.0000
                  specificity   0.8945 0.0154  0.8604 0.9210  1.0000
    positive predictive value   0.6667 0.0420  0.5805 0.7430       –
    negative predictive value   0.7511 0.0199  0.7102 0.7879  0.6633
                          AUC   0.6552 0.0190  0.6185 0.6925  0.5000
     observed minus predicted   0.0007 0.0180 -0.0336 0.0369       –
    (95% intervals; trivial: predicts good for every record)
    """
    count = partial(_outcomes, model, source, target)
    result = measure_performance(model, count, positive, thresholds=thresholds, bins=bins, level=level)
    warning = _warn_if_useless(result["accuracy"].stderr)
    return result if warning is None else replace(result, notes=(*result.notes, warning))


def _outcomes(
    model: Classifier,
    source: Tally,
    target: str | None,
    grouped: Callable[[Codes], NDArray[np.intp]],
    groups: int,
) -> Outcomes:
    """Return the counts of groups of predictions by true class."""
    source = _source_for(model, source.source if isinstance(source, Selected) else source)
    over = check_categories(model, source.schema, target)
    return Outcomes(*count_groups(source, over, grouped, groups))


@overload
def disguised_view(model: NaiveBayes, policy: Policy) -> DisguisedView: ...


@overload
def disguised_view(model: DecisionTree, policy: Policy) -> DisguisedTreeView: ...


@overload
def disguised_view(model: LinearClassifier, policy: Policy) -> DisguisedLinearView: ...


@overload
def disguised_view(
    model: BayesianNetwork, policy: Policy, target: str | None = None
) -> DisguisedNetworkView: ...


def disguised_view(
    model: NaiveBayes | DecisionTree | LinearClassifier | BayesianNetwork,
    policy: Policy,
    target: str | None = None,
) -> DisguisedView | DisguisedTreeView | DisguisedLinearView | DisguisedNetworkView:
    """Return a classifier of rows that were disguised by a policy.

    Parameters
    ----------
    model : NaiveBayes, DecisionTree, LinearClassifier or BayesianNetwork
        Model of the clear records.
    policy : Policy
        Policy of the rows to predict.
    target : str, optional
        Node to predict; only for a network, and required there.

    Returns
    -------
    DisguisedView, DisguisedTreeView, DisguisedLinearView or DisguisedNetworkView
        Model with `predict` and, except for linear models without probabilities, `predict_proba`.

    Raises
    ------
    InputError
        If categories differ, or the policy disguises the features in a way that the model cannot use.

    Notes
    -----
    Formula: P(c | x̃) ∝ P(c)·Π_g Σ_x Π_i P(x_i | c)·P_g[x, x̃_g] over the groups g of variables disguised
    together. If the target itself is in a group, its truth is c and its report is summed over.
    Reference: Zhan et al. (2004) §3.4 for groups of one variable.
    Cost: one product of small matrices per group, then one look-up per group and row.
    Error: exact for the model's probabilities. A group in which the report of a feature depends on a variable
    outside the model is refused: the model does not contain that variable's distribution.

    Examples
    --------
    >>> policy = mq.data.students_policy()
    >>> model = mq.learn.naive_bayes(mq.tally(mq.data.students(), schema=policy), "sleep", ["pills"])
    >>> view = mq.evaluate.disguised_view(model, policy)
    >>> view.predict_proba(mq.data.students()[["pills"]][:1]).round(3).tolist()
    [[0.434, 0.566]]
    """
    missing: MissingAnswers | None = getattr(model, "missing", None)
    if missing is not None and missing.taken == "answered":
        raise InputError(
            "The model was learned from people who answered, and a disguised row does not show who did. "
            "Learn with missing='category' to predict disguised rows."
        )
    if isinstance(model, DecisionTree):
        return DisguisedTreeView(model, *_feature_channels(model, policy))
    if isinstance(model, LinearClassifier):
        return linear_view(model, *_feature_channels(model, policy))
    if not isinstance(model, NaiveBayes):
        return _network_view(model, policy, target)
    for variable in (*model.features, model.target):
        if policy.schema[variable.name] != variable:
            raise InputError(
                f"The categories of {variable.name!r} are not the same in the model and in the policy."
            )
    by = policy.stratum_variable
    if by == model.target.name:
        raise InputError(f"The policy has strata by {by!r}: the target is public, not predicted.")
    labels: Sequence[Category | None] = policy.strata or (None,)
    features = {feature.name for feature in model.features}
    for group in policy.groups:
        if group.own_report and features & set(group.names):
            raise InputError(
                f"{', '.join(group.names)} share one report: such rows have no features to classify by. "
                "Classify clear rows, or rows of another policy."
            )
    return DisguisedView(
        model.target,
        tuple(policy.observed[feature.name] for feature in model.features),
        model.prior,
        {
            label: tuple(
                _emission(model, group) for group in policy.groups_of(label) if features & set(group.names)
            )
            for label in labels
        },
        None if by is None else policy.schema[by],
    )


def _emission(model: NaiveBayes, group: Group) -> ReportChances:
    """Return P(joint report of a group's features | class)."""
    tables = dict(zip((feature.name for feature in model.features), model.probabilities, strict=True))
    feature_names = tuple(name for name in group.names if name in tables)
    used = marginal_group(group, feature_names)
    if used.names != feature_names:  # the reports of the features may depend on the class
        used = marginal_group(group, tuple(n for n in group.names if n in tables or n == model.target.name))
    strangers = [name for name in used.names if name not in tables and name != model.target.name]
    if strangers:
        raise InputError(
            f"{', '.join(group.names)} were disguised together, and the report of {', '.join(feature_names)} "
            f"depends on {', '.join(strangers)}: only a model with these as features can classify rows."
        )
    sizes = tuple(size for name, size in zip(used.names, used.report_sizes, strict=True) if name in tables)
    rows = []
    for c in range(len(model.target)):
        certain = np.eye(len(model.target))[c]
        factors = [tables[name][c] if name in tables else certain for name in used.names]
        # the joint distribution of independent variables in C order
        truth = contract(np.ones([1] * len(factors)), [factor[None, :] for factor in factors])
        reports = _through(used.matrix_channel, truth.ravel()).reshape(used.report_sizes)
        summed = reports.sum(axis=tuple(i for i, name in enumerate(used.names) if name not in tables))
        rows.append(summed.ravel())
    return ReportChances(feature_names, sizes, np.array(rows))


def _through(channel: Channel, truth: Floats) -> Floats:
    """Return the distribution of reports for a distribution of truths, without building the matrix."""
    if channel.sampled_channel is not None:
        return np.asarray(truth @ channel.matrix)
    chances = truth[:, None] * channel.weights / np.asarray(channel.denominators, dtype=float)[:, None]
    counts = np.bincount(channel.outcomes.ravel(), chances.ravel(), minlength=channel.reports)
    return np.asarray(counts, dtype=np.float64)


def _feature_channels(
    model: DecisionTree | LinearClassifier, policy: Policy
) -> tuple[tuple[Variable, ...], dict[str, Floats]]:
    """Return the reports of a model's features, and the channel of each."""
    for feature in model.features:
        if policy.schema[feature.name] != feature:
            raise InputError(
                f"The categories of {feature.name!r} are not the same in the model and in the policy."
            )
    channels = {feature.name: _own_channel(policy, feature.name) for feature in model.features}
    return tuple(policy.observed[name] for name in channels), channels


def _network_view(network: BayesianNetwork, policy: Policy, target: str | None) -> DisguisedNetworkView:
    if target is None:
        raise InputError("A network has no target: give the 'target' variable to predict.")
    nodes = {table.child.name: table.child for table in network.tables}
    names = [name for name in nodes if name != Schema(nodes.values())[target].name]
    if prod(len(policy.observed[name]) for name in names) * len(nodes[target]) > MOST_TRUTHS:
        raise InputError(f"The reports of {len(names)} variables have too many combinations to predict from.")
    joint = network.query([*names, target]).probabilities
    for axis, name in enumerate(names):
        joint = np.moveaxis(np.tensordot(joint, _own_channel(policy, name), axes=(axis, 0)), -1, axis)
    return DisguisedNetworkView(nodes[target], tuple(policy.observed[name] for name in names), joint)


def _own_channel(policy: Policy, name: str) -> Floats:
    group = policy.group(name)
    if len(group.names) > 1 or group.own_report or policy.stratum_variable is not None:
        raise InputError(f"{name!r} is not disguised alone and equally in all strata: classify clear rows.")
    return group.matrix_channel.matrix
