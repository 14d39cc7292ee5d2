"""Columns of the same people at several parties: disguised cells, scalar products, projections."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
