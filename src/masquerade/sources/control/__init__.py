"""Query auditing (inference control): refuse counts that would determine protected cells."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
