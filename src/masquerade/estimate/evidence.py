"""Two types of evidence: reports with their channels, or values with their covariance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from masquerade.core.axes import Floats, contract
from masquerade.core.covariance import Covariance, ScaledCovariance, SumCovariance, take_cells
from masquerade.core.errors import InputError
from masquerade.core.evidence import Evidence, Fit, Pool, Projection, ResamplingDraws, Sample, TableReduction
from masquerade.core.likelihood_rows import ReportFactors
from masquerade.core.links.fits import LinkFits, fit_one_by_one, merge_fits
from masquerade.core.links.marginals import Prior
from masquerade.core.reduced_covariance import take_covariance
from masquerade.estimate.gaussian import (
    curvature,
    geometric,
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
from masquerade.estimate.pooling import add_reports, pool_reports
from masquerade.estimate.reports import Reports
from masquerade.estimate.resampling import (
    conditional_pearson,
    estimates_of,
    is_invertible,
    redraw,
    redraw_covariance,
)
from masquerade.estimate.survey_weights import second_order, weighted_residuals

MOST_CELLS = 2048  # largest table whose dense covariance is computed
TINY = 1e-300


@dataclass(frozen=True, slots=True)
class ReportEvidence:
    """Evidence from reports: their likelihood under their channels.

    `parts` are the reports of one or more strata, whose tables add up. `values` are the unbiased counts of
    the queried table, and `view` reduces that table to the margin or slice in use.
    """

    parts: tuple[Reports, ...]
    values: Floats
    covariance: Covariance
    view: TableReduction

    @classmethod
    def of(cls, parts: Sequence[Reports], values: Floats, covariance: Covariance) -> ReportEvidence:
        """Return the evidence of a queried table."""
        return cls(tuple(parts), values, covariance, TableReduction.none(values.ndim))

    @classmethod
    def clear(cls, counts: Floats, covariance: Covariance) -> ReportEvidence:
        """Return the evidence of clear counts: each report is the truth."""
        view = TableReduction.none(counts.ndim)
        part = Reports(counts, (None,) * counts.ndim, counts.shape, view)
        return cls((part,), counts, covariance, view)

    @property
    def joint_reports(self) -> Reports | None:
        """All reports as one table, if they share their channels and the view includes all true values."""
        part = add_reports(self._view_parts(self.parts))
        return part if part is not None and part.reduction.is_complete(len(part.truths)) else None

    def nonnegative(self, method: Projection) -> Floats:
        """Return the table without negative counts; ``mle`` maximizes the likelihood of the reports."""
        if method != "mle":
            return self.view.apply(geometric(self.values, method))
        return self.view.apply(reduce(np.add, [part.table(part.most_likely()) for part in self.parts]))

    def deviance(self, expected: Floats) -> float:
        """Return 2[ℓ(saturated reports) − ℓ(expected)].

        True values that are summed over or outside a slice are free: ℓ is maximized over them. Without a
        slice, `expected` is scaled to the number of records.
        """
        total = sum(part.total for part in self.parts)
        reductions = [part.reduction.follow(self.view) for part in self.parts]
        sliced = any(reduction.at or reduction.among for reduction in reductions)
        fixed = expected if sliced or expected.sum() <= 0 else expected * (total / expected.sum())
        if len(self.parts) == 1 and not self._has_free_truths(self.parts[0]):
            (part,) = self._view_parts(self.parts)
            cells = np.transpose(fixed / part.weight, np.argsort(part.reduction.keep)).reshape(part.latent)
            return 2 * likelihood(part.observed, part.channels).at(cells).deviance
        return self._fit_indirectly(lambda _: fixed, 0, fixed_total=sliced).deviance

    def fit(self, generators: Iterable[Iterable[int]], start: Floats | None = None) -> Fit:
        """Fit a hierarchical log-linear model of the table; true values outside the table stay free.

        Formula: EM on the table of true values. E-step M = θ∘P(Ñ/Pᵀθ), part by part; M-step: the table of M
        is replaced by the model's fit to it, and true values within a cell keep their proportions. Then
        Newton steps on the model's parameters, if they are few and nothing is summed over.
        Reference: Haberman (1974, 1977) for indirectly observed tables; Dempster, Laird & Rubin (1977).
        Cost: a few contractions and proportional fits per step, accelerated by squared extrapolation.
        Error: the saturated fit is proven to be optimal. Other fits are the best from several starts: the
        most likely table, one with weaker dependence, and `start` if given. `converged` means that the
        log-likelihood is stationary (to 1e-7).
        """
        shape = self.view.apply(self.values).shape
        model = generators_of(generators, len(shape))
        df = prod(shape) - parameters(model, shape) + sum(part.spare for part in self.parts)
        fit = self._fit_indirectly(lambda margin: proportional_fit(margin, model), df, model, start=start)
        return replace(fit, generators=model, evidence=self)

    def contrast_variances(self, fit: Fit, contrasts: Floats) -> Floats:
        """Return the variance of each contrast of a fitted model, from the information of the reports.

        If true values are outside the table, or strata have different channels, the variance is computed from
        the covariance of the counts.
        """
        if self.joint_reports is None or not self.joint_reports.observed.sum():
            return loglinear_variances(
                self.covariance.dense(MOST_CELLS), fit.generators, fit.expected, contrasts
            )
        return np.diag(contrast_covariance(self.joint_reports, fit.generators, fit.expected, contrasts))

    @classmethod
    def fit_links(
        cls, batch: Sequence[Evidence], places: Sequence[Sequence[int]], least: Floats, tolerance: float
    ) -> LinkFits:
        """Fit links as `masquerade.core.links.fits.fit_links` does, together where possible."""
        parts = [each.viewed_parts() if isinstance(each, ReportEvidence) else [] for each in batch]
        together = [i for i, seen in enumerate(parts) if len(seen) == 1 and is_simple(seen[0])]
        rest = sorted(set(range(len(batch))) - set(together))
        fits: list[tuple[list[int], LinkFits]] = []
        if together:
            simple, where = [parts[i][0] for i in together], [places[i] for i in together]
            fits.append((together, fit_reports(simple, where, least[together], tolerance)))
        if rest:
            others, where = [batch[i] for i in rest], [places[i] for i in rest]
            fits.append((rest, fit_one_by_one(others, where, least[rest], tolerance)))
        return merge_fits(fits, len(batch))

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> ReportEvidence:
        """Return the evidence of the table summed or sliced to the axes `keep`."""
        return replace(self, covariance=self.covariance.reduce(keep, at), view=self.view.then(keep, at))

    def take(self, codes: Mapping[int, Sequence[int]]) -> ReportEvidence:
        """Return the evidence of the cells with the given codes on some axes.

        Records whose reports show that they are outside these cells are dropped. If the reports do not show
        it, the true values outside the cells stay free.
        """
        parts, values, view, hidden = self.parts, self.values, self.view, {}
        for axis, chosen in codes.items():
            own = view.keep[axis]
            shown = [part.take({part.reduction.keep[own]: chosen}) for part in parts]
            known = [part for part in shown if part is not None]
            if len(known) == len(parts) and not view.among:
                parts, values = tuple(known), take_cells(values, {own: chosen})
            else:
                hidden[axis] = chosen
        return ReportEvidence(parts, values, take_covariance(self.covariance, codes), view.take(hidden))

    def restrict_to_table(self) -> Evidence:
        """Return this evidence, or Gaussian evidence if the likelihood has true values outside the table."""
        if any(self._has_free_truths(part) for part in self.parts):
            return GaussianEvidence.of(self.view.apply(self.values), self.covariance)
        return self

    def independence(self, given: Sequence[int], first: int, second: int) -> tuple[float, float] | None:
        """Test independence of two axes given other axes, directly on the table of reports.

        Separate channels preserve independence, and invertible channels preserve dependence, too. Return None
        unless each axis has its own channel, `given` is not disguised, and both channels are invertible. With
        survey weights, the statistic is corrected by `second_order`.
        """
        part = self.joint_reports
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
        """Return Pearson's statistic of the reports under a fitted model, and its degrees of freedom.

        With survey weights, the statistic of a small table is corrected by `second_order`. Without a joint
        table of reports, return None; if there are survey weights, return the distance between the weighted
        counts and the model, measured by the covariance of the counts.
        """
        model = generators_of(generators, expected.ndim)
        part = self.joint_reports
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
        """Score links by the marginal likelihood of the reports, as `core.links.marginals` does."""
        reports: list[LinkReports | None] = []
        for evidence, where in zip(batch, places, strict=True):
            part = evidence.joint_reports if isinstance(evidence, ReportEvidence) else None
            reports.append(None if part is None else LinkReports.of(part, where))
        return marginal_gains(reports, prior)

    def resample(self, draws: ResamplingDraws, expected: Floats | None = None) -> Evidence | None:
        """Return evidence of an equal number of records, newly drawn from the reports or from true counts.

        With survey weights, the counts are drawn from the normal distribution of their estimate instead.
        Return None if `expected` is given but reports cannot be drawn from it.
        """
        chances = [part.observed for part in self.parts]
        if expected is not None:
            part = self.joint_reports
            if part is None:
                return None
            chances = [self._reports(part, expected)] * len(self.parts)
        fresh = [
            redraw(share, float(part.observed.sum()), draws, part.dealt)
            for share, part in zip(chances, self.parts, strict=True)
        ]
        covariance = redraw_covariance(
            self.covariance,
            [part.observed for part in self.parts],
            fresh,
            [part.dealt for part in self.parts],
        )
        if covariance is None:
            normal = GaussianEvidence.of(self.view.apply(self.values), self.covariance)
            return normal.resample(draws) if expected is None else None
        seen = self._view_parts(self.parts)
        parts = [replace(part, observed=new) for part, new in zip(seen, fresh, strict=True)]
        return ReportEvidence.of(parts, estimates_of(covariance), covariance)

    def __add__(self, other: Evidence) -> Evidence:
        """Return the evidence of the sum of two tables; each part keeps its own true values."""
        if isinstance(other, ReportEvidence) and other.view == self.view:
            both = SumCovariance((self.covariance, other.covariance))
            return ReportEvidence(self.parts + other.parts, self.values + other.values, both, self.view)
        return GaussianEvidence.of(self.view.apply(self.values), self.covariance) + other

    def pool(self, samples: Sequence[Sample]) -> Pool:
        """Combine samples of one population; see the function `pool`."""
        return pool(samples)

    def viewed_parts(self) -> list[Reports]:
        """Return the parts, each reduced to the current view."""
        return self._view_parts(self.parts)

    def report_factors(self, over: Sequence[str]) -> ReportFactors | None:
        """Return the reports of the table as factors; None if truths are outside the table."""
        return None if self.joint_reports is None else self.joint_reports.report_factors(over)

    def _reports(self, part: Reports, expected: Floats) -> Floats:
        """Return the expected reports of true counts."""
        cells = np.transpose(expected, np.argsort(part.reduction.keep)).reshape(part.latent)
        return contract(cells / part.weight, part.channels)

    def _view_parts(self, parts: Sequence[Reports]) -> list[Reports]:
        """Return parts reduced to the current view."""
        if self.view == TableReduction.none(self.values.ndim):
            return list(parts)
        return [replace(part, reduction=part.reduction.follow(self.view)) for part in parts]

    def _has_free_truths(self, part: Reports) -> bool:
        """Return True if true values are summed over or outside the current view."""
        return not part.reduction.follow(self.view).is_complete(len(part.truths))

    def _fit_indirectly(
        self,
        model: Callable[[Floats], Floats],
        df: int,
        generators: Generators | None = None,
        *,
        fixed_total: bool = False,
        start: Floats | None = None,
    ) -> Fit:
        seen = self._view_parts([part for part in self.parts if part.observed.sum() > 0])
        if not seen:
            return Fit(np.zeros(self.view.apply(self.values).shape), 0.0, df, 0.0, 0.0, converged=True)
        return IndirectFit(seen, model, generators, fixed_total=fixed_total, start=start).fit(df)


@dataclass(frozen=True, slots=True)
class GaussianEvidence:
    """Evidence from values and their covariance, treated as approximately normal.

    For sources without a table of reports: noisy counts, projections, sources of other packages. Create it
    with `GaussianEvidence.of`.

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
    view: TableReduction
    _weights: list[Floats] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, values: Floats, covariance: Covariance) -> GaussianEvidence:
        """Return the evidence of values with a covariance.

        Parameters
        ----------
        values : array
            Unbiased counts of the table.
        covariance : Covariance
            Their covariance.

        Returns
        -------
        GaussianEvidence
            Evidence for a `CountTable`.
        """
        return cls(
            np.asarray(values, dtype=float), covariance, covariance, TableReduction.none(np.ndim(values))
        )

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
        """Fit a hierarchical log-linear model by minimum distance (Wald).

        Parameters
        ----------
        generators, start
            As in `Evidence.fit`; `start` is ignored.

        Returns
        -------
        Fit
            The fitted model.

        Notes
        -----
        Formula: minimize (N̂ − E)ᵀΣ⁻(N̂ − E) over the tables E of the model, with Σ⁻ the inverse of Σ on its
        range; Gauss–Newton on log E.
        Reference: Neyman (1949); Wald (1943).
        """
        del start
        values = self.view.apply(self.values)
        model = generators_of(generators, values.ndim)
        expected, distance, converged = loglinear_distance(values, model, self.weights())
        df = values.size - parameters(model, values.shape)
        return Fit(expected, distance, df, distance, -distance / 2, converged, model, self)

    def distance(self, generators: Iterable[Iterable[int]], enough: float) -> float:
        """Return the distance between the values and the nearest table of a model.

        Parameters
        ----------
        generators : iterable of iterable of int
            Highest terms of the model.
        enough : float
            The search stops as soon as it finds a table at most this far away.

        Returns
        -------
        float
            Distance (N̂ − E)ᵀΣ⁻(N̂ − E).
        """
        values = self.view.apply(self.values)
        return loglinear_distance(values, generators_of(generators, values.ndim), self.weights(), enough)[1]

    def weights(self) -> Floats:
        """Return Σ⁻ of the current view; computed once and shared by all fits."""
        if not self._weights:
            cells = prod(self.covariance.shape)
            self._weights.append(curvature(self._dense(self.covariance, cells)))
        return self._weights[0]

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the pickled form, without the cached weights."""
        return type(self), (self.values, self.whole, self.covariance, self.view)

    def contrast_variances(self, fit: Fit, contrasts: Floats) -> Floats:
        """Return the variance of each contrast of a fitted model, from the covariance of the values.

        Parameters
        ----------
        fit : Fit
            Model fitted to this evidence.
        contrasts : array of shape (contrasts, *shape)
            Weights of the fitted counts.

        Returns
        -------
        array
            Variances.
        """
        covariance = self._dense(self.covariance, fit.expected.size)
        return loglinear_variances(covariance, fit.generators, fit.expected, contrasts)

    def reduce(self, keep: Sequence[int], at: Mapping[int, int]) -> GaussianEvidence:
        """Return the evidence of the table summed or sliced to the axes `keep`.

        Parameters
        ----------
        keep, at
            As in `Evidence.reduce`.

        Returns
        -------
        GaussianEvidence
            Evidence of the smaller table.
        """
        return replace(self, covariance=self.covariance.reduce(keep, at), view=self.view.then(keep, at))

    def take(self, codes: Mapping[int, Sequence[int]]) -> GaussianEvidence:
        """Return the evidence of the cells with these codes, as in `Evidence.take`."""
        return replace(self, covariance=take_covariance(self.covariance, codes), view=self.view.take(codes))

    def restrict_to_table(self) -> GaussianEvidence:
        """Return this evidence, which has no true values outside the table."""
        return self

    def independence(self, given: Sequence[int], first: int, second: int) -> None:
        """Return None: there are no reports to test, so `fit` tests independence.

        Parameters
        ----------
        given, first, second
            As in `Evidence.independence`; ignored.

        Returns
        -------
        None
            Always.
        """
        del given, first, second

    def pearson(self, expected: Floats, generators: Iterable[Iterable[int]]) -> tuple[float, float]:
        """Return the distance of the values from the true counts of a model, and its degrees of freedom.

        Parameters
        ----------
        expected, generators
            As in `Evidence.pearson`.

        Returns
        -------
        tuple of float
            Distance and degrees of freedom.
        """
        model = generators_of(generators, expected.ndim)
        return self.deviance(expected), expected.size - parameters(model, expected.shape)

    def resample(self, draws: ResamplingDraws, expected: Floats | None = None) -> GaussianEvidence:
        """Return evidence of newly drawn values around the observed ones or around true counts.

        Parameters
        ----------
        draws, expected
            As in `Evidence.resample`.

        Returns
        -------
        GaussianEvidence
            Evidence of the drawn values.
        """
        centre = self.view.apply(self.values) if expected is None else expected
        covariance = self._dense(self.covariance, centre.size)
        spread, directions = np.linalg.eigh(covariance)
        noise = directions @ (np.sqrt(np.maximum(spread, 0.0)) * draws.standard_normal(centre.size))
        return GaussianEvidence.of(centre + noise.reshape(centre.shape), self.covariance)

    def __add__(self, other: Evidence) -> Evidence:
        """Return the evidence of the sum of two tables; values and covariances add up."""
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

    def pool(self, samples: Sequence[Sample]) -> Pool:
        """Combine samples of one population; see the function `pool`."""
        return pool(samples)

    @staticmethod
    def _dense(covariance: Covariance, cells: int) -> Floats:
        if cells > MOST_CELLS:
            raise InputError(
                f"A table of {cells:,} cells with only a covariance is too large for its likelihood "
                f"(at most {MOST_CELLS:,}): use nonnegative('simplex') or nonnegative('clip')."
            )
        return covariance.dense(MOST_CELLS)


def pool(samples: Sequence[Sample]) -> Pool:
    """Combine samples of one population: by their joint likelihood, or as means weighted by precision.

    Formula: counts of equally disguised samples add up; other samples have the joint likelihood of
    `pool_reports`. Without a joint likelihood, the result is n·Σ w_i N̂_i/n_i with one weight per sample,
    w_i ∝ 1/Σ Var(N̂_i/n_i) over the cells. The agreement is then the p-value of the most deviating cell times
    the number of cells and samples (Bonferroni).
    Reference: Cochran (1937).
    Error: the weights are estimated, which matters only to second order.
    """
    seen = [sample for sample in samples if sample.n > 0] or [samples[0]]
    if len(seen) == 1:
        return Pool(seen[0].values, seen[0].evidence)
    reports = [each.evidence.viewed_parts() for each in seen if isinstance(each.evidence, ReportEvidence)]
    if len(reports) == len(seen):
        strata = [add_reports(parts) for parts in zip_longest(*reports)]
        alike = [part for part in strata if part is not None]
        if len(alike) == len(strata):
            values = reduce(np.add, [each.values for each in seen])
            covariance = SumCovariance(tuple(each.evidence.covariance for each in seen))
            return Pool(values, ReportEvidence.of(alike, values, covariance))
        if all(len(parts) == 1 and parts[0].weight == 1 and parts[0].squares is None for parts in reports):
            joint = pool_reports([parts[0] for parts in reports])
            if joint is not None:
                evidence = ReportEvidence.of([joint.reports], joint.values, joint.covariance)
                return Pool(joint.values, evidence, joint.agreement)
    return _weigh_samples(seen)


def _weigh_samples(samples: Sequence[Sample]) -> Pool:
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
    """Return two-way tables over the last two axes of `order`, one per configuration of the other axes."""
    turned = cells.transpose(order)
    return turned.reshape(-1, *turned.shape[-2:])
