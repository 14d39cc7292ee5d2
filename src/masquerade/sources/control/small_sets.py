"""Search for a set of few people that answers determine, whatever its shape.

Answers determine a set if its indicator is a linear combination of answered cells: then its size is the same
combination of their counts. Cells with negated conditions are not the only such sets. Of 100 people, 50 in
one cell and 48 in a disjoint one leave 2, who are in no single cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from masquerade.core.axes import Floats

MOST_CLASSES = 1 << 9  # most kinds of people that answers distinguish, for which sets are searched
MOST_SEARCHED = 1 << 12  # most atoms
ROUNDING = 1e-9


def small_sets(
    cells: Sequence[NDArray[np.bool_]], people: Floats, most: int, *, empty: bool, tries: int = 16
) -> Iterator[NDArray[np.bool_]]:
    """Yield different sets of at most `most` people whose indicator is in the span of answered cells.

    People in the same answered cells are in the same determined sets, so they are considered as one class. A
    class of more than `most` people is in none of the sets searched for. Linear algebra then usually proves
    that there is no set. Otherwise an integer program finds one.

    Parameters
    ----------
    cells : sequence of arrays
        Answered cells as indicators over the atoms: the finest cells of all variables.
    people : array
        Number of people in each atom.
    most : int
        Largest number of people in a set that is yielded.
    empty : bool
        True if sets without people are searched for, too.
    tries : int, optional
        Largest number of sets.

    Yields
    ------
    array of bool
        A set, as an indicator over the atoms. Neither all atoms nor none.
    """
    rows = np.array([np.ones(len(people), dtype=bool), *cells])
    classes, members = np.unique(rows, axis=1, return_inverse=True)
    members = members.reshape(-1)
    sizes = np.bincount(members, weights=people, minlength=classes.shape[1])
    spanning = classes.T.astype(float)  # one row per class
    free = sizes <= most
    if not free.any() or not _any_left(spanning[~free], spanning[free]):
        return
    count, unknown = int(free.sum()), spanning.shape[1]
    sums = np.hstack([np.eye(count), -spanning[free]])
    constraints = [
        LinearConstraint(sums, 0, 0),
        LinearConstraint(np.hstack([sizes[free], np.zeros(unknown)])[None, :], 0 if empty else 1, most),
    ]
    if not free.all():
        fixed = np.hstack([np.zeros((len(classes.T) - count, count)), spanning[~free]])
        constraints.append(LinearConstraint(fixed, 0, 0))
    some = np.hstack([np.ones(count), np.zeros(unknown)])
    constraints.append(LinearConstraint(some[None, :], 1, len(sizes) - 1))
    bounds = Bounds(
        np.hstack([np.zeros(count), np.full(unknown, -np.inf)]),
        np.hstack([np.ones(count), np.full(unknown, np.inf)]),
    )
    integral = np.hstack([np.ones(count), np.zeros(unknown)])
    for _ in range(tries):
        solution = milp(some, integrality=integral, bounds=bounds, constraints=constraints)
        if solution.x is None:
            return
        chosen = np.round(solution.x[:count]).astype(bool)
        inside = np.zeros(len(sizes), dtype=bool)
        inside[np.flatnonzero(free)[chosen]] = True
        yield inside[members]
        other = np.hstack([np.where(chosen, -1.0, 1.0), np.zeros(unknown)])  # any set but this one
        constraints.append(LinearConstraint(other[None, :], 1 - int(chosen.sum()), np.inf))


def _any_left(fixed: Floats, free: Floats) -> bool:
    """Return True if a combination of answers is zero on all `fixed` classes and not on all `free` ones."""
    if not len(fixed):
        return True
    _, values, right = np.linalg.svd(fixed, full_matrices=True)
    rank = int(np.sum(values > ROUNDING * max(fixed.shape) * values.max(initial=1.0)))
    return bool(np.abs(free @ right[rank:].T).max(initial=0.0) > ROUNDING * max(free.shape))
