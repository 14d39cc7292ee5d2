"""Parts of structural EM: records drawn from their posterior distribution, and searches over them."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
