"""Optimal division of the ε of a whole record among its variables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.block_designs import best_subset_size, subset_second_moment
from masquerade.core.axes import Floats
from masquerade.plan.variance import moment_slope

MOST_APART = 500  # most variables whose ε are found one by one
LEAST_SHARE = 1e-3  # relative to an even share: every requested variable gets at least this


def best_split(
    sizes: Sequence[int], tables: Sequence[Sequence[int]], epsilon: float, *, symmetric: bool = False
) -> Floats:
    """Divide ε among variables so that the summed variance of the tables' cells is least.

    Formula: minimise log Σ_tables Π_i t_i(ε_i) subject to Σ ε_i = ε. log t is convex in ε, so the logarithm
    of the sum is convex too, and there is one optimum. t is the second moment of the best channel of each
    variable, or of the `symmetric` channel. A variable in no table gets nothing.
    Reference: Boyd & Vandenberghe (2004), §4.5, for sums of log-convex terms.
    Cost: some 50 evaluations. Error: 1e-9 of the objective.

    >>> from masquerade.plan import best_split
    >>> best_split([2, 2, 5], [(0,), (1,)], epsilon=2).round(3).tolist()
    [1.0, 1.0, 0.0]
    """
    return split_among_tables(sizes, _by_width(tables), epsilon, symmetric=symmetric)


def split_among_tables(
    sizes: Sequence[int], groups: Sequence[NDArray[np.int64]], epsilon: float, *, symmetric: bool = False
) -> Floats:
    """Divide ε as `best_split` does, for tables as one array for each width (tables × width).

    Formula: if the variables of a class occur in equally many tables of every combination of classes, the
    optimum has one ε per class. With more than MOST_APART variables, only these ε are computed.
    """
    members = np.concatenate([group.ravel() for group in groups])
    asked: list[int] = np.unique(members).tolist()
    if len(asked) == 1:
        return _spread(np.full(1, epsilon), asked, len(sizes))
    if len(asked) <= MOST_APART:
        ones = [np.ones(len(group)) for group in groups]
        values = _solve(sizes, groups, ones, np.ones(len(asked)), epsilon, symmetric=symmetric)
        return _spread(values * (epsilon / values.sum()), asked, len(sizes))
    classes = equal_classes(sizes, groups)
    compositions, counts = [], []
    for group in groups:
        rows, count = np.unique(np.sort(classes[group], axis=1), axis=0, return_counts=True)
        compositions.append(rows)
        counts.append(count.astype(float))
    known, first, sharing = np.unique(classes[asked], return_index=True, return_counts=True)
    of_class = np.ones(int(classes.max()) + 1, dtype=np.int64)
    of_class[known] = np.array(sizes)[np.array(asked)[first]]
    values = _solve(
        of_class.tolist(), compositions, counts, sharing.astype(float), epsilon, symmetric=symmetric
    )
    each = _spread(values * (epsilon / (values @ sharing)), known.tolist(), len(of_class))
    return _spread(each[classes[asked]], asked, len(sizes))


def equal_classes(sizes: Sequence[int], groups: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the class of each variable, for tables as one array for each width (tables × width).

    The variables of a class have equally many categories, and occur in equally many tables of every
    combination of classes. The classes are the coarsest such partition.
    Reference: Weisfeiler & Leman (1968), colour refinement.
    """
    classes = np.unique(np.array(sizes), return_inverse=True)[1].astype(np.int64)
    while True:
        signatures: list[list[object]] = [[int(number)] for number in classes]
        for width, group in enumerate(groups):
            combination = np.zeros(len(group), dtype=np.int64)
            for column in np.sort(classes[group], axis=1).T:  # renumbered after each column: no overflow
                combination = np.unique(combination * len(sizes) + column, return_inverse=True)[1]
            top = int(combination.max()) + 1
            pairs = group * top + combination[:, None]
            found, counts = np.unique(pairs.ravel(), return_counts=True)
            for pair, count in zip(found.tolist(), counts.tolist(), strict=True):
                signatures[pair // top].append((width, pair % top, count))
        numbers: dict[tuple[object, ...], int] = {}
        refined = np.array([numbers.setdefault(tuple(signature), len(numbers)) for signature in signatures])
        if len(numbers) == len(np.unique(classes)):
            return classes
        classes = refined


def _solve(
    sizes: Sequence[int],
    groups: Sequence[NDArray[np.int64]],
    counts: Sequence[Floats],
    sharing: Floats,
    epsilon: float,
    *,
    symmetric: bool,
) -> Floats:
    """Return the best ε of each variable (or class of variables) that occurs in some table.

    Parameters
    ----------
    sizes : sequence of int
        Number of categories of each variable.
    groups : sequence of arrays
        Tables, as one array for each width (tables × width).
    counts : sequence of arrays
        Number of tables that each row of `groups` represents.
    sharing : array
        Number of variables that have each ε.
    epsilon : float
        ε of the record.
    symmetric : bool
        Whether channels are symmetric.
    """
    from scipy import optimize  # noqa: PLC0415  (scipy is slow to import)

    members = np.concatenate([group.ravel() for group in groups])
    asked = np.unique(members).tolist()
    start = np.full(len(asked), epsilon / sharing.sum())

    def objective(values: Floats) -> tuple[float, Floats]:
        logs, slopes = np.zeros(len(sizes)), np.zeros(len(sizes))
        for place, value in zip(asked, values, strict=True):
            categories, gamma = sizes[place], float(np.exp(value))
            if categories > 1:
                size = 1 if symmetric else best_subset_size(categories, gamma)
                moment = subset_second_moment(categories, gamma, size)
                logs[place] = np.log(moment)
                slopes[place] = moment_slope(categories, gamma, size) / moment
        parts = [logs[group].sum(axis=1) for group in groups]
        top = max(float(part.max()) for part in parts)
        total, pulls = 0.0, []
        for group, part, count in zip(groups, parts, counts, strict=True):
            weights = np.exp(part - top) * count
            total += float(weights.sum())
            pulls.append(np.repeat(weights, group.shape[1]))
        pull = np.bincount(members, np.concatenate(pulls), minlength=len(sizes))
        return top + float(np.log(total)), (pull / total * slopes)[asked]

    least = LEAST_SHARE * epsilon / float(sharing.sum())
    found = optimize.minimize(
        objective,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(least, epsilon)] * len(asked),
        constraints=[
            {"type": "eq", "fun": lambda x: (x * sharing).sum() - epsilon, "jac": lambda _: sharing}
        ],
        options={"ftol": 1e-12, "maxiter": 300},
    )
    return np.asarray(found.x if objective(found.x)[0] <= objective(start)[0] else start)


def _by_width(tables: Sequence[Sequence[int]]) -> list[NDArray[np.int64]]:
    widths = sorted({len(table) for table in tables})
    return [np.array([table for table in tables if len(table) == width]) for width in widths]


def _spread(values: Floats, places: Sequence[int], size: int) -> Floats:
    result = np.zeros(size)
    result[list(places)] = values
    return result
