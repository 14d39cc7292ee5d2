"""Services: common parts, sessions of organisations, and collections from people's devices."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
