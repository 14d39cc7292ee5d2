"""Tables of all pairs that follow from a tree, corrected by the tables with noise that contradict it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.estimate.gaussian import onto_simplex
from masquerade.sources.noise.noisy import NoisyTally

_DEVIATIONS = 2.0  # of the noise's own squared length, above which a table contradicts the tree

Pair = tuple[str, str]


def pairs_near_tree(source: NoisyTally, structure: Mapping[str, Sequence[str]]) -> dict[Pair, Floats]:
    """Estimate all pairs by a tree, corrected where the tables with noise contradict it.

    A tree needs few tables, so its noise is small; but it omits associations. The estimate is that of the
    tree where a table differs from it only by noise, and close to the table where it differs by much more.

    Parameters
    ----------
    source : Noisy
        Source that `ask_tree` has queried; nothing more is spent.
    structure : mapping
        The result of `ask_tree`: at most one parent of each variable.

    Returns
    -------
    dict
        Counts of each pair of variables, in the order of the schema. They are not negative, and biased
        towards the tree, so they have no standard errors.

    Raises
    ------
    InputError
        If the structure is not a tree of the source's variables.
    QueryRefused
        If a pair was not queried before and the budget is spent.

    Notes
    -----
    Formula: T + w(Y − T), w = max(0, 1 − (1 + 2√(2/ν))·V/‖Y − T‖²), T the table by the tree, Y that with
    noise, V the sum of its variances, ν its cells less one. The factor allows for two deviations of ‖noise‖².
    Reference: Chow & Liu (1968) for T, James & Stein (1961) for w.
    Cost: O(d²K³) for d variables of K categories.
    Error: biased towards the tree. It is the tree's where the tree is right, and that of the tables with
    noise where these differ from the tree by far more than noise.

    Examples
    --------
    >>> clear = mq.tally(mq.data.students())
    >>> source = mq.Noisy(clear, epsilon=3, tables=mq.tree_tables(clear.schema))
    >>> tables = mq.pairs_near_tree(source, mq.ask_tree(source))
    >>> len(tables), round(tables["exams", "pills"].sum())
    (6, 600)
    """
    names = tuple(source.schema)
    links = _check_tree(names, structure)
    pairs = list(combinations(names, 2))
    measured = dict(zip(pairs, source.answer([Query(by=pair) for pair in pairs]), strict=True))
    ones = source.answer([Query(by=name) for name in names])
    single = {name: onto_simplex(table.values, source.n) for name, table in zip(names, ones, strict=True)}
    rows: dict[str, dict[str, Floats]] = {name: {} for name in names}
    for pair in links:
        joint = onto_simplex(measured[pair].values, source.n)
        rows[pair[0]][pair[1]], rows[pair[1]][pair[0]] = _row_shares(joint), _row_shares(joint.T)
    result = {}
    for place, name in enumerate(names):
        by_tree = _follow_tree(name, single[name], rows)
        for other in names[place + 1 :]:
            table = by_tree.get(other)
            if table is None:  # in another part of the forest
                table = np.outer(single[name], single[other]) / source.n
            result[name, other] = onto_simplex(_correct_table(table, measured[name, other]), source.n)
    return result


def _check_tree(names: Sequence[str], structure: Mapping[str, Sequence[str]]) -> list[Pair]:
    """Return the links in the order of the schema; raise InputError unless they form a tree or a forest."""
    place = {name: index for index, name in enumerate(names)}
    links, root = [], {name: name for name in names}
    for child, parents in structure.items():
        unknown = [one for one in (child, *parents) if one not in place]
        if unknown:
            raise InputError(f"The tree names {unknown[0]!r}, which is not a variable of this source.")
        if len(parents) > 1:
            raise InputError(f"A variable of a tree has at most one parent. {child!r} has {len(parents)}.")
        for parent in parents:
            if root[child] == root[parent]:
                raise InputError(f"The links of a tree have no cycle. That of {child!r} closes one.")
            joined = root[child]
            root = {name: root[parent] if one == joined else one for name, one in root.items()}
            first, second = sorted((child, parent), key=place.__getitem__)
            links.append((first, second))
    return links


def _row_shares(joint: Floats) -> Floats:
    """Return each row's shares; a row without records has none."""
    return np.asarray(joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-12))


def _follow_tree(name: str, values: Floats, rows: Mapping[str, Mapping[str, Floats]]) -> dict[str, Floats]:
    """Return the tables of a variable with each other variable of its tree."""
    tables: dict[str, Floats] = {name: np.diag(values)}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        for other, shares in rows[current].items():
            if other not in tables:
                tables[other] = tables[current] @ shares
                waiting.append(other)
    return tables


def _correct_table(by_tree: Floats, measured: CountTable) -> Floats:
    """Return the table by the tree, moved towards the table with noise as far as noise does not explain."""
    noise = float(measured.covariance.diagonal("given_records").sum())
    difference = measured.values - by_tree
    explained = (1 + _DEVIATIONS * (2 / max(by_tree.size - 1, 1)) ** 0.5) * noise
    length = float((difference**2).sum())
    weight = max(0.0, 1 - explained / length) if length > 0 else 0.0
    return by_tree + weight * difference
