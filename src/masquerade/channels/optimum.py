"""The channel with the least variance for given queries at a given γ, with a proof of near-optimality."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from masquerade.channels import block_designs, column_generation, staircase
from masquerade.channels.basic import check_categories
from masquerade.channels.block_designs import Blocks
from masquerade.channels.channel import Channel
from masquerade.channels.privacy_level import gamma_of
from masquerade.channels.rationals import Rational
from masquerade.channels.staircase import DesignProblem
from masquerade.core.axes import Floats
from masquerade.core.errors import ChannelError

MOST_CATEGORIES = 128  # most categories of a design for queries other than the counts of categories
MOST_LISTED = 4096  # most subsets that are listed as reports
NEGLIGIBLE = 1e-7  # smaller weights, relative to the largest, are dropped
RIDGE = 1e-6  # keeps every category estimable even if the queries do not need it
Queries = Literal["counts", "cumulative"] | ArrayLike


@dataclass(frozen=True, slots=True, eq=False)
class OptimalDesign:
    """An optimal channel and its certificate.

    `value` is the summed second moment of one record's contribution to the queries under the prior. No
    channel with this γ (and the other limits) has a value below `bound`, which is None if no bound is proved.
    Report m has the integer weight `weights[m]`, times γ for the truths in `blocks[m]`.

    >>> design = mq.channels.optimal_design(4, gamma=3)
    >>> design.channel.gamma, design.gap < 1e-9
    (Fraction(3, 1), True)
    """

    channel: Channel
    gamma: Fraction
    blocks: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...]
    value: float
    bound: float | None
    queries: Floats
    prior: Floats

    @property
    def gap(self) -> float | None:
        """Return an upper bound on the relative distance of the value from the optimum; None if unproved."""
        return None if self.bound is None else max(self.value - self.bound, 0.0) / self.value

    @property
    def variance(self) -> float:
        """Return the summed variance of the queries' estimates for one record.

        With n records, the variance is 1/n of it.
        """
        return self.value - float(((self.queries @ self.prior) ** 2).sum())

    def summary(self) -> str:
        """Return the size, γ and proof of optimality in one line."""
        gap = self.gap
        proved = "not proved to be optimal" if gap is None else f"optimal to {max(gap, 1e-15):.1e}, proved"
        reports = self.channel.reports
        return f"{self.channel.truths} categories, {reports} reports, γ = {float(self.gamma):.6g}: {proved}"

    def spec(self, categories: Sequence[Any]) -> dict[str, Any]:
        """Return the channel's entry in a policy file: exact weights and the certificate."""
        counts = np.array_equal(self.queries, np.eye(len(self.prior)))
        uniform = bool(np.ptp(self.prior) <= 1e-12)
        return {
            "kind": "optimal",
            "gamma": str(self.gamma),
            "blocks": [[categories[code] for code in block] for block in self.blocks],
            "weights": list(self.weights),
            **({} if counts else {"queries": [[repr(float(x)) for x in row] for row in self.queries]}),
            **({} if uniform else {"prior": [repr(float(x)) for x in self.prior]}),
            "second_moment": f"{self.value:.9g}",
            **({} if self.bound is None else {"lower_bound": f"{min(self.bound, self.value):.9g}"}),
        }


def optimal(
    categories: int,
    gamma: Rational | None = None,
    *,
    epsilon: Rational | None = None,
    breach: Sequence[Rational] | None = None,
    queries: Queries = "counts",
    prior: Sequence[float] | None = None,
) -> Channel:
    """Return the channel with the least variance for the queries; `optimal_design` adds the certificate.

    Parameters
    ----------
    categories : int
        Number of categories.
    gamma, epsilon, breach : optional
        Privacy level: γ, or ε = ln γ, or two beliefs (ρ1, ρ2) of which the first may not rise above the
        second. Give one of them.
    queries : {"counts", "cumulative"} or array, optional
        Queries to estimate: the counts of the categories, cumulative counts, or rows of weights over the
        categories.
    prior : sequence of float, optional
        Expected distribution of the truths, never taken from the data. By default uniform.

    Returns
    -------
    Channel
        A channel whose reports are numbered from 1.

    Examples
    --------
    >>> mq.channels.optimal(6, epsilon=1).reports
    15
    """
    found = optimal_design(categories, gamma, epsilon=epsilon, breach=breach, queries=queries, prior=prior)
    return found.channel


def optimal_design(
    categories: int,
    gamma: Rational | None = None,
    *,
    epsilon: Rational | None = None,
    breach: Sequence[Rational] | None = None,
    queries: Queries = "counts",
    prior: Sequence[float] | None = None,
    vulnerability: float | None = None,
    anonymity: tuple[int, float] | None = None,
) -> OptimalDesign:
    """Return the channel with the least summed variance for the queries at a given γ, and a proof.

    Parameters
    ----------
    categories : int
        Number of categories, at least 2.
    gamma, epsilon, breach : optional
        Privacy level: γ, or ε = ln γ, or two beliefs (ρ1, ρ2) of which the first may not rise above the
        second. Give one of them.
    queries : {"counts", "cumulative"} or array, optional
        Queries to estimate: the counts of the categories, cumulative counts, or rows of weights over the
        categories.
    prior : sequence of float, optional
        Expected distribution of the truths, never taken from the data. By default uniform.
    vulnerability : float, optional
        Largest probability of a right guess from the report under the prior.
    anonymity : (int, float), optional
        (k, t): use only reports under which at least k categories have a posterior probability above t.

    Returns
    -------
    OptimalDesign
        The channel, its value, and the lower bound that proves how near it is to the optimum.

    Raises
    ------
    ChannelError
        If there are too many categories, or no channel satisfies all limits.

    Notes
    -----
    With `vulnerability` or `anonymity`, the channel is optimal only among channels of staircase reports.
    Formula: minimise tr(A·M(c)⁻¹) over weights of staircase reports; see `staircase`.
    Reference: Kairouz, Oh & Viswanath (2016); Ye & Barg (2018) for counts under a uniform prior.
    Cost: about a second for ten categories, minutes for 32; immediate for counts under a uniform prior.
    Error: `gap`; proved for up to 20 categories, and for counts under a uniform prior.

    Examples
    --------
    >>> design = mq.channels.optimal_design(3, gamma=4, queries="cumulative")
    >>> design.gap < 1e-6
    True
    """
    check_categories(categories)
    if categories < 2:
        raise ChannelError("A channel for one category has nothing to hide and nothing to count.")
    bound = gamma_of(gamma, epsilon, breach)
    rows, theta = wanted_rows(queries, categories), checked_prior(prior, categories)
    limited = vulnerability is not None or anonymity is not None
    if not limited and _alike(rows.T @ rows, theta):
        return _subset_design(categories, bound, rows, theta)
    if categories > (staircase.MOST_ENUMERATED if limited else MOST_CATEGORIES):
        raise ChannelError(
            f"optimal channels are computed for up to {MOST_CATEGORIES} categories, with limits on guesses "
            f"or anonymity for up to {staircase.MOST_ENUMERATED}; there are {categories}. Merge some, or "
            "take a block_design()."
        )
    inner = rows.T @ rows
    wanted = inner + RIDGE * np.trace(inner) / categories * np.eye(categories) if _singular(inner) else inner
    if categories <= staircase.MOST_ENUMERATED:
        columns = staircase.staircase_columns(categories, float(bound))
        columns, limits = _apply_limits(columns, theta, vulnerability, anonymity)
        problem = DesignProblem(
            columns, theta, wanted, limits, 1.0 if vulnerability is None else vulnerability
        )
        solution = _solve_problem(problem, vulnerability)
        certain: float | None = solution.bound
        blocks = columns > 1.0
    else:
        blocks, solution, certain = column_generation.design_columns(theta, wanted, float(bound))
        problem = DesignProblem(np.where(blocks, float(bound), 1.0), theta, wanted)
    if certain is not None and wanted is not inner:
        asked = DesignProblem(problem.columns, theta, inner, problem.limits, problem.most)
        certain = staircase.lower_bound(asked, solution.weights, solution.multipliers, solution.price)
    found = _rational(blocks, _sparse(problem, solution.weights), bound, rows, theta)
    return replace(found, bound=certain)


def certify_design(design: OptimalDesign) -> OptimalDesign:
    """Recompute the value and the bound of a design, to check the claims of a policy file.

    Parameters
    ----------
    design : OptimalDesign
        A design, such as one that a policy file states.

    Returns
    -------
    OptimalDesign
        The same channel with the recomputed value and bound.

    Examples
    --------
    >>> design = mq.channels.optimal_design(3, gamma=4)
    >>> mq.channels.certify_design(design).bound == design.bound
    True
    """
    prior = design.prior.tolist()
    again = optimal_design(len(prior), design.gamma, queries=design.queries, prior=prior)
    value = second_moment(design.channel, design.queries, design.prior)
    return replace(design, value=value, bound=again.bound)


def second_moment(channel: Channel, queries: Floats | None = None, prior: Floats | None = None) -> float:
    """Return tr(A·M⁻¹): the summed second moment of one record's contribution to the queries.

    Formula: M = P·diag(Pᵀθ)⁻¹·Pᵀ; the variance for n records is (tr(A·M⁻¹) − ‖Wθ‖²)/n. `queries` are the
    categories' counts by default, the prior uniform.
    """
    matrix = channel.matrix
    theta = np.full(len(matrix), 1.0 / len(matrix)) if prior is None else prior
    chance = theta @ matrix
    information = (matrix / np.where(chance > 0, chance, 1.0)) @ matrix.T
    rows = np.eye(len(matrix)) if queries is None else queries
    return float(np.trace(np.linalg.solve(information, rows.T @ rows)))


def wanted_rows(queries: Queries, categories: int) -> Floats:
    """Return the queries as rows of weights over the categories."""
    if isinstance(queries, str):
        if queries not in {"counts", "cumulative"}:
            raise ChannelError(
                f"'queries' are counts, cumulative, or rows of weights. Got {queries!r} instead."
            )
        return np.eye(categories) if queries == "counts" else np.tri(categories)
    rows = np.atleast_2d(np.asarray(queries, dtype=float))
    if rows.ndim != 2 or rows.shape[1] != categories or not np.all(np.isfinite(rows)) or not rows.any():
        raise ChannelError(
            f"'queries' are rows of {categories} weights, one for each category, not all zero."
        )
    return rows


def checked_prior(prior: Sequence[float] | None, categories: int) -> Floats:
    """Return a positive distribution over the categories; uniform if none is given."""
    if prior is None:
        return np.full(categories, 1.0 / categories)
    theta = np.asarray(prior, dtype=float)
    fits = theta.shape == (categories,) and bool(np.all(np.isfinite(theta)) and np.all(theta > 0))
    if not fits or abs(theta.sum() - 1) > 1e-6:
        total = f" that sum to {theta.sum():g}" if theta.ndim == 1 else ""
        raise ChannelError(
            f"'prior' must be {categories} probabilities above 0 that sum to 1. Got {theta.size}{total}."
        )
    return np.asarray(theta / theta.sum())


def _alike(wanted: Floats, prior: Floats) -> bool:
    """Return True if the problem does not change under permutations of the categories."""
    off = wanted[~np.eye(len(wanted), dtype=bool)]
    same = np.ptp(np.diag(wanted)) <= 1e-12 and np.ptp(off) <= 1e-12
    return bool(same and np.ptp(prior) <= 1e-12 and wanted[0, 0] - off[0] > 1e-9 * wanted[0, 0])


def _singular(wanted: Floats) -> bool:
    roots = np.linalg.eigvalsh(wanted)
    return bool(roots[0] <= 1e-9 * roots[-1])


def _subset_design(categories: int, gamma: Fraction, rows: Floats, prior: Floats) -> OptimalDesign:
    """Return a channel of blocks of the best size, for counts of categories that are treated alike.

    The blocks are a balanced design of this size, else all subsets, else the nearest balanced design. Ye and
    Barg (2018) prove the bound.
    """
    size = block_designs.best_subset_size(categories, gamma)
    best = block_designs.subset_second_moment(categories, gamma, size)
    # under A = aI + bJ the value is a·tr M⁻¹ + b·1ᵀM⁻¹1, and M·1 = K·1 for every channel
    inner = rows.T @ rows
    slope, level = inner[0, 0] - inner[0, 1], inner[0, 1]
    exact = [d for d in block_designs.designs(categories) if (d.points, d.size) == (categories, size)]
    if exact:
        blocks = exact[0].blocks()
    elif math.comb(categories, size) <= MOST_LISTED:
        blocks = block_designs.subsets(categories, size)
    else:
        blocks = block_designs.best_design(categories, gamma).blocks()[:, :categories]
    channel = block_designs.channel_of_blocks(blocks, gamma)
    return OptimalDesign(
        channel,
        gamma,
        tuple(tuple(np.flatnonzero(block).tolist()) for block in blocks),
        (1,) * len(blocks),
        second_moment(channel, rows, prior),
        float(slope * float(best) + level),
        rows,
        prior,
    )


def _apply_limits(
    columns: Floats, prior: Floats, vulnerability: float | None, anonymity: tuple[int, float] | None
) -> tuple[Floats, Floats | None]:
    """Return the allowed reports, and the contribution of each to the chance of a right guess."""
    joint = columns * prior
    if anonymity is not None:
        k, threshold = anonymity
        if not (isinstance(k, int) and 1 <= k <= columns.shape[1] and 0 <= threshold < 1):
            raise ChannelError(f"'anonymity' is (k, t): k from 1 to {columns.shape[1]}, t from 0 to below 1.")
        posterior = joint / joint.sum(axis=1, keepdims=True)
        hidden = (posterior > threshold).sum(axis=1)
        allowed = hidden >= k
        if not allowed.any() or np.linalg.matrix_rank(columns[allowed]) < columns.shape[1]:
            raise ChannelError(
                f"reports that leave {k} categories above {threshold:g} do not distinguish all categories "
                f"at this γ. The largest k of any report is {hidden.max()}: ask for fewer."
            )
        columns, joint = columns[allowed], joint[allowed]
    return columns, None if vulnerability is None else joint.max(axis=1)


def _solve_problem(problem: DesignProblem, vulnerability: float | None) -> staircase.DesignSolution:
    try:
        return staircase.solve(problem)
    except ChannelError as error:
        least = float(problem.prior.max())
        if vulnerability is None or vulnerability > least:
            raise
        raise ChannelError(
            f"'vulnerability' {vulnerability:g} cannot be reached: a guess without a report is right with "
            f"probability {least:.4g}, and every informative report raises it."
        ) from error


def _sparse(problem: DesignProblem, weights: Floats) -> Floats:
    """Return weights with the same information on fewer reports: at most K(K+1)/2, plus one with a limit."""
    from scipy import optimize  # noqa: PLC0415  (scipy is slow to import)

    kept = weights > NEGLIGIBLE * weights.max()
    size = problem.columns.shape[1]
    result = np.where(kept, weights, 0.0)
    if kept.sum() <= size * (size + 1) // 2:
        return result
    columns = problem.columns[kept]
    upper = np.triu_indices(size)
    scaled = columns / (columns @ problem.prior)[:, None]
    products = (scaled[:, :, None] * columns[:, None, :])[:, upper[0], upper[1]]
    target = products.T @ weights[kept]
    scale = 1.0 / np.abs(target)
    goal = np.zeros(len(columns)) if problem.limits is None else problem.limits[kept]
    found = optimize.linprog(
        goal, A_eq=products.T * scale[:, None], b_eq=target * scale, bounds=(0, None), method="highs-ds"
    )
    if found.status == 0:
        result[kept] = np.where(found.x > NEGLIGIBLE * found.x.max(), found.x, 0.0)
    return result


def _rational(blocks: Blocks, weights: Floats, gamma: Fraction, rows: Floats, prior: Floats) -> OptimalDesign:
    """Return the design with integer weights and the same γ; its value is computed from these weights."""
    used = np.flatnonzero(weights > 0)
    shares = weights[used] / weights.max()
    chosen = blocks[used]
    whole = _small_integers(shares, chosen)
    if whole is None:
        scale = min(2.0**40, 2.0**60 / (gamma.numerator * float(shares.sum())))
        whole = np.maximum(np.rint(shares * scale), 1).astype(np.int64)
    listed = tuple(tuple(np.flatnonzero(block).tolist()) for block in chosen)
    numbers = tuple(whole.tolist())
    channel = block_designs.staircase_channel(len(prior), gamma, listed, numbers)
    value = second_moment(channel, rows, prior)
    return OptimalDesign(channel, gamma, listed, numbers, value, None, rows, prior)


def _small_integers(shares: Floats, blocks: Blocks) -> Any:
    """Return small integers proportional to the shares, with equal row totals; None if there are none.

    Equal row totals need no extra report.
    """
    for scale in range(1, 25):
        near = np.rint(shares * scale)
        if np.all(near >= 1) and np.all(np.abs(shares * scale - near) < 1e-4) and not np.ptp(near @ blocks):
            return near.astype(np.int64)
    return None
