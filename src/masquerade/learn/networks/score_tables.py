"""Scores as tables of integers by count, for MPC parties that look up scores of secret counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from math import lgamma, log

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.learn.networks.scores import Dirichlet, Score, score_called

UNITS = 2**20  # per nat: rounding changes a score by at most half a unit per cell
Table = NDArray[np.int64]


@dataclass(frozen=True)
class ScoreTables:
    """A score of families over `n` records, in units of 2⁻²⁰ nats: see `scores.family_score`.

    >>> tables = ScoreTables.of("k2", 100)
    >>> tables.cells(2, 2)[:4] / UNITS  # ln 0!, ln 1!, ln 2!, ln 3!
    array([0.        , 0.        , 0.69314671, 1.79175949])
    """

    score: Score
    n: int

    @classmethod
    def of(cls, score: Score | str, n: int) -> ScoreTables:
        """Return the tables of a score by its name."""
        if n < 1:
            raise InputError("A score needs records.")
        return cls(score_called(score), n)

    def cells(self, configurations: int, categories: int) -> Table:
        """Return the score of a cell with 0 … n records."""
        if isinstance(self.score, Dirichlet):
            return _ln_gamma(self.n, self.score.prior(configurations * categories))
        return _x_ln_x(self.n)

    def margins(self, configurations: int, categories: int) -> Table:
        """Return the amount subtracted for a configuration of the parents with 0 … n records."""
        if isinstance(self.score, Dirichlet):
            return _ln_gamma(self.n, categories * self.score.prior(configurations * categories))
        return _x_ln_x(self.n)

    def constant(self, configurations: int, categories: int) -> int:
        """Return the part of a family's score that does not depend on its counts."""
        if isinstance(self.score, Dirichlet):
            alpha = self.score.prior(configurations * categories)
            one = lgamma(categories * alpha) - categories * lgamma(alpha)
        else:
            one = -self.score.price(self.n) * (categories - 1)
        return round(UNITS * configurations * one)

    def fingerprint(self, sizes: Iterable[int]) -> str:
        """Return a digest of the tables for variables of these sizes.

        Machines whose logarithms differ in the last digit may round differently, and then have different
        digests.
        """
        found = sha256()
        for categories in sorted(set(sizes)):
            for configurations in (1, *sorted(set(sizes))):
                found.update(self.cells(configurations, categories).tobytes())
                found.update(self.margins(configurations, categories).tobytes())
                found.update(str(self.constant(configurations, categories)).encode())
        return found.hexdigest()


@lru_cache(maxsize=64)
def _ln_gamma(n: int, alpha: float) -> Table:
    return np.rint([UNITS * lgamma(count + alpha) for count in range(n + 1)]).astype(np.int64)


@lru_cache(maxsize=8)
def _x_ln_x(n: int) -> Table:
    return np.rint([UNITS * count * log(max(count, 1)) for count in range(n + 1)]).astype(np.int64)
