"""Sources whose counts have noise that no party knows: differential privacy of all queried tables."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
