"""Design effect of a link: the factor by which noise in the counts inflates its likelihood ratio."""

from __future__ import annotations

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.table import CountTable
from masquerade.learn.networks._candidates import Candidates

LARGEST_BLOCKS = 1 << 18


def design_effects(links: Candidates) -> Floats:
    """Return the factor by which noise inflates the likelihood-ratio statistic of each link, at least 1.

    Formula: δ̄ = 1 + Σ_j Σ_xz D_j[xz]/(Ê_j π_x|j π_z|j)/df, D_j the diagonal of (R_x⊗R_z) X_j (R_x⊗R_z)ᵀ, R =
    I − π1ᵀ, X_j the block within (X, Z) of the table's covariance minus the covariance of clear records,
    diag(N̂) − N̂N̂ᵀ/n. Configurations and categories without counts are skipped, and df is reduced. As
    Rᵀdiag(1/π)R = diag(1/π) − 11ᵀ, the sum is a weighted sum of the block. It expands into variances of the
    table and of three of its margins, so large blocks are never formed.
    Reference: Rao & Scott (1981, 1984), the first-order correction. The leading term is 1, as in their
    correction, and is not computed from the estimated table. Both values are equal if X and Z are
    independent, as the test assumes. But the value from the table is close to 0 for two rare categories that
    never occur together, so that these would be linked as if there were no noise.
    Cost: one `within` for each table.
    """
    excess, freedom = excess_and_freedom(links)
    return np.asarray(np.maximum(1.0, 1.0 + excess.sum(axis=1) / np.maximum(freedom.sum(axis=1), 1)))


def excess_and_freedom(links: Candidates) -> tuple[Floats, Floats]:
    """Return, by link and configuration, the inflation of the statistic's mean and its degrees of freedom."""
    margin = links.counts.sum(axis=(2, 3))
    seen = margin > 0
    safe = np.where(seen, margin, 1.0)
    inverse_z, support_z = inverse_shares(links.counts.sum(axis=3), safe)
    inverse_x, support_x = inverse_shares(links.counts.sum(axis=2), safe)
    freedom = np.maximum(support_z - 1, 0) * np.maximum(support_x - 1, 0)
    scale = np.array([table.n / table.total for table in links.tables])
    weighted = (
        blocks_sum if links.counts[0].size * links.counts[0, 0].size <= LARGEST_BLOCKS else margins_sum
    )(links, inverse_z, inverse_x)
    clear = quadratic(links.estimates, inverse_z, inverse_x, links.n)
    excess = (weighted * scale[:, None] ** 2 - clear) / safe
    return np.where(freedom > 0, excess, 0.0), freedom


def inverse_shares(counts: Floats, totals: Floats) -> tuple[Floats, Floats]:
    """Return 1/π of every category in every configuration (0 if not seen), and how many were seen."""
    seen = counts > 0
    return np.where(seen, totals[:, :, None] / np.where(seen, counts, 1.0), 0.0), seen.sum(axis=2)


def quadratic(cells: Floats, inverse_z: Floats, inverse_x: Floats, n: int) -> Floats:
    """Return the value of `blocks_sum` for the covariance of clear records with these counts."""
    over_x, over_z, whole = cells.sum(axis=3), cells.sum(axis=2), cells.sum(axis=(2, 3))
    outer = inverse_z[:, :, :, None] * inverse_x[:, :, None, :]

    def expand(a: Floats, b: Floats, c: Floats, d: Floats) -> Floats:
        return np.asarray(
            (a * outer).sum(axis=(2, 3)) - (b * inverse_z).sum(axis=2) - (c * inverse_x).sum(axis=2) + d
        )

    return expand(cells, over_x, over_z, whole) - expand(cells**2, over_x**2, over_z**2, whole**2) / n


def blocks_sum(links: Candidates, inverse_z: Floats, inverse_x: Floats) -> Floats:
    """Return Σ C_j[zx, z'x']·(δ_zz'/π_z − 1)·(δ_xx'/π_x − 1) from the covariance blocks."""
    m, configurations, values, categories = links.counts.shape
    blocks = np.stack(
        [
            table.covariance.within(order[-2:]).reshape(configurations, -1)
            for table, order in zip(links.tables, links.places, strict=True)
        ]
    ).reshape(m, configurations, values, categories, values, categories)
    weights_z = inverse_z[:, :, :, None] * np.eye(values) - 1.0
    weights_x = inverse_x[:, :, :, None] * np.eye(categories) - 1.0
    weights = weights_z[:, :, :, None, :, None] * weights_x[:, :, None, :, None, :]
    return np.asarray((blocks * weights).sum(axis=(2, 3, 4, 5)))


def margins_sum(links: Candidates, inverse_z: Floats, inverse_x: Floats) -> Floats:
    """Return the same as `blocks_sum`, from variances of the tables and of their margins only."""
    configurations = links.counts.shape[1]
    sums = np.empty((len(links), configurations))
    for i, (table, order) in enumerate(zip(links.tables, links.places, strict=True)):
        given = list(order[:-2])

        def variances(*axes: int, given: list[int] = given, table: CountTable = table) -> Floats:
            kept = table.covariance.reduce([*given, *axes], {}).diagonal()
            return kept.reshape(configurations, *kept.shape[len(given) :])

        z, x = order[-2:]
        outer = inverse_z[i, :, :, None] * inverse_x[i, :, None, :]
        sums[i] = (
            (variances(z, x) * outer).sum(axis=(1, 2))
            - (variances(z) * inverse_z[i]).sum(axis=1)
            - (variances(x) * inverse_x[i]).sum(axis=1)
            + variances()
        )
    return sums
