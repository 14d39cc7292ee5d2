"""Services: what all of them share, organisations in sessions, and collections from people."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
