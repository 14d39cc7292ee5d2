"""Links between variables: tables of reports fitted with and without the link, and their test."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
