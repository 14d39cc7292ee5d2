"""Sources that answer counting queries about records, in memory, engines, parties or devices."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
