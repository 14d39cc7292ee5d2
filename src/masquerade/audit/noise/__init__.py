"""Black-box audits of the noise added to counts."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
