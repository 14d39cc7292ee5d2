"""Sources whose counts carry noise that nobody knows: differential privacy of tables over all questions."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
