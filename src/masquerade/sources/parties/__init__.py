"""Counting over records of several parties: joined columns, pooled rows, scattered cells."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
