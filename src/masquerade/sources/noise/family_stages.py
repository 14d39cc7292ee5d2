"""Stages of searches on counts with noise: all pairs, then few tables that the pairs choose."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb

import numpy as np

from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.sources.noise.noisy import NoisyTally

PAIRS_SHARE = 0.6  # share of the budget for all pairs; the rest is for the tables of families
TREE_SHARE = 0.5  # share of the tables of a tree in stages that are further draws
CANDIDATES = 3  # times the links of a tree: pairs that are drawn again before the tree is chosen
Pair = tuple[str, ...]


def structure_stages(schema: Schema, share: float = PAIRS_SHARE) -> list[tuple[int, float]]:
    """Return the stages of a structure search: tables and share of the budget of each.

    Parameters
    ----------
    schema : Schema
        Variables of the network.
    share : float, default 0.6
        Share of the budget for all pairs.

    Returns
    -------
    list of (int, float)
        For `mq.Noisy(…, tables=…)`.

    Examples
    --------
    >>> mq.structure_stages(mq.tally(mq.data.students()).schema)
    [(6, 0.6), (4, 0.4)]
    """
    if len(schema) < 3:
        raise InputError("A structure search in stages needs at least three variables.")
    if not 0 < share < 1:
        raise InputError(f"The share of the pairs must be between 0 and 1. Got {share!r} instead.")
    return [(len(schema) * (len(schema) - 1) // 2, share), (len(schema), round(1 - share, 12))]


def ask_families(source: NoisyTally, partners: int = 3, draws: int = 1) -> list[tuple[str, str]]:
    """Query all pairs, then for each variable the table with its strongest partners.

    A search that follows, `mq.learn.structure(source, forbidden=…)`, queries nothing new.

    Parameters
    ----------
    source : Noisy
        Source with the stages of `structure_stages`; or with one stage, and more `draws`.
    partners : int, default 3
        Largest number of partners of a variable, as `max_parents` of the search.
    draws : int, default 1
        Number of draws of each variable's table. The noise of several contributors has one stage: they spend
        more on these tables by drawing them more often.

    Returns
    -------
    list of (str, str)
        Links from a parent to a child that the tables do not cover: `forbidden` of the search.

    Examples
    --------
    >>> clear = mq.tally(mq.data.students())
    >>> source = mq.Noisy(clear, epsilon=3, tables=mq.structure_stages(clear.schema))
    >>> forbidden = mq.ask_families(source, partners=2)
    >>> network = mq.learn.structure(source, forbidden=forbidden, max_parents=2)
    >>> source.tables_spent <= 10
    True
    """
    names = tuple(source.schema)
    pairs = [Query(by=pair) for pair in combinations(names, 2)]
    strength = {name: dict[str, float]() for name in names}
    for table in source.answer(pairs):
        first, second = table.names
        strength[first][second] = strength[second][first] = link_strength(table)
    chosen = {name: strongest(strength[name], partners) for name in names}
    families = [Query(by=(name, *chosen[name])) for name in names]
    if source.cost(families) > source.tables_left and len(source.terms.stages) > 1:
        source.next_stage()
    source.answer(families)
    if draws > 1:
        wide = [query for query in families if not any(set(query.by) < set(other.by) for other in families)]
        source.ask_again(wide, draws - 1)
    return [(parent, name) for name in names for parent in names if parent not in (name, *chosen[name])]


def tree_tables(schema: Schema, share: float = TREE_SHARE) -> int:
    """Return the number of tables of a tree in stages: all pairs, then further draws of few pairs.

    Parameters
    ----------
    schema : Schema
        Variables of the tree.
    share : float, default 0.5
        Share of the tables for further draws.

    Returns
    -------
    int
        Number of tables of the budget, for `ask_tree`.

    Examples
    --------
    >>> mq.tree_tables(mq.tally(mq.data.students()).schema)
    12
    """
    if len(schema) < 3:
        raise InputError("A tree in stages needs at least three variables.")
    if not 0 < share < 1:
        raise InputError(f"The share of the tree must be between 0 and 1. Got {share!r} instead.")
    pairs, links = comb(len(schema), 2), len(schema) - 1
    return pairs + links * max(round(pairs * share / (1 - share) / links), 1)


def ask_tree(source: NoisyTally) -> dict[str, tuple[str, ...]]:
    """Query all pairs, then spend what is left on further draws of few pairs, which choose a tree.

    Half of what is left goes to the strongest pairs, three times as many as a tree has links, so that the
    tree is chosen by more accurate tables; the rest goes to the pairs of the tree. With few variables, all of
    it goes to the tree. The tree is that of Chow & Liu, with strengths from which the contribution of noise
    is subtracted. A network with this structure has few parameters and accurate tables, and `pairs_near_tree`
    estimates all other pairs from it. No party needs to see exact counts to choose the tree.

    Parameters
    ----------
    source : Noisy
        Source with a budget of `tree_tables`, or more.

    Returns
    -------
    dict
        Structure of the tree: the parents of each variable, for `mq.learn.bayesian_network`. A variable
        without a link of positive strength has none.

    Examples
    --------
    >>> clear = mq.tally(mq.data.students())
    >>> source = mq.Noisy(clear, epsilon=3, tables=mq.tree_tables(clear.schema))
    >>> structure = mq.ask_tree(source)
    >>> network = mq.learn.bayesian_network(source, structure)
    >>> sum(len(parents) for parents in structure.values()) <= 3
    True
    """
    pairs = [Query(by=pair) for pair in combinations(source.schema, 2)]
    strengths = {table.names: link_strength(table) for table in source.answer(pairs)}
    likely = [Query(by=pair) for pair in sorted(strengths, key=lambda pair: -strengths[pair])]
    likely = likely[: CANDIDATES * (len(source.schema) - 1)]
    times = source.tables_left // 2 // len(likely) if likely else 0
    if times and len(likely) < len(pairs):
        source.ask_again(likely, times)
        strengths |= {table.names: link_strength(table) for table in source.answer(likely)}
    links = _spanning_tree([pair for pair, strength in strengths.items() if strength > 0], strengths)
    if len(source.terms.stages) > 1 and source.tables_left < len(links):
        source.next_stage()
    times = source.tables_left // len(links) if links else 0
    if times:
        source.ask_again([Query(by=link) for link in links], times)
    return _orient_links(tuple(source.schema), links)


def _spanning_tree(pairs: Sequence[Pair], strengths: Mapping[Pair, float]) -> list[Pair]:
    """Return the links of the forest of largest total strength (Kruskal)."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while name in root:
            name = root[name]
        return name

    links: list[Pair] = []
    for first, second in sorted(pairs, key=lambda pair: -strengths[pair]):
        one, two = find(first), find(second)
        if one != two:
            root[one] = two
            links.append((first, second))
    return links


def _orient_links(names: tuple[str, ...], links: Sequence[Pair]) -> dict[str, tuple[str, ...]]:
    """Return the parents of each variable, with the first variable of each tree as its root."""
    next_to: dict[str, list[str]] = {name: [] for name in names}
    for first, second in links:
        next_to[first].append(second)
        next_to[second].append(first)
    parents: dict[str, tuple[str, ...]] = {}
    for start in names:
        if start in parents:
            continue
        parents[start] = ()
        waiting = deque([start])
        while waiting:
            name = waiting.popleft()
            for child in next_to[name]:
                if child not in parents:
                    parents[child] = (name,)
                    waiting.append(child)
    return {name: parents[name] for name in names}


def strongest(strengths: dict[str, float], most: int) -> list[str]:
    """Return up to `most` variables with a positive strength, at least one, the strongest first."""
    ordered: Sequence[str] = sorted(strengths, key=lambda name: -strengths[name])
    return [name for place, name in enumerate(ordered[:most]) if place == 0 or strengths[name] > 0]


def link_strength(table: CountTable) -> float:
    """Return the strength of the link in a table of two variables, without the part that noise explains.

    Formula: Σ (R² − Var R)/(E + Var R)/n, R the residuals of independence, Var R the noise of the
    interaction. Without noise this is φ²; with much noise, cells of few records, whose residuals are mostly
    noise, weigh no more than others.
    """
    values = table.values
    total = max(float(values.sum()), 1.0)
    expected = np.outer(np.maximum(values.sum(axis=1), 1.0), np.maximum(values.sum(axis=0), 1.0)) / total
    residuals = values - np.outer(values.sum(axis=1), values.sum(axis=0)) / total
    noise = float(table.covariance.diagonal("given_records").mean())
    return float(((residuals**2 - noise) / np.maximum(expected + noise, 1.0)).sum() / total)
