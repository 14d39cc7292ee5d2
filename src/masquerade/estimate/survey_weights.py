"""Corrections of Pearson's statistic for survey weights (Rao and Scott)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from masquerade.core.axes import Floats, contract
from masquerade.estimate.loglinear import Generators, design
from masquerade.estimate.reports import Reports

FLAT = 1e-10  # singular values below this share of the largest count as 0
TINY = 1e-300


class ResidualMoments(NamedTuple):
    """Sum and sum of squares of the generalized design effects of a model's residuals."""

    first: float
    second: float


def second_order(statistic: float, df: float, residuals: Iterable[ResidualMoments]) -> tuple[float, float]:
    """Return the statistic and degrees of freedom corrected for survey weights.

    Formula: Pearson's statistic X² is distributed like Σ δ_i χ²₁, where δ are the generalized design effects.
    X²/c is treated as χ² with ν degrees of freedom, c = Σδ²/Σδ and ν = (Σδ)²/Σδ². With equal weights all δ
    are 1 and nothing changes.
    Reference: Rao & Scott (1981, 1984), the second-order correction; Satterthwaite (1946).
    """
    moments = list(residuals)
    first, second = (sum(each[i] for each in moments) for i in (0, 1))
    if first <= TINY or second <= TINY:
        return statistic, df
    return statistic * first / second, min(first**2 / second, df)


def weighted_residuals(
    part: Reports, generators: Generators, expected: Floats, reports: Floats
) -> ResidualMoments:
    """Return the moments of the residuals of a model of the true counts, fitted to weighted reports.

    `expected` is the model's table of true counts, `reports` its expected reports.
    """
    keep = part.reduction.keep
    cells = np.transpose(expected, np.argsort(keep)).ravel()
    X = design(tuple(tuple(keep[axis] for axis in axes) for axes in generators), part.truths)
    slopes = (cells[:, None] * X).reshape(*part.latent, X.shape[1])
    moved = contract(slopes, [*part.channels, None]).reshape(-1, X.shape[1])
    squares = part.observed if part.squares is None else part.squares
    return _moments(squares.ravel(), reports.ravel(), moved)


def independent_residuals(squares: Floats, expected: Floats) -> ResidualMoments:
    """Return the moments of the residuals of independence in a two-way table of weighted reports."""
    X = design(((0,), (1,)), expected.shape)
    return _moments(squares.ravel(), expected.ravel(), expected.ravel()[:, None] * X)


def _moments(squares: Floats, expected: Floats, slopes: Floats) -> ResidualMoments:
    """Return Σδ and Σδ² of the residuals orthogonal to the directions of a model.

    Formula: the δ are the eigenvalues of M diag(d) M with d = Σw²/expected in each cell and M = I − QQᵀ,
    where Q spans the slopes of √expected. Then Σδ = Σd(1 − h) and Σδ² = Σd²(1 − 2h) + |Qᵀ diag(d) Q|², where
    h is the diagonal of QQᵀ.
    Cost: O(cells·parameters²).
    """
    seen = expected > TINY
    d = squares[seen] / expected[seen]
    left, lengths, _ = np.linalg.svd(slopes[seen] / np.sqrt(expected[seen])[:, None], full_matrices=False)
    Q = left[:, lengths > FLAT * max(float(lengths.max(initial=0.0)), TINY)]
    h = (Q**2).sum(axis=1)
    second = np.sum(d**2 * (1 - 2 * h)) + np.sum((Q.T @ (d[:, None] * Q)) ** 2)
    return ResidualMoments(float(np.sum(d * (1 - h))), float(second))
