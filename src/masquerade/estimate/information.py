"""How sure a fit is: the observed information of a log-linear model behind channels."""

from __future__ import annotations

import numpy as np

from masquerade.core.axes import Floats, contract
from masquerade.core.errors import InputError
from masquerade.estimate.likelihood import Likelihood, likelihood
from masquerade.estimate.loglinear import Generators, design
from masquerade.estimate.reports import Reports

EMPTY = 1e-9  # expected counts below this are taken as none: their logarithm has no error that matters
FLAT = 1e-10  # curvature below this share of the largest tells of a direction that nothing is known about


def information(model: Likelihood, counts: Floats, X: Floats) -> Floats:
    """Return the observed information of β in log N = Xβ (cells in C order), at the truth counts N.

    Formula: Xᵀ[diag(N)·P diag(Ñ/(PᵀN)²)Pᵀ·diag(N) + diag(N(1 − g))]X with g = P(Ñ/PᵀN), the second derivative
    of minus the log-likelihood.
    Reference: Louis (1982); Haberman (1977) for indirectly observed tables.
    Cost: one contraction of a table for every parameter.
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
    """Return the covariance of Σ contrast·E for some contrasts (m, *table) of a model fitted to reports.

    `expected` is the fitted table; a contrast is the derivative of a function of it, such as 1 in the cells
    of a margin. The records are a sample of n: the total itself does not vary.

    Formula: (aE)ᵀX I⁻ Xᵀ(aE), a = c − Σ cE/ΣE, I the observed `information` (delta method); cells that expect
    nothing are left out. With survey weights I⁻BI⁻ for I⁻, B = Σ over reports of squared weights times slopes
    of log PᵀN.
    Reference: Haberman (1977); Agresti (2013), ch. 16; Binder (1983) for survey weights.
    Cost: O(cells·parameters²), P never formed.
    Error: normal theory at an interior fit; on the boundary the zeros are taken as known.
    """
    keep = reports.reduction.keep
    if reports.reduction.at or len(keep) < len(reports.truths):
        raise InputError("Errors of contrasts need a table of which nothing is summed over or sliced away.")
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
