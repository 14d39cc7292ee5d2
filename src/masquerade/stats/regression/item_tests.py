"""Likelihood-ratio tests between the models of the items of a list experiment."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

from masquerade.core.distributions import chi_square_tail
from masquerade.core.util.display import p_text
from masquerade.stats.regression.designs import Items
from masquerade.stats.regression.inference import LikelihoodFit, fit_problem
from masquerade.stats.regression.problem import Problem

LARGER: dict[Items, tuple[Items, ...]] = {
    "binomial": ("binomial-free", "beta-binomial", "multinomial"),
    "beta-binomial": (),
    "binomial-free": ("multinomial-free",),
    "multinomial": ("multinomial-free",),
    "multinomial-free": (),
}
TEXTS = {
    "binomial-free": "binomial items that depend on the answer",
    "beta-binomial": "beta-binomial items",
    "multinomial": "multinomial items",
    "multinomial-free": "multinomial items that depend on the answer",
}
DOUBTFUL = 0.05
ROUNDING = 1e-6  # a ratio below it is 0: the maximum is on the boundary


def item_tests(fit: LikelihoodFit, build: Callable[[Items], Problem]) -> tuple[str, ...]:
    """Return a note for each larger model of the items, with its likelihood-ratio test.

    Formula: χ² with the difference of parameters as degrees of freedom. An overdispersion of 0 is on the
    boundary: the p-value is halved for one list; for several it is from a mixture of χ² (Self & Liang 1987).

    Parameters
    ----------
    fit : LikelihoodFit
        Fit of the chosen model.
    build : callable
        Function that returns the problem with another model of the items.
    """
    if fit.problem.items is None or fit.design is not None:
        return ()  # without a list, or with a design whose ratios have no χ² distribution
    notes = []
    for items in LARGER[fit.problem.items]:
        other = fit_problem(build(items))
        more = other.parameters - fit.parameters
        ratio = max(2 * (other.solution.value - fit.solution.value), 0.0)
        p = boundary_tail(ratio, more) if items == "beta-binomial" else chi_square_tail(ratio, more)
        where = " on the boundary" if items == "beta-binomial" else ""
        note = f"Against {TEXTS[items]}: LR {ratio:.2f}, df {more}{where}, p {p_text(p)}."
        if p < DOUBTFUL:
            note += f" Fit with items={items!r} as well."
        notes.append(note)
    return tuple(notes)


def boundary_tail(ratio: float, count: int) -> float:
    """Return the p-value of a likelihood ratio whose `count` independent parameters are on the boundary."""
    if ratio < ROUNDING:
        return 1.0
    return float(sum(comb(count, k) * chi_square_tail(ratio, k) for k in range(1, count + 1)) / 2**count)
