"""scikit-learn scorers that estimate, from disguised test records, the scores on clear records.

They can be used wherever scikit-learn takes ``scoring``: ``cross_val_score(estimator, X, y,
scoring=roc_auc)``. scikit-learn's own ``"roc_auc"`` also runs, with ``predict_on="disguised"``, but measures
how well *reports* are predicted.
"""

from __future__ import annotations

from typing import Any

from masquerade import evaluate

__all__ = ["SCORERS", "accuracy", "balanced_accuracy", "roc_auc"]


def accuracy(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return the share of true records that are predicted correctly."""
    return float(estimator.score(X, y, sample_weight))


def balanced_accuracy(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return the mean, over the true classes, of the share predicted correctly."""
    return evaluate.balanced_accuracy(*estimator.test_records(X, y, sample_weight)).value


def roc_auc(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return the area under the ROC curve of the second of two true classes."""
    model, source = estimator.test_records(X, y, sample_weight)
    return evaluate.roc_auc(model, source, positive=_second(estimator)).value


def _second(estimator: Any) -> Any:
    """Return the model's label of the class that scikit-learn treats as positive."""
    target = estimator._input.target  # noqa: SLF001  (estimators of this package)
    return target.categories[int(estimator._order[-1])]  # noqa: SLF001


SCORERS = {"accuracy": accuracy, "balanced_accuracy": balanced_accuracy, "roc_auc": roc_auc}
