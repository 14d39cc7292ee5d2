"""The likelihood of reports, ℓ(β) = Σ w_i log Σ_k P(report_i | k) p(k | η_i), and its derivatives.

With π_ik the posterior of truth k given report i, and s, h the derivatives of log p(k | η):
score_i = Σ π_ik s_ik and Hessian_i = Σ π_ik (h_ik + s_ik s_ikᵀ) − score_i score_iᵀ (Louis' identity, 1982).
No channel is inverted, so no estimated count is negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.stats.regression.truth_models import NormalDensity, Product, TruthModel

SMALL = 1 << 10  # up to this number of rows times truths, the terms of all predictors are stored in one array
CHUNK = 1 << 16  # numbers of an array that are computed at a time, so that they fit into a processor's cache


@dataclass(frozen=True, slots=True)
class Derivatives:
    """ℓ, its gradient, −Hessian, and the complete-data information if requested.

    If the predictors do not give a valid distribution, ℓ is −∞ and its derivatives are 0.
    """

    value: float
    slope: Floats
    observed: Floats
    complete: Floats | None


@dataclass(frozen=True, eq=False)
class RegressionLikelihood:
    """The log-likelihood of reports as a function of the parameters of a truth model.

    Parameters
    ----------
    chances : array (records, truths)
        P(report | truth), conditional on the group to which a person was assigned.
    model : TruthModel
        Distribution of the truth.
    designs : sequence of arrays
        Terms of each predictor, (records, terms), or (records, truths, terms) if they depend on the truth.
    index : sequence of arrays
        Positions in β of the coefficients of each predictor. Predictors may share coefficients.
    weights : array (records,)
        Multiplicity or survey weight of each record.
    channels : sequence of arrays (truths, reports)
        Probabilities of all reports in each survey design, for the expected information.
    design_of : array (records,)
        Index in `channels` of each record's survey design.
    has_penalty : bool
        Add ½ log|expected information|, Jeffreys' penalty.
    """

    chances: Floats
    model: TruthModel
    designs: Sequence[Floats]
    index: Sequence[NDArray[np.intp]]
    weights: Floats
    channels: Sequence[Floats] = ()
    design_of: NDArray[np.intp] | None = None
    has_penalty: bool = False
    log_chances: Floats = field(init=False)
    parameters: int = field(init=False)
    whole_design: Floats | None = field(init=False)
    has_equal_rows: bool = field(init=False)

    def __post_init__(self) -> None:
        with np.errstate(divide="ignore"):
            # stored truth by truth, so that sums over a few truths are sums of long vectors
            object.__setattr__(self, "log_chances", np.log(np.asfortranarray(self.chances)))
        size = 1 + max((int(place.max()) for place in self.index if len(place)), default=-1)
        object.__setattr__(self, "parameters", size)
        object.__setattr__(self, "whole_design", self._make_whole_design(size))
        object.__setattr__(self, "has_equal_rows", self._find_equal_rows())

    def _make_whole_design(self, size: int) -> Floats | None:
        """Return the terms of all predictors in an array; None if it would be too large.

        Its axes are records, truths, predictors and parameters.
        """
        n, K = self.chances.shape
        m = len(self.designs)
        if n * K > SMALL:
            return None
        result = np.zeros((n, K, m, size))
        for place, (design, index) in enumerate(zip(self.designs, self.index, strict=True)):
            result[:, :, place, index] = design[:, None] if design.ndim == 2 else design
        return result

    def _find_equal_rows(self) -> bool:
        """Return True if the rows are few and have equal predictors, as without clear covariates."""
        if (
            self.whole_design is None
            or self.n < 2
            or type(self) is not RegressionLikelihood
            or self.model.reads_rows
        ):
            return False
        return bool((self.whole_design == self.whole_design[:1]).all())

    @property
    def n(self) -> int:
        """Return the number of rows, each of which may represent several records."""
        return len(self.chances)

    @property
    def is_flat(self) -> bool:
        """Return True if no predictor depends on the truth."""
        return all(design.ndim == 2 for design in self.designs)

    @property
    def is_cheap(self) -> bool:
        """Return True if derivatives cost little more than values."""
        return True

    def predictors(self, beta: Floats, rows: slice = slice(None)) -> Floats:
        """Return η of shape (records, predictors) or (records, truths, predictors)."""
        if self.whole_design is not None and not self.is_flat:
            return np.asarray(self.whole_design[rows] @ beta)
        each = [design[rows] @ beta[place] for design, place in zip(self.designs, self.index, strict=True)]
        if self.is_flat:
            return np.stack(each).T
        K = self.chances.shape[1]
        wide = [np.broadcast_to(u[:, None], (len(u), K)) if u.ndim == 1 else u for u in each]
        return np.stack(wide, axis=2)

    def value(self, beta: Floats) -> float:
        """Return ℓ(β); −∞ if the predictors do not give a valid distribution."""
        total = 0.0
        for rows in self._chunks():
            eta = self.predictors(beta, rows)
            if not self.model.is_feasible(eta):
                return -np.inf
            total += float(self.weights[rows] @ self._posterior(eta, rows)[0])
        if self.has_penalty:
            total += self.penalty(beta)
        return total if np.isfinite(total) else -np.inf

    def log_reports(self, beta: Floats) -> Floats:
        """Return log P(report) of every record."""
        return np.concatenate(
            [self._posterior(self.predictors(beta, rows), rows)[0] for rows in self._chunks()]
        )

    def posterior(self, beta: Floats) -> Floats:
        """Return P(truth | report) of every record."""
        return np.concatenate(
            [self._posterior(self.predictors(beta, rows), rows)[1] for rows in self._chunks()]
        )

    def derivatives(self, beta: Floats, *, complete_too: bool = False) -> Derivatives:
        """Return ℓ with its derivatives, and the complete-data information if requested."""
        P = self.parameters
        slope, observed = np.zeros(P), np.zeros((P, P))
        complete = np.zeros((P, P)) if complete_too else None
        value = 0.0
        add = self._add_flat if self.is_flat else self._add_by_truth
        if self.whole_design is not None:
            add = self._add_small
        for rows in self._chunks():
            eta = self.predictors(beta, rows)
            if not self.model.is_feasible(eta):
                return Derivatives(-np.inf, np.zeros(P), np.zeros((P, P)), complete)
            value += add(eta, rows, slope, observed, complete)
        if self.has_penalty:
            value += self.penalty(beta)
            steps = 1e-5 * np.eye(P)
            slope += [(self.penalty(beta + step) - self.penalty(beta - step)) / 2e-5 for step in steps]
        return Derivatives(value if np.isfinite(value) else -np.inf, slope, observed, complete)

    def numeric_slope(self, beta: Floats) -> Floats | None:
        """Return a gradient by finite differences; None if the analytic gradient is exact."""
        del beta
        return None

    def scores(self, beta: Floats) -> Floats:
        """Return the unweighted score of every row, of shape (records, parameters)."""
        result = np.zeros((self.n, self.parameters))
        for rows in self._chunks():
            _, post, s, _ = self._posterior(self.predictors(beta, rows), rows)
            part = result[rows]
            for place, (design, index) in enumerate(zip(self.designs, self.index, strict=True)):
                if design.ndim == 2:
                    part[:, index] += design[rows] * np.einsum("nk,nk->n", post, s[..., place])[:, None]
                else:
                    part[:, index] += np.einsum("nk,nkp->np", post * s[..., place], design[rows])
        return result

    def outer(self, beta: Floats) -> Floats:
        """Return the sum of the outer products of the records' scores."""
        scores = self.scores(beta)
        # outer products are summed over the records that a row represents; survey weights are squared
        weights = self.weights if self.has_counts else self.weights**2
        return np.asarray(scores.T @ (weights[:, None] * scores))

    @property
    def has_counts(self) -> bool:
        """Return True if the weights are numbers of records."""
        return bool(np.all(self.weights == np.round(self.weights)))

    def penalty(self, beta: Floats) -> float:
        """Return Jeffreys' penalty ½ log|I(β)|."""
        sign, size = np.linalg.slogdet(self.expected(beta))
        return float(size) / 2 if sign > 0 else -np.inf

    def expected(self, beta: Floats) -> Floats:
        """Return the expected information Σ_i Σ_r q_ir ∂log q_ir ∂log q_irᵀ over all possible reports r."""
        return np.asarray(np.sum(self.expected_by(beta, np.zeros(self.n, dtype=np.intp), 1), axis=0))

    def expected_by(self, beta: Floats, cluster: NDArray[np.intp], clusters: int) -> Floats:
        """Return the expected information of every cluster, of shape (clusters, parameters, parameters)."""
        P = self.parameters
        total = np.zeros((clusters, P, P))
        if isinstance(self.model, NormalDensity):
            return self._normal_information(beta, cluster, total)
        # reports of clear numbers cannot be enumerated: use outer products instead
        if self.design_of is None:
            return _sum_outer(self.scores(beta), self.weights, cluster, total)
        for report in range(max(channel.shape[1] for channel in self.channels)):
            table = np.stack(
                [
                    channel[:, report] if report < channel.shape[1] else np.zeros(len(channel))
                    for channel in self.channels
                ]
            )
            chances = table[self.design_of]
            possible = chances.any(axis=1)
            if not possible.any():
                continue
            chances[~possible] = 1.0
            other = replace(self, chances=chances, has_penalty=False)
            q = np.exp(other.log_reports(beta)) * possible
            total = _sum_outer(other.scores(beta), self.weights * q, cluster, total)
        return total

    def _normal_information(self, beta: Floats, cluster: NDArray[np.intp], total: Floats) -> Floats:
        """Return the expected information of a normal outcome: 1/σ² for the mean, 2 for log σ."""
        scale = np.exp(-self.predictors(beta)[:, 1])
        for place, factor in ((0, scale), (1, np.full(self.n, np.sqrt(2.0)))):
            rows = np.zeros((self.n, self.parameters))
            rows[:, self.index[place]] = factor[:, None] * self.designs[place]
            total = _sum_outer(rows, self.weights, cluster, total)
        return total

    def _chunks(self) -> Iterator[slice]:
        K, m = self.chances.shape[1], self.model.predictors
        width = K * m * m if self.is_flat else K * max(self.parameters, m * m)
        step = max(1, CHUNK // max(width, 1))
        return (slice(start, min(start + step, self.n)) for start in range(0, self.n, step))

    def _posterior(self, eta: Floats, rows: slice) -> tuple[Floats, Floats, Floats, Floats]:
        """Return log P(report) and P(truth | report) of some records, and the derivatives of log p."""
        numbers = np.arange(*rows.indices(self.n))
        if eta.ndim == 3 and not isinstance(self.model, Product):
            raise TypeError("Predictors that depend on the truth need a product of models.")
        if self.has_equal_rows:
            n, K, m = len(eta), self.chances.shape[1], self.model.predictors
            log_p, s, h = self.model.evaluate(eta[:1], numbers[:1])
            s, h = np.broadcast_to(s, (n, K, m)), np.broadcast_to(h, (n, K, m, m))
        else:
            log_p, s, h = self.model.evaluate(eta, numbers)
        joint = self.log_chances[rows] + log_p
        top = joint.max(axis=1)
        with np.errstate(invalid="ignore"):
            joint -= top[:, None]
            raised = np.exp(joint, out=joint)
        total = raised.sum(axis=1)
        raised /= total[:, None]
        return np.log(total) + top, raised, s, h

    def _add_small(
        self, eta: Floats, rows: slice, slope: Floats, observed: Floats, complete: Floats | None
    ) -> float:
        """Add the derivatives for few records, with a minimum of array operations."""
        assert self.whole_design is not None  # noqa: S101  (for the type checker: the caller has checked it)
        log_q, post, s, h = self._posterior(eta, rows)
        w = self.weights[rows]
        design = self.whole_design[rows]
        n, K, m, P = design.shape
        weight = (w[:, None] * post).reshape(-1, 1)
        by_truth = np.matmul(s.reshape(n, K, 1, m), design).reshape(n * K, P)
        raised = weight * by_truth
        mean = np.matmul(post[:, None], by_truth.reshape(n, K, P))[:, 0]
        bent = np.matmul(h, design).reshape(n * K, -1) * weight
        inner = design.reshape(-1, P).T @ bent.reshape(-1, P)
        slope += raised.sum(axis=0)
        if complete is not None:
            complete -= inner
        observed -= inner + by_truth.T @ raised - mean.T @ (w[:, None] * mean)
        return float(w @ log_q)

    def _add_flat(
        self, eta: Floats, rows: slice, slope: Floats, observed: Floats, complete: Floats | None
    ) -> float:
        """Add the derivatives for some records if no predictor depends on the truth."""
        log_q, post, s, h = self._posterior(eta, rows)
        w = self.weights[rows]
        m = self.model.predictors
        raised = [post * s[..., a] for a in range(m)]
        mean = [part.sum(axis=1) for part in raised]
        for a in range(m):
            Za, ia = self.designs[a][rows], self.index[a]
            slope[ia] += (w * mean[a]) @ Za
            for b in range(a, m):
                Zb, ib = self.designs[b][rows], self.index[b]
                bend = -(post * h[..., a, b]).sum(axis=1)
                spread = (raised[a] * s[..., b]).sum(axis=1) - mean[a] * mean[b]
                _add_block(observed, Za, w * (bend - spread), Zb, (ia, ib), is_diagonal=a == b)
                if complete is not None:
                    _add_block(complete, Za, w * bend, Zb, (ia, ib), is_diagonal=a == b)
        return float(w @ log_q)

    def _add_by_truth(
        self, eta: Floats, rows: slice, slope: Floats, observed: Floats, complete: Floats | None
    ) -> float:
        """Add the derivatives for some records if predictors depend on the truth."""
        log_q, post, s, h = self._posterior(eta, rows)
        w = self.weights[rows]
        n, K = post.shape
        wide = [
            np.broadcast_to(
                design[rows][:, None] if design.ndim == 2 else design[rows], (n, K, design.shape[-1])
            )
            for design in self.designs
        ]
        own = np.zeros((n, K, self.parameters))
        for a, ia in enumerate(self.index):
            own[..., ia] += s[..., a, None] * wide[a]
        weight = (w[:, None] * post).ravel()
        inner = np.zeros_like(observed)
        for a, ia in enumerate(self.index):
            Za = wide[a].reshape(n * K, -1)
            for b in range(a, len(self.index)):
                bend = h[..., a, b].ravel()
                if not bend.any():
                    continue
                Zb = wide[b].reshape(n * K, -1)
                _add_block(inner, Za, -weight * bend, Zb, (ia, self.index[b]), is_diagonal=a == b)
        mean = np.einsum("nk,nkp->np", post, own)
        slope += w @ mean
        flat = own.reshape(n * K, -1)
        if complete is not None:
            complete += inner
        observed += inner - (flat.T @ (weight[:, None] * flat) - mean.T @ (w[:, None] * mean))
        return float(w @ log_q)


def _add_block(
    total: Floats,
    Z: Floats,
    weights: Floats,
    Y: Floats,
    places: tuple[NDArray[np.intp], NDArray[np.intp]],
    *,
    is_diagonal: bool,
) -> None:
    """Add Zᵀ diag(weights) Y at two sets of indices, and its transpose unless the block is diagonal."""
    block = (Z * weights[:, None]).T @ Y
    total[places[0][:, None], places[1]] += block
    if not is_diagonal:
        total[places[1][:, None], places[0]] += block.T


def _sum_outer(scores: Floats, weights: Floats, cluster: NDArray[np.intp], total: Floats) -> Floats:
    """Return `total` plus the sums of weighted outer products of scores, by cluster."""
    if len(total) == 1:
        return total + (scores.T @ (weights[:, None] * scores))[None]
    order = np.argsort(cluster, kind="stable")
    ends = np.searchsorted(cluster[order], np.arange(len(total) + 1))
    result = total.copy()
    for group in range(len(total)):
        rows = order[ends[group] : ends[group + 1]]
        own = scores[rows]
        result[group] += own.T @ (weights[rows, None] * own)
    return result
