"""Utilities for all packages, from the standard library: files, locks, JSON, plug-ins and text."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
