"""Estimators for scikit-learn over the learners: pipelines, grids and folds of disguised records.

They pass scikit-learn's own `check_estimator` and inherit nothing of it but `BaseEstimator` and mixins. With
`policy=` records are disguised and `score` is the corrected accuracy. Without one they are clear, and
categories are learnt from the data: here alone, since scikit-learn's estimators take what they are given.
"""

try:
    import sklearn  # noqa: F401  (the real one: imports are absolute)
except ImportError as error:
    raise ImportError("masquerade.sklearn needs scikit-learn: pip install 'masquerade[sklearn]'.") from error

from masquerade.sklearn.classifiers import DisguisedLinear, DisguisedNaiveBayes, DisguisedTree
from masquerade.sklearn.discretizer import MGASDiscretizer
from masquerade.sklearn.scorers import SCORERS

__all__ = ["SCORERS", "DisguisedLinear", "DisguisedNaiveBayes", "DisguisedTree", "MGASDiscretizer"]
