"""Files, locks, JSON, plug-ins and text: what every package needs, from the standard library."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
