"""The two kinds of evidence: observed reports with what was done to them, or values with their covariance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from masquerade.core.axes import Floats, contract
from masquerade.core.covariance import Covariance, ScaledCovariance, SumCovariance
from masquerade.core.errors import InputError
from masquerade.core.evidence import Draws, Evidence, Fit, Pool, Projection, Reduction, Sample
from masquerade.core.link_fits import LinkFits, fit_one_by_one, merged
from masquerade.core.link_marginals import Prior
from masquerade.estimate.gaussian import (
    curvature,
    loglinear_distance,
    loglinear_variances,
    nearest_nonnegative,
)
from masquerade.estimate.indirect import IndirectFit, pearson_of
from masquerade.estimate.information import contrast_covariance
from masquerade.estimate.likelihood import likelihood
from masquerade.estimate.links import fit_reports, is_simple
from masquerade.estimate.loglinear import Generators, generators_of, parameters, proportional_fit
from masquerade.estimate.loglinear_newton import is_small
from masquerade.estimate.marginal_likelihood import LinkReports, marginal_gains
from masquerade.estimate.pooling import added_reports, pooled_reports
from masquerade.estimate.reports import Reports
from masquerade.estimate.resampling import (
    conditional_pearson,
    estimates_of,
    is_invertible,
    redraw,
    redrawn_covariance,
)
from masquerade.estimate.survey_weights import second_order, weighted_residuals

MOST_CELLS = 2048  # of a table whose covariance is written out
TINY = 1e-300


@dataclass(frozen=True, slots=True)
class ReportEvidence:
    """Evidence from reports: their likelihood under the channels that they went through.

    Records of several strata are several `parts`; the table is the sum of theirs. `values` are the unbiased
    counts of the table as it was asked for, of which `view` is what is looked at now.
    """

    parts: tuple[Reports, ...]
    values: Floats
    covariance: Covariance
    view: Reduction

    @classmethod
    def of(cls, parts: Sequence[Reports], values: Floats, covariance: Covariance) -> ReportEvidence:
        """Return the evidence of a table as it was asked for."""
        return cls(tuple(parts), values, covariance, Reduction.none(values.ndim))

    @classmethod
    def clear(cls, counts: Floats, covariance: Covariance) -> ReportEvidence:
        """Return the evidence of clear counts: every report is the truth."""
        whole = Reduction.none(counts.ndim)
        part = Reports(counts, (None,) * counts.ndim, counts.shape, whole)
        return cls((part,), counts, covariance, whole)

    @property
    def whole(self) -> Reports | None:
        """All reports as one table, if they share their channels and their truths are those looked at."""
        part = added_reports(self._viewed(self.parts))
        return part if part is not None and len(part.reduction.keep) == len(part.truths) else None

    def nonnegative(self, method: Projection) -> Floats:
        """Return the table without negative counts; ``mle`` maximises the likelihood of the reports."""
        if method != "mle":
            return self.view.apply(geometric(self.values, method))
        return self.view.apply(reduce(np.add, [part.table(part.most_likely()) for part in self.parts]))

    def deviance(self, expected: Floats) -> float:
        """Return 2[ℓ(saturated reports) − ℓ(expected)], maximised over what `expected` leaves open.

        Open are truths that were summed over or lie outside a slice; `expected` is scaled to the records that
        it is about where there is no slice.
        """
        total = sum(part.total for part in self.parts)
        whole = not any(part.reduction.then(self.view.keep, dict(self.view.at)).at for part in self.parts)
        fixed = expected * (total / expected.sum()) if whole and expected.sum() > 0 else expected
        if len(self.parts) == 1 and not self._open(self.parts[0]):
            (part,) = self._viewed(self.parts)
            cells = np.transpose(fixed / part.weight, np.argsort(part.reduction.keep)).reshape(part.latent)
            return 2 * likelihood(part.observed, part.channels).at(cells).deviance
        return self._fitted(lambda _: fixed, 0, fixed_total=not whole).deviance

    def fit(self, generators: Iterable[Iterable[int]], start: Floats | None = None) -> Fit:
        """Fit a hierarchical log-linear model of the table; truths beyond the table stay free.

        Formula: EM on the table of truths. E-step M = θ∘P(Ñ/Pᵀθ), part by part; M-step: the table that M
        gives is replaced by the model's fit to it, truths within a cell keep their proportions. Then Newton
        steps on the model's parameters, where they are few and nothing is summed over.
        Reference: Haberman (1974, 1977) for indirectly observed tables; Dempster, Laird & Rubin (1977).
        Cost: some contractions and proportional fits a step, accelerated by squared extrapolation.
        Error: the saturated fit is proven to be the best. Others are the best of those from the most likely
        table, from one that depends less on itself, and from a `start` if given; `converged` tells that
        the log-likelihood is stationary (to 1e-7).
        """
        shape = self.view.apply(self.values).shape
        model = generators_of(generators, len(shape))
        df = prod(shape) - parameters(model, shape) + sum(part.spare for part in self.parts)
        found = self._fitted(lambda margin: proportional_fit(margin, model), df, model, start=start)
        return replace(found, generators=model, evidence=self)

    def contrast_variances(self, fit: Fit, contrasts: Floats) -> Floats:
        """Return the variance of each contrast of a fitted model, from the information of the reports.

        Where truths lie beyond the table, or in several strata, from the covariance of the counts.
        """
        if self.whole is None or not self.whole.observed.sum():
            return loglinear_variances(
                self.covariance.dense(MOST_CELLS), fit.generators, fit.expected, contrasts
            )
        return np.diag(contrast_covariance(self.whole, fit.generators, fit.expected, contrasts))

    @classmethod
    def fit_links(
        cls, batch: Sequence[Evidence], places: Sequence[Sequence[int]], least: Floats, tolerance: float
    ) -> LinkFits:
        """Fit links as `masquerade.core.link_fits.fit_links` does, together where that is possible."""
        parts = [each.seen() if isinstance(each, ReportEvidence) else [] for each in batch]
        together = [i for i, seen in enumerate(parts) if len(seen) == 1 and is_simple(seen[0])]
        alone = sorted(set(range(len(batch))) - set(together))
        found: list[tuple[list[int], LinkFits]] = []
        if together:
            simple, where = [parts[i][0] for i in together], [places[i] for i in together]
            found.append((together, fit_reports(simple, where, least[together], tolerance)))
        if alone:
            others, where = [batch[i] for i in alone], [places[i] for i in alone]
            found.append((alone, fit_one_by_one(others, where, least[alone], tolerance)))
        return merged(found, len(batch))

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> ReportEvidence:
        """Return the evidence of the table summed or sliced to the axes `keep`."""
        return replace(self, covariance=self.covariance.reduced(keep, at), view=self.view.then(keep, at))

    def alone(self) -> Evidence:
        """Return itself, or values and covariance where truths beyond the table are in the likelihood."""
        if any(self._open(part) for part in self.parts):
            return GaussianEvidence.of(self.view.apply(self.values), self.covariance)
        return self

    def independence(self, given: Sequence[int], first: int, second: int) -> tuple[float, float] | None:
        """Test independence of two axes given others on the disguised table itself: Pearson's statistic, df.

        Channels that act on each variable alone keep independence, whatever else they do; and if they can be
        inverted they make none. What is given must not be disguised. With survey weights: `second_order`.
        """
        part = self.whole
        if part is None:
            return None
        groups = part.groups
        place = {
            axis: next(i for i, group in enumerate(groups) if part.reduction.keep[axis] in group)
            for axis in (*given, first, second)
        }
        apart = len(groups) == len(place) == len(set(place.values()))
        clear = all(part.channels[place[axis]] is None for axis in given)
        if not (apart and clear and all(is_invertible(part.channels[place[end]]) for end in (first, second))):
            return None
        order = [place[axis] for axis in (*given, first, second)]
        blocks = _in_blocks(part.observed, order)
        return conditional_pearson(blocks, None if part.squares is None else _in_blocks(part.squares, order))

    def pearson(self, expected: Floats, generators: Iterable[Iterable[int]]) -> tuple[float, float] | None:
        """Return Pearson's statistic of the reports of a fitted model, and its degrees of freedom.

        With survey weights: `second_order`, of tables small enough for it, and where truths lie beyond the
        table the distance from the model by the covariance of the weighted counts.
        """
        model = generators_of(generators, expected.ndim)
        part = self.whole
        if part is None:
            if all(each.squares is None for each in self.parts):
                return None
            fit = GaussianEvidence.of(self.view.apply(self.values), self.covariance).fit(model)
            return fit.pearson, fit.df
        reports = self._reports(part, expected)
        total = float(reports.sum())
        reports = reports * (float(part.observed.sum()) / total) if total > 0 else reports
        statistic = pearson_of(part.observed, reports)
        df = expected.size - parameters(model, expected.shape) + part.spare
        if part.squares is None or not is_small(expected.size, parameters(model, expected.shape)):
            return statistic, df
        return second_order(statistic, df, [weighted_residuals(part, model, expected, reports)])

    @classmethod
    def marginal_gains(
        cls, batch: Sequence[Evidence], places: Sequence[Sequence[int]], prior: Prior
    ) -> Floats:
        """Judge links by the marginal likelihood of the reports, as `core.link_marginals` does."""
        reports: list[LinkReports | None] = []
        for evidence, where in zip(batch, places, strict=True):
            part = evidence.whole if isinstance(evidence, ReportEvidence) else None
            reports.append(None if part is None else LinkReports.of(part, where))
        return marginal_gains(reports, prior)

    def drawn(self, draws: Draws, expected: Floats | None = None) -> Evidence | None:
        """Return evidence of as many records drawn anew: from the reports, or from those of true counts.

        Weighted records are drawn by the normal distribution of their estimate.
        """
        chances = [part.observed for part in self.parts]
        if expected is not None:
            part = self.whole
            if part is None:
                return None
            chances = [self._reports(part, expected)] * len(self.parts)
        fresh = [
            redraw(share, float(part.observed.sum()), draws, part.dealt)
            for share, part in zip(chances, self.parts, strict=True)
        ]
        covariance = redrawn_covariance(
            self.covariance,
            [part.observed for part in self.parts],
            fresh,
            [part.dealt for part in self.parts],
        )
        if covariance is None:
            normal = GaussianEvidence.of(self.view.apply(self.values), self.covariance)
            return normal.drawn(draws) if expected is None else None
        parts = tuple(replace(part, observed=new) for part, new in zip(self.parts, fresh, strict=True))
        return ReportEvidence.of(parts, estimates_of(covariance), covariance)

    def __add__(self, other: Evidence) -> Evidence:
        """Return the evidence of both: parts stand side by side, each with truths of its own."""
        if isinstance(other, ReportEvidence) and other.view == self.view:
            both = SumCovariance((self.covariance, other.covariance))
            return ReportEvidence(self.parts + other.parts, self.values + other.values, both, self.view)
        return GaussianEvidence.of(self.view.apply(self.values), self.covariance) + other

    def pooled(self, samples: Sequence[Sample]) -> Pool:
        """Pool samples of one population; see `pool`."""
        return pool(samples)

    def seen(self) -> list[Reports]:
        """Return the parts, each with the table that is looked at."""
        return self._viewed(self.parts)

    def _reports(self, part: Reports, expected: Floats) -> Floats:
        """Return the reports that true counts lead one to expect."""
        cells = np.transpose(expected, np.argsort(part.reduction.keep)).reshape(part.latent)
        return contract(cells / part.weight, part.channels)

    def _viewed(self, parts: Sequence[Reports]) -> list[Reports]:
        """Return parts whose table is the one that is looked at."""
        if self.view == Reduction.none(self.values.ndim):
            return list(parts)
        keep, at = self.view.keep, dict(self.view.at)
        return [replace(part, reduction=part.reduction.then(keep, at)) for part in parts]

    def _open(self, part: Reports) -> bool:
        """Tell whether truths are summed over, or lie outside the slice that is looked at."""
        return len(part.reduction.then(self.view.keep, dict(self.view.at)).keep) < len(part.truths)

    def _fitted(
        self,
        model: Callable[[Floats], Floats],
        df: int,
        generators: Generators | None = None,
        *,
        fixed_total: bool = False,
        start: Floats | None = None,
    ) -> Fit:
        seen = self._viewed([part for part in self.parts if part.observed.sum() > 0])
        if not seen:
            return Fit(np.zeros(self.view.apply(self.values).shape), 0.0, df, 0.0, 0.0, converged=True)
        return IndirectFit(seen, model, generators, fixed_total=fixed_total, start=start).fit(df)


@dataclass(frozen=True, slots=True)
class GaussianEvidence:
    """Evidence from values and their covariance alone, taken as approximately normal.

    For sources that have no table of reports: noisy counts, projections, sources of other packages.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.array([40.0, 60.0])
    >>> covariance = mq.extend.IndependentCovariance(np.array([4.0, 9.0]), names=("smoker",))
    >>> evidence = mq.extend.GaussianEvidence.of(counts, covariance)
    >>> evidence.deviance(np.array([44.0, 60.0]))
    4.0
    """

    values: Floats
    whole: Covariance
    covariance: Covariance
    view: Reduction
    _weights: list[Floats] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, values: Floats, covariance: Covariance) -> GaussianEvidence:
        """Return the evidence of values with a covariance."""
        return cls(np.asarray(values, dtype=float), covariance, covariance, Reduction.none(np.ndim(values)))

    def nonnegative(self, method: Projection) -> Floats:
        """Return the table without negative counts; ``mle`` is the nearest one by the covariance."""
        if method != "mle":
            return self.view.apply(geometric(self.values, method))
        weights = curvature(self._dense(self.whole, self.values.size))
        return self.view.apply(nearest_nonnegative(self.values.ravel(), weights).reshape(self.values.shape))

    def deviance(self, expected: Floats) -> float:
        """Return (N̂ − E)ᵀΣ⁻(N̂ − E)."""
        gap = (self.view.apply(self.values) - expected).ravel()
        return float(gap @ self.weights() @ gap)

    def fit(self, generators: Iterable[Iterable[int]], start: Floats | None = None) -> Fit:
        """Fit a hierarchical log-linear model by minimum distance (Wald); the start is its own.

        Formula: min over E of the model of (N̂ − E)ᵀΣ⁻(N̂ − E), Σ on its range; Gauss–Newton on log E.
        Reference: Neyman (1949); Wald (1943).
        """
        del start
        values = self.view.apply(self.values)
        model = generators_of(generators, values.ndim)
        expected, distance, converged = loglinear_distance(values, model, self.weights())
        df = values.size - parameters(model, values.shape)
        return Fit(expected, distance, df, distance, -distance / 2, converged, model, self)

    def distance(self, generators: Iterable[Iterable[int]], enough: float) -> float:
        """Return the least distance of a model's tables, or that of any of them which is at most `enough`."""
        values = self.view.apply(self.values)
        return loglinear_distance(values, generators_of(generators, values.ndim), self.weights(), enough)[1]

    def weights(self) -> Floats:
        """Return Σ⁻ of the table that is looked at, which all fits of it share."""
        if not self._weights:
            cells = prod(self.covariance.shape)
            self._weights.append(curvature(self._dense(self.covariance, cells)))
        return self._weights[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without what follows from the rest."""
        return type(self), (self.values, self.whole, self.covariance, self.view)

    def contrast_variances(self, fit: Fit, contrasts: Floats) -> Floats:
        """Return the variance of each contrast of a fitted model, from the covariance of the values."""
        covariance = self._dense(self.covariance, fit.expected.size)
        return loglinear_variances(covariance, fit.generators, fit.expected, contrasts)

    def reduced(self, keep: Sequence[int], at: Mapping[int, int]) -> GaussianEvidence:
        """Return the evidence of the table summed or sliced to the axes `keep`."""
        return replace(self, covariance=self.covariance.reduced(keep, at), view=self.view.then(keep, at))

    def alone(self) -> GaussianEvidence:
        """Return itself."""
        return self

    def independence(self, given: Sequence[int], first: int, second: int) -> None:
        """Nothing was observed but the values: their independence is tested by `fit`."""
        del given, first, second

    def pearson(self, expected: Floats, generators: Iterable[Iterable[int]]) -> tuple[float, float]:
        """Return the distance of the values from the true counts of a model, and its degrees of freedom."""
        model = generators_of(generators, expected.ndim)
        return self.deviance(expected), expected.size - parameters(model, expected.shape)

    def drawn(self, draws: Draws, expected: Floats | None = None) -> GaussianEvidence:
        """Return evidence of values drawn anew, around those observed or around true counts."""
        centre = self.view.apply(self.values) if expected is None else expected
        covariance = self._dense(self.covariance, centre.size)
        spread, directions = np.linalg.eigh(covariance)
        noise = directions @ (np.sqrt(np.maximum(spread, 0.0)) * draws.standard_normal(centre.size))
        return GaussianEvidence.of(centre + noise.reshape(centre.shape), self.covariance)

    def __add__(self, other: Evidence) -> Evidence:
        """Return the evidence of both: values and covariances add."""
        if isinstance(other, GaussianEvidence):
            if other.view == self.view:
                return GaussianEvidence(
                    self.values + other.values,
                    SumCovariance((self.whole, other.whole)),
                    SumCovariance((self.covariance, other.covariance)),
                    self.view,
                )
            others = other.view.apply(other.values)
        elif isinstance(other, ReportEvidence):
            others = other.view.apply(other.values)
        else:
            return NotImplemented
        both = SumCovariance((self.covariance, other.covariance))
        return GaussianEvidence.of(self.view.apply(self.values) + others, both)

    def pooled(self, samples: Sequence[Sample]) -> Pool:
        """Pool samples of one population; see `pool`."""
        return pool(samples)

    @staticmethod
    def _dense(covariance: Covariance, cells: int) -> Floats:
        if cells > MOST_CELLS:
            raise InputError(
                f"A table of {cells:,} cells known by its covariance alone is too large for its likelihood "
                f"(at most {MOST_CELLS:,}): use nonnegative('simplex') or nonnegative('clip')."
            )
        return covariance.dense(MOST_CELLS)


def pool(samples: Sequence[Sample]) -> Pool:
    """Pool samples of one population: by their joint likelihood, else as means weighed by their precision.

    Formula: samples disguised in the same way add; else the likelihood as in `pooled_reports`. Where there is
    none, n·Σ w_i N̂_i/n_i with one weight for each sample, w_i ∝ 1/Σ Var(N̂_i/n_i) over the cells, and the
    agreement is that of the cell that is farthest off, times the number of cells and samples (Bonferroni).
    Reference: Cochran (1937). Error: the weights are estimated, which matters to second order.
    """
    seen = [sample for sample in samples if sample.n > 0] or [samples[0]]
    if len(seen) == 1:
        return Pool(seen[0].values, seen[0].evidence)
    reports = [each.evidence.seen() for each in seen if isinstance(each.evidence, ReportEvidence)]
    if len(reports) == len(seen):
        strata = [added_reports(parts) for parts in zip_longest(*reports)]
        alike = [part for part in strata if part is not None]
        if len(alike) == len(strata):
            values = reduce(np.add, [each.values for each in seen])
            covariance = SumCovariance(tuple(each.evidence.covariance for each in seen))
            return Pool(values, ReportEvidence.of(alike, values, covariance))
        if all(len(parts) == 1 and parts[0].weight == 1 and parts[0].squares is None for parts in reports):
            joint = pooled_reports([parts[0] for parts in reports])
            if joint is not None:
                evidence = ReportEvidence.of([joint.reports], joint.values, joint.covariance)
                return Pool(joint.values, evidence, joint.agreement)
    return _weighed(seen)


def _weighed(samples: Sequence[Sample]) -> Pool:
    from scipy.special import ndtr  # noqa: PLC0415  (scipy is slow to import)

    sizes = np.array([each.n for each in samples])
    variances = [np.maximum(each.evidence.covariance.diagonal(), 0.0) for each in samples]
    precision = 1 / np.maximum([v.sum() / size**2 for v, size in zip(variances, sizes, strict=True)], TINY)
    factors = precision / precision.sum() * sizes.sum() / sizes
    values = reduce(np.add, [factor * each.values for factor, each in zip(factors, samples, strict=True)])
    covariance = SumCovariance(
        tuple(
            ScaledCovariance(each.evidence.covariance, float(factor))
            for factor, each in zip(factors, samples, strict=True)
        )
    )
    off = max(
        float(np.max(np.abs(each.values - values * (each.n / sizes.sum())) / np.sqrt(np.maximum(v, 1.0))))
        for each, v in zip(samples, variances, strict=True)
    )
    agreement = min(1.0, 2 * float(ndtr(-off)) * values.size * len(samples))
    return Pool(values, GaussianEvidence.of(values, covariance), agreement)


def _in_blocks(cells: Floats, order: Sequence[int]) -> Floats:
    """Return a two-way table over the last two axes in `order` for every configuration of those before."""
    turned = cells.transpose(order)
    return turned.reshape(-1, *turned.shape[-2:])


def geometric(values: Floats, method: Projection) -> Floats:
    """Return a table projected by geometry alone, its total kept."""
    if not np.any(values < 0):
        return values
    project = onto_simplex if method == "simplex" else clip_and_rescale
    return project(values, float(values.sum()))


def onto_simplex(values: Floats, total: float) -> Floats:
    """Return the nearest table (least squares) with no negative cell and the given total.

    Formula: max(values − τ, 0) with τ such that the sum is `total`; zeros if `total` ≤ 0.
    Reference: Held, Wolfe & Crowder (1974); Duchi et al. (2008), Fig. 1.
    Cost: O(J log J), one sort of the J cells.
    Error: exact. The result is biased: never average projected tables where unbiased ones are at hand.

    >>> onto_simplex(np.array([6.0, 5.0, -1.0]), 10.0).tolist()
    [5.5, 4.5, 0.0]
    """
    values = np.asarray(values, dtype=float)
    if total <= 0 or values.size == 0:
        return np.zeros(values.shape)
    # Only differences matter; without the largest value the partial sums lose nothing to its size.
    shifted = values - values.max()
    descending = -np.sort(-shifted, axis=None)
    thresholds = (np.cumsum(descending) - total) / np.arange(1, descending.size + 1)
    last = np.flatnonzero(descending > thresholds)[-1]
    return np.asarray(np.maximum(shifted - thresholds[last], 0.0))


def clip_and_rescale(values: Floats, total: float) -> Floats:
    """Return the table with negative cells set to zero and the rest scaled to the total.

    Formula: total · max(values, 0)/Σ max(values, 0); even cells if none is positive; zeros if `total` ≤ 0.
    Use: the table behind likelihoods and design effects.
    Cost: O(J).
    Error: biased, more so than the projection or the maximum-likelihood table when many cells are negative.

    >>> clip_and_rescale(np.array([6.0, 6.0, -2.0]), 10.0).tolist()
    [5.0, 5.0, 0.0]
    """
    values = np.asarray(values, dtype=float)
    if total <= 0 or values.size == 0:
        return np.zeros(values.shape)
    clipped = np.maximum(values, 0.0)
    size = clipped.sum()
    if size <= 0:
        return np.full(values.shape, total / values.size)
    return np.asarray(clipped / size * total)
