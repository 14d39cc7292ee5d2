"""Compiled loops over records: drawing, counting, itemsets, shares."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
