"""The conditional Kullback–Leibler (CKL) distance of learnt parameters, from §6.2.

`mq.evaluate.ckl` computes the distance. This module has its expectation by Theorem 2, and the number of rows
that must be projected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import masquerade as mq

Floats = NDArray[np.float64]

PROJECTED = (
    "The distance is undefined for negative estimates. Where one occurs, the row is projected (negative ones "
    "set to 0, the rest rescaled) and one record is added to each of its cells, to keep the distance finite."
)


def clipped(table: mq.learn.ConditionalTable) -> int:
    """Return the number of rows with an estimate that is not positive, or without records."""
    return int((np.any(table.probabilities <= 0, axis=-1) | ~table.has_records).sum())


def parameter_covariance(counts: Floats, channels: Sequence[Floats]) -> Floats:
    """Return the covariance of the estimated parameters given the records, by the papers' Theorem 2.

    `counts` are the true counts, parents first and the child last; `channels` the channel matrix of each
    axis.

    Formula: Cov N̂ = Gᵀ diag(PᵀN) G − diag(N), P = P_1 ⊗ … ⊗ P_d, G = P⁻¹; Cov θ̂ = J Cov N̂ Jᵀ, where J
    takes the counts of parent configuration j to (I − θ_j 1ᵀ)/N_j times them.
    Reference: Ma & Sivakumar (2005), Theorem 2; Ma (2006) §5.4.2, where N_ijk² instead of N_ij² is an error.
    Cost: computes the whole matrix, so it is for small tables, as a check of the library's standard errors.
    """
    whole: Floats = np.ones((1, 1))
    for matrix in channels:
        whole = np.asarray(np.kron(whole, matrix), dtype=np.float64)
    inverse = np.linalg.inv(whole)
    flat = counts.ravel()
    covariance = inverse.T @ np.diag(whole.T @ flat) @ inverse - np.diag(flat)
    cells = counts.reshape(-1, counts.shape[-1])
    totals = cells.sum(axis=1)
    rows, categories = cells.shape
    jacobian = np.zeros((rows, categories, rows, categories))
    for j in range(rows):
        shares = cells[j] / totals[j]
        jacobian[j, :, j, :] = (np.eye(categories) - shares[:, None]) / totals[j]
    slope = jacobian.reshape(flat.size, flat.size)
    return np.asarray(slope @ covariance @ slope.T)


class Expected(NamedTuple):
    """Mean and standard deviation of a distance over disguises of the same records."""

    mean: float
    deviation: float


def expected_ckl(counts: Floats, channels: Sequence[Floats]) -> Expected:
    """Return the CKL distance by Theorem 2, to first order.

    Formula: CKL ≈ ½ δᵀAδ with δ the normal error of the parameters, Cov δ = Σ, A = diag(P(parents = j)/θ_jk):
    mean ½ tr(AΣ), variance ½ tr(AΣAΣ).
    """
    totals = counts.sum(axis=-1, keepdims=True)
    weights = totals / counts.sum() / (counts / totals)
    scaled = weights.ravel()[:, None] * parameter_covariance(counts, channels)
    return Expected(float(np.trace(scaled)) / 2, float(np.sqrt(np.trace(scaled @ scaled) / 2)))
