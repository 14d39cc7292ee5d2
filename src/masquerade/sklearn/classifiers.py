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
from masquerade.core.answered_tally import ModelMissing
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.evaluate import Accuracy, accuracy, disguised_view
from masquerade.learn.classifiers.bayes import naive_bayes
from masquerade.learn.classifiers.linear import Counts, Loss, Scores, linear_classifier
from masquerade.learn.classifiers.prediction_rows import labels_of, row_codes
from masquerade.learn.classifiers.tree import decision_tree
from masquerade.learn.classifiers.tree_model import Criterion
from masquerade.sklearn._input import (
    AnyPolicy,
    ClearInput,
    DisguisedInput,
    NumberColumn,
    Rows,
    check_origins,
    clear_input,
)
from masquerade.sources.records import Records

PredictOn = Literal["clear", "disguised"]


@dataclass(eq=False, repr=False)
class DisguisedClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base of the scikit-learn classifiers, whose learners use counts only.

    With a policy, X and y are disguised records. Without one they are clear, and categories are learned.
    Every label is a category. If a column of numbers has at most `bins` distinct values, every value is a
    category; otherwise the numbers are cut into bins with equal numbers of records. In prediction, a new
    number falls into the nearest category, and a new label raises an error. To set the categories of clear
    data, give a policy without channels. A frame whose metadata contradict `policy` raises an error.

    Parameters
    ----------
    policy : Policy, mapping, str or Path, optional
        The policy, its plain values or its file. X is then a frame with the policy's names or an array in the
        order of its variables, and y contains the reports of `target`.
    target : str, optional
        Variable of y. Without it, the last variable of the policy.
    features : sequence of str, optional
        Columns to learn from (x0, x1, … in arrays without a policy). Without it, all.
    bins : int, optional
        Maximum number of categories of a column of numbers, at least 2; for clear data only.
    accept_incomplete : bool, default False
        Accept frames whose metadata state that rows are missing not at random.

    Attributes
    ----------
    model_ : object
        The model of `masquerade.learn`.
    classes_ : ndarray
        The classes.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of str
        Names of the columns, if X has names.
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

        Parameters
        ----------
        X : array_like or DataFrame
            Features.
        y : array_like
            Classes, or their reports.
        survey_weight : array_like, optional
            Survey weight of each record. A weight does not repeat a record: standard errors and tests account
            for it.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        InputError
            If the data do not fit the policy, or an option is not valid.
        """
        weights = None if survey_weight is None else np.asarray(survey_weight, dtype=np.float64)
        if self.policy is None:
            missing = check_origins(X, y, None, accepted=self.accept_incomplete)
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
        self.model_ = self._learner(
            source, self._input.target.name, self.features, missing=self._missing(), **self._options()
        )
        labels = self._labels()
        same_type = len({type(label) for label in labels.tolist()}) == 1
        self._order = np.argsort(labels) if same_type else np.arange(len(labels))
        self.classes_ = labels[self._order]
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class of every row."""
        rows = self._rows(X)
        target = self.model_.target
        labels = {target.name: self._predictor().predict(rows)}
        codes = row_codes(labels, Schema([target]), [target.name])[target.name]
        return np.asarray(self._labels()[codes])

    def _labels(self) -> NDArray[Any]:
        """Return the classes in the order of the model's target, which has no missing category."""
        if isinstance(self._input, ClearInput):
            return self._input.labels
        return labels_of(self.model_.target, np.arange(len(self.model_.target)))

    def _missing(self) -> ModelMissing:
        """Return the treatment of missing answers."""
        return "answered"

    def predict_proba(self, X: Any) -> Floats:
        """Return P(class | row), in the order of `classes_`."""
        rows = self._rows(X)
        found: Floats = self._predictor().predict_proba(rows)[:, self._order]
        return found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on clear rows, or the corrected accuracy on disguised records.

        Parameters
        ----------
        X : array_like or DataFrame
            Features.
        y : array_like
            Classes, or their reports.
        sample_weight : array_like, optional
            Weight of each record.

        Returns
        -------
        float
            The accuracy; see `accuracy`.
        """
        check_is_fitted(self)
        if isinstance(self._input, ClearInput):
            return float(super().score(X, y, sample_weight))
        return self.accuracy(X, y, sample_weight).value

    def accuracy(self, X: Any, y: Any, sample_weight: Any = None) -> Accuracy:
        """Estimate the share of true records that are predicted correctly, with its standard error.

        Parameters
        ----------
        X : array_like or DataFrame
            Features.
        y : array_like
            Classes, or their reports.
        sample_weight : array_like, optional
            Weight of each disguised record.

        Returns
        -------
        Accuracy
            Unbiased estimate by `masquerade.evaluate.accuracy`, which may be outside [0, 1].

        Raises
        ------
        InputError
            If y has an unknown class, or weights are given for clear rows.
        """
        check_is_fitted(self)
        given = self._input
        if isinstance(given, ClearInput):
            if sample_weight is not None:
                raise InputError("accuracy() takes no weights for clear rows: use score().")
            missing = check_origins(X, y, None, accepted=self.accept_incomplete)
            X, y = validate_data(self, X, y, dtype=None, reset=False)
            if not np.all(np.isin(y, given.labels)):
                raise InputError("y has a class that the estimator was not fitted with.")
            return accuracy(self._predictor(), given.records(X, y, None, missing))
        validate_data(self, X, skip_check_array=True, reset=False)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return accuracy(self._predictor(), self._test_source(self._records(X, y, weights)))

    def test_records(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[Any, Records]:
        """Return the predictor, and the test records in the form that it uses, for `mq.evaluate`.

        Parameters
        ----------
        X : array_like or DataFrame
            Features.
        y : array_like
            Classes, or their reports.
        sample_weight : array_like, optional
            Weight of each record.

        Returns
        -------
        tuple of (model, Records)
            The predictor and the test records.
        """
        check_is_fitted(self)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        given = self._input
        if isinstance(given, ClearInput):
            missing = check_origins(X, y, None, accepted=self.accept_incomplete)
            X, y = validate_data(self, X, y, dtype=None, reset=False)
            return self._predictor(), given.records(X, y, weights, missing)
        validate_data(self, X, skip_check_array=True, reset=False)
        return self._predictor(), self._test_source(self._records(X, y, weights))

    def _records(self, X: Any, y: Any, weights: Floats | None) -> Records:
        assert isinstance(self._input, DisguisedInput)  # noqa: S101  (called with a policy only)
        if y is None:
            raise InputError("The estimator requires y to be passed, but the target y is None.")
        missing = check_origins(X, y, self._input.policy, accepted=self.accept_incomplete)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        return self._input.records(X, labels, weights, missing, self.features)

    def _rows(self, X: Any) -> Rows:
        check_is_fitted(self)
        if isinstance(self._input, ClearInput):
            check_origins(X, None, None, accepted=True)
            return self._input.rows(validate_data(self, X, dtype=None, reset=False))
        validate_data(self, X, skip_check_array=True, reset=False)
        return self._read_rows(self._input, X)

    def _read_rows(self, given: DisguisedInput, X: Any) -> Rows:
        return given.rows(X, [feature.name for feature in self.model_.features], disguised=False)

    def _predictor(self) -> Any:
        return self.model_

    def _test_source(self, records: Records) -> Records:
        return records

    def _options(self) -> dict[str, Any]:
        """Return the options of the learner: the parameters that only this estimator has."""
        shared = {field.name for field in fields(DisguisedClassifier)}
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in shared}


class _ReportClassifier(DisguisedClassifier):
    """An estimator that can predict disguised rows."""

    predict_on: PredictOn

    def _predicts_reports(self) -> bool:
        if self.predict_on not in ("clear", "disguised"):
            raise InputError(f"'predict_on' must be 'clear' or 'disguised'. Got {self.predict_on!r} instead.")
        if self.predict_on == "disguised" and self.policy is None:
            raise InputError("predict_on='disguised' needs the policy that the rows were disguised by.")
        return self.predict_on == "disguised"

    def _missing(self) -> ModelMissing:
        # a disguised row does not show whether its answer is missing
        return "category" if self._predicts_reports() else "answered"

    def _predictor(self) -> Any:
        if self._predicts_reports() and isinstance(self._input, DisguisedInput):
            return disguised_view(self.model_, self._input.policy)
        return self.model_

    def _read_rows(self, given: DisguisedInput, X: Any) -> Rows:
        names = [feature.name for feature in self.model_.features]
        if self._predicts_reports() and given.policy.stratum_variable is not None:
            names.append(given.policy.stratum_variable)
        return given.rows(X, names, disguised=self._predicts_reports())

    def _test_source(self, records: Records) -> Records:
        """Return the records as the predictor sees them.

        Predictions depend on the reports of the features, which are known; only the true class is unknown. So
        features are treated as undisguised, which requires that the class is disguised separately.
        """
        if not self._predicts_reports():
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
class DisguisedNaiveBayes(_ReportClassifier):
    """Naive Bayes for scikit-learn: `masquerade.learn.naive_bayes`. On clear labels it equals CategoricalNB.

    See `DisguisedClassifier` for the other parameters and for the attributes, including `feature_names_in_`.

    Parameters
    ----------
    alpha : float, default 1.0
        Pseudo-count added to every cell of a class.
    predict_on : {"clear", "disguised"}
        Type of the rows given to `predict` and `predict_proba`. With "disguised", which needs a policy, the
        most likely *true* class is predicted from the reports. With a policy, `score` always takes disguised
        records, and returns the accuracy of those predictions.

    Examples
    --------
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
        self._predicts_reports()
        return {"alpha": self.alpha}


@dataclass(eq=False, repr=False, kw_only=True)
class DisguisedTree(_ReportClassifier):
    """Decision tree for scikit-learn: `masquerade.learn.decision_tree`.

    See `DisguisedClassifier` for `policy`, `target`, `features`, `bins`, and for the attributes, including
    `feature_names_in_`.

    Parameters
    ----------
    criterion, max_depth, min_records, significance, prune
        As in `masquerade.learn.decision_tree`.
    predict_on : {"clear", "disguised"}
        Type of the rows to predict, as in `DisguisedNaiveBayes`.

    Examples
    --------
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
        self._predicts_reports()
        own = super()._options()
        own.pop("predict_on")
        return own


@dataclass(eq=False, repr=False, kw_only=True)
class DisguisedLinear(_ReportClassifier):
    """Linear classifier for scikit-learn: `masquerade.learn.linear_classifier`.

    The learner needs a table over all features. Without a policy and `bins`, numbers are cut into at most 16
    bins, or fewer (but at least 2) if the table would exceed 262,144 cells. Each bin is represented by its
    mean.
    `predict_proba` needs the logistic loss. See `DisguisedClassifier` for `policy`, `target`, `features`,
    `bins`, and for the attributes, including `feature_names_in_`.

    Parameters
    ----------
    loss : {"logistic", "squares", "pocket"}
        Loss to minimise.
    scores, counts, steps, seed
        As in `masquerade.learn.linear_classifier`.
    ridge : float, default 1.0
        Penalty, as in LogisticRegression; ignored for "pocket".
    predict_on : {"clear", "disguised"}
        Type of the rows to predict, as in `DisguisedNaiveBayes`.

    Examples
    --------
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
        """Return the discriminant of the second class if there are two classes, else one per class."""
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
        self._predicts_reports()
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
