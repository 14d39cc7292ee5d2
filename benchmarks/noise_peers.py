"""Pair tables of other programs at the same ε and δ, for `noise_errors.py`.

They need `pip install mbi==2.0.0 opendp`; without them their columns are left out. All are a curator's, with
noise calibrated by zero-concentrated privacy, as their authors do; neighbours are records that are
substituted, as everywhere here.

- OpenDP: its discrete Gaussian on every table, calibrated by its own conversion.
- private-pgm: the same kind of noise on every table, and the model of all of them by `mbi`.
- MST (McKenna, Miklau & Sheldon 2021): a third of the budget for single variables, a third to choose a tree,
  a third for the tables of the tree.
- AIM (McKenna, Mullins, Sheldon & Miklau 2022): rounds that choose the worst table and measure it, less noise
  from round to round.

MST and AIM follow the papers over `mbi`; the authors' scripts are not on a package index.
"""

from __future__ import annotations

import math
import os
from typing import Any

os.environ.setdefault("JAX_ENABLE_X64", "1")

import networkx as nx
import numpy as np

ITERATIONS = 400  # of mirror descent
AIM_ITERATIONS = 100  # of mirror descent in each round
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

    def opendp(self) -> Tables:
        """Return all tables with OpenDP's noise."""
        import opendp.prelude as dp  # noqa: PLC0415

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
        moved = (2 * len(self.exact)) ** 0.5
        low, high = 1.0, 1e5
        while high / low > 1.001:
            middle = (low * high) ** 0.5
            measure = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=middle))
            spent = measure.map(moved).epsilon(self.delta)
            low, high = (middle, high) if spent > self.epsilon else (low, middle)
        draw = dp.m.make_gaussian(*space, scale=high)
        cells = np.concatenate([table.ravel() for table in self.exact.values()]).astype(int)
        noisy = np.array(draw(cells.tolist()))
        parts = np.split(noisy, np.cumsum([table.size for table in self.exact.values()])[:-1])
        return {
            pair: part.reshape(table.shape)
            for (pair, table), part in zip(self.exact.items(), parts, strict=True)
        }

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

    def aim(self) -> Tables:
        """Return all tables of the model after rounds that measure the worst table."""
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
        while True:
            each = 2 / (2 * deviation**2) + choice**2 / 8
            is_last = spent + 2 * each > self.rho
            if is_last:  # the rest of the budget for one round
                left = self.rho - spent
                deviation, choice = math.sqrt(2 / (2 * 0.9 * left)), math.sqrt(8 * 0.1 * left)
                each = left
            guess = {pair: self._pair(model, pair) for pair in self.exact}
            scores = [
                weights[pair]
                * (np.abs(table - guess[pair]).sum() - math.sqrt(2 / math.pi) * deviation * table.size)
                for pair, table in self.exact.items()
            ]
            pair = list(self.exact)[self._choose(scores, choice, max(weights.values()))]
            measured.append(self._measure(pair, deviation))
            spent += each
            model = self._fit(measured, ITERATIONS if is_last else AIM_ITERATIONS)
            if is_last:
                return self._tables(model)
            moved = np.abs(self._pair(model, pair) - guess[pair]).sum()
            if moved <= math.sqrt(2 / math.pi) * deviation * guess[pair].size:  # mostly noise
                deviation, choice = deviation / 2, choice * 2

    def _choose(self, scores: list[float], epsilon: float, weight: float = 1.0) -> int:
        """Return an index by the exponential mechanism; a substituted record moves a score by 2·weight."""
        noisy = np.array(scores) * epsilon / (4 * weight) + self.rng.gumbel(size=len(scores))
        return int(noisy.argmax())

    def _measure(self, names: tuple[str, ...], deviation: float) -> Any:
        import mbi  # noqa: PLC0415

        cells = self.singles[names[0]] if len(names) == 1 else self.exact[names]  # type: ignore[index]
        noisy = cells + self.rng.normal(0, deviation, cells.shape)
        return mbi.LinearMeasurement(noisy.ravel(), names, stddev=deviation)

    def _fit(self, measured: list[Any], iterations: int) -> Any:
        import mbi  # noqa: PLC0415

        domain = mbi.Domain(self.names, [len(self.singles[name]) for name in self.names])
        return mbi.estimation.MirrorDescent().estimate(
            domain, measured, known_total=float(self.n), iters=iterations, callback_fn=lambda *_: None
        )

    def _pair(self, model: Any, pair: Pair) -> np.ndarray:
        return np.asarray(model.project(pair).datavector()).reshape(self.exact[pair].shape)

    def _tables(self, model: Any) -> Tables:
        return {pair: self._pair(model, pair) for pair in self.exact}


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
