"""The page on which people answer: one file with the exact sampler, its letter and sheets."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
