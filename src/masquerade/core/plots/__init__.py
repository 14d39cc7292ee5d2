"""Shared axes, colours and styles of all plots."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
