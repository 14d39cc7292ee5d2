"""The observed information of a log-linear model fitted to reports."""

from __future__ import annotations

import numpy as np

from masquerade.core.axes import Floats, contract
from masquerade.core.errors import InputError
from masquerade.estimate.likelihood import ReportLikelihood, likelihood
from masquerade.estimate.loglinear import Generators, design
from masquerade.estimate.reports import Reports

EMPTY = 1e-9  # counts below this share of the mean count as 0: the error of their logarithm does not matter
FLAT = 1e-10  # directions with a curvature below this share of the largest are undetermined


def information(model: ReportLikelihood, counts: Floats, X: Floats) -> Floats:
    """Return the observed information of β in log N = Xβ (cells in C order), at the true counts N.

    Formula: Xᵀ[diag(N)·P diag(Ñ/(PᵀN)²)Pᵀ·diag(N) + diag(N(1 − g))]X with g = P(Ñ/PᵀN). This is the second
    derivative of minus the log-likelihood.
    Reference: Louis (1982); Haberman (1977) for indirectly observed tables.
    Cost: one contraction of a table per parameter.
    """
    point = model.at(counts)
    slopes = (counts.ravel()[:, None] * X).reshape(*counts.shape, X.shape[1])
    moved = contract(slopes, [*model.channels, None]).reshape(model.observed.size, X.shape[1])
    weights = np.zeros(model.observed.size)
    present = model.present.ravel()
    weights[present] = point.ratio.ravel()[present] ** 2 / model.observed.ravel()[present]
    bent = (counts * (1.0 - point.pull)).ravel()
    return np.asarray(moved.T @ (weights[:, None] * moved) + X.T @ (bent[:, None] * X))


def contrast_covariance(
    reports: Reports, generators: Generators, expected: Floats, contrasts: Floats
) -> Floats:
    """Return the covariance of Σ contrast·E for contrasts (m, *table) of a model fitted to reports.

    `expected` is the fitted table. A contrast is the derivative of a quantity with respect to the cells of
    the table; for a margin, it is 1 in the cells that are summed. The records are a sample of fixed size n,
    so the total does not vary.

    Formula: (aE)ᵀX I⁻ Xᵀ(aE), a = c − Σ cE/ΣE, with the observed `information` I (delta method); cells with
    expectation 0 are omitted. With survey weights I⁻BI⁻ replaces I⁻, where B = Σ over reports of squared
    weights times the outer product of the slopes of log PᵀN.
    Reference: Haberman (1977); Agresti (2013), ch. 16; Binder (1983) for survey weights.
    Cost: O(cells·parameters²); P is never formed.
    Error: normal theory for a fit in the interior; on the boundary the zeros are treated as known.
    """
    keep = reports.reduction.keep
    if not reports.reduction.is_complete(len(reports.truths)):
        raise InputError("Errors of contrasts need a complete table: nothing summed over or sliced.")
    model = likelihood(reports.observed, reports.channels)
    order = np.argsort(keep)
    table = np.transpose(expected, order)
    counts = (table / reports.weight).reshape(reports.latent)
    weights = np.transpose(contrasts, [0, *(1 + order)]).reshape(len(contrasts), -1) * table.ravel()
    X = design(tuple(tuple(keep[axis] for axis in axes) for axes in generators), reports.truths)
    X = np.where(counts.ravel()[:, None] > EMPTY * model.n / counts.size, X, 0.0)
    curvature, directions = np.linalg.eigh(information(model, counts, X))
    known = curvature > FLAT * max(float(curvature.max(initial=0.0)), 1e-300)
    means = weights.sum(axis=1) / max(float(table.sum()), 1e-300)
    moving = (weights - np.outer(means, table.ravel())) @ X @ directions[:, known] / np.sqrt(curvature[known])
    if reports.squares is None:
        return np.asarray(moving @ moving.T)
    expected_reports = contract(counts, model.channels).ravel()
    seen = expected_reports > 0
    slopes = (counts.ravel()[:, None] * X).reshape(*counts.shape, X.shape[1])
    moved = contract(slopes, [*model.channels, None]).reshape(model.observed.size, X.shape[1])[seen]
    scores = moved @ directions[:, known] / np.sqrt(curvature[known]) / expected_reports[seen, None]
    return np.asarray(moving @ (scores.T @ (reports.squares.ravel()[seen, None] * scores)) @ moving.T)
