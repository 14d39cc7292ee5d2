"""Classifiers: naive Bayes, decision trees, linear classifiers, and how well they predict."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
