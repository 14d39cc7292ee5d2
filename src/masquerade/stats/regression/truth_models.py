"""Models of the truth of a report: log p(k | η) of every truth k, and its derivatives in the predictors η.

Each design of a survey is a matrix of chances and one of these models. Truths that are tuples (a sensitive
answer and a number of items, a covariate and an outcome) have a product of models.

The first axis of arrays indexes the records, but memory is ordered truth by truth, so that sums over a few
truths are sums of vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats

Link = Literal["logit", "probit", "cloglog", "log"]
LINKS: tuple[Link, ...] = ("logit", "probit", "cloglog", "log")
Rows = NDArray[np.intp]
Evaluation = tuple[Floats, Floats, Floats]
LEAST = 1e-300


class TruthModel(ABC):
    """A distribution over truths that depends on linear predictors.

    Attributes
    ----------
    truths, predictors : int
        Number of truths and of linear predictors.
    reads_rows : bool
        The model needs the data of each record, apart from its predictors.
    """

    truths: int
    predictors: int
    reads_rows = False

    @abstractmethod
    def evaluate(self, eta: Floats, rows: Rows) -> Evaluation:
        """Return log p, its gradient and its Hessian in the predictors, for every truth.

        Parameters
        ----------
        eta : array (records, predictors)
            Linear predictors.
        rows : array (records,)
            Index of each record, for models that need its data.

        Returns
        -------
        tuple of arrays
            Shapes: (records, truths), then with one axis of predictors, then with two.
        """

    def is_feasible(self, eta: Floats) -> bool:
        """Return True if the predictors give a distribution."""
        del eta
        return True


@dataclass(frozen=True, slots=True)
class BinaryOutcome(TruthModel):
    """Truths (yes, no) with one predictor of "yes"."""

    link: Link = "logit"
    truths = 2
    predictors = 1

    def evaluate(self, eta: Floats, rows: Rows) -> Evaluation:
        """Return the log-likelihoods of yes and no with their derivatives."""
        del rows
        u = eta[:, 0]
        yes, no, slopes, bends = getattr(self, f"_{self.link}")(u)
        return (
            np.stack([yes, no]).T,
            np.stack(slopes).T[..., None],
            np.stack(bends).T[..., None, None],
        )

    def is_feasible(self, eta: Floats) -> bool:
        """Return True unless a log link gives a probability of 1 or more."""
        return self.link != "log" or bool(eta.max(initial=-1.0) < 0)

    @staticmethod
    def _logit(u: Floats) -> tuple[Floats, Floats, tuple[Floats, Floats], tuple[Floats, Floats]]:
        small = np.exp(-np.abs(u))
        shared = np.log1p(small)
        p = np.where(u >= 0, 1.0, small) / (1 + small)
        bend = -small / (1 + small) ** 2
        return np.minimum(u, 0) - shared, np.minimum(-u, 0) - shared, (1 - p, -p), (bend, bend)

    @staticmethod
    def _probit(u: Floats) -> tuple[Floats, Floats, tuple[Floats, Floats], tuple[Floats, Floats]]:
        from scipy.special import log_ndtr  # noqa: PLC0415  (slow to import)

        yes, no = log_ndtr(u), log_ndtr(-u)
        density = -0.5 * u * u - 0.5 * np.log(2 * np.pi)
        above, below = np.exp(density - yes), np.exp(density - no)
        return yes, no, (above, -below), (-above * (u + above), below * (u - below))

    @staticmethod
    def _cloglog(u: Floats) -> tuple[Floats, Floats, tuple[Floats, Floats], tuple[Floats, Floats]]:
        hazard = np.exp(np.minimum(u, 30.0))
        ratio = hazard / np.expm1(np.minimum(hazard, 700.0))
        yes = np.log(np.maximum(-np.expm1(-hazard), LEAST))
        return yes, -hazard, (ratio, -hazard), (ratio * (1 - hazard - ratio), -hazard)

    @staticmethod
    def _log(u: Floats) -> tuple[Floats, Floats, tuple[Floats, Floats], tuple[Floats, Floats]]:
        v = np.minimum(u, -1e-12)
        p = np.exp(v)
        odds = p / -np.expm1(v)
        return v, np.log(-np.expm1(v)), (np.ones_like(v), -odds), (np.zeros_like(v), -odds * (1 + odds))


@dataclass(frozen=True, slots=True)
class MultinomialLogit(TruthModel):
    """One predictor for every truth except the reference."""

    truths: int
    reference: int = 0

    @property
    def predictors(self) -> int:  # type: ignore[override]
        """Return the number of truths with a predictor."""
        return self.truths - 1

    def evaluate(self, eta: Floats, rows: Rows) -> Evaluation:
        """Return the log-shares with their derivatives 1[k] − p and −(diag p − ppᵀ)."""
        del rows
        others = [k for k in range(self.truths) if k != self.reference]
        full = np.zeros((self.truths, len(eta)))
        full[others] = eta.T
        full -= full.max(axis=0)
        full -= np.log(np.exp(full).sum(axis=0))
        p = np.exp(full[others])
        slopes = np.eye(self.truths)[others][:, :, None] - p[:, None]
        bends = p[:, None] * p
        each = np.arange(len(others))
        bends[each, each] -= p
        shape = (len(eta), self.truths, self.predictors, self.predictors)
        return full.T, slopes.T, np.broadcast_to(bends.T[:, None], shape)


@dataclass(frozen=True, slots=True)
class CumulativeLogit(TruthModel):
    """Proportional odds: P(y ≤ k) = expit(η_k), with predictors that must increase in k."""

    truths: int

    @property
    def predictors(self) -> int:  # type: ignore[override]
        """Return the number of cuts between the categories."""
        return self.truths - 1

    def is_feasible(self, eta: Floats) -> bool:
        """Return True if the cuts are in order for every record."""
        return bool((np.diff(eta, axis=-1) > 0).all())

    def evaluate(self, eta: Floats, rows: Rows) -> Evaluation:
        """Return log(F(η_k) − F(η_k−1)) with its derivatives."""
        del rows
        n, K = len(eta), self.truths
        small = np.exp(-np.abs(eta))
        inner = np.where(eta >= 0, 1.0, small) / (1 + small)
        F = np.concatenate([np.zeros((1, n)), inner.T, np.ones((1, n))]).T
        f = F * (1 - F)
        bend = f * (1 - 2 * F)
        share = np.maximum(np.diff(F, axis=1), LEAST)
        slopes, bends = np.zeros((K - 1, K, n)).T, np.zeros((K - 1, K - 1, K, n)).T
        for k in range(K):
            if k < K - 1:
                slopes[:, k, k] = f[:, k + 1] / share[:, k]
                bends[:, k, k, k] = bend[:, k + 1] / share[:, k]
            if k > 0:
                slopes[:, k, k - 1] = -f[:, k] / share[:, k]
                bends[:, k, k - 1, k - 1] = -bend[:, k] / share[:, k]
        return np.log(share), slopes, bends - slopes[..., :, None] * slopes[..., None, :]


@dataclass(frozen=True, slots=True)
class PoissonCounts(TruthModel):
    """Counts 0, 1, …, K − 1 with mean exp(η). If `is_top_coded`, the last count means "K − 1 or more"."""

    truths: int
    is_top_coded: bool
    predictors = 1

    def evaluate(self, eta: Floats, rows: Rows) -> Evaluation:
        """Return the Poisson log-probabilities with their derivatives y − μ and −μ."""
        del rows
        from scipy.special import gammainc, gammaln  # noqa: PLC0415  (slow to import)

        u = np.minimum(eta[:, :1], 30.0)
        mu, k = np.exp(u), np.arange(self.truths)
        log_p = np.asarray(k * u - mu - gammaln(k + 1), dtype=float)
        slopes, bends = np.asarray(k - mu, dtype=float), np.repeat(-mu, self.truths, axis=1)
        last = self.truths - 1
        if self.is_top_coded and last > 0:
            tail = np.maximum(gammainc(last, mu[:, 0]), LEAST)  # P(count ≥ last)
            rise = np.exp(last * u[:, 0] - mu[:, 0] - gammaln(last))  # its derivative in η
            log_p[:, -1] = np.log(tail)
            slopes[:, -1] = rise / tail
            bends[:, -1] = slopes[:, -1] * (last - mu[:, 0] - slopes[:, -1])
        elif self.is_top_coded:
            log_p[:], slopes[:], bends[:] = 0.0, 0.0, 0.0
        return log_p, slopes[..., None], bends[..., None, None]


@dataclass(frozen=True, slots=True)
class BinomialItems(TruthModel):
    """The number of items 0, 1, …, J that apply to a person, each with probability expit(η)."""

    truths: int
    predictors = 1

    def evaluate(self, eta: Floats, rows: Rows) -> Evaluation:
        """Return the binomial log-probabilities with their derivatives j − Jp and −Jp(1 − p)."""
        yes, slopes, bends = BinaryOutcome().evaluate(eta, rows)
        J, j = self.truths - 1, np.arange(self.truths)
        ways = np.concatenate([[0.0], np.cumsum(np.log(np.arange(J, 0, -1)) - np.log(np.arange(1, J + 1)))])
        log_p = ways + j * yes[:, :1] + (J - j) * yes[:, 1:]
        p = -slopes[:, 1, :]
        return log_p, (j - J * p)[..., None], np.repeat(J * bends[:, :1], self.truths, axis=1)


@dataclass(frozen=True, slots=True)
class BetaBinomialItems(TruthModel):
    """Items as in `BinomialItems`, with overdispersion ρ = expit of the second predictor."""

    truths: int
    predictors = 2

    def evaluate(self, eta: Floats, rows: Rows) -> Evaluation:
        """Return the beta-binomial log-probabilities with their derivatives.

        Formula: with r = ρ/(1 − ρ), P(j) = C(J, j)·Π(p + ir)·Π(1 − p + ir) / Π(1 + ir) over i < j, i < J − j
        and i < J. Quotients of gamma functions would lose all digits near r = 0.
        """
        del rows
        J = self.truths - 1
        u, v = eta[:, :1], np.clip(eta[:, 1:], -50.0, 25.0)
        p, q, r = 1 / (1 + np.exp(-u)), 1 / (1 + np.exp(u)), np.exp(v)
        i, j = np.arange(J), np.arange(self.truths)
        held, others, total = np.maximum(p + i * r, LEAST), np.maximum(q + i * r, LEAST), 1 + i * r

        def sums(of_held: Floats, of_others: Floats) -> tuple[Floats, Floats]:
            """Return the sums over i < j of one term and over i < J − j of the other, for every j."""
            padded = ((0, 0), (1, 0))
            first = np.cumsum(np.pad(of_held, padded), axis=1)
            second = np.cumsum(np.pad(of_others, padded), axis=1)
            return first[:, j], second[:, J - j]

        ways = np.concatenate([[0.0], np.cumsum(np.log(np.arange(J, 0, -1)) - np.log(np.arange(1, J + 1)))])
        log_p = ways + np.add(*sums(np.log(held), np.log(others))) - np.log(total).sum(axis=1, keepdims=True)
        in_p = np.subtract(*sums(1 / held, 1 / others))
        in_r = np.add(*sums(i / held, i / others)) - (i / total).sum(axis=1, keepdims=True)
        pp = -np.add(*sums(held**-2, others**-2))
        pr = -np.subtract(*sums(i * held**-2, i * others**-2))
        rr = ((i / total) ** 2).sum(axis=1, keepdims=True) - np.add(*sums((i / held) ** 2, (i / others) ** 2))
        rise = p * q  # ∂p/∂u; ∂r/∂v = r
        bends = np.empty((*in_p.shape, 2, 2))
        bends[..., 0, 0] = pp * rise**2 + in_p * rise * (q - p)
        bends[..., 0, 1] = bends[..., 1, 0] = pr * rise * r
        bends[..., 1, 1] = rr * r**2 + in_r * r
        return log_p, np.stack([in_p * rise, in_r * r], axis=-1), bends


@dataclass(frozen=True, slots=True, eq=False)
class NormalDensity(TruthModel):
    """The density of a clear number y with mean η₀ and standard deviation exp(η₁): one truth."""

    y: Floats
    truths = 1
    predictors = 2
    reads_rows = True

    def evaluate(self, eta: Floats, rows: Rows) -> Evaluation:
        """Return the log-density with its derivatives."""
        scale = np.exp(-eta[:, 1])
        z = (self.y[rows] - eta[:, 0]) * scale
        log_p = -0.5 * z * z - eta[:, 1] - 0.5 * np.log(2 * np.pi)
        slopes = np.stack([z * scale, z * z - 1], axis=1)
        bends = np.empty((len(eta), 2, 2))
        bends[:, 0, 0], bends[:, 1, 1] = -scale * scale, -2 * z * z
        bends[:, 0, 1] = bends[:, 1, 0] = -2 * z * scale
        return log_p[:, None], slopes[:, None], bends[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A factor of a product of models.

    Attributes
    ----------
    model : TruthModel
        Model of the factor.
    columns : tuple of int
        Indices of the factor's predictors among the predictors of the product.
    codes : array
        Truth of the factor for each truth of the product; −1 where the factor is not needed.
    """

    model: TruthModel
    columns: tuple[int, ...]
    codes: NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Product(TruthModel):
    """Truths that are tuples: log p is the sum over the parts."""

    parts: Sequence[Part]
    truths: int
    predictors: int

    @property
    def reads_rows(self) -> bool:  # type: ignore[override]
        """Return True if some part needs the data of records."""
        return any(part.model.reads_rows for part in self.parts)

    def is_feasible(self, eta: Floats) -> bool:
        """Return True if every part is feasible where it is needed."""
        for part in self.parts:
            own = eta[..., list(part.columns)]
            if eta.ndim == 3:
                own = own[:, part.codes >= 0].reshape(-1, len(part.columns))
            if not part.model.is_feasible(own):
                return False
        return True

    def evaluate(self, eta: Floats, rows: Rows) -> Evaluation:
        """Return the sums over the parts; predictors of shape (records, truths, predictors) are allowed."""
        n, K, m = len(eta), self.truths, self.predictors
        log_p, slopes, bends = np.zeros((K, n)), np.zeros((m, K, n)), np.zeros((m, m, K, n))
        for part in self.parts:
            columns = np.asarray(part.columns)
            needed = np.flatnonzero(part.codes >= 0)
            codes = part.codes[needed]
            if eta.ndim == 2:
                lp, s, h = part.model.evaluate(eta[:, columns], rows)
                lp, s, h = lp[:, codes], s[:, codes], h[:, codes]
            else:
                q = len(columns)
                own = eta[:, needed][..., columns].reshape(-1, q)
                lp, s, h = part.model.evaluate(own, np.repeat(rows, len(needed)))
                each, code = np.arange(len(own)), np.tile(codes, n)
                lp = lp[each, code].reshape(n, -1)
                s, h = s[each, code].reshape(n, -1, q), h[each, code].reshape(n, -1, q, q)
            log_p[needed] += lp.T
            slopes[columns[:, None], needed] += s.T
            bends[columns[:, None, None], columns[:, None], needed] += h.T
        return log_p.T, slopes.T, bends.T
