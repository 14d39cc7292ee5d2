"""Tables and files of callers: read as codes, given back as what came in."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
