"""Votes that are redrawn for each table: k-ary responses of which only the sum is opened.

Each person answers a table of K cells truthfully, or with probability f = K·rate by a cell drawn uniformly.
The others' drawn cells hide each answer, so the sum is (ε, δ)-private although each vote is one-hot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from masquerade.channels.noise.accountant import LossAtoms, bounded_losses, compose_losses, gaussian_variance
from masquerade.channels.noise.sampler import Integers, NoiseSampler
from masquerade.channels.noise.terms import NoiseStage, NoiseTerms
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError

BITS: Final = 32  # bits of the random word that redraws a vote
MOST_LIES: Final = 0.98  # largest chance that an answer is redrawn
_TAIL: Final = 1e-16  # bound on the probability of unlisted values of Bin(C, ½), and on rounding errors
_REACH: Final = 9.0  # standard deviations of binomial counts that are listed one by one
_BUCKETS: Final = 8  # steps per standard deviation in which the number of clones is rounded down


def redraw_losses(rate: float, honest: int, cells: int) -> LossAtoms:
    """Return the losses of one table whose answers are redrawn, if one record is substituted.

    Formula: two cells differ. Each of the other `honest` − 1 people is drawn into one of them with
    probability q = 2·rate whatever the truth (a clone), C ~ Bin(honest − 1, q). The substituted answer is in
    one of these two cells with probability 1 − (K − 2)·rate under either truth, then in the true one with
    probability α = γ/(γ+1), γ = 1/rate − K + 1. The pair is (A + Δ, C − A + 1 − Δ), A ~ Bin(C, ½), Δ ~
    Bern(α), against its mirror image, and ln[(αx + β(c+1−x))/(βx + α(c+1−x))] the loss of x of c + 1.
    Reference: Feldman, McMillan & Talwar (2021, 2023).
    Error: C is rounded down, to an eighth of its standard deviation, so that losses are rounded up.

    Parameters
    ----------
    rate : float
        Probability that an answer is redrawn into a given cell.
    honest : int
        Number of people who redraw their answers and reveal nothing else.
    cells : int
        Smallest number of cells of a table. Larger tables lose no more privacy at the same rate.
    """
    gamma = 1 / rate - cells + 1
    alpha = gamma / (gamma + 1)
    inside = 1 - (cells - 2) * rate
    losses, masses = [np.zeros(1)], [np.array([1 - inside])]
    clones, chances, beyond = _clones(honest - 1, 2 * rate)
    for clone, chance in zip(clones.tolist(), chances.tolist(), strict=True):
        total = clone + 1
        width = _REACH * math.sqrt(total) / 2 + 2
        x = np.arange(max(0, math.floor(total / 2 - width)), min(total, math.ceil(total / 2 + width)) + 1)
        upper = alpha * x + (1 - alpha) * (total - x)
        lower = (1 - alpha) * x + alpha * (total - x)
        losses.append(np.log(upper / lower))
        masses.append(inside * chance * _normalize(_log_ratios(x, total, 0.5)) * 2 * upper / total)
    return LossAtoms(np.concatenate(losses), np.concatenate(masses), beyond + _TAIL)


def _clones(people: int, chance: float) -> tuple[Integers, Floats, float]:
    """Return numbers of clones, each rounded down, their probabilities, and a bound on the rest.

    Formula: Bernstein's inequality bounds the tails that are not listed.
    """
    mean, variance = people * chance, people * chance * (1 - chance)
    width = _REACH * math.sqrt(variance) + 20
    low, high = max(0, math.floor(mean - width)), min(people, math.ceil(mean + width))
    counts = np.arange(low, high + 1)
    masses = _normalize(_log_ratios(counts, people, chance))
    is_whole = low == 0 and high == people
    beyond = 0.0 if is_whole else 2 * math.exp(-(width**2) / 2 / (variance + width / 3))
    step = max(1, int(math.sqrt(variance) / _BUCKETS))
    buckets = (counts - low) // step
    floors: Integers = np.asarray(low + step * np.unique(buckets), dtype=np.int64)
    return floors, np.asarray(np.bincount(buckets, weights=masses), dtype=float), beyond


def _log_ratios(counts: Integers, number: int, chance: float) -> Floats:
    """Return the logarithms of consecutive binomial probabilities of counts, up to a constant.

    Recurrences keep their relative error near 1e-13, which factorials would not.
    """
    before = counts[:-1].astype(float)
    steps = np.log((number - before) / (before + 1)) + (math.log(chance) - math.log1p(-chance))
    return np.concatenate([[0.0], np.cumsum(steps)])


def _normalize(logs: Floats) -> Floats:
    masses = np.exp(logs - logs.max())
    return np.asarray(masses / masses.sum())


@lru_cache(maxsize=64)
def redraw_weight(epsilon: float, delta: float, tables: int, honest: int, cells: int) -> int:
    """Return the least number of 32-bit words that redraw an answer into a given cell, for proven privacy.

    Parameters
    ----------
    epsilon, delta : float
        Privacy of all tables together.
    tables : int
        Number of tables.
    honest : int
        Number of people who redraw their answers and reveal nothing else.
    cells : int
        Smallest number of cells of a table.

    Raises
    ------
    InputError
        If more than 98% of the answers would have to be redrawn.
    """

    def is_private(rate: float) -> bool:
        composed = compose_losses([(redraw_losses(rate, honest, cells), tables)])
        return composed.infinite < delta and composed.delta(epsilon) <= delta

    most = MOST_LIES / cells
    high = min(2 * tables * gaussian_variance(epsilon, delta) / honest, most)
    low = 0.0
    while not is_private(high):
        if high == most:
            raise InputError(
                f"{honest:,} honest people are too few for {tables:,} tables at ε = {epsilon:g}: more than "
                f"{MOST_LIES:.0%} of the answers would have to be drawn at random. Ask for fewer tables, or "
                "use secure aggregation, which needs less noise."
            )
        low, high = high, min(high * 1.5, most)
    while low == 0.0:
        lower = high / 1.3
        if is_private(lower):
            high = lower
        else:
            low = lower
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_private(middle) else (middle, high)
    return math.ceil(high * (1 << BITS))


@dataclass(frozen=True)
class RedrawTerms(NoiseTerms):
    """Guarantee to each record, over all tables together, if votes are redrawn for each table.

    Data sets are neighbours if they differ in one record; their size is public. The guarantee holds against
    anyone who sees all sums and knows the votes of up to `colluders` people.

    Parameters
    ----------
    epsilon : float
        ε of all tables together, for each record.
    tables : int
        Number of tables.
    delta : float, default 1e-6
        δ; at least 1e-10.
    contributors : int
        Smallest number of people that are counted together.
    colluders : int, default 0
        Number of people who may reveal their votes to the miner.
    cells : int, default 2
        Smallest number of cells of a table.

    Examples
    --------
    >>> from masquerade.channels.noise.redraws import RedrawTerms
    >>> terms = RedrawTerms(epsilon=1, tables=10, contributors=9500, colluders=1000, cells=4)
    >>> round(terms.lies(4), 2), terms.honest
    (0.14, 8500)
    """

    cells: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.tables, int) or self.delta == 0:
            raise InputError("Votes that are redrawn need a number of tables, and δ above 0.")
        if not 2 <= self.cells <= 1 << 20:
            raise InputError(f"A table has at least 2 cells. Got {self.cells!r} instead.")

    @property
    def weight(self) -> int:
        """Return the number of 32-bit words that redraw an answer into a given cell."""
        return redraw_weight(self.epsilon, self.delta, self.number, self.honest, self.cells)

    @property
    def rate(self) -> Fraction:
        """Return the probability that an answer is redrawn into a given cell, for tables of any size."""
        return Fraction(self.weight, 1 << BITS)

    @property
    def most_cells(self) -> int:
        """Return the largest number of cells of a table."""
        return int(MOST_LIES / self.rate)

    def lies(self, cells: int) -> float:
        """Return the probability that an answer to a table of `cells` cells is redrawn."""
        return float(self.rate * cells)

    @property
    def stages(self) -> tuple[NoiseStage, ...]:
        """Return the one stage, with the variance of the honest people's redrawn answers in a cell."""
        return (NoiseStage(self.number, "redraws", self.rate * (1 - self.rate) * self.honest, self.rate),)

    def shares(self, stage: NoiseStage) -> NoiseSampler:
        """Raise InputError, from the stage: nothing is added to a vote that is redrawn."""
        return stage.shares(self.honest)

    @property
    def sampler_delta(self) -> float:
        """Return 0: redraws are exact."""
        return 0.0

    def total_variance(self, stage: NoiseStage, present: int | None = None) -> Fraction:
        """Return the variance of the estimated count of a cell, if the smallest table has equal cells."""
        people = self.contributors if present is None else present
        lies = min(stage.ratio * self.cells, Fraction(MOST_LIES))
        return people * stage.ratio * (2 - lies) / (1 - lies) ** 2

    def epsilon_with(self, honest: int, gamma: float = 1.0) -> float:
        """Return ε at the same δ if only `honest` people redraw their answers and reveal nothing else.

        Parameters
        ----------
        honest : int
            Number of such people.
        gamma : float, default 1
            γ of a release of disguised records of the same people, if any; its loss is added.
        """
        if honest < 1:
            return math.inf
        parts = [(redraw_losses(float(self.rate), honest, self.cells), self.number)]
        if gamma > 1:
            parts.append((bounded_losses(gamma), 1))
        return compose_losses(parts).epsilon(self.delta)
