"""Scores of a family (a child and its parents), and what noise in the counts does to them.

Counts estimated from disguised records vary more than counts of clear ones, and every score takes that extra
variation for dependence. The *design effect* says how much more: `DesignEffect` divides it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log, prod

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.table import CountTable

__all__ = [
    "AIC",
    "BIC",
    "K2",
    "LIKELIHOOD",
    "Constant",
    "Correction",
    "DesignEffect",
    "Dirichlet",
    "Eta",
    "Penalised",
    "Score",
    "Uncorrected",
    "bdeu",
]

LARGEST_BLOCKS = 1 << 18


@dataclass(frozen=True, slots=True)
class Penalised:
    """Log-likelihood minus a price for every free parameter, which may depend on the number of records."""

    name: str
    price: Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Dirichlet:
    """Log marginal likelihood under Dirichlet priors; `prior` is the pseudo-count of a cell among so many."""

    name: str
    prior: Callable[[int], float]


Score = Penalised | Dirichlet

LIKELIHOOD = Penalised("likelihood", lambda _: 0.0)
BIC = Penalised("bic", lambda n: log(n) / 2)
AIC = Penalised("aic", lambda _: 1.0)
K2 = Dirichlet("k2", lambda _: 1.0)


def bdeu(equivalent: float = 1.0) -> Dirichlet:
    """Return the BDeu score: a prior worth `equivalent` records, spread evenly over the family's cells."""
    if not equivalent > 0:
        raise InputError(f"The equivalent sample size must be positive. Got {equivalent} instead.")
    return Dirichlet(f"bdeu({equivalent:g})", lambda cells: equivalent / cells)


SCORES: dict[str, Score] = {"bic": BIC, "aic": AIC, "k2": K2, "bdeu": bdeu()}


def score_called(score: Score | str) -> Score:
    """Return a score by its name."""
    if isinstance(score, (Penalised, Dirichlet)):
        return score
    if score not in SCORES:
        raise InputError(f"There is no score {score!r}.{did_you_mean(score, SCORES)}")
    return SCORES[score]


def family_score(counts: Floats, score: Score, n: float) -> Floats:
    """Return the score of families from counts (…, parent configurations, categories of the child).

    Formula: Σ_jk N_jk log(N_jk/N_j) − price(n)·J(K−1), or with pseudo-counts α_jk, α_j = Σ_k α_jk:
    Σ_j [lnΓ(α_j) − lnΓ(α_j+N_j) + Σ_k (lnΓ(α_jk+N_jk) − lnΓ(α_jk))]. Counts may be fractional, not negative.
    Reference: Schwarz (1978); Akaike (1974); Cooper & Herskovits (1992); Heckerman et al. (1995).
    Cost: one logarithm (or lnΓ) for every cell.
    """
    configurations, categories = counts.shape[-2:]
    margin = counts.sum(axis=-1)
    if isinstance(score, Penalised):
        fit = x_log_x(counts).sum(axis=(-2, -1)) - x_log_x(margin).sum(axis=-1)
        return np.asarray(fit - score.price(n) * configurations * (categories - 1))
    from scipy.special import gammaln  # noqa: PLC0415  (half of the load time of a learner that may not need it)

    alpha = score.prior(configurations * categories)
    cells = gammaln(counts + alpha).sum(axis=(-2, -1)) - gammaln(margin + categories * alpha).sum(axis=-1)
    constant = gammaln(categories * alpha) - categories * gammaln(alpha)
    return np.asarray(cells + configurations * constant)


def x_log_x(x: Floats) -> Floats:
    """Return x·log x, 0 at 0."""
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Links to be judged, all tables of one shape: (link, parent configurations, new parent, child).

    `estimates` are the unbiased counts rescaled to n; `counts` the same without negative ones (clipped and
    rescaled, as `CountTable.nonnegative("clip")` does): likelihoods and margins come from these.
    `places` are the axes of each table for (the parents already there …, the new parent, the child).
    """

    tables: Sequence[CountTable]
    places: Sequence[Sequence[int]]
    estimates: Floats
    counts: Floats
    n: int

    def __getitem__(self, chosen: Sequence[int]) -> Candidates:
        """Return some of the candidates."""
        picked = list(chosen)
        return Candidates(
            [self.tables[i] for i in picked],
            [self.places[i] for i in picked],
            self.estimates[picked],
            self.counts[picked],
            self.n,
        )

    def __len__(self) -> int:
        """Return how many candidates there are."""
        return len(self.tables)


def candidates(tables: Sequence[CountTable], places: Sequence[Sequence[int]]) -> Candidates:
    """Return tables as candidates; numbers of parent configurations and both ends' sizes must agree."""
    shape = tuple(tables[0].values.shape[place] for place in places[0])
    # parents (2, 3) and (3, 2) are both six configurations
    block = (prod(shape[:-2]), *shape[-2:])
    raw = np.empty((len(tables), *block))
    for i, (table, order) in enumerate(zip(tables, places, strict=True)):
        raw[i] = table.values.transpose(order).reshape(block)
    n = tables[0].n
    totals = raw.sum(axis=(1, 2, 3))
    if n < 1 or np.any(totals <= 0):
        raise InputError("The source counts no records: there is nothing to learn a structure from.")
    estimates = raw * (n / totals)[:, None, None, None]
    positive = np.maximum(estimates, 0.0)
    counts = positive * (n / positive.sum(axis=(1, 2, 3)))[:, None, None, None]
    return Candidates(tables, places, estimates, counts, n)


@dataclass(frozen=True, slots=True)
class Uncorrected:
    """Estimated counts are taken for clear ones: links are added that noise alone suggests.

    The base of the other rules, which say how a gain is made to account for noise in the counts.
    """

    def factors(self, links: Candidates) -> Floats:
        """Return by how much the noise is taken to inflate the likelihood ratio of each link."""
        return np.ones(len(links))

    def threshold(self, old: Floats) -> Floats:
        """Return what a gain must exceed, given the scores without the links."""
        return np.zeros_like(old)

    def to_dict(self) -> dict[str, object]:
        """Return the rule as plain values."""
        return {"kind": "uncorrected"}


@dataclass(frozen=True, slots=True)
class Constant(Uncorrected):
    """The papers' rule for BIC: the penalty C* times as large, one constant for all links."""

    value: float

    def __post_init__(self) -> None:
        if not self.value > 0:
            raise InputError(f"The constant C* must be positive. Got {self.value} instead.")

    def factors(self, links: Candidates) -> Floats:
        """Return the constant."""
        return np.full(len(links), float(self.value))

    def to_dict(self) -> dict[str, object]:
        """Return the rule as plain values."""
        return {"kind": "constant", "value": self.value}


@dataclass(frozen=True, slots=True)
class Eta(Uncorrected):
    """The papers' rule for the Bayesian score: the log score must grow by (1 − η)·|log score without|.

    The papers print η·P_new > P_old, which for logarithms makes sense only in this way.
    """

    value: float

    def __post_init__(self) -> None:
        if not 0 < self.value <= 1:
            raise InputError(f"The threshold η must be in (0, 1]. Got {self.value} instead.")

    def threshold(self, old: Floats) -> Floats:
        """Return (1 − η)·|old|."""
        return np.asarray((1 - self.value) * np.abs(old))

    def to_dict(self) -> dict[str, object]:
        """Return the rule as plain values."""
        return {"kind": "eta", "value": self.value}


@dataclass(frozen=True, slots=True)
class DesignEffect(Uncorrected):
    """Every link by its own design effect, computed from the covariance of its table: nothing to tune."""

    def factors(self, links: Candidates) -> Floats:
        """Return the design effects."""
        return design_effects(links)

    def to_dict(self) -> dict[str, object]:
        """Return the rule as plain values."""
        return {"kind": "design_effect"}


Correction = Uncorrected | Constant | Eta | DesignEffect


def gains(links: Candidates, score: Score, factors: Floats, correction: Correction) -> Floats:
    """Return what each link adds to the score: to be added if positive.

    Formula: δ·[F(N_with/δ) − F(N_without/δ)], minus the correction's threshold. For BIC that is
    ΔLL − δ·(log n)/2·df, positive exactly if ΔLL/δ > (log n)/2·df; a Bayesian score sees the counts N/δ, and
    the factor in front brings the gains of all links back to the scale of the records' log-likelihood.
    Reference: Rao & Scott (1984) for δ; Ma (2006) §5.5.2 for the constant and the threshold.
    Cost: two family scores.
    """
    scaled = links.counts / factors[:, None, None, None]
    m, configurations, values, categories = scaled.shape
    old = family_score(scaled.sum(axis=2), score, links.n)
    new = family_score(scaled.reshape(m, configurations * values, categories), score, links.n)
    return np.asarray(factors * (new - old) - correction.threshold(old))


def design_effects(links: Candidates) -> Floats:
    """Return by how much noise inflates the likelihood-ratio statistic of each link, at least 1.

    Formula: δ̄ = 1 + Σ_j Σ_xz D_j[xz]/(Ê_j π_x|j π_z|j)/df, D_j the diagonal of (R_x⊗R_z) X_j (R_x⊗R_z)ᵀ,
    R = I − π1ᵀ, X_j the block within (X, Z) of the table's covariance less that of clear records,
    diag(N̂) − N̂N̂ᵀ/n. Configurations and categories with no counts are skipped and df is reduced.
    As Rᵀdiag(1/π)R = diag(1/π) − 11ᵀ, the sum is a weighted sum of the block; and since that expands into
    variances of the table and of three of its margins, large blocks are never formed.
    Reference: Rao & Scott (1981, 1984), the first-order correction. Their 1 stands here for what the
    estimated table would give: equal if X and Z are independent, as the test supposes, but close to 0 for
    two rare categories that never meet, which would then be linked at no noise at all.
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
    """Return 1/π of every category in every configuration (0 for an unseen one), and how many are seen."""
    seen = counts > 0
    return np.where(seen, totals[:, :, None] / np.where(seen, counts, 1.0), 0.0), seen.sum(axis=2)


def quadratic(cells: Floats, inverse_z: Floats, inverse_x: Floats, n: int) -> Floats:
    """Return the sum that `blocks_sum` gives for the covariance of clear records with these counts."""
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
    """Return the same as `blocks_sum` from variances of the tables and of their margins alone."""
    configurations = links.counts.shape[1]
    sums = np.empty((len(links), configurations))
    for i, (table, order) in enumerate(zip(links.tables, links.places, strict=True)):
        given = list(order[:-2])

        def variances(*axes: int, given: list[int] = given, table: CountTable = table) -> Floats:
            kept = table.covariance.reduced([*given, *axes], {}).diagonal()
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
