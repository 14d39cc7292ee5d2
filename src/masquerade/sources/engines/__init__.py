"""Counting in database engines: DuckDB, PostgreSQL, Spark and others that Ibis supports."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
