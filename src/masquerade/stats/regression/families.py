"""Families of regressions: the derivatives of an outcome's log-likelihood in its linear predictors.

For each cell (covariates x, outcome y), a family has linear predictors u = Zβ, and the first derivative
s = ∂ℓ/∂u and second derivative h = ∂²ℓ/∂u∂uᵀ of the log-likelihood ℓ of y, or of a function used in its
place. Estimating equations, their derivatives and predictions follow from these alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from masquerade.core.axes import Floats

LARGE = 500.0  # largest predictor: exp(500) is far from overflow and from any usable probability


class Family(ABC):
    """A family of regressions. `numbers` has a score or an index for every category of the outcome."""

    numbers: Floats

    @abstractmethod
    def design(self, X: Floats) -> Floats:
        """Return Z of shape (rows of X, outcomes, predictors, parameters)."""

    @abstractmethod
    def derivatives(self, u: Floats) -> tuple[Floats, Floats]:
        """Return s of shape (rows, outcomes, predictors), and h with a second axis of predictors."""

    @abstractmethod
    def expected(self, u: Floats) -> Floats:
        """Return the expectations of every row: shares of the outcomes, or means (rows, 1)."""

    @abstractmethod
    def terms(self, names: tuple[str, ...], labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the parameters."""

    def start(self, parameters: int, shares: Floats) -> Floats:
        """Return starting values of the parameters; `shares` are the shares of the outcomes."""
        del shares
        return np.zeros(parameters)

    shares = True  # whether `expected` returns shares of outcomes
    intercept = True  # whether the formula's intercept is kept


@dataclass(frozen=True, slots=True)
class Mean(Family):
    """One predictor of the mean of scores: logistic (0 and 1), Poisson, linear."""

    kind: str
    numbers: Floats
    link: str = "logit"

    def design(self, X: Floats) -> Floats:
        """Return the same terms for every outcome."""
        return np.broadcast_to(X[:, None, None, :], (len(X), len(self.numbers), 1, X.shape[1]))

    def mean(self, u: Floats) -> Floats:
        """Return the mean for a predictor."""
        if self.link == "probit":
            from scipy.special import ndtr  # noqa: PLC0415  (slow to import)

            return np.asarray(ndtr(u))
        if self.link == "cloglog":
            return np.asarray(-np.expm1(-np.exp(np.minimum(u, LARGE))))
        if self.kind == "logistic" and self.link == "logit":
            return np.asarray(1 / (1 + np.exp(-np.clip(u, -LARGE, LARGE))))
        return np.exp(np.minimum(u, LARGE)) if self.kind != "linear" else u

    def derivatives(self, u: Floats) -> tuple[Floats, Floats]:
        """Return y − μ and −dμ/du."""
        mu = self.mean(u)
        slope = {"logistic": mu * (1 - mu), "poisson": mu}.get(self.kind, np.ones_like(mu))
        return self.numbers[None, :, None] - mu, -slope[..., None]

    def expected(self, u: Floats) -> Floats:
        """Return the mean in every row."""
        return self.mean(u[:, 0, :])

    def terms(self, names: tuple[str, ...], labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the terms."""
        del labels
        return names

    @property
    def shares(self) -> bool:  # type: ignore[override]
        """Return False: a mean is predicted."""
        return False


@dataclass(frozen=True, slots=True)
class Multinomial(Family):
    """One predictor per category except the reference; `reference` is the code of that category."""

    numbers: Floats
    reference: int

    @property
    def others(self) -> list[int]:
        """Return the categories that have a predictor."""
        return [code for code in range(len(self.numbers)) if code != self.reference]

    def design(self, X: Floats) -> Floats:
        """Return the terms once for each predictor."""
        k, count = X.shape[1], len(self.others)
        Z = np.zeros((len(X), len(self.numbers), count, count * k))
        for place in range(count):
            Z[:, :, place, place * k : (place + 1) * k] = X[:, None, :]
        return Z

    def derivatives(self, u: Floats) -> tuple[Floats, Floats]:
        """Return 1[y = k] − μ_k and −(diag μ − μμᵀ)."""
        mu = self._other_shares(u)
        hit = np.eye(len(self.numbers))[:, self.others]
        return hit[None] - mu, mu[..., :, None] * mu[..., None, :] - mu[..., :, None] * np.eye(mu.shape[-1])

    def expected(self, u: Floats) -> Floats:
        """Return the shares of the categories."""
        mu = self._other_shares(u[:, 0, :])
        return np.insert(mu, self.reference, 1 - mu.sum(axis=-1), axis=-1)

    def terms(self, names: tuple[str, ...], labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the terms, each after its category."""
        return tuple(f"{labels[code]}: {name}" for code in self.others for name in names)

    @staticmethod
    def _other_shares(u: Floats) -> Floats:
        top = np.maximum(u.max(axis=-1, keepdims=True), 0.0)
        raised = np.exp(u - top)
        return np.asarray(raised / (np.exp(-top) + raised.sum(axis=-1, keepdims=True)))


@dataclass(frozen=True, slots=True)
class Ordinal(Family):
    """Proportional odds: P(y ≤ k) = expit(α_k − η), one predictor at each bound of a category."""

    numbers: Floats

    def design(self, X: Floats) -> Floats:
        """Return Z, in which category k has the predictors α_k − η and α_(k−1) − η."""
        K, k = len(self.numbers), X.shape[1]
        Z = np.zeros((len(X), K, 2, K - 1 + k))
        for code in range(K):
            for end, cut in enumerate((code, code - 1)):
                if 0 <= cut < K - 1:
                    Z[:, code, end, cut] = 1.0
                    Z[:, code, end, K - 1 :] = -X
        return Z

    def derivatives(self, u: Floats) -> tuple[Floats, Floats]:
        """Return the derivatives of log(F(u₁) − F(u₀)), with F = 1 and 0 at the outermost bounds."""
        F, f, bend = self._curve(u)
        share = np.maximum(F[..., 0] - F[..., 1], 1e-300)
        s = np.stack([f[..., 0] / share, -f[..., 1] / share], axis=-1)
        h = -s[..., :, None] * s[..., None, :]
        h[..., 0, 0] += bend[..., 0] / share
        h[..., 1, 1] -= bend[..., 1] / share
        return s, h

    def expected(self, u: Floats) -> Floats:
        """Return the shares of the categories."""
        F, _, _ = self._curve(u)
        return np.asarray(F[..., 0] - F[..., 1])

    def terms(self, names: tuple[str, ...], labels: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the cuts between categories, then the names of the terms."""
        return (*(f"{a} | {b}" for a, b in pairwise(labels)), *names)

    def start(self, parameters: int, shares: Floats) -> Floats:
        """Return the logits of the cumulative shares, and zeros for the other parameters."""
        inside = np.clip(np.cumsum(shares)[:-1], 1e-3, 1 - 1e-3)
        inside = np.maximum.accumulate(inside + 1e-6 * np.arange(len(inside)))
        return np.concatenate([np.log(inside / (1 - inside)), np.zeros(parameters - len(inside))])

    @property
    def intercept(self) -> bool:  # type: ignore[override]
        """Return False: cuts replace the intercept."""
        return False

    def _curve(self, u: Floats) -> tuple[Floats, Floats, Floats]:
        F = 1 / (1 + np.exp(-np.clip(u, -LARGE, LARGE)))
        f = F * (1 - F)
        bend = f * (1 - 2 * F)
        F[:, -1, 0], F[:, 0, 1] = 1.0, 0.0
        for part in (f, bend):
            part[:, -1, 0] = part[:, 0, 1] = 0.0
        return F, f, bend
