"""Audits of noise on counts, as a black box."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
