"""Test and use models when the records at hand are disguised: the floor above sources and learners.

Measures of a classifier on test records that nobody may see; `disguised_view`, a model seen through the
policy of the rows that it predicts; what a disguise costs, by `kl`, `ckl`, `odds_ratio`, `density_distance`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group, Policy
from masquerade.core.axes import Floats, contract
from masquerade.core.covariance import contrast_spread_of
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import RecordTally, Selected, Tally
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
from masquerade.learn.classifiers.performance import Accuracy, Calibration, Confusion, Measure
from masquerade.learn.classifiers.prediction_rows import labels_of, row_codes
from masquerade.learn.classifiers.tree_model import DecisionTree
from masquerade.learn.networks.information_loss import ckl, density_distance, kl, odds_ratio, positive_rows
from masquerade.learn.networks.network import BayesianNetwork
from masquerade.sources.expectation import MOST_TRUTHS
from masquerade.sources.query_plan import marginal_group
from masquerade.sources.records import Records

__all__ = [
    "Accuracy",
    "Calibration",
    "Confusion",
    "DisguisedView",
    "Measure",
    "accuracy",
    "balanced_accuracy",
    "calibration",
    "ckl",
    "confusion",
    "density_distance",
    "disguised_view",
    "kl",
    "odds_ratio",
    "positive_rows",
    "roc_auc",
]


LARGEST_USEFUL = 0.05

Codes = Mapping[str, NDArray[np.intp]]


class Classifier(Protocol):
    """What can be tested: `target`, the `features` it looks at, and `predict`.

    With a method `predict_codes(codes by feature) -> codes of the target`, labels are never formed.
    """

    @property
    def target(self) -> Variable:
        """Return what is predicted."""

    @property
    def features(self) -> Sequence[Variable]:
        """Return what it is predicted from; every disguised one widens the error."""

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the predicted labels of rows."""


def accuracy(model: Classifier, source: Tally, target: str | None = None) -> Accuracy:
    """Return the share of the source's true records that a classifier predicts right.

    `source` holds test records, clear or disguised by any policy; `target` names the variable with the true
    class if that is not called what the model's is. Sources that cannot be asked for the mean of a
    function are asked for the whole table of features and target, if it has at most 65,536 cells.

    Formula: the mean of 1{prediction(x) = c} over the truths (x, c) of the records: see
    `masquerade.sources.expectation.expect`. On clear records the plain share, with the binomial error.
    Reference: Zhan, Chang & Matwin (2004) §3.5, for any policy.
    Error: unbiased; the standard error multiplies over the disguised variables that the model reads. Above
    0.05 the figure is useless, and a `MasqueradeWarning` says so.

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.evaluate.accuracy(mq.learn.naive_bayes(source, "sleep"), source).summary())
    accuracy 0.7333 ± 0.0181 (n = 600)
    """
    over = checked_names(model, source.schema, target)

    def right(codes: NDArray[np.intp]) -> NDArray[np.bool_]:
        rows = {feature.name: codes[:, i] for i, feature in enumerate(model.features)}
        return np.asarray(predicted(model, rows) == codes[:, -1])

    found = _mean_over(source, right, over)
    stderr = found.stderr
    warning = None
    if stderr > LARGEST_USEFUL:
        warning = (
            f"The accuracy is useless: its standard error is {stderr:.2g}, more than {LARGEST_USEFUL}. "
            "More records, less disguise, or a model that reads fewer disguised variables would help."
        )
        warnings.warn(warning, MasqueradeWarning, stacklevel=2)
    if found.spread is not None:  # nothing wrong, or nothing right, among the records seen
        stderr = float(found.spread.standard_error(np.asarray((stderr * found.total) ** 2))) / found.total
    return replace(found, stderr=stderr, warning=warning)


def checked_names(model: Classifier, schema: Schema, target: str | None) -> tuple[str, ...]:
    """Return features and target; refuse a source whose categories are not the model's."""
    own = model.target.name if target is None else target
    names = (*(feature.name for feature in model.features), own)
    if own in names[:-1]:
        raise InputError(f"The target {own!r} cannot be one of the features.")
    for variable, name in zip((*model.features, model.target), names, strict=True):
        if Variable(name, variable.categories) != schema[name]:
            raise InputError(f"The categories of {name!r} are not the same in the model and in the source.")
    return names


def predicted(model: Classifier, rows: Codes) -> NDArray[np.intp]:
    """Return the codes of the predicted classes."""
    quick: Callable[[Codes], NDArray[np.intp]] | None = getattr(model, "predict_codes", None)
    if quick is not None:
        return quick(rows)
    labels = {feature.name: labels_of(feature, rows[feature.name]) for feature in model.features}
    given = {model.target.name: np.asarray(model.predict(labels))}
    return row_codes(given, Schema([model.target]), [model.target.name])[model.target.name]


def _mean_over(source: Tally, f: Callable[[NDArray[np.intp]], NDArray[Any]], over: Sequence[str]) -> Accuracy:
    """Return the mean of f over the true records, its standard error and the number of records."""
    if isinstance(source, Selected):
        return _mean_over(source.source, f, over)
    if isinstance(source, RecordTally):
        (everyone,) = source.answer([Query()])
        if isinstance(source, Records):
            known = source.mean(f, over)
            return Accuracy(known.value, known.stderr, everyone.n, None, known.spread, known.total)
        return Accuracy(*source.expect(f, over), everyone.n)
    shape = source.schema.shape(over)
    if prod(shape) > MOST_TRUTHS:
        raise InputError(
            f"The table over {', '.join(over)} has {prod(shape):,} cells (at most {MOST_TRUTHS:,}), and the "
            "source cannot be asked for the mean of a function: test on records, or on a smaller model."
        )
    (table,) = source.answer([Query(by=over)])
    if not table.total > 0:
        raise InputError("The mean over no records is not defined.")
    codes = np.stack([axis.ravel() for axis in np.indices(shape)], axis=1)
    values = np.asarray(f(codes), dtype=float).reshape(shape)
    mean = float(np.sum(values * table.values)) / table.total
    variance = table.covariance.quadratic(values - mean)
    spread = contrast_spread_of(table.covariance, values - mean)
    return Accuracy(
        mean, float(np.sqrt(max(variance, 0.0))) / table.total, table.n, None, spread, table.total
    )


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
    """Return the classifier of rows that were disguised by a policy; of a network, of the node `target`.

    Formula: P(c | x̃) ∝ P(c)·Π_g Σ_x Π_i P(x_i | c)·P_g[x, x̃_g] over the groups g disguised together. If the
    target itself is in a group, its truth is c and its report is summed over.
    Reference: Zhan et al. (2004) §3.4 for one variable a group.
    Cost: one product of small matrices per group, then one look-up per group and row.
    Error: exact for the model's probabilities. A group with other variables, whose truth the report of the
    features depends on, is refused: the model does not say how those are distributed.

    >>> policy = mq.data.students_policy()
    >>> model = mq.learn.naive_bayes(mq.tally(mq.data.students(), schema=policy), "sleep", ["pills"])
    >>> view = mq.evaluate.disguised_view(model, policy)
    >>> view.predict_proba(mq.data.students()[["pills"]][:1]).round(3).tolist()
    [[0.434, 0.566]]
    """
    if isinstance(model, DecisionTree):
        return DisguisedTreeView(model, *_reported(model, policy))
    if isinstance(model, LinearClassifier):
        return linear_view(model, *_reported(model, policy))
    if not isinstance(model, NaiveBayes):
        return _network_view(model, policy, target)
    for variable in (*model.features, model.target):
        if policy.schema[variable.name] != variable:
            raise InputError(
                f"The categories of {variable.name!r} are not the same in the model and in the policy."
            )
    by = policy.stratum_variable
    if by == model.target.name:
        raise InputError(f"The policy tells the strata by {by!r}: the target is not hidden from anybody.")
    labels: Sequence[Category | None] = policy.strata or (None,)
    features = {feature.name for feature in model.features}
    for group in policy.groups:
        if group.own_report and features & set(group.names):
            raise InputError(
                f"{', '.join(group.names)} have one report in common, not one each: such rows have no "
                "features to classify by. Classify clear rows, or rows of another policy."
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
    own = tuple(name for name in group.names if name in tables)
    used = marginal_group(group, own)
    if used.names != own:  # the reports of the features may still depend on the class, which is given
        used = marginal_group(group, tuple(n for n in group.names if n in tables or n == model.target.name))
    strangers = [name for name in used.names if name not in tables and name != model.target.name]
    if strangers:
        raise InputError(
            f"{', '.join(group.names)} were disguised together, and what is reported of {', '.join(own)} "
            f"depends on {', '.join(strangers)}: only a model with these as features can classify rows."
        )
    sizes = tuple(size for name, size in zip(used.names, used.report_sizes, strict=True) if name in tables)
    rows = []
    for c in range(len(model.target)):
        certain = np.eye(len(model.target))[c]
        factors = [tables[name][c] if name in tables else certain for name in used.names]
        # the joint distribution of independent variables, flat, the first slowest
        truth = contract(np.ones([1] * len(factors)), [factor[None, :] for factor in factors])
        reports = _through(used.matrix_channel, truth.ravel()).reshape(used.report_sizes)
        summed = reports.sum(axis=tuple(i for i, name in enumerate(used.names) if name not in tables))
        rows.append(summed.ravel())
    return ReportChances(own, sizes, np.array(rows))


def _through(channel: Channel, truth: Floats) -> Floats:
    """Return how reports are distributed whose truths are so, without the matrix."""
    if channel.sampled is not None:
        return np.asarray(truth @ channel.matrix)
    chances = truth[:, None] * channel.weights / np.asarray(channel.denominators, dtype=float)[:, None]
    found = np.bincount(channel.outcomes.ravel(), chances.ravel(), minlength=channel.reports)
    return np.asarray(found, dtype=np.float64)


def _reported(
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
        raise InputError("A network has no target of its own: say which variable is predicted.")
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
        raise InputError(f"{name!r} is not disguised alone and alike in all strata: classify clear rows.")
    return group.matrix_channel.matrix


LARGE_GROUP = 2**10  # joint truths of variables that are disguised together, as a matrix a million numbers
MOST_LEVELS = 256  # of scores, for an AUC


def confusion(model: Classifier, source: Tally, target: str | None = None) -> Confusion:
    """Return which classes a classifier takes for which, from test records clear or disguised.

    Formula: shares are means over the truths, as in `accuracy`; the balanced accuracy is the mean over the
    true classes of the share predicted right, with its error by the delta method.

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.evaluate.confusion(mq.learn.naive_bayes(source, "sleep", ["pills"]), source).summary())
    Confusion of sleep: balanced accuracy 0.6552 ± 0.0190 (n = 600)
    true predicted  share  stderr
     bad       bad 0.1400  0.0142
     bad      good 0.1967  0.0162
    good       bad 0.0700  0.0104
    good      good 0.5933  0.0201
    """
    classes = len(model.target)
    found = _outcomes(model, source, target, lambda rows: predicted(model, rows), classes)
    total, counts = found.total, found.counts
    shares = counts.T / total
    stderr = np.empty_like(shares)
    for i in range(classes):
        for j in range(classes):
            own = np.zeros_like(counts)
            own[j, i] = 1.0
            stderr[i, j] = found.error((own - shares[i, j]) / total)
    return Confusion(model.target, shares, stderr, _balanced(found))


def balanced_accuracy(model: Classifier, source: Tally, target: str | None = None) -> Measure:
    """Return the mean, over the true classes, of the share predicted right.

    >>> source = mq.tally(mq.data.students())
    >>> model = mq.learn.naive_bayes(source, "sleep", ["pills"])
    >>> print(mq.evaluate.balanced_accuracy(model, source).summary())
    balanced accuracy 0.6552 ± 0.0190 (n = 600)
    """
    found = _outcomes(model, source, target, lambda rows: predicted(model, rows), len(model.target))
    return _balanced(found)


def roc_auc(
    model: Classifier, source: Tally, target: str | None = None, positive: Category | None = None
) -> Measure:
    """Return the area under the ROC curve of one of two classes (the second unless `positive` is named).

    Formula: P(score of one of the class > score of one of the other) + half of P(equal), over the truths; its
    error by the delta method. Beyond 256 different scores neighbours count as equal.

    >>> source = mq.tally(mq.data.students())
    >>> print(mq.evaluate.roc_auc(mq.learn.naive_bayes(source, "sleep", ["pills"]), source).summary())
    AUC 0.6552 ± 0.0190 (n = 600)
    """
    code = _positive_code(model, positive)
    scored = _scored(model, code)
    place, levels = _levels(model, source, target, scored)
    found = _outcomes(model, source, target, lambda rows: place(scored(rows)), levels)
    ones, zeros = found.counts[:, code], np.delete(found.counts, code, axis=1).sum(axis=1)
    many, few = ones.sum(), zeros.sum()
    if not (many > 0 and few > 0):
        raise InputError("The AUC needs records of both classes.")
    below = np.cumsum(zeros) - zeros / 2
    above = many - np.cumsum(ones) + ones / 2
    area = float(ones @ below) / (many * few)
    slopes = np.empty_like(found.counts)
    slopes[:] = ((above / many - area) / few)[:, None]
    slopes[:, code] = (below / few - area) / many
    return Measure("AUC", area, found.error(slopes), found.n)


def calibration(
    model: Classifier,
    source: Tally,
    target: str | None = None,
    positive: Category | None = None,
    bins: int = 10,
) -> Calibration:
    """Return, for bins of the predicted probability of a class, the share that is of it, with its error.

    >>> source = mq.tally(mq.data.students())
    >>> model = mq.learn.naive_bayes(source, "sleep", ["pills"])
    >>> print(mq.evaluate.calibration(model, source, positive="bad", bins=2).summary())
    Calibration of P(bad)
     predicted  observed  stderr  records
        0.2500    0.2489  0.0199 474.0000
        0.7500    0.6667  0.0420 126.0000
    """
    code = _positive_code(model, positive)
    scored = _scored(model, code, probability=True)
    cut = partial(_cut_evenly, bins=bins)
    found = _outcomes(model, source, target, lambda rows: cut(scored(rows)), bins)
    records = found.counts.sum(axis=1)
    kept = np.flatnonzero(records > 0)
    share = found.counts[kept, code] / records[kept]
    errors = []
    for place, value in zip(kept, share, strict=True):
        slopes = np.zeros_like(found.counts)
        slopes[place] = -value / records[place]
        slopes[place, code] += 1 / records[place]
        errors.append(found.error(slopes))
    label = model.target.categories[code]
    return Calibration(label, (kept + 0.5) / bins, share, np.array(errors), records[kept])


@dataclass(frozen=True, slots=True, eq=False)
class _Outcomes:
    """How many records there are of every group of predictions (rows) and true class (columns)."""

    counts: Floats
    error: Callable[[Floats], float]
    n: int

    @property
    def total(self) -> float:
        return float(self.counts.sum())


def _outcomes(
    model: Classifier,
    source: Tally,
    target: str | None,
    grouped: Callable[[Codes], NDArray[np.intp]],
    groups: int,
) -> _Outcomes:
    """Return the counts of groups by classes: from the rows themselves where features are not disguised.

    Else from the table over features and target, if it has at most 65,536 cells; or from the few truths that
    every report may stand for, as in groups that are reported as they are or reversed.
    """
    source = source.source if isinstance(source, Selected) else source
    over = checked_names(model, source.schema, target)
    if isinstance(source, Records) and _reads_clear(source.policy, over):
        rows = {name: np.asarray(source.codes[name], dtype=np.intp) for name in over[:-1]}
        own = source.policy.group(over[-1])
        known = {"groups of predictions": range(groups), over[-1]: source.schema[over[-1]].categories}
        policy = Policy.build(known, {over[-1]: own.channel})
        kind = np.min_scalar_type(groups)
        codes = {"groups of predictions": grouped(rows).astype(kind), over[-1]: source.codes[over[-1]]}
        reports = Records(codes, policy, source.weights, missing=source.missing)
        (table,) = reports.answer([Query(by=tuple(known))])
        return _Outcomes(table.values, lambda slopes: _error(table, slopes), table.n)
    shape = source.schema.shape(over)
    if isinstance(source, Records) and (prod(shape) > MOST_TRUTHS or _in_large_groups(source.policy, over)):
        told = source.told(over, grouped, (groups, shape[-1]))
        if told is not None:
            return _Outcomes(*told, source.n)
    if prod(shape) > MOST_TRUTHS:
        raise InputError(
            f"The table over {', '.join(over)} has {prod(shape):,} cells (at most {MOST_TRUTHS:,}): test a "
            "model that reads fewer disguised variables."
        )
    (table,) = source.answer([Query(by=over)])
    if not table.total > 0:
        raise InputError("The mean over no records is not defined.")
    cells = np.indices(shape[:-1]).reshape(len(shape) - 1, -1)
    place = grouped({name: cells[i] for i, name in enumerate(over[:-1])})
    counts = np.zeros((groups, shape[-1]))
    np.add.at(counts, place, table.values.reshape(-1, shape[-1]))
    return _Outcomes(counts, lambda slopes: _error(table, slopes[place].reshape(shape)), table.n)


def _in_large_groups(policy: Policy, over: Sequence[str]) -> bool:
    """Tell whether the channel of some variables that are disguised together is large as a matrix."""
    return any(prod(group.sizes) > LARGE_GROUP for group in policy.groups if {*group.names} & {*over})


def _error(table: CountTable, slopes: Floats) -> float:
    return float(np.sqrt(max(table.covariance.quadratic(slopes), 0.0)))


def _reads_clear(policy: Policy, over: Sequence[str]) -> bool:
    alone = len(policy.group(over[-1]).names) == 1 and policy.stratum_variable is None
    return alone and not any(name in policy.disguised for name in over[:-1])


def _balanced(found: _Outcomes) -> Measure:
    counts = found.counts
    classes = counts.shape[1]
    totals = counts.sum(axis=0)
    if not np.all(totals > 0):
        raise InputError("The balanced accuracy needs records of every class.")
    recall = np.diagonal(counts) / totals
    slopes = np.tile(-recall / totals / classes, (classes, 1))
    slopes[np.arange(classes), np.arange(classes)] += 1 / totals / classes
    return Measure("balanced accuracy", float(recall.mean()), found.error(slopes), found.n)


def _positive_code(model: Classifier, positive: Category | None) -> int:
    if positive is not None:
        return model.target.code(positive)
    if len(model.target) != 2:
        raise InputError(f"{model.target.name!r} has {len(model.target)} classes: say which is 'positive'.")
    return 1


def _scored(model: Any, code: int, *, probability: bool = False) -> Callable[[Codes], Floats]:
    """Return what gives every row the probability of a class, or a discriminant that orders rows alike."""

    def scores(rows: Codes) -> Floats:
        labels = {feature.name: labels_of(feature, rows[feature.name]) for feature in model.features}
        if hasattr(model, "predict_proba") and (probability or getattr(model, "loss", "") != "pocket"):
            return np.asarray(model.predict_proba(labels))[:, code]
        found = np.asarray(model.decision_function(labels))
        return (found if code else -found) if found.ndim == 1 else found[:, code]

    return scores


def _levels(
    model: Classifier, source: Tally, target: str | None, scored: Callable[[Codes], Floats]
) -> tuple[Callable[[Floats], NDArray[np.intp]], int]:
    """Return what puts scores in order into at most 256 levels, and how many there are."""
    seen: list[Floats] = []

    def noted(rows: Codes) -> NDArray[np.intp]:
        seen.append(np.round(scored(rows), 12))
        return np.zeros(len(seen[-1]), dtype=np.intp)

    _outcomes(model, source, target, noted, 1)
    points = np.unique(np.concatenate(seen))
    if len(points) > MOST_LEVELS:
        points = np.unique(np.quantile(np.concatenate(seen), np.linspace(0, 1, MOST_LEVELS)))
    return lambda scores: np.searchsorted(points[1:], np.round(scores, 12), side="right"), len(points)


def _cut_evenly(scores: Floats, bins: int) -> NDArray[np.intp]:
    return np.clip((scores * bins).astype(np.intp), 0, bins - 1)
