"""Posterior draws of the shares of true categories, by Dirichlet data augmentation on tables of counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, NotConverged
from masquerade.core.evidence import TableReduction
from masquerade.core.intervals import Interval
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.schema import Variable
from masquerade.core.util.display import Shown
from masquerade.estimate.reports import Reports

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

CHAINS = 4
BURN = 300
BLOCK = 500
MOST_STEPS = 40_000
MOST_PAIRS = 2**18  # truths times reports of a table
ENOUGH = 1000.0
MIXED = 1.01


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Posterior(Shown):
    """Draws of the shares of a table from their posterior given the reports.

    Attributes
    ----------
    axes : tuple of Variable
        Variables of the table.
    draws : array of shape (draws, *shape)
        Draws of the shares.
    n : int
        Number of records.
    ess : float
        Smallest effective number of draws of any cell.
    rhat : float
        Largest R̂ of any cell: the spread over all chains relative to the spread within chains.
    prior : float
        Parameter of the Dirichlet prior for each true value.
    """

    result_name: ClassVar[str] = "Posterior"
    axes: tuple[Variable, ...]
    draws: Floats
    n: int
    ess: float
    rhat: float
    prior: float
    percent = ("mean", "sd", "lower", "upper")

    @property
    def heading(self) -> str:
        """Return the variables and the number of records."""
        return f"Posterior shares of {' × '.join(axis.name for axis in self.axes)}, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the prior and the diagnostics of the draws."""
        prior = f"95% credible intervals; Dirichlet prior {self.prior:g} for every truth"
        return (f"({prior}; {len(self.draws):,} draws, {self.ess:,.0f} effective, R̂ {self.rhat:.3f})",)

    @property
    def mean(self) -> Floats:
        """Return the means of the shares."""
        return np.asarray(self.draws.mean(axis=0))

    @property
    def sd(self) -> Floats:
        """Return the standard deviations of the shares."""
        return np.asarray(self.draws.std(axis=0))

    def conf_int(self, level: float = 0.95) -> Interval:
        """Return equal-tailed credible intervals of the shares."""
        ends = np.quantile(self.draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return Interval(ends[0], ends[1])

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with one row per cell: labels, mean, sd, lower, upper."""
        import pandas as pd  # noqa: PLC0415  (slow to import)

        rows = list(product(*(axis.categories for axis in self.axes)))
        frame = pd.DataFrame({axis.name: [row[i] for row in rows] for i, axis in enumerate(self.axes)})
        ends = self.conf_int()
        figures = (self.mean, self.sd, ends.lower, ends.upper)
        names = ("mean", "sd", "lower", "upper")
        return frame.assign(**{name: part.ravel() for name, part in zip(names, figures, strict=True)})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the means with their credible intervals, in percent."""
        labels = [", ".join(map(str, row)) for row in product(*(axis.categories for axis in self.axes))]
        dots = Dots(*(100 * part.ravel() for part in (self.mean, *self.conf_int())))
        return dot_plot(labels, {"share": dots}, ax, xlabel="share in percent, 95%", title=self.heading)


def posterior_of(
    parts: Sequence[Reports], axes: tuple[Variable, ...], n: int, prior: float, generator: np.random.Generator
) -> Posterior:
    """Draw the shares of a table from their posterior distribution.

    Parameters
    ----------
    parts : sequence of Reports
        Reports of all strata.
    axes : tuple of Variable
        Variables of the table.
    n : int
        Number of records.
    prior : float
        Parameter of the Dirichlet prior for each true value.
    generator : numpy.random.Generator
        Random numbers.

    Returns
    -------
    Posterior
        At least 1,000 effective draws.

    Raises
    ------
    InputError
        If the prior is not positive, records are weighted, or the table is too large.
    NotConverged
        If the chains mix too slowly.

    Notes
    -----
    Formula: with θ the shares of all true values, Z_·m ~ Multinomial(Ñ_m, θ_l P[l, m]/Σ) for each report m,
    then θ ~ Dirichlet(α + Z·); four chains, until 1,000 draws are effective and R̂ is below 1.01. If reports
    name the person's group g, whose share π_g of the records is fixed in advance, the likelihood
    Π(π_g (θP_g)_m)^Ñ_gm is the same up to a constant factor.
    Reference: Tanner & Wong (1987); Gelman & Rubin (1992); Geyer (1992) for the effective number.
    Cost: truths × reports random numbers per step; strong disguises mix slowly.
    """
    if not prior > 0:
        raise InputError(f"The prior must be above 0, such as 0.5. Got {prior} instead.")
    if any(part.weight != 1 for part in parts):
        raise InputError("A posterior needs records without survey weights.")
    matrices = [_joint(part) for part in parts]
    if sum(matrix.size for matrix in matrices) > MOST_PAIRS:
        raise InputError(
            "The table has too many categories and reports for a posterior. Query fewer variables."
        )
    ends = np.cumsum([0, *(len(matrix) for matrix in matrices)])
    seen = [_ObservedReports.of(part, matrix) for part, matrix in zip(parts, matrices, strict=True)]
    theta = generator.dirichlet(np.ones(ends[-1]), CHAINS)
    steps: list[Floats] = []
    kept: list[Floats] = []
    ess = rhat = np.inf
    for step in range(MOST_STEPS):
        filled = [
            each.allocate(theta[:, a:b], generator)
            for a, b, each in zip(ends[:-1], ends[1:], seen, strict=True)
        ]
        gammas = generator.standard_gamma(prior + np.concatenate(filled, axis=1))
        theta = gammas / gammas.sum(axis=1, keepdims=True)
        if step < BURN:
            continue
        steps.append(theta)
        if len(steps) == BLOCK:
            kept.append(_tables(parts, np.stack(steps), ends.tolist()))
            steps.clear()
            draws = np.concatenate(kept)
            chains = draws.swapaxes(0, 1).reshape(CHAINS, len(draws), -1)
            ess, rhat = effective_draws(chains), largest_rhat(chains)
            if ess >= ENOUGH and rhat < MIXED:
                return Posterior(axes, draws.reshape(-1, *draws.shape[2:]), n, ess, rhat, prior)
    raise NotConverged(
        f"After {MOST_STEPS:,} steps only {ess:,.0f} draws are effective (R̂ {rhat:.3f}): the disguise is too "
        "strong for this table. Query fewer variables, or use the intervals of the table."
    )


def _tables(parts: Sequence[Reports], drawn: Floats, ends: Sequence[int]) -> Floats:
    """Return the queried tables, (steps, chains, *shape), from shares of the true values of all parts."""
    found = []
    for part, a, b in zip(parts, ends[:-1], ends[1:], strict=True):
        cells = drawn[..., a:b].reshape(*drawn.shape[:2], *part.truths)
        moved = TableReduction(
            (0, 1, *(axis + 2 for axis in part.reduction.keep)),
            tuple((axis + 2, code) for axis, code in part.reduction.at),
            tuple((axis + 2, codes) for axis, codes in part.reduction.among),
        )
        found.append(moved.apply(cells))
    return reduce(np.add, found)


def _joint(part: Reports) -> Floats:
    """Return the matrix of probabilities of all reports given all true values."""
    result: Floats = np.ones((1, 1))
    for channel, size in zip(part.channels, part.observed.shape, strict=True):
        result = np.asarray(np.kron(result, np.eye(size) if channel is None else channel), dtype=np.float64)
    return result


@dataclass(frozen=True, slots=True)
class _ObservedReports:
    """The distinct reports of a part: their counts (reports,) and probabilities (reports, truths)."""

    counts: NDArray[np.int64]
    chances: Floats

    @classmethod
    def of(cls, part: Reports, matrix: Floats) -> _ObservedReports:
        counts = part.observed.ravel().astype(np.int64)
        used = np.flatnonzero(counts)
        return cls(counts[used], np.ascontiguousarray(matrix[:, used].T))

    def allocate(self, theta: Floats, generator: np.random.Generator) -> Floats:
        """Return, for each chain, the number of records with each true value, drawn given the reports."""
        chances = theta[:, None, :] * self.chances
        total = chances.sum(axis=-1, keepdims=True)
        if not total.all():
            chances, total = np.where(total > 0, chances, 1.0), np.where(total > 0, total, theta.shape[1])
        return np.asarray(generator.multinomial(self.counts, chances / total).sum(axis=1), dtype=float)


def effective_draws(chains: Floats) -> float:
    """Return the smallest effective number of draws over the columns of (chains, steps, columns)."""
    count, steps, _ = chains.shape
    centred = chains - chains.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * steps, axis=1)) ** 2
    lags = np.fft.irfft(spectrum, axis=1)[:, :steps].mean(axis=0)
    first = np.where(lags[0] > 0, lags[0], 1.0)
    rho = lags / first
    pairs = rho[0 : steps - 1 : 2] + rho[1:steps:2]
    positive = np.cumprod(pairs > 0, axis=0)
    time = np.maximum(2 * (pairs * positive).sum(axis=0) - 1, 1.0)
    return float((count * steps / time)[lags[0] > 0].min(initial=np.inf))


def largest_rhat(chains: Floats) -> float:
    """Return the largest R̂ over the columns of (chains, steps, columns)."""
    steps = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    between = chains.mean(axis=1).var(axis=0, ddof=1)
    some = within > 0
    return float(np.sqrt((steps - 1) / steps + between[some] / within[some]).max(initial=1.0))
