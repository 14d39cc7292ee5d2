"""Naive Bayes, decision tree and linear classifier as scikit-learn estimators."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from masquerade.channels.policy import Policy, policy_of
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.evaluate import Accuracy, accuracy, disguised_view
from masquerade.learn.classifiers.bayes import naive_bayes
from masquerade.learn.classifiers.linear import Counts, Loss, Scores, linear_classifier
from masquerade.learn.classifiers.prediction_rows import row_codes
from masquerade.learn.classifiers.tree import decision_tree
from masquerade.learn.classifiers.tree_model import Criterion
from masquerade.sklearn._input import (
    AnyPolicy,
    ClearInput,
    DisguisedInput,
    NumberColumn,
    Rows,
    clear_input,
    said_of_rows,
)
from masquerade.sources.records import Records

PredictOn = Literal["clear", "disguised"]


@dataclass(eq=False, repr=False)
class DisguisedClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A classifier for scikit-learn over a learner that sees counts alone.

    `policy` is a `Policy`, its path or its plain values: X and y are then disguised records, X a frame with
    the policy's names or an array in the order of its variables, y the reports of `target` (the last
    variable unless named). Without a policy X and y are clear, and categories are learnt: labels are
    themselves; numbers are too up to `bins` distinct ones, beyond they are cut into equally full bins; a
    number never seen falls to the nearest category, a label never seen is refused. To give categories for
    clear data, give a policy without channels. `features` names the columns to learn from (x0, x1, … in
    arrays without a policy). Frames that say that rows are missing, not at random, are refused unless
    `accept_incomplete`; those that say that they were disguised otherwise are refused.

    Attributes: `model_` is the frozen model of `masquerade.learn`; `classes_`, `n_features_in_` and
    `feature_names_in_` (where X has names) are as in scikit-learn.
    """

    policy: AnyPolicy | None = None
    _: KW_ONLY
    target: str | None = None
    features: Sequence[str] | None = None
    bins: int | None = None
    accept_incomplete: bool = False
    _learner: ClassVar[Callable[..., Any]]
    _needs_table: ClassVar = False

    def fit(self, X: Any, y: Any, survey_weight: Any = None) -> Self:
        """Learn from clear or disguised records.

        Each may count for its survey weight, which is no repetition of records: standard errors and tests
        account for it.
        """
        weights = None if survey_weight is None else np.asarray(survey_weight, dtype=np.float64)
        if self.policy is None:
            missing = said_of_rows(X, y, None, accepted=self.accept_incomplete)
            X, y = validate_data(self, X, y, dtype=None)
            check_classification_targets(y)
            names = [
                str(name) for name in getattr(self, "feature_names_in_", [f"x{i}" for i in range(X.shape[1])])
            ]
            used = names if self.features is None else self.features
            self._input: ClearInput | DisguisedInput = clear_input(
                dict(zip(names, X.T, strict=True)),
                y,
                bins=self.bins,
                target=self.target,
                small=used if self._needs_table else (),
            )
            source = self._input.records(X, y, weights, missing)
        else:
            policy = policy_of(self.policy)
            target = policy.schema.names[-1] if self.target is None else self.target
            self._input = DisguisedInput(policy, policy.schema[target])
            validate_data(self, X, skip_check_array=True)
            source = self._records(X, y, weights)
        self.model_ = self._learner(source, self._input.target.name, self.features, **self._options())
        labels = self._input.labels
        alike = len({type(label) for label in labels.tolist()}) == 1
        self._order = np.argsort(labels) if alike else np.arange(len(labels))
        self.classes_ = labels[self._order]
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class of every row."""
        rows = self._rows(X)
        target = self._input.target
        labels = {target.name: self._predictor().predict(rows)}
        codes = row_codes(labels, Schema([target]), [target.name])[target.name]
        return np.asarray(self._input.labels[codes])

    def predict_proba(self, X: Any) -> Floats:
        """Return P(class | row), in the order of `classes_`."""
        rows = self._rows(X)
        found: Floats = self._predictor().predict_proba(rows)[:, self._order]
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on clear rows, or the corrected one on disguised records: see `accuracy`."""
        check_is_fitted(self)
        if isinstance(self._input, ClearInput):
            return float(super().score(X, y, sample_weight))
        return self.accuracy(X, y, sample_weight).value

    def accuracy(self, X: Any, y: Any, sample_weight: Any = None) -> Accuracy:
        """Return the share of the true records behind X and y that are predicted right, with its error.

        An unbiased estimate by `masquerade.evaluate.accuracy`: it may lie outside [0, 1].
        """
        check_is_fitted(self)
        given = self._input
        if isinstance(given, ClearInput):
            if sample_weight is not None:
                raise InputError("The accuracy on clear rows takes no weights: use score().")
            missing = said_of_rows(X, y, None, accepted=self.accept_incomplete)
            X, y = validate_data(self, X, y, dtype=None, reset=False)
            if not np.all(np.isin(y, given.labels)):
                raise InputError("y has a class that the estimator was not fitted with.")
            return accuracy(self._predictor(), given.records(X, y, None, missing))
        validate_data(self, X, skip_check_array=True, reset=False)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return accuracy(self._predictor(), self._tested(self._records(X, y, weights)))

    def tested_on(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Any, Records]:
        """Return the predictor and the test records as it sees them, for the measures of `mq.evaluate`."""
        check_is_fitted(self)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        given = self._input
        if isinstance(given, ClearInput):
            missing = said_of_rows(X, y, None, accepted=self.accept_incomplete)
            X, y = validate_data(self, X, y, dtype=None, reset=False)
            return self._predictor(), given.records(X, y, weights, missing)
        validate_data(self, X, skip_check_array=True, reset=False)
        return self._predictor(), self._tested(self._records(X, y, weights))

    def _records(self, X: Any, y: Any, weights: Floats | None) -> Records:
        assert isinstance(self._input, DisguisedInput)  # noqa: S101  (called with a policy only)
        if y is None:
            raise InputError("The estimator requires y to be passed, but the target y is None.")
        missing = said_of_rows(X, y, self._input.policy, accepted=self.accept_incomplete)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        return self._input.records(X, labels, weights, missing, self.features)

    def _rows(self, X: Any) -> Rows:
        check_is_fitted(self)
        if isinstance(self._input, ClearInput):
            said_of_rows(X, None, None, accepted=True)
            return self._input.rows(validate_data(self, X, dtype=None, reset=False))
        validate_data(self, X, skip_check_array=True, reset=False)
        return self._read_rows(self._input, X)

    def _read_rows(self, given: DisguisedInput, X: Any) -> Rows:
        return given.rows(X, [feature.name for feature in self.model_.features], disguised=False)

    def _predictor(self) -> Any:
        return self.model_

    def _tested(self, records: Records) -> Records:
        return records

    def _options(self) -> dict[str, Any]:
        """Return the learner's own options: the parameters that not every estimator has."""
        shared = {field.name for field in fields(DisguisedClassifier)}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in shared}


class _OnReports(DisguisedClassifier):
    """An estimator that can be told that the rows it predicts are disguised."""

    predict_on: PredictOn

    def _on_reports(self) -> bool:
        if self.predict_on not in ("clear", "disguised"):
            raise InputError(f"'predict_on' must be 'clear' or 'disguised'. Got {self.predict_on!r} instead.")
        if self.predict_on == "disguised" and self.policy is None:
            raise InputError("predict_on='disguised' needs the policy that the rows were disguised by.")
        return self.predict_on == "disguised"

    def _predictor(self) -> Any:
        if self._on_reports() and isinstance(self._input, DisguisedInput):
            return disguised_view(self.model_, self._input.policy)
        return self.model_

    def _read_rows(self, given: DisguisedInput, X: Any) -> Rows:
        names = [feature.name for feature in self.model_.features]
        if self._on_reports() and given.policy.stratum_variable is not None:
            names.append(given.policy.stratum_variable)
        return given.rows(X, names, disguised=self._on_reports())

    def _tested(self, records: Records) -> Records:
        """Return the records as the predictor sees them.

        What is predicted from reports is a function of the reports: they are known, and only the class is
        not. So features count as undisguised, which needs a class that is disguised on its own.
        """
        if not self._on_reports():
            return records
        policy, target = records.policy, self._input.target
        group = policy.group(target.name)
        if len(group.names) > 1 or policy.stratum_variable is not None:
            raise InputError(
                "The accuracy of predictions from disguised rows needs a target that is disguised alone and "
                "a policy without strata: use predict_on='clear'."
            )
        seen = [target if v.name == target.name else v for v in policy.observed.variables]
        policy = Policy.build(Schema(seen), {target.name: group.channel})
        return Records(records.codes, policy, records.weights, missing=records.missing)


@dataclass(eq=False, repr=False, kw_only=True)
class DisguisedNaiveBayes(_OnReports):
    """Naive Bayes for scikit-learn: `masquerade.learn.naive_bayes`; on clear labels it is CategoricalNB.

    With a policy, `predict_on` says what the rows given to `predict` and `predict_proba` are: "clear", or
    "disguised" by that policy, when the most likely *true* class is predicted from the reports. `score`
    always takes disguised records, and gives the accuracy that those predictions have.
    See `DisguisedClassifier` for the other parameters and for the attributes, `feature_names_in_` among them.

    >>> from masquerade.sklearn import DisguisedNaiveBayes
    >>> policy = mq.data.students_policy()
    >>> features, reports = ["exams", "year", "pills"], mq.disguise(mq.data.students(), policy)
    >>> model = DisguisedNaiveBayes(policy).fit(reports[features], reports["sleep"])
    >>> model.predict_proba(mq.data.students()[features]).shape
    (600, 2)
    """

    _learner: ClassVar = staticmethod(naive_bayes)
    alpha: float = 1.0
    predict_on: PredictOn = "clear"

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithms of `predict_proba`."""
        rows = self._rows(X)
        found: Floats = self._predictor().predict_log_proba(rows)[:, self._order]
        return found

    def _options(self) -> dict[str, Any]:
        self._on_reports()
        return {"alpha": self.alpha}


@dataclass(eq=False, repr=False, kw_only=True)
class DisguisedTree(_OnReports):
    """Decision tree for scikit-learn: `masquerade.learn.decision_tree`, whose parameters it takes.

    With a policy, `predict_on` says whether the rows it predicts are "clear" or "disguised", as for
    `DisguisedNaiveBayes`. See `DisguisedClassifier` for `policy`, `target`, `features`, `bins`, and for
    the attributes, `feature_names_in_` among them.

    >>> from masquerade.sklearn import DisguisedTree
    >>> students = mq.data.students()
    >>> model = DisguisedTree(max_depth=1).fit(students[["exams", "pills"]], students["sleep"])
    >>> model.predict(students[["exams", "pills"]][:2]).tolist()
    ['bad', 'bad']
    """

    _learner: ClassVar = staticmethod(decision_tree)
    criterion: Criterion = "gain"
    max_depth: int | None = None
    min_records: float = 1.0
    significance: float | None = 0.05
    prune: float | None = None
    predict_on: PredictOn = "clear"

    def _options(self) -> dict[str, Any]:
        self._on_reports()
        own = super()._options()
        own.pop("predict_on")
        return own


@dataclass(eq=False, repr=False, kw_only=True)
class DisguisedLinear(_OnReports):
    """Linear classifier for scikit-learn: `masquerade.learn.linear_classifier`, whose parameters it takes.

    Logistic with `ridge` 1 unless told, as LogisticRegression is; "pocket" takes no ridge. With a policy,
    `predict_on` says whether the rows it predicts are "clear" or "disguised", as for `DisguisedNaiveBayes`;
    `predict_proba` is for logistic loss. The learner needs a table over all features: without
    a policy and `bins`, numbers are cut into as many bins (2 to 16) as keep it to 262,144 cells, and a
    bin counts as its mean. See `DisguisedClassifier` for `policy`, `target`, `features`, `bins`, and for
    the attributes, `feature_names_in_` among them.

    >>> from masquerade.sklearn import DisguisedLinear
    >>> students = mq.data.students()
    >>> model = DisguisedLinear().fit(students[["exams", "pills"]], students["sleep"])
    >>> model.predict(students[["exams", "pills"]][:2]).tolist()
    ['bad', 'bad']
    """

    _learner: ClassVar = staticmethod(linear_classifier)
    _needs_table: ClassVar = True
    loss: Loss = "logistic"
    scores: Scores | None = None
    ridge: float = 1.0
    counts: Counts = "auto"
    steps: int = 20_000
    seed: int = 0
    predict_on: PredictOn = "clear"

    def decision_function(self, X: Any) -> Floats:
        """Return the discriminants: of the second of two classes, else one for each of `classes_`."""
        rows = self._rows(X)
        found: Floats = self._predictor().decision_function(rows)
        if found.ndim == 1:
            return found if self._order[0] == 0 else -found
        return found[:, self._order]

    @available_if(lambda self: self.loss == "logistic")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return P(class | row), in the order of `classes_`."""
        return super().predict_proba(X)

    def _options(self) -> dict[str, Any]:
        self._on_reports()
        options = super()._options() | ({"ridge": 0.0} if self.loss == "pocket" else {})
        options.pop("predict_on")
        if not isinstance(self._input, ClearInput):
            return options
        learnt = {
            column.variable.name: column.means.tolist()
            for column in self._input.columns
            if isinstance(column, NumberColumn)
            and (self.features is None or column.variable.name in self.features)
        }
        return options | {"scores": learnt | dict(self.scores or {})}
