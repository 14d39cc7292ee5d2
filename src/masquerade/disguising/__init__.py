"""Disguise data frames and files, with fresh or memoised draws; `seeded` simulates disguises for studies."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
