"""Protocols between people and parties: roles as small state machines, bytes in and bytes out."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
