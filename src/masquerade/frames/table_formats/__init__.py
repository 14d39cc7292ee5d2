"""Folders that form one table: partitions, Delta tables and Iceberg tables."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
