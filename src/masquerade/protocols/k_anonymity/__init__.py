"""Distributed k-anonymity: threshold reporting (formulation 1) and suppression (formulation 2)."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
