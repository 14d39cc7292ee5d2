"""Noise on counts that open only in sum: distributions, integer sampler, accountant of ε and δ."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
