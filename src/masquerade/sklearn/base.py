"""What the classifiers share: reading X and y, classes, prediction, the corrected score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.core.tally import Tally
from masquerade.evaluate import Accuracy, accuracy
from masquerade.learn.prediction_rows import row_codes
from masquerade.sklearn.reading import AnyPolicy, Clear, Disguised, Rows, clear_reading, disguised_reading
from masquerade.sources.records import Records


class DisguisedClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A classifier for scikit-learn over a learner that sees counts alone.

    `policy` is a `Policy`, its path or its plain values: X and y are then disguised records, X a frame with
    the policy's names or an array in the order of its variables, y the reports of `target` (the last
    variable unless named). Without a policy X and y are clear, and categories are learnt: labels are
    themselves; numbers are too up to `bins` distinct ones, beyond they are cut into equally full bins; a
    number never seen falls to the nearest category, a label never seen is refused. To give categories for
    clear data, give a policy without channels. `features` names the columns to learn from (x0, x1, … in
    arrays without a policy).

    Attributes: `model_` is the frozen model of `masquerade.learn`; `classes_`, `n_features_in_` and
    `feature_names_in_` (where X has names) are as in scikit-learn.
    """

    policy: AnyPolicy | None
    target: str | None
    features: Sequence[str] | None
    bins: int | None
    _needs_table = False

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from clear or disguised records."""
        if self.policy is None:
            X, y = validate_data(self, X, y, dtype=None)
            check_classification_targets(y)
            names = [str(name) for name in getattr(self, "feature_names_in_", column_names(X.shape[1]))]
            used = names if self.features is None else self.features
            self._reading: Clear | Disguised = clear_reading(
                dict(zip(names, X.T, strict=True)),
                y,
                bins=self.bins,
                target=self.target,
                small=used if self._needs_table else (),
            )
            source = self._reading.records(X, y)
        else:
            self._reading = disguised_reading(self.policy, self.target)
            validate_data(self, X, skip_check_array=True)
            source = self._records(X, y, None)
        self.model_ = self._learn(source, self._reading.target.name)
        labels = self._reading.labels
        alike = len({type(label) for label in labels.tolist()}) == 1
        self._order = np.argsort(labels) if alike else np.arange(len(labels))
        self.classes_ = labels[self._order]
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class of every row."""
        rows = self._rows(X)
        target = self._reading.target
        labels = {target.name: self._predictor().predict(rows)}
        codes = row_codes(labels, Schema([target]), [target.name])[target.name]
        return np.asarray(self._reading.labels[codes])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on clear rows, or the corrected one on disguised records: see `accuracy`."""
        check_is_fitted(self)
        if isinstance(self._reading, Clear):
            return float(super().score(X, y, sample_weight))
        return self.accuracy(X, y, sample_weight).value

    def accuracy(self, X: Any, y: Any, sample_weight: Any = None) -> Accuracy:
        """Return the share of the true records behind X and y that are predicted right, with its error.

        An unbiased estimate by `masquerade.evaluate.accuracy`: it may lie outside [0, 1].
        """
        check_is_fitted(self)
        reading = self._reading
        if isinstance(reading, Clear):
            if sample_weight is not None:
                raise InputError("The accuracy on clear rows takes no weights: use score().")
            X, y = validate_data(self, X, y, dtype=None, reset=False)
            if not np.all(np.isin(y, reading.labels)):
                raise InputError("y has a class that the estimator was not fitted with.")
            return accuracy(self._predictor(), reading.records(X, y))
        validate_data(self, X, skip_check_array=True, reset=False)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return accuracy(self._predictor(), self._tested(self._records(X, y, weights)))

    def _records(self, X: Any, y: Any, weights: Floats | None) -> Records:
        assert isinstance(self._reading, Disguised)  # noqa: S101  (called with a policy only)
        if y is None:
            raise InputError("The estimator requires y to be passed, but the target y is None.")
        labels = column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        return self._reading.records(X, labels, weights)

    def _rows(self, X: Any) -> Rows:
        check_is_fitted(self)
        if isinstance(self._reading, Clear):
            return self._reading.rows(validate_data(self, X, dtype=None, reset=False))
        validate_data(self, X, skip_check_array=True, reset=False)
        return self._read_rows(self._reading, X)

    def _read_rows(self, reading: Disguised, X: Any) -> Rows:
        return reading.rows(X, [feature.name for feature in self.model_.features], disguised=False)

    def _predictor(self) -> Any:
        return self.model_

    def _tested(self, records: Records) -> Records:
        return records

    @abstractmethod
    def _learn(self, source: Tally, target: str) -> Any: ...


def column_names(columns: int) -> list[str]:
    """Return scikit-learn's names for the columns of an array."""
    return [f"x{i}" for i in range(columns)]
