"""Distributed noise on counts of which only the sum is opened: distributions, sampler, accountant of ε, δ."""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
