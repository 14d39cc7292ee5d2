"""Disguising records: frames and files, fresh or memoised; and the simulation of it, kept apart."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
