"""Services run by organisations: each keeps its records and answers only in sessions it consented to."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
