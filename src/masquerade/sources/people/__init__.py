"""Counting over people who keep their own records: frequency mining, secure aggregation, mixnet."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
