"""Pair tables of other programs at the same ε and δ, for `noise_errors.py` and `noise_peers.py`.

They need `pip install mbi==2.0.0 opendp`; without them their columns are omitted. All are a curator's, with
noise calibrated by zero-concentrated privacy, as their authors do; neighbours are records that are
substituted, as everywhere here.

- OpenDP: its discrete Gaussian on every table, calibrated by its own conversion.
- private-pgm: the same kind of noise on every table, and the model of all of them by `mbi`.
- MST (McKenna, Miklau & Sheldon 2021): a third of the budget for single variables, a third to choose a tree,
  a third for the tables of the tree.
- AIM (McKenna, Mullins, Sheldon & Miklau 2022): rounds that choose the worst table and measure it, less noise
  from round to round; models of at most 80 MB, as its authors recommend for comparisons.

MST and AIM follow the papers over `mbi`; the authors' scripts are not on a package index.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

os.environ.setdefault("JAX_ENABLE_X64", "1")

import networkx as nx
import numpy as np

ITERATIONS = 400  # of mirror descent
AIM_ITERATIONS = 100  # of mirror descent in each round, from the model of the round before
AIM_MEGABYTES = 80.0
Pair = tuple[str, str]
Tables = dict[Pair, np.ndarray]


def zcdp_of(epsilon: float, delta: float) -> float:
    """Return the ρ of zero-concentrated privacy for (ε, δ); Canonne, Kamath & Steinke (2020)."""
    orders = 1 + np.logspace(-3, 4, 3000)

    def converted(rho: float) -> float:
        return float(
            np.min(orders * rho + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1))
        )

    low, high = 1e-8, 50.0
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if converted(middle) <= epsilon else (low, middle)
    return low


def shares_of(cells: np.ndarray) -> np.ndarray:
    """Return the nearest shares to cells: a projection onto the simplex."""
    values = np.asarray(cells, dtype=float).ravel()
    values = values / max(values.sum(), 1e-9)
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(ordered) + 1)
    last = np.nonzero(ordered - excess > 0)[0][-1]
    return np.maximum(values - excess[last], 0)


def discrete_gaussian_scale(tables: int, epsilon: float, delta: float) -> float:
    """Return the scale of OpenDP's discrete Gaussian for a number of tables, by OpenDP's own conversion."""
    import opendp.prelude as dp  # noqa: PLC0415

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    moved = (2 * tables) ** 0.5
    low, high = 1.0, 1e5
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        measure = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=middle))
        spent = measure.map(moved).epsilon(delta)
        low, high = (middle, high) if spent > epsilon else (low, middle)
    return high


def discrete_gaussian(tables: list[np.ndarray], scale: float) -> list[np.ndarray]:
    """Return tables of counts with OpenDP's discrete Gaussian."""
    import opendp.prelude as dp  # noqa: PLC0415

    dp.enable_features("contrib")
    draw = dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float), scale=scale)
    cells = np.concatenate([np.asarray(table).ravel() for table in tables]).astype(int)
    parts = np.split(np.array(draw(cells.tolist())), np.cumsum([np.size(table) for table in tables])[:-1])
    return [part.reshape(np.shape(table)) for part, table in zip(parts, tables, strict=True)]


class Curator:
    """Exact tables of all pairs, and what a curator's programs release about them."""

    def __init__(self, exact: Tables, n: int, promise: tuple[float, float], seed: int) -> None:
        self.exact, self.n, (self.epsilon, self.delta) = exact, n, promise
        self.rho, self.rng = zcdp_of(*promise), np.random.default_rng(seed)
        self.singles: dict[str, np.ndarray] = {}
        for (first, second), table in exact.items():
            self.singles.setdefault(first, table.sum(axis=1))
            self.singles.setdefault(second, table.sum(axis=0))
        self.names = list(self.singles)
        self.model: Any = None  # the last that was fitted

    def records(self, n: int) -> np.ndarray:
        """Return synthetic records of the last model, as codes by variable."""
        made = self.model.synthetic_data(n).to_dict()
        return np.column_stack([np.asarray(made[name]) for name in self.names])

    def opendp(self) -> Tables:
        """Return all tables with OpenDP's noise."""
        scale = discrete_gaussian_scale(len(self.exact), self.epsilon, self.delta)
        return dict(zip(self.exact, discrete_gaussian(list(self.exact.values()), scale), strict=True))

    def private_pgm(self) -> Tables:
        """Return all tables of the model of all noisy tables."""
        deviation = math.sqrt(2 * len(self.exact) / (2 * self.rho))
        measured = [self._measure(pair, deviation) for pair in self.exact]
        return self._tables(self._fit(measured, ITERATIONS))

    def mst(self) -> Tables:
        """Return all tables of a tree that is chosen and measured."""
        deviation = math.sqrt(len(self.names) * 2 / (2 * self.rho / 3))
        measured = [self._measure((name,), deviation) for name in self.names]
        likely = {
            name: shares_of(measure.noisy_measurement)
            for name, measure in zip(self.names, measured, strict=True)
        }
        score = {
            (a, b): np.abs(table - self.n * np.outer(likely[a], likely[b])).sum()
            for (a, b), table in self.exact.items()
        }
        each = math.sqrt(8 * self.rho / 3 / (len(self.names) - 1))
        joined, tree = nx.utils.UnionFind(self.names), []
        for _ in range(len(self.names) - 1):
            open_ = [pair for pair in self.exact if joined[pair[0]] != joined[pair[1]]]
            chosen = open_[self._choose([score[pair] for pair in open_], each)]
            joined.union(*chosen)
            tree.append(chosen)
        deviation = math.sqrt(len(tree) * 2 / (2 * self.rho / 3))
        measured += [self._measure(pair, deviation) for pair in tree]
        model = self._fit(measured, ITERATIONS)
        one = {name: np.asarray(model.project((name,)).datavector()) for name in self.names}
        two = {pair: np.asarray(model.project(pair).datavector(flatten=False)) for pair in tree}
        return tree_tables(one, two, self.exact)

    def aim(self, limit: float = math.inf) -> Tables:
        """Return all tables of the model after rounds that measure the worst table.

        Raise TimeoutError with the number of rounds, the share of the budget that is spent and the tables so
        far after `limit` processor seconds.
        """
        import mbi  # noqa: PLC0415

        until = time.process_time() + limit
        rounds = 16 * len(self.names)
        deviation = math.sqrt(rounds * 2 / (2 * 0.9 * self.rho))
        choice = math.sqrt(8 * 0.1 * self.rho / rounds)
        weights = {
            pair: sum(len(set(pair) & set(other)) for other in self.exact) / len(self.exact)
            for pair in self.exact
        }
        measured = [self._measure((name,), deviation) for name in self.names]
        spent = len(self.names) * 2 / (2 * deviation**2)
        model = self._fit(measured, AIM_ITERATIONS)
        chosen: list[Pair] = []
        guess = self._tables(model)
        while True:
            if time.process_time() > until:
                raise TimeoutError(len(chosen), spent / self.rho, guess)
            each = 2 / (2 * deviation**2) + choice**2 / 8
            is_last = spent + 2 * each > self.rho
            if is_last:  # the rest of the budget for one round
                left = self.rho - spent
                deviation, choice = math.sqrt(2 / (2 * 0.9 * left)), math.sqrt(8 * 0.1 * left)
                each = left
            spent += each
            scores = [
                weights[pair]
                * (np.abs(table - guess[pair]).sum() - math.sqrt(2 / math.pi) * deviation * table.size)
                for pair, table in self.exact.items()
            ]
            ranked = self._ranked(scores, choice, max(weights.values()))
            most = AIM_MEGABYTES * spent / self.rho
            for pair in (list(self.exact)[index] for index in ranked):
                cliques = [*{*chosen, pair}]
                if mbi.junction_tree.hypothetical_model_size(self._domain(), cliques) <= most:
                    break
            measured.append(self._measure(pair, deviation))
            chosen.append(pair)
            before = guess[pair]
            model = self._fit(measured, ITERATIONS if is_last else AIM_ITERATIONS, model)
            guess = self._tables(model)
            if is_last:
                return guess
            if np.abs(guess[pair] - before).sum() <= math.sqrt(2 / math.pi) * deviation * before.size:
                deviation, choice = deviation / 2, choice * 2  # the last table was mostly noise

    def _choose(self, scores: list[float], epsilon: float, weight: float = 1.0) -> int:
        """Return an index by the exponential mechanism; a substituted record moves a score by 2·weight."""
        return int(self._ranked(scores, epsilon, weight)[0])

    def _ranked(self, scores: list[float], epsilon: float, weight: float) -> np.ndarray:
        """Return all indices by noisy score; the first of a subset is drawn by the exponential mechanism."""
        noisy = np.array(scores) * epsilon / (4 * weight) + self.rng.gumbel(size=len(scores))
        return np.argsort(-noisy)

    def _measure(self, names: tuple[str, ...], deviation: float) -> Any:
        import mbi  # noqa: PLC0415

        cells = self.singles[names[0]] if len(names) == 1 else self.exact[names]  # type: ignore[index]
        noisy = cells + self.rng.normal(0, deviation, cells.shape)
        return mbi.LinearMeasurement(noisy.ravel(), names, stddev=deviation)

    def _domain(self) -> Any:
        import mbi  # noqa: PLC0415

        return mbi.Domain(self.names, [len(self.singles[name]) for name in self.names])

    def _fit(self, measured: list[Any], iterations: int, before: Any = None) -> Any:
        import mbi  # noqa: PLC0415

        options = {"known_total": float(self.n), "iters": iterations, "warm_start": before}
        self.model = mbi.estimation.MirrorDescent().estimate(
            self._domain(), measured, callback_fn=lambda *_: None, **options
        )
        return self.model

    def _tables(self, model: Any) -> Tables:
        """Return all pairs of a model: one variable after the other is carried over its junction tree."""
        import mbi  # noqa: PLC0415

        tree, _ = mbi.junction_tree.make_junction_tree(model.domain, [tuple(one) for one in model.cliques])
        cliques = list(tree.nodes)
        belief = mbi.marginal_oracles.message_passing_stable(model.potentials.expand(cliques), model.total)
        cells = {
            clique: np.asarray(belief.project(clique).datavector(flatten=False)) / self.n
            for clique in cliques
        }
        shares = {name: axis_sum(cells[clique], clique, (name,)) for clique in cliques for name in clique}
        tables: Tables = {}
        for name in self.names:
            wanted = {b for a, b in self.exact if a == name}
            found = carried(tree, cells, name, wanted)
            for other in wanted:
                table = found.get(other)
                tables[name, other] = self.n * (
                    np.outer(shares[name], shares[other]) if table is None else table
                )
        return {pair: tables[pair] for pair in self.exact}


def axis_sum(table: np.ndarray, names: tuple[str, ...], kept: tuple[str, ...]) -> np.ndarray:
    """Return the margin of a table, in the order of the names that are kept."""
    return np.einsum(table, [names.index(name) for name in names], [names.index(name) for name in kept])


def carried(
    tree: nx.Graph, cells: dict[tuple[str, ...], np.ndarray], name: str, wanted: set[str]
) -> dict[str, np.ndarray]:
    """Return the joint shares of a variable with others in its part of a junction tree."""
    root = min((clique for clique in tree if name in clique), key=lambda one: cells[one].size)
    found: dict[str, np.ndarray] = {}
    joint: dict[tuple[str, ...], tuple[tuple[str, ...], np.ndarray]] = {root: (root, cells[root])}
    for before, clique in [(None, root), *nx.bfs_edges(tree, root)]:
        if before is not None:
            names, table = joint[before]
            shared = tuple(one for one in clique if one in before)
            if name in clique:
                joint[clique] = clique, cells[clique]
            else:
                message = axis_sum(table, names, (name, *shared))
                base = axis_sum(cells[clique], clique, shared)
                letters = {one: i for i, one in enumerate((name, *clique))}
                table = np.einsum(
                    message / np.maximum(base, 1e-300),
                    [letters[one] for one in (name, *shared)],
                    cells[clique],
                    [letters[one] for one in clique],
                    list(range(len(letters))),
                )
                joint[clique] = (name, *clique), table
        names, table = joint[clique]
        for other in wanted & set(clique) - set(found):
            found[other] = axis_sum(table, names, (name, other))
    return found


def tree_tables(one: dict[str, np.ndarray], two: Tables, pairs: Tables) -> Tables:
    """Return the tables of all pairs that follow from the tables of a tree."""
    rows = {}
    for (a, b), table in two.items():
        joint = np.maximum(table, 0)
        rows[a, b] = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-12)
        rows[b, a] = joint.T / np.maximum(joint.T.sum(axis=1, keepdims=True), 1e-12)
    graph = nx.Graph(list(two))
    graph.add_nodes_from(one)
    paths = dict(nx.all_pairs_shortest_path(graph))
    tables = {}
    for a, b in pairs:
        if b not in paths[a]:
            tables[a, b] = np.outer(one[a], one[b]) / one[b].sum()
            continue
        table = np.diag(one[a])
        for first, second in zip(paths[a][b], paths[a][b][1:], strict=False):
            table = table @ rows[first, second]
        tables[a, b] = table
    return tables


def peer_tables(exact: Tables, n: int, promise: tuple[float, float], seed: int, only: list[str]) -> Any:
    """Yield the name and the tables of each program in `only` that is installed; promise is (ε, δ)."""
    methods = {
        "OpenDP": Curator.opendp,
        "private-pgm": Curator.private_pgm,
        "MST": Curator.mst,
        "AIM": Curator.aim,
    }
    for name in only:
        try:
            yield name, methods[name](Curator(exact, n, promise, seed))
        except ImportError:
            continue
