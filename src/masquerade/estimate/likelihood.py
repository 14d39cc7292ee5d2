"""The likelihood of a table of disguised records, its gradient, and a bound on its possible rise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from masquerade.core.axes import Floats, contract
from masquerade.core.errors import InputError

VANISHING = 1e-140  # smaller ratios of expected to observed numbers are set to 0: 1/ratio² must not overflow


@dataclass(frozen=True)
class LikelihoodPoint:
    """A table of true counts N and its likelihood, given observed counts Ñ.

    `expected` is PᵀN and `ratio` is Ñ/PᵀN, with 0/0 = 0. `pull` is g = P(Ñ/PᵀN), so that N∘g is one EM step.
    `deviance` is the saturated log-likelihood (reports expected as observed) minus the log-likelihood of N.
    """

    counts: Floats
    expected: Floats
    ratio: Floats
    pull: Floats
    deviance: float


@dataclass(frozen=True)
class ReportLikelihood:
    """The log-likelihood Σ Ñ log PᵀN of observed counts Ñ, in counts instead of probabilities.

    Formula: minimize Σ [PᵀN − Ñ − Ñ log(PᵀN/Ñ)] over N ≥ 0. The optimum has ΣN = n, and where ΣN = n the
    value is the distance to the saturated log-likelihood.
    Reference: Dempster, Laird & Rubin (1977); Kim et al. (2020) for dropping the constraint.
    Cost: two contractions per point, axis by axis.
    Error: summed from nonnegative terms, so that small differences are not lost in a large total.
    """

    observed: Floats
    channels: tuple[Floats | None, ...]

    @cached_property
    def n(self) -> float:
        """The number of records."""
        return float(self.observed.sum())

    @cached_property
    def present(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """The observed cells that are not empty."""
        return self.observed > 0

    @cached_property
    def transposed_channels(self) -> tuple[Floats | None, ...]:
        """The transposed channels, from reports to truths."""
        return tuple(None if P is None else np.ascontiguousarray(P.T) for P in self.channels)

    @cached_property
    def squared_channels(self) -> tuple[Floats | None, ...]:
        """The elementwise squares of the transposed channels."""
        return tuple(None if P is None else P**2 for P in self.transposed_channels)

    @cached_property
    def full_channel(self) -> Floats:
        """The channel of the full table as one matrix (reports × truths), for small tables."""
        whole: Floats = np.ones((1, 1))
        for P, size in zip(self.transposed_channels, self.observed.shape, strict=True):
            whole = np.asarray(np.kron(whole, np.eye(size) if P is None else P), dtype=np.float64)
        return whole

    def at(self, counts: Floats) -> LikelihoodPoint:
        """Return the likelihood at a table of true counts."""
        expected = contract(counts, self.channels)
        present = self.present
        seen, fitted = self.observed[present], expected[present]
        if np.any(fitted < VANISHING * seen):  # reports were observed where none is expected
            return LikelihoodPoint(
                counts, expected, np.zeros_like(expected), np.full_like(counts, np.nan), np.inf
            )
        ratio = np.zeros_like(self.observed)
        ratio[present] = seen / fitted
        unseen = float(expected.sum() - fitted.sum()) if fitted.size < expected.size else 0.0
        deviance = _bregman(seen, (fitted - seen) / seen, fitted / seen) + unseen
        return LikelihoodPoint(counts, expected, ratio, contract(ratio, self.transposed_channels), deviance)

    def change(self, point: LikelihoodPoint, other: LikelihoodPoint) -> float:
        """Return the deviance of `other` minus that of `point`, precise even if they are close.

        Formula: Σ (1 − g)d + Σ Ñ(x − log(1 + x)), d the difference of the counts, x = Pᵀd/PᵀN.
        """
        if not (np.isfinite(point.deviance) and np.isfinite(other.deviance)):
            return float(other.deviance - point.deviance)
        d = other.counts - point.counts
        before, after = point.expected[self.present], other.expected[self.present]
        x = contract(d, self.channels)[self.present] / before
        return float(np.vdot(1.0 - point.pull, d)) + _bregman(self.observed[self.present], x, after / before)

    def at_normalized(self, counts: Floats) -> LikelihoodPoint:
        """Return the likelihood at the table scaled to n records, which is never lower."""
        return self.at(counts * (self.n / counts.sum()))

    def gap(self, point: LikelihoodPoint) -> float:
        """Return a proven bound on the possible rise of the log-likelihood: n(max g − 1).

        By concavity ℓ(N*) − ℓ(N) ≤ Σ (N* − N)g, and ΣN*g ≤ n max g while ΣNg = n.
        """
        if not np.isfinite(point.deviance):
            return np.inf
        return max(0.0, self.n * (float(point.pull.max()) - 1.0))

    def log_likelihood(self, point: LikelihoodPoint) -> float:
        """Return Σ Ñ log(PᵀN/n)."""
        present = self.present
        return float(np.sum(self.observed[present] * np.log(point.expected[present] / self.n)))


def _bregman(weights: Floats, x: Floats, ratio: Floats) -> float:
    """Return Σ weights·(x − log(1 + x)) with ratio = 1 + x, using the precise form of the logarithm."""
    near = np.abs(x) < 0.5
    logs = np.where(near, np.log1p(np.where(near, x, 0.0)), np.log(ratio))
    return float(np.vdot(weights, x - logs))


def likelihood(observed: Floats, channels: Sequence[Floats | None]) -> ReportLikelihood:
    """Check the observed counts against the channels and return their likelihood."""
    observed = np.asarray(observed, dtype=float)
    matrices = tuple(None if P is None else np.asarray(P, dtype=float) for P in channels)
    if len(matrices) != observed.ndim:
        raise InputError(
            f"A table of {observed.ndim} axes needs as many channels. Got {len(matrices)} instead."
        )
    if not np.all(np.isfinite(observed)) or np.any(observed < 0):
        raise InputError("Maximum likelihood needs observed counts that are finite and not negative.")
    for axis, (P, size) in enumerate(zip(matrices, observed.shape, strict=True)):
        if P is None:
            continue
        if P.ndim != 2 or P.shape[1] != size:
            raise InputError(f"Axis {axis} has {size} codes, but its channel has the shape {P.shape}.")
        impossible = ~P.any(axis=0)
        if impossible.any() and np.compress(impossible, observed, axis=axis).any():
            code = int(np.flatnonzero(impossible)[0])
            raise InputError(
                f"Axis {axis} has records with a report that no truth gives under its channel "
                f"(such as code {code}). Was the data disguised under a different policy?"
            )
    return ReportLikelihood(observed, matrices)
