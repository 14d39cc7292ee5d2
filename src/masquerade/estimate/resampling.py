"""Resampled reports: drawn from a fitted model, for null distributions, or from the observed reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.covariance import Covariance, SumCovariance
from masquerade.core.evidence import ResamplingDraws
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance, Samples
from masquerade.estimate.survey_weights import independent_residuals, second_order

TINY = 1e-300
INVERTIBLE = 1e-9  # smallest singular value over the largest of a channel that can be inverted


def conditional_pearson(blocks: Floats, squares: Floats | None = None) -> tuple[float, float]:
    """Return Pearson's statistic of independence within many two-way tables, and its degrees of freedom.

    Rows and columns without reports are omitted and lower the degrees of freedom. With the `squares` of
    survey weights, the statistic and the degrees of freedom are corrected to second order.
    """
    rows, columns, totals = blocks.sum(axis=2), blocks.sum(axis=1), blocks.sum(axis=(1, 2))
    safe = np.where(totals > 0, totals, 1.0)
    expected = rows[:, :, None] * columns[:, None, :] / safe[:, None, None]
    seen = expected > 0
    statistic = np.sum((blocks[seen] - expected[seen]) ** 2 / expected[seen])
    freedom = np.maximum((rows > 0).sum(axis=1) - 1, 0) * np.maximum((columns > 0).sum(axis=1) - 1, 0)
    if squares is None:
        return float(statistic), int(freedom.sum())
    residuals = [
        independent_residuals(some, fitted)
        for some, fitted in zip(squares, expected, strict=True)
        if fitted.any()
    ]
    return second_order(float(statistic), int(freedom.sum()), residuals)


def is_invertible(channel: Floats | None) -> bool:
    """Return True if a channel has as many reports as truths and full rank."""
    if channel is None:
        return True
    if channel.shape[0] != channel.shape[1]:
        return False
    singular = np.linalg.svd(channel, compute_uv=False)
    return bool(singular[-1] > INVERTIBLE * singular[0])


def redraw(chances: Floats, records: float, draws: ResamplingDraws, dealt: Samples | None = None) -> Floats:
    """Draw `records` reports in proportion to `chances`; dealt samples keep their sizes."""
    if dealt is not None:
        fresh = np.zeros_like(chances)
        for sample in range(len(dealt.sizes)):
            inside: tuple[Any, ...] = (*[slice(None)] * dealt.axis, np.flatnonzero(dealt.of == sample))
            share = float(chances[inside].sum() / max(chances.sum(), TINY))
            fresh[inside] = redraw(chances[inside], records * share, draws)
        return fresh
    total = float(chances.sum())
    shares = chances.ravel() / total if total > 0 else np.full(chances.size, 1 / max(chances.size, 1))
    return np.asarray(draws.multinomial(round(records), shares), dtype=float).reshape(chances.shape)


def redraw_covariance(
    covariance: Covariance,
    observed: Sequence[Floats],
    fresh: Sequence[Floats],
    dealt: Sequence[Samples | None] = (),
) -> Covariance | None:
    """Return the covariance of estimates from new reports; None unless it is linear in unweighted counts."""
    left = list(zip(observed, fresh, dealt or [None] * len(fresh), strict=True))
    terms = list(covariance.terms) if isinstance(covariance, SumCovariance) else [covariance]
    redrawn: list[Covariance] = []
    for term in terms:
        if not isinstance(term, LinearCovariance) or len(term.parts) > len(left):
            return None
        mine, left = left[: len(term.parts)], left[len(term.parts) :]
        if any(
            part.squares.shape != old.shape or not np.array_equal(part.squares, old)
            for part, (old, _, _) in zip(term.parts, mine, strict=True)
        ):
            return None
        parts = tuple(
            CovariancePart(new, part.maps) for part, (_, new, _) in zip(term.parts, mine, strict=True)
        )
        values = np.sum([part.maps.apply(part.squares) for part in parts], axis=0)
        apart = tuple(
            pair
            for part, (_, new, samples) in zip(parts, mine, strict=True)
            if samples is not None and term.apart
            for pair in samples.between(new, part.maps)
        )
        redrawn.append(LinearCovariance(parts, values, values, term.n, term.names, apart=apart))
    if left:
        return None
    return SumCovariance(tuple(redrawn)) if isinstance(covariance, SumCovariance) else redrawn[0]


def estimates_of(covariance: Covariance) -> Floats:
    """Return the sum of the estimates that the linear terms of a covariance contain."""
    terms = covariance.terms if isinstance(covariance, SumCovariance) else (covariance,)
    return np.asarray(np.sum([term.values for term in terms if isinstance(term, LinearCovariance)], axis=0))
