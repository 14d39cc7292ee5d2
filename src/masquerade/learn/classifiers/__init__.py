"""Classifiers: naive Bayes, decision trees and linear classifiers, and measures of their predictions."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
