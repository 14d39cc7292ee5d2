"""Error of all pair tables of ten yes/no questions at the same ε: masks, shuffled masks, and noise on sums.

    python -m benchmarks.noise_errors [--repeats 2] [--aim] [--json FILE]

Every method runs as its users run it: `mq.plan` chooses the masks; sums are real secure sums of two, three
and ten organisations, one of which may collude; the curator is `mq.Noisy`. People: every person who stays
(95%) draws a share, 10% may collude, and shares are added up without masks, which cancel. Tree in two
stages: three organisations open all pairs with 60% of the budget, then the nine pairs of the strongest
tree, and all pairs follow from that tree. Error: the mean over the 45 tables of the total variation
distance from the table of the records, after each table was made nonnegative. Right: links of the tree of
largest mutual information that are links of the population, of 9. Peers (`noise_programs.py`) run on the
same tables if they are installed; AIM, the slowest, with `--aim`, in the case of 10,000 records and ε = 1
only, once.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
from benchmarks.noise_programs import peer_tables, tree_tables

import masquerade as mq
from masquerade.crypto.keys import SigningKey
from masquerade.estimate.gaussian import onto_simplex
from masquerade.plan import central_epsilon
from masquerade.protocols.noise_shares import NoiseShares
from masquerade.protocols.secure_sum import MaskedSum
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.noise.noisy import NoisyTally, exact_cells, noise_guarantee
from masquerade.sources.parties.pooled import NoisyPool, pooling_party

CASES = ((10_000, 1.0), (10_000, 0.1), (10_000, 3.0), (100_000, 1.0))
DELTA = 1e-6
PAIRS_SHARE = 0.6  # of the budget of a tree in two stages, for all pairs
PEERS = ["OpenDP", "private-pgm", "MST"]
PARENTS = (None, 0, 0, 1, 1, 2, 3, 3, 5, 7)
NAMES = tuple(f"q{j}" for j in range(10))
SCHEMA = mq.Schema({name: ["yes", "no"] for name in NAMES})
PAIRS = [mq.Query(by=pair) for pair in combinations(NAMES, 2)]
LINKS = {frozenset((NAMES[j], NAMES[p])) for j, p in enumerate(PARENTS) if p is not None}
KEPT = Path(__file__).parent / "results" / "noise_errors.json"
Keep = Callable[[dict[str, list[float]], int], None]


def draw(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return records of a tree with weak links."""
    columns: list[np.ndarray] = []
    for parent in PARENTS:
        chance = np.full(n, 0.4) if parent is None else np.where(columns[parent], 0.45, 0.25)
        columns.append(rng.random(n) < chance)
    return pd.DataFrame(
        {name: np.where(column, "yes", "no") for name, column in zip(NAMES, columns, strict=True)}
    )


def strongest_tree(shares: list[np.ndarray]) -> list[tuple[str, str]]:
    """Return the links of the tree of largest mutual information."""
    graph = nx.Graph()
    for query, share in zip(PAIRS, shares, strict=True):
        expected = np.outer(share.sum(axis=1), share.sum(axis=0))
        ratio = np.maximum(share, 1e-12) / np.maximum(expected, 1e-12)
        graph.add_edge(*query.by, weight=float((share * np.log(ratio)).sum()))
    tree = {frozenset(link) for link in nx.maximum_spanning_tree(graph).edges}
    return [query.by for query in PAIRS if frozenset(query.by) in tree]


def judge(tables: list[np.ndarray], truth: list[np.ndarray]) -> tuple[float, int]:
    """Return the mean distance of pair tables, and the number of right links of the tree."""
    shares = [onto_simplex(table / table.sum(), 1.0) for table in tables]
    distance = np.mean([np.abs(a - b).sum() / 2 for a, b in zip(shares, truth, strict=True)])
    return float(distance), len({frozenset(link) for link in strongest_tree(shares)} & LINKS)


class Crowd(NoisyTally):
    """Counts to which every person who stays adds a share of the noise; masks would cancel."""

    def __init__(self, clear: mq.Tally, n: int, epsilon: float) -> None:
        terms = mq.NoiseTerms(epsilon, len(PAIRS), DELTA, n * 95 // 100, n // 10)
        super().__init__(clear.schema, n, terms, None)
        self._clear, self.guarantee = clear, noise_guarantee(clear.guarantee, terms, tuple(clear.schema))

    def _prepare(self, queries: list[mq.Query]) -> list[np.ndarray]:
        return [exact_cells(table) for table in self._clear.answer(queries)]

    def _open_cells(self, prepared: list[np.ndarray], queries: object, stage: object) -> list[np.ndarray]:
        del queries
        sampler, people = self.terms.shares(stage), self.terms.contributors
        return [
            cells
            + sum(
                sampler.draw((min(10_000, people - at), *cells.shape)).sum(axis=0)
                for at in range(0, people, 10_000)
            )
            for cells in prepared
        ]


def stage_epsilons(epsilon: float, stages: list[tuple[int, float]]) -> list[float]:
    """Return the ε of each stage alone that gives it the noise it has in a budget of all stages."""
    result = []
    for stage in mq.NoiseTerms(epsilon, stages, DELTA).stages:
        low, high = epsilon / 100, epsilon
        for _ in range(14):
            middle = (low * high) ** 0.5
            [alone] = mq.NoiseTerms(middle, stage.tables, DELTA).stages
            low, high = (low, middle) if alone.variance < stage.variance else (middle, high)
        result.append(low)
    return result


def tree_in_two_stages(frame: pd.DataFrame, epsilon: float) -> list[np.ndarray]:
    """Return all pairs of a tree whose pairs three organisations open again, with the rest of the budget."""
    links = len(NAMES) - 1
    first, second = stage_epsilons(epsilon, [(len(PAIRS), PAIRS_SHARE), (links, 1 - PAIRS_SHARE)])
    tables = [table.values for table in pool_of(frame, SCHEMA, 3, first, len(PAIRS)).answer(PAIRS)]
    tree = strongest_tree([onto_simplex(table / table.sum(), 1.0) for table in tables])
    queries = [mq.Query(by=pair) for pair in tree]
    again = pool_of(frame, SCHEMA, 3, second, links)
    two = {
        pair: onto_simplex(table.values, len(frame))
        for pair, table in zip(tree, again.answer(queries), strict=True)
    }
    one = {name: table.values for name in NAMES for table in again.answer([mq.Query(by=name)])}
    pairs = {query.by: table for query, table in zip(PAIRS, tables, strict=True)}
    derived = tree_tables(one, two, pairs)
    return [derived[query.by] for query in PAIRS]


def pool_of(frame: pd.DataFrame, schema: mq.Schema, parties: int, epsilon: float, tables: int) -> NoisyPool:
    """Return the source of organisations that pool their counts with noise; one may collude."""
    terms = mq.NoiseTerms(epsilon, tables, DELTA, parties, 1)
    names = [f"party {i}" for i in range(parties)]
    keys = {name: SigningKey() for name in names}
    public = {name: key.public for name, key in keys.items()}
    policy = mq.Policy.clear(schema)
    roles = {
        name: pooling_party(
            name,
            mq.tally(frame.iloc[i::parties], schema=policy),
            keys[name],
            public,
            noise=NoiseShares(terms, mq.people.MemoryLedger(), bytes(32)),
        )
        for i, name in enumerate(names)
    }
    transport = LocalTransport({name: role.receive for name, role in roles.items()})
    return NoisyPool(MaskedSum(tuple(names), transport, policy, noise=terms), policy)


def shuffled_epsilon(epsilon: float, n: int) -> float:
    """Return the ε of masks whose shuffled counts have a central ε."""
    low, high = epsilon, 12.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if central_epsilon(middle, n, DELTA) <= epsilon else (low, middle)
    return low


def study(n: int, epsilon: float, repeats: int, keep: Keep, *, aim: bool) -> dict[str, list[float]]:
    """Return the error and the right links of each method; `keep` gets what is known after each repeat."""
    masks = {
        "masks": mq.plan(SCHEMA, privacy=epsilon, n=n).policy,
        "shuffled masks": mq.plan(SCHEMA, privacy=shuffled_epsilon(epsilon, n), n=n).policy,
    }
    results: dict[str, list[tuple[float, int]]] = {}
    for seed in range(repeats):
        frame = draw(n, np.random.default_rng(50 + seed))
        clear = mq.tally(frame, schema=SCHEMA)
        exact = {query.by: table.values for query, table in zip(PAIRS, clear.answer(PAIRS), strict=True)}
        truth = [table / n for table in exact.values()]
        sources = {
            name: mq.tally(mq.simulate(frame, policy, seed=seed), policy) for name, policy in masks.items()
        }
        sources |= {
            f"noise by {m} organisations": pool_of(frame, SCHEMA, m, epsilon, len(PAIRS)) for m in (2, 3, 10)
        }
        sources["noise by people"] = Crowd(clear, n, epsilon)
        sources["noise by a curator"] = mq.Noisy(clear, epsilon=epsilon, tables=len(PAIRS), delta=DELTA)
        for name, source in sources.items():
            tables = [table.values for table in source.answer(PAIRS)]
            results.setdefault(name, []).append(judge(tables, truth))
        tree = judge(tree_in_two_stages(frame, epsilon), truth)
        results.setdefault("tree in two stages, 3 organisations", []).append(tree)
        peers = PEERS + ["AIM"] * (aim and seed == 0)
        for name, released in peer_tables(exact, n, (epsilon, DELTA), seed, peers):
            tables = [released[query.by] for query in PAIRS]
            results.setdefault(f"curator, {name}", []).append(judge(tables, truth))
        means = {name: np.mean(rows, axis=0).round(5).tolist() for name, rows in results.items()}
        keep(means, seed + 1)
    return means


def main() -> None:
    """Run the study and keep its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--aim", action="store_true")
    parser.add_argument("--json", type=Path, default=KEPT)
    options = parser.parse_args()
    started, cases = time.time(), []
    for n, epsilon in CASES:
        case = {"n": n, "epsilon": epsilon, "deviation": mq.NoiseTerms(epsilon, len(PAIRS)).deviation}
        cases.append(case)

        def keep(methods: dict[str, list[float]], repeats: int, case: dict[str, object] = case) -> None:
            case |= {"repeats": repeats, "methods": methods}
            kept = {"delta": DELTA, "seconds": round(time.time() - started), "cases": cases}
            options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(case), flush=True)

        study(n, epsilon, options.repeats, keep, aim=options.aim and (n, epsilon) == CASES[0])


if __name__ == "__main__":
    main()
