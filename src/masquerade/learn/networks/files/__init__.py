"""Bayesian networks in files: BIF, XMLBIF and UAI."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
