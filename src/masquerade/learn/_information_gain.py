"""How much a feature tells about a target: information gain, and whether it is more than noise.

Pure functions of tables of counts with the feature's categories as rows and the target's as columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from masquerade.core.axes import Floats

NEARLY_NOTHING = 1e-12


@dataclass(frozen=True, slots=True)
class Association:
    """A corrected test of independence: is the gain of a split more than estimation noise?

    `statistic` is G² of the non-negative table, `design_effect` the factor by which noise inflates it
    (1 for clear records), `df` its degrees of freedom, `p_value` that of the corrected test.
    """

    statistic: float
    design_effect: float
    df: int
    p_value: float


def clipped(tables: Floats) -> Floats:
    """Set negative cells to zero and rescale every table (the last two axes) to its total.

    The same as `CountTable.nonnegative("clip")`, for many tables at once. A table whose total is not
    positive becomes all zeros.
    """
    positive = np.maximum(tables, 0.0)
    kept = positive.sum(axis=(-2, -1), keepdims=True)
    total = np.maximum(tables.sum(axis=(-2, -1), keepdims=True), 0.0)
    return np.asarray(positive * np.divide(total, kept, out=np.zeros_like(kept), where=kept > 0))


def entropy(counts: Floats) -> Floats:
    """Return the entropy in bits along the last axis of counts, none negative; all zeros give 0.

    >>> float(entropy(np.array([2.0, 2.0])))
    1.0
    """
    total = counts.sum(axis=-1, keepdims=True)
    shares = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(-(shares * logs).sum(axis=-1)) + 0.0  # no negative zero


def information_gain(tables: Floats) -> Floats:
    """Return the information in bits that the rows of each table give about its columns.

    Formula: H(target) − Σ_v P(v)·H(target | v), from tables without negative cells (see `clipped`).
    Reference: Quinlan, Induction of decision trees (1986); Ma (2006), chapter 7.
    Cost: a few passes over the cells of all tables together.
    Error: estimation noise inflates it, by about design effect·df/(2·records·ln 2) where nothing is told.

    >>> float(information_gain(np.array([[3.0, 0.0], [0.0, 3.0]])))
    1.0
    """
    rows = tables.sum(axis=-1)
    total = rows.sum(axis=-1, keepdims=True)
    share = np.divide(rows, total, out=np.zeros_like(rows), where=total > 0)
    inside = (share * entropy(tables)).sum(axis=-1)
    return np.asarray(np.maximum(entropy(tables.sum(axis=-2)) - inside, 0.0))


def split_information(tables: Floats) -> Floats:
    """Return the entropy in bits of the rows alone, by which the gain ratio divides (Quinlan 1993)."""
    return entropy(tables.sum(axis=-1))


def association(values: Floats, covariance: Floats, n: int) -> Association:
    """Test whether the target (columns) depends on the feature (rows) at all.

    Formula: G² = 2·ln 2·records·gain, from the clipped table. With π the margins, E = records·π_x·π_z and
    the residual maps R = (I − π_x 1ᵀ) ⊗ (I − π_z 1ᵀ), the excess variance is
    X = E^(−½) R (C − [diag(N̂) − N̂N̂ᵀ/n]) Rᵀ E^(−½): what C, the table's covariance, has beyond plain
    sampling (the disguise, survey weights). Under independence plain sampling gives a projection of rank
    df, so the eigenvalues of the null distribution have the mean δ̄ = 1 + tr X/df and the squared relative
    spread a² = df·(df + 2 tr X + ‖X‖²)/(df + tr X)² − 1; G²/(δ̄(1 + a²)) is compared with χ² of df/(1 + a²).
    Reference: Rao & Scott (1984), first and second order; Satterthwaite. On clear records X = 0: the
    ordinary G test.
    Cost: O(cells²).
    Error: first order in 1/records. Clipping bounds G² while the variances are not bounded, so that tables
    lost in noise are not significant. Margins that are zero are left out and lower the df.
    """
    table = clipped(values)
    total = float(table.sum())
    of_feature, of_target = table.sum(axis=1), table.sum(axis=0)
    df = (int((of_feature > 0).sum()) - 1) * (int((of_target > 0).sum()) - 1)
    if total <= 0 or df <= 0:
        return Association(0.0, 1.0, 0, 1.0)
    expected = np.outer(of_feature, of_target) / total
    logs = np.log(np.divide(table, expected, out=np.ones_like(table), where=table > 0))
    statistic = 2 * max(float((table * logs).sum()), 0.0)
    excess = _residual_excess(values, covariance, of_feature / total, of_target / total, n)
    inside = (expected > 0).ravel()
    scale = 1 / np.sqrt(expected.ravel()[inside])
    excess = excess[np.ix_(inside, inside)] * np.outer(scale, scale)
    trace = max(float(np.trace(excess)), 0.0)
    squares = float(np.sum(excess**2)) if trace > 0 else 0.0
    spread = max(df * (df + 2 * trace + squares) / (df + trace) ** 2, 1.0)
    effect = 1 + trace / df
    return Association(statistic, effect, df, chi_square_tail(statistic / (effect * spread), df / spread))


def _residual_excess(
    values: Floats, covariance: Floats, of_feature: Floats, of_target: Floats, n: int
) -> Floats:
    """Return R (C − plain sampling) Rᵀ, the residual maps applied axis by axis."""
    cells = values.ravel()
    excess = covariance + np.outer(cells, cells / max(n, 1))
    excess.flat[:: cells.size + 1] -= cells
    # rounding of counts in the millions is not variance
    excess[np.abs(excess) < NEARLY_NOTHING * float(np.abs(covariance).max(initial=0.0))] = 0.0
    cube = excess.reshape(*values.shape, *values.shape)
    for axis, margin in enumerate((of_feature, of_target, of_feature, of_target)):
        shape = [1, 1, 1, 1]
        shape[axis] = margin.size
        cube = cube - margin.reshape(shape) * cube.sum(axis=axis, keepdims=True)
    return np.asarray(cube.reshape(cells.size, cells.size))


def chi_square_tail(statistic: float, df: float) -> float:
    """Return P(χ² > statistic) with `df` degrees of freedom, which may be a fraction."""
    from scipy.special import gammaincc  # noqa: PLC0415  (learners load scipy only when a test is asked for)

    return float(gammaincc(df / 2, statistic / 2))
