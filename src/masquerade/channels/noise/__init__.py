"""Distributed noise on counts of which only the sum is opened.

Distributions of the noise, a sampler, and an accountant of ε and δ.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
