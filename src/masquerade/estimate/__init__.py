"""Estimation of true counts from reports: inversion, likelihood, models and errors."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
