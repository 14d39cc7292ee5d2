"""ALARM (37 variables, 46 links) at the same ε: organisations, people and a curator against local masks.

    python -m benchmarks.noise_alarm [--case 100000:1] [--only "3 organisations"] [--json FILE]

What is measured, δ = 1e-6 throughout:

- pairs: mean total variation distance of all 666 pair tables from those of the records, and the forest learnt
  from them (links of the network right, wrong);
- search: all pairs and then each variable with its three strongest partners, drawn so often that they get 40%
  of the budget (`mq.ask_families`); hill climbing on these tables (links right, wrong);
- tree: all pairs, the strongest of them again, and then those of the strongest tree (`mq.ask_tree`); all
  pairs are estimated near that tree (`mq.pairs_near_tree`), and by that tree alone;
- parameters: mean total variation distance of the rows of the network's own tables, by their frequency.

Noise is drawn `--repeats` times on the same records, and medians are printed. Three organisations, one of
whom may collude, and the curator run as their users run them; masks are those of `mq.plan`, one plan for
pairs and one for parameters. People: 10% may collude and 5% leave; the sum of their shares is drawn at once,
which has the same distribution, and masks would cancel. Other programs on the same records: `noise_peers.py`.
Each part is kept as soon as it is known, and a part that is kept does not run again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable, Mapping
from importlib.resources import files
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks.noise_errors import pool_of
from benchmarks.noise_programs import tree_tables

import masquerade as mq
from masquerade.channels.noise.sampler import skellam_shares
from masquerade.estimate.gaussian import onto_simplex
from masquerade.learn.networks.network_files import parse_bif
from masquerade.sources.noise.noisy import NoisyTally, exact_cells, noise_guarantee

CASES = ("10000:1", "100000:1")
DELTA = 1e-6
PARTNERS = 3
FAMILY_DRAWS = 12  # of each of 37 tables: 40% of 666 + 37·12 tables
MASKS, PARTIES, PEOPLE, CURATOR, CLEAR = "masks", "3 organisations", "people", "curator", "clear records"
NOISY = (PARTIES, PEOPLE, CURATOR)
KEPT = Path(__file__).parent / "results" / "noise_alarm.json"


def alarm() -> mq.learn.BayesianNetwork:
    """Return the network that pgmpy brings along."""
    packed = files("pgmpy").joinpath("utils", "example_models", "alarm.bif.gz").read_bytes()
    return parse_bif(gzip.decompress(packed).decode())


NETWORK = alarm()
SCHEMA = NETWORK.schema
PAIRS = [mq.Query(by=pair) for pair in combinations(SCHEMA, 2)]
LINKS = {frozenset((child, parent)) for child, parents in NETWORK.structure.items() for parent in parents}
FAMILIES = [(*parents, child) for child, parents in NETWORK.structure.items()]
WIDEST = [mq.Query(by=one) for one in FAMILIES if not any(set(one) < set(other) for other in FAMILIES)]


class People(NoisyTally):
    """Counts with the noise of all people who stay: the sum of their shares is drawn at once."""

    def __init__(self, clear: mq.Tally, n: int, epsilon: float, tables: int) -> None:
        terms = mq.NoiseTerms(epsilon, tables, DELTA, n * 95 // 100, n // 10)
        super().__init__(clear.schema, n, terms, None)
        self._clear, self.guarantee = clear, noise_guarantee(clear.guarantee, terms, tuple(clear.schema))
        self._sum = skellam_shares(terms.total_variance(terms.stages[0]), 1)

    def _prepare(self, queries: list[mq.Query]) -> list[np.ndarray]:
        return [exact_cells(table) for table in self._clear.answer(queries)]

    def _open_cells(self, prepared: list[np.ndarray], queries: object, stage: object) -> list[np.ndarray]:
        del queries, stage
        return [cells + self._sum.draw(cells.shape) for cells in prepared]


def distance(tables: list[np.ndarray], truth: list[np.ndarray]) -> float:
    """Return the mean total variation distance of tables, made nonnegative, from shares."""
    shares = [onto_simplex(table / max(table.sum(), 1e-9), 1.0) for table in tables]
    return float(np.mean([np.abs(a - b).sum() / 2 for a, b in zip(shares, truth, strict=True)]))


def judge_links(structure: Mapping[str, tuple[str, ...]]) -> list[int]:
    """Return the number of links that are right, and of those that are wrong."""
    found = {frozenset((child, parent)) for child, parents in structure.items() for parent in parents}
    return [len(found & LINKS), len(found - LINKS)]


def forest_of(source: mq.Tally) -> list[int]:
    """Return the right and wrong links of a forest."""
    return judge_links(mq.learn.structure(source, max_parents=1).structure)


def parameters_of(source: mq.Tally, weights: Mapping[str, np.ndarray]) -> float:
    """Return the mean distance of the rows of the network's tables."""
    fitted = mq.learn.bayesian_network(source, NETWORK.structure).project()
    gaps = []
    for child in SCHEMA:
        rows = np.abs(fitted[child].probabilities - NETWORK[child].probabilities).sum(axis=-1) / 2
        gaps.append(float((weights[child] * rows).sum()))
    return float(np.mean(gaps))


def row_weights() -> dict[str, np.ndarray]:
    """Return how frequent the rows of each variable's table are, from a million other records."""
    clear = mq.tally(NETWORK.sample(1_000_000, seed=99), schema=SCHEMA)
    tables = clear.answer([mq.Query(by=family) for family in FAMILIES])
    return {
        family[-1]: table.values.sum(axis=-1) / table.values.sum()
        for family, table in zip(FAMILIES, tables, strict=True)
    }


class Case:
    """Records of one size, and every part of the study on them."""

    def __init__(self, n: int, epsilon: float) -> None:
        self.n, self.epsilon = n, epsilon
        self.frame: pd.DataFrame = NETWORK.sample(n, seed=7)
        self.clear = mq.tally(self.frame, schema=SCHEMA)
        self.exact = [table.values for table in self.clear.answer(PAIRS)]
        self.truth = [table / n for table in self.exact]

    def source(self, who: str, tables: int) -> mq.Tally:
        """Return the counts by a way of adding noise."""
        if who == PARTIES:
            return pool_of(self.frame, SCHEMA, 3, self.epsilon, tables)
        if who == PEOPLE:
            return People(self.clear, self.n, self.epsilon, tables)
        return mq.Noisy(self.clear, epsilon=self.epsilon, tables=tables, delta=DELTA)

    def masked(self, queries: object) -> mq.Tally:
        """Return disguised records by the plan for queries."""
        policy = mq.plan(SCHEMA, privacy=self.epsilon, n=self.n, queries=queries).policy
        return mq.tally(mq.simulate(self.frame, policy, seed=3), policy)

    def parts(self) -> dict[str, dict[str, Callable[[], object]]]:
        """Return the measures by method; each runs on its own."""
        result: dict[str, dict[str, Callable[[], object]]] = {
            CLEAR: {
                "pairs": lambda: [0.0, *forest_of(self.clear)],
                "search": lambda: judge_links(mq.learn.structure(self.clear, max_parents=PARTNERS).structure),
                "parameters": lambda: parameters_of(self.clear, row_weights()),
            },
            MASKS: {
                "pairs": lambda: self.pairs(self.masked("pairs")),
                "parameters": lambda: parameters_of(
                    self.masked([list(query.by) for query in WIDEST]), row_weights()
                ),
            },
        }
        for who in NOISY:
            result[who] = {
                "pairs": lambda who=who: self.pairs(self.source(who, len(PAIRS))),
                "search": lambda who=who: self.search(who),
                "tree": lambda who=who: self.tree(who),
                "parameters": lambda who=who: parameters_of(self.source(who, len(WIDEST)), row_weights()),
            }
        return result

    def pairs(self, source: mq.Tally) -> list[float]:
        """Return the distance of all pairs, and the links of the forest."""
        tables = [table.values for table in source.answer(PAIRS)]
        return [distance(tables, self.truth), *forest_of(source)]

    def search(self, who: str) -> list[int]:
        """Return the links of a search in stages."""
        source = self.source(who, len(PAIRS) + len(SCHEMA) * FAMILY_DRAWS)
        forbidden = mq.ask_families(source, PARTNERS, draws=FAMILY_DRAWS)
        return judge_links(mq.learn.structure(source, forbidden=forbidden, max_parents=PARTNERS).structure)

    def tree(self, who: str) -> list[float]:
        """Return the distance of all pairs by a tree in stages, alone and corrected, and its links."""
        source = self.source(who, mq.tree_tables(SCHEMA))
        structure = mq.ask_tree(source)
        corrected = mq.pairs_near_tree(source, structure)
        links = [
            tuple(sorted((child, *parents), key=list(SCHEMA).index))
            for child, parents in structure.items()
            if parents
        ]
        asked = source.answer([mq.Query(by=link) for link in links])
        two = {
            link: onto_simplex(table.values, float(self.n)) for link, table in zip(links, asked, strict=True)
        }
        singles = source.answer([mq.Query(by=name) for name in SCHEMA])
        one = {
            name: onto_simplex(table.values, float(self.n))
            for name, table in zip(SCHEMA, singles, strict=True)
        }
        every = {query.by: table for query, table in zip(PAIRS, self.exact, strict=True)}  # for its keys
        alone = tree_tables(one, two, every)
        gaps = [distance([tables[query.by] for query in PAIRS], self.truth) for tables in (corrected, alone)]
        return [*gaps, *judge_links(structure)]


def main() -> None:
    """Run the parts that are not kept yet, and keep each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", help="records:ε")
    parser.add_argument("--only", action="append", help="a method, or a method/measure")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, default=KEPT)
    options = parser.parse_args()
    kept = {"delta": DELTA, "links": len(LINKS), "pairs": len(PAIRS), "cases": {}}
    if options.json.exists():
        kept = json.loads(options.json.read_text(encoding="utf-8"))
    for text in options.case or CASES:
        n, epsilon = int(text.split(":")[0]), float(text.split(":")[1])
        results = kept["cases"].setdefault(text, {})
        case = Case(n, epsilon)
        for method, measures in case.parts().items():
            for measure, run in measures.items():
                chosen = options.only is None or {method, f"{method}/{measure}"} & set(options.only)
                if not chosen or measure in results.get(method, {}):
                    continue
                started = time.process_time()
                runs = [run() for _ in range(options.repeats if method in NOISY else 1)]
                took = round((time.process_time() - started) / len(runs), 1)
                median = np.median(np.array(runs, dtype=float), axis=0).tolist()
                results.setdefault(method, {})[measure] = {
                    "median": median,
                    "runs": runs,
                    "cpu_seconds_of_a_run": took,
                }
                print(text, method, measure, median, f"{took} s", flush=True)
                options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
