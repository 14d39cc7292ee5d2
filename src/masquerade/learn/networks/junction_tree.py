"""Exact inference for many records at once: a junction tree with a batch of records as the last axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError

Codes = NDArray[np.intp]
Scope = tuple[str, ...]
MOST_CELLS = 1 << 18  # most cells of all cliques, for one record; exact inference on more would take hours
BATCH_CELLS = 1 << 17  # records times cells of the largest clique: a batch stays in the processor's cache


@dataclass(slots=True, eq=False)
class Clique:
    """Variables that are multiplied together; the `parent` clique has the variables of `separator`, too."""

    names: Scope
    parent: int = -1
    separator: Scope = ()
    children: list[int] = field(default_factory=list)


class JunctionTree:
    """The cliques of a triangulated graph, children before parents.

    Parameters
    ----------
    scopes : iterable of tuples of str
        Variables of every factor: families of the network, and variables that were reported together.
    sizes : mapping of str to int
        Number of categories of every variable.

    Raises
    ------
    InputError
        If the cliques have more than `MOST_CELLS` cells.

    Notes
    -----
    The order of elimination is min-fill, ties by size. Lauritzen & Spiegelhalter (1988); Koller & Friedman
    (2009), chapter 10.
    """

    def __init__(self, scopes: Iterable[Scope], sizes: Mapping[str, int]) -> None:
        self.sizes = dict(sizes)
        self.cliques = _connect(_eliminate([frozenset(scope) for scope in scopes], self.sizes))
        self.cells = [prod(self.sizes[name] for name in one.names) for one in self.cliques]
        if sum(self.cells) > MOST_CELLS:
            raise InputError(
                f"The network is too wide for its exact likelihood: {sum(self.cells):,} cells per record, "
                f"of at most {MOST_CELLS:,}. Allow fewer parents, or use method='counts'."
            )

    def home(self, scope: Scope) -> int:
        """Return the smallest clique that contains the variables."""
        found = [i for i, one in enumerate(self.cliques) if set(scope) <= set(one.names)]
        return min(found, key=self.cells.__getitem__)

    def outside(self, clique: int, among: int | None = None) -> tuple[int, ...]:
        """Return the axes of a clique, or of the clique `among`, that are not in the clique's separator."""
        names = self.cliques[clique if among is None else among].names
        return tuple(place for place, name in enumerate(names) if name not in self.cliques[clique].separator)

    def spread(self, table: Floats, scope: Scope, clique: int, *, batch: bool) -> Floats:
        """Return a table over `scope` with the axes of a clique, and the records last."""
        names = self.cliques[clique].names
        order = sorted(range(len(scope)), key=lambda place: names.index(scope[place]))
        moved = table.transpose(*order, len(scope)) if batch else table.transpose(order)[..., None]
        shape = [self.sizes[name] if name in scope else 1 for name in names]
        return moved.reshape(*shape, moved.shape[-1])


def count_cells(scopes: Iterable[Scope], sizes: Mapping[str, int]) -> int:
    """Return the number of cells of all cliques, without a limit."""
    cliques = _connect(_eliminate([frozenset(scope) for scope in scopes], sizes))
    return sum(prod(sizes[name] for name in one.names) for one in cliques)


def _eliminate(
    scopes: Sequence[frozenset[str]], sizes: Mapping[str, int]
) -> list[tuple[str, frozenset[str]]]:
    """Return every variable with its neighbours when it is eliminated, in order."""
    near: dict[str, set[str]] = {name: set() for scope in scopes for name in scope}
    for scope in scopes:
        for a, b in combinations(scope, 2):
            near[a].add(b)
            near[b].add(a)
    place = {name: i for i, name in enumerate(sizes)}

    def cost(name: str) -> tuple[int, int, int]:
        missing = sum(b not in near[a] for a, b in combinations(near[name], 2))
        cells = sizes[name]
        for other in near[name]:
            cells *= sizes[other]
        return missing, cells, place[name]

    costs = {name: cost(name) for name in near}
    order: list[tuple[str, frozenset[str]]] = []
    while costs:
        name = min(costs, key=costs.__getitem__)
        around = near.pop(name)
        del costs[name]
        order.append((name, frozenset(around)))
        for other in around:
            near[other] |= around - {other}
            near[other].discard(name)
        for other in around.union(*(near[one] for one in around)):
            costs[other] = cost(other)
    return order


def _connect(order: Sequence[tuple[str, frozenset[str]]]) -> list[Clique]:
    """Return the tree of cliques: each is linked to the clique of its neighbour that is eliminated next."""
    at = {name: i for i, (name, _) in enumerate(order)}
    members: list[set[str]] = [{name, *near} for name, near in order]
    parent = [min((at[other] for other in near), default=-1) for _, near in order]
    into = list(range(len(order)))
    for i in range(len(order)):  # a clique that a child contains is absorbed by it
        up = parent[i]
        if up >= 0 and members[up] <= members[i] and into[up] == up:
            into[up] = i
    kept = [i for i in range(len(order)) if into[i] == i]

    def final(i: int) -> int:
        while into[i] != i:
            i = into[i]
        return i

    links: dict[int, int] = {}
    for i, up in enumerate(parent):
        a, b = final(i), final(up) if up >= 0 else -1
        if up >= 0 and a != b:
            links.setdefault(a, b)
    return _sort_cliques(kept, members, links)


def _sort_cliques(kept: Sequence[int], members: Sequence[set[str]], links: Mapping[int, int]) -> list[Clique]:
    """Return the kept cliques, children before parents, each with its separator."""
    depth: dict[int, int] = {}

    def depth_of(i: int) -> int:
        path = []
        while i not in depth and i in links:
            path.append(i)
            i = links[i]
        depth.setdefault(i, 0)
        for one in reversed(path):
            depth[one] = depth[links[one]] + 1
        return depth[path[0]] if path else depth[i]

    order = sorted(kept, key=lambda i: (-depth_of(i), i))
    number = {i: place for place, i in enumerate(order)}
    cliques = []
    for i in order:
        up = links.get(i)
        shared = () if up is None else tuple(sorted(members[i] & members[up]))
        cliques.append(Clique(tuple(sorted(members[i])), -1 if up is None else number[up], shared))
    for place, one in enumerate(cliques):
        if one.parent >= 0:
            cliques[one.parent].children.append(place)
    return cliques


@dataclass(frozen=True, slots=True, eq=False)
class SharedRows:
    """A clique whose subtree has few distinct reports: one row of its product serves many records.

    Attributes
    ----------
    member : array (records,)
        Row of every record.
    product : array (axes of the clique, rows)
        Product of the clique's factors with the messages of its children.
    sums : array (axes of the separator, rows)
        The product summed over the other variables: the message before it is scaled.
    log_scale : array (rows,)
        Logarithm of the factors that were divided out of the messages below.
    """

    member: Codes
    product: Floats
    sums: Floats
    log_scale: Floats


class Propagation:
    """Messages of one batch of records through a junction tree.

    Parameters
    ----------
    tree : JunctionTree
        The cliques.
    potentials : sequence of arrays
        One array for each clique, with its axes and the records last. They are replaced by the products with
        the messages of the children.
    records : int
        Number of records in the batch.
    shared : mapping of int to SharedRows
        Cliques whose products were computed in advance, for distinct reports. Their `member` covers only the
        records of the batch.
    """

    def __init__(
        self,
        tree: JunctionTree,
        potentials: Sequence[Floats],
        records: int,
        shared: Mapping[int, SharedRows] | None = None,
    ) -> None:
        self.tree, self.records, self.shared = tree, records, shared or {}
        self.products: list[Floats] = list(potentials)
        self.messages: list[Floats] = [np.empty(0)] * len(potentials)
        self.sums: list[Floats] = [np.empty(0)] * len(potentials)
        self.log_likelihood = np.zeros(records)
        self._collect()

    def _collect(self) -> None:
        cliques = self.tree.cliques
        for i, one in enumerate(cliques):
            if i in self.shared:
                if one.parent not in self.shared:
                    rows = self.shared[i]
                    self.log_likelihood += rows.log_scale[rows.member]
                    self._send(i, np.take(rows.sums, rows.member, axis=-1))
                continue
            product = self.products[i]
            for child in one.children:
                message = self.tree.spread(self.messages[child], cliques[child].separator, i, batch=True)
                product = product * message
            if product.shape[-1] != self.records:
                product = np.broadcast_to(product, (*product.shape[:-1], self.records))
            self.products[i] = product
            self._send(i, product.sum(axis=self.tree.outside(i)))

    def _send(self, i: int, sums: Floats) -> None:
        """Store the message of a clique, scaled to at most 1; a root adds it to the likelihood."""
        # a message of zeros stays: the report is impossible, and its logarithm −∞
        scale = largest_of(sums)
        self.sums[i], self.messages[i] = sums, sums / scale
        with np.errstate(divide="ignore"):
            self.log_likelihood += np.log(scale)
            if self.tree.cliques[i].parent < 0:
                self.log_likelihood += np.log(self.messages[i])

    def beliefs(self) -> list[Floats]:
        """Return the posterior probabilities of every clique's cells, the records last."""
        beliefs: list[Floats] = [np.empty(0)] * len(self.tree.cliques)
        for i in range(len(beliefs) - 1, -1, -1):
            rows = self.shared.get(i)
            product, sums = self.products[i], self.sums[i]
            if rows is not None:
                product = np.take(rows.product, rows.member, axis=-1)
                sums = np.take(rows.sums, rows.member, axis=-1)
            beliefs[i] = self._belief(i, product, sums, beliefs)
        return beliefs

    def _belief(self, i: int, product: Floats, sums: Floats, beliefs: Sequence[Floats]) -> Floats:
        one = self.tree.cliques[i]
        ratio = divide(self._separator_belief(i, beliefs), sums)
        return np.asarray(product * self.tree.spread(ratio, one.separator, i, batch=True))

    def _separator_belief(self, i: int, beliefs: Sequence[Floats]) -> Floats:
        """Return the posterior probabilities of a clique's separator, from the clique's parent."""
        above = self.tree.cliques[i].parent
        if above < 0:
            return np.ones(self.records)
        return np.asarray(beliefs[above].sum(axis=self.tree.outside(i, above)))

    def sum_beliefs(self, weights: Floats) -> tuple[list[Floats], dict[int, Floats]]:
        """Return the weighted sums of the beliefs over the records.

        Parameters
        ----------
        weights : array (records,)
            Weights of the records.

        Returns
        -------
        list of arrays, dict of int to array
            Expected cells of every clique that is not shared. For each shared clique whose parent is not, the
            weighted ratios (axes of the separator, rows) by which its product is multiplied.
        """
        cliques = self.tree.cliques
        beliefs: list[Floats] = [np.empty(0)] * len(cliques)
        totals: list[Floats] = [np.empty(0)] * len(cliques)
        ratios: dict[int, Floats] = {}
        for i in range(len(cliques) - 1, -1, -1):
            if i not in self.shared:
                beliefs[i] = self._belief(i, self.products[i], self.sums[i], beliefs)
                totals[i] = beliefs[i] @ weights
            elif cliques[i].parent not in self.shared:
                rows = self.shared[i]
                ratio = divide(self._separator_belief(i, beliefs), self.sums[i]) * weights
                ratios[i] = sum_rows(ratio, rows.member, rows.product.shape[-1])
        return totals, ratios

    def sample(self, generator: np.random.Generator) -> dict[str, Codes]:
        """Draw the true values of every record from their posterior distribution, exactly."""
        cliques = self.tree.cliques
        drawn: dict[str, Codes] = {}
        everybody = np.arange(self.records)
        for i in range(len(cliques) - 1, -1, -1):
            one, rows = cliques[i], self.shared.get(i)
            fresh = [name for name in one.names if name not in drawn]
            if not fresh:
                continue
            known = [place for place, name in enumerate(one.names) if name in drawn]
            free = [place for place, name in enumerate(one.names) if name not in drawn]
            product, at = (self.products[i], everybody) if rows is None else (rows.product, rows.member)
            moved = product.transpose(*known, -1, *free)
            chosen = moved[(*[drawn[one.names[place]] for place in known], at)]
            flat = chosen.reshape(self.records, -1)
            steps = np.cumsum(flat, axis=1)
            picked = (generator.random(self.records)[:, None] * steps[:, -1:] >= steps[:, :-1]).sum(axis=1)
            codes = np.unravel_index(picked, [self.tree.sizes[one.names[place]] for place in free])
            for place, code in zip(free, codes, strict=True):
                drawn[one.names[place]] = np.asarray(code, dtype=np.intp)
        return drawn


def largest_of(message: Floats) -> Floats:
    """Return the largest entry of every record's message, 1 where all are 0."""
    scale = message.reshape(-1, message.shape[-1]).max(axis=0)
    return np.where(scale > 0, scale, 1.0)


def divide(numerator: Floats, sums: Floats) -> Floats:
    """Return numerator / sums, 0 where the sum is 0."""
    return np.divide(
        numerator, sums, out=np.zeros(np.broadcast_shapes(numerator.shape, sums.shape)), where=sums > 0
    )


def sum_rows(values: Floats, member: Codes, rows: int) -> Floats:
    """Return the sums of values (…, records) over the records of each row."""
    flat = values.reshape(-1, values.shape[-1])
    index = member + rows * np.arange(len(flat))[:, None]
    sums = np.bincount(index.ravel(), flat.ravel(), minlength=rows * len(flat))
    return sums.reshape(*values.shape[:-1], rows).astype(np.float64, copy=False)


def distinct_rows(codes: Sequence[tuple[Codes, int]], records: int) -> tuple[Codes, int]:
    """Return the row of every record such that equal codes share a row, and the number of rows.

    `codes` are (codes of the records, number of codes).
    """
    member, rows = np.zeros(records, dtype=np.intp), 1
    for part, size in codes:
        member = member * size + part
        seen = np.zeros(rows * size, dtype=bool)
        seen[member] = True
        place = np.cumsum(seen) - 1
        member, rows = place[member], int(place[-1]) + 1
    return member, rows
