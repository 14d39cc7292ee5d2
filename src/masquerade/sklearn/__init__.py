"""scikit-learn estimators for disguised records, for use in pipelines, grid search and cross-validation.

They pass scikit-learn's `check_estimator` and inherit only `BaseEstimator` and mixins. With `policy=` records
are disguised, and `score` is the corrected accuracy. Without it records are clear, and categories are learned
from the data, as scikit-learn's estimators do.
"""

try:
    import sklearn  # noqa: F401  (scikit-learn itself, because imports are absolute)
except ImportError as error:
    raise ImportError("masquerade.sklearn needs scikit-learn: pip install 'masquerade[sklearn]'.") from error

from masquerade.sklearn.classifiers import DisguisedLinear, DisguisedNaiveBayes, DisguisedTree
from masquerade.sklearn.discretizer import MGASDiscretizer
from masquerade.sklearn.scorers import SCORERS

__all__ = ["SCORERS", "DisguisedLinear", "DisguisedNaiveBayes", "DisguisedTree", "MGASDiscretizer"]
