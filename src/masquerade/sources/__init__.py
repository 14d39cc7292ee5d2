"""Everything that answers counting questions about records, wherever they lie."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
