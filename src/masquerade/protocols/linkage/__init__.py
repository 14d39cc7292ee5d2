"""Record linkage: private set intersection (PSI) of record keys, and pseudonyms of people."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
