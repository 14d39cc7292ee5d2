"""Data frames and files: read as category codes; frames are returned in the type that the caller passed."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
