"""ALARM at the same ε and δ a record: masquerade, OpenDP, MST and AIM on the same records, in one run.

    python -m benchmarks.noise_peers [--case 100000:1] [--dpmm DPMM/bin/python] [--only METHOD] [--json FILE]

Needs `pip install mbi==2.0.0 opendp==0.16.0`, and dpmm in an environment of its own (`noise_dpmm.py`); what
is not installed is omitted, and a line says so. Measured for each method, δ = 1e-6:

- distance: mean total variation distance of all 666 tables of pairs from those of the records;
- tree: links of the strongest tree by these tables that are right, and wrong, of 46 links of the network;
- search: links right and wrong of hill climbing with at most three parents. With masquerade and OpenDP it
  is on tables: all pairs, and for each variable a table with its three strongest partners
  (`mq.ask_families`). With MST and AIM it is on as many synthetic records as there are records.

masquerade: noise by three organisations of whom one may collude (real secure sums), and by a curator, who
is what the others need. "pairs" opens all pairs, "tree" uses the tree in stages (`mq.ask_tree`), near which
all pairs are estimated (`mq.pairs_near_tree`). OpenDP: its discrete Gaussian on each table as drawn, and,
for the search, instead of masquerade's noise. MST and AIM are those of `noise_programs.py` over mbi
(private-pgm), and those of dpmm, a package that has both. dpmm's neighbours differ by a record that is
added or removed. So it runs twice: at its own ε, a promise about half as strong as the others', and at half
of its ρ, where tables have the noise of a substituted record and only its choices are still at an
advantage. A method that needs more than `--limit` processor seconds is stopped, and how far it got is kept.
private-pgm on all 666 tables is not possible: the model would be the whole domain. Each part is kept as
soon as it is known, and does not run again.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
from benchmarks.noise_alarm import (
    CURATOR,
    DELTA,
    FAMILY_DRAWS,
    LINKS,
    PAIRS,
    PARTIES,
    PARTNERS,
    SCHEMA,
    Case,
    distance,
    judge_links,
)
from benchmarks.noise_programs import Curator, discrete_gaussian, discrete_gaussian_scale

import masquerade as mq
from masquerade.sources.noise.noisy import NoisyTally, exact_cells, noise_guarantee

CASES = ("100000:1", "10000:1")
LIMIT = 600  # processor seconds of a run
REPEATS = 3
NEEDED = {"OpenDP": "opendp", "MST, mbi": "mbi", "AIM, mbi": "mbi"}
SHARES = {"half of ρ": 0.5, "own ε": 1.0}
KEPT = Path(__file__).parent / "results" / "noise_peers.json"
Measures = dict[str, object]


class OpenDPNoise(NoisyTally):
    """Tables with OpenDP's discrete Gaussian instead of masquerade's noise."""

    def __init__(self, clear: mq.Tally, n: int, epsilon: float, tables: int) -> None:
        terms = mq.NoiseTerms(epsilon, tables, DELTA)
        super().__init__(clear.schema, n, terms, None)
        self._clear, self.guarantee = clear, noise_guarantee(clear.guarantee, terms, tuple(clear.schema))
        self._scale = discrete_gaussian_scale(tables, epsilon, DELTA)

    def _prepare(self, queries: list[mq.Query]) -> list[np.ndarray]:
        return [exact_cells(table) for table in self._clear.answer(queries)]

    def _open_cells(self, prepared: list[np.ndarray], queries: object, stage: object) -> list[np.ndarray]:
        del queries, stage
        return discrete_gaussian(prepared, self._scale)


def tree_links(tables: list[np.ndarray]) -> list[int]:
    """Return the right and wrong links of the tree with the largest mutual information."""
    graph = nx.Graph()
    for query, table in zip(PAIRS, tables, strict=True):
        share = np.maximum(table, 0) / np.maximum(table, 0).sum()
        expected = np.outer(share.sum(axis=1), share.sum(axis=0))
        terms = share * np.log(np.maximum(share, 1e-300) / np.maximum(expected, 1e-300))
        graph.add_edge(*query.by, weight=float(terms.sum()))
    found = {frozenset(link) for link in nx.maximum_spanning_tree(graph).edges}
    return [len(found & LINKS), len(found - LINKS)]


def searched(source: mq.Tally) -> list[int]:
    """Return the right and wrong links of a search."""
    return judge_links(mq.learn.structure(source, max_parents=PARTNERS).structure)


def searched_families(source: mq.Tally) -> list[int]:
    """Return the right and wrong links of a search in stages."""
    forbidden = mq.ask_families(source, PARTNERS, draws=FAMILY_DRAWS)
    return judge_links(mq.learn.structure(source, forbidden=forbidden, max_parents=PARTNERS).structure)


class Study:
    """All methods on the records of a case."""

    def __init__(self, case: Case, dpmm: Path | None, limit: int) -> None:
        self.case, self.dpmm, self.limit = case, dpmm, limit
        self.exact = {query.by: table for query, table in zip(PAIRS, case.exact, strict=True)}

    def methods(self) -> dict[str, Callable[[int], Measures]]:
        """Return what runs, by name; each takes a seed."""
        result: dict[str, Callable[[int], Measures]] = {}
        for who in (PARTIES, CURATOR):
            result[f"masquerade, {who}, pairs"] = lambda _, who=who: self.pairs(who)
            result[f"masquerade, {who}, tree"] = lambda _, who=who: self.tree(who)
        result["OpenDP"] = self.opendp
        result["MST, mbi"] = lambda seed: self.modelled(seed, "mst")
        for title, share in SHARES.items():
            result[f"MST, dpmm, {title}"] = lambda seed, share=share: self.by_dpmm("MST", share, seed)
        result["AIM, mbi"] = lambda seed: self.modelled(seed, "aim")
        result["AIM, dpmm, half of ρ"] = lambda seed: self.by_dpmm("AIM", SHARES["half of ρ"], seed)
        return result

    def missing(self, name: str) -> str:
        """Return the package that a method needs and that is not installed, or nothing."""
        if "dpmm" in name:
            return "" if self.dpmm else "dpmm"
        package = NEEDED.get(name)
        return package if package and importlib.util.find_spec(package) is None else ""

    def measures(self, tables: list[np.ndarray]) -> Measures:
        """Return the distance and the tree of tables."""
        return {"distance": distance(tables, self.case.truth), "tree": tree_links(tables)}

    def pairs(self, who: str) -> Measures:
        """Measure all pairs, and a search in stages on a budget of its own."""
        tables = [table.values for table in self.case.source(who, len(PAIRS)).answer(PAIRS)]
        families = self.case.source(who, len(PAIRS) + len(SCHEMA) * FAMILY_DRAWS)
        return {**self.measures(tables), "search": searched_families(families)}

    def tree(self, who: str) -> Measures:
        """Measure a tree in stages, and all pairs near it."""
        gap, alone, *links = self.case.tree(who)
        return {"distance": gap, "by the tree alone": alone, "tree": links}

    def opendp(self, seed: int) -> Measures:
        """Measure OpenDP's tables as drawn, and a search on its noise."""
        case = self.case
        released = Curator(self.exact, case.n, (case.epsilon, DELTA), seed).opendp()
        families = OpenDPNoise(case.clear, case.n, case.epsilon, len(PAIRS) + len(SCHEMA) * FAMILY_DRAWS)
        tables = [released[query.by] for query in PAIRS]
        return {**self.measures(tables), "search": searched_families(families)}

    def modelled(self, seed: int, method: str) -> Measures:
        """Measure a model that `noise_programs.py` fits over mbi."""
        case = self.case
        curator = Curator(self.exact, case.n, (case.epsilon, DELTA), seed)
        try:
            released = curator.mst() if method == "mst" else curator.aim(self.limit)
        except TimeoutError as stopped:
            rounds, spent, tables = stopped.args
            gap = distance([np.asarray(tables[query.by]) for query in PAIRS], case.truth)
            reached = f"after {rounds} rounds, {spent:.0%} of the budget, at a distance of {gap:.4f}"
            raise TimeoutError(f"{self.limit} processor seconds: {reached}") from None
        found = self.measures([np.asarray(released[query.by]) for query in PAIRS])
        return {**found, "search": searched(self.tally(curator.records(case.n)))}

    def by_dpmm(self, method: str, share: float, seed: int) -> Measures:
        """Measure the synthetic records of dpmm."""
        case = self.case
        columns = [
            case.frame[name].map({label: i for i, label in enumerate(SCHEMA[name].categories)})
            for name in SCHEMA
        ]
        options = {"method": method, "epsilon": case.epsilon, "delta": DELTA, "share": share, "seed": seed}
        options["seconds"] = self.limit
        with tempfile.TemporaryDirectory() as folder:
            given, made = Path(folder) / "given.npz", Path(folder) / "made.npz"
            np.savez(
                given,
                codes=np.array(columns, dtype=np.int64).T,
                sizes=[len(SCHEMA[name].categories) for name in SCHEMA],
                options=json.dumps(options),
            )
            script = Path(__file__).with_name("noise_dpmm.py")
            done = subprocess.run(  # noqa: S603
                [str(self.dpmm), str(script), str(given), str(made)],
                check=False,
                capture_output=True,
                env={"PATH": "/usr/bin"},
            )
            if done.returncode < 0:
                raise TimeoutError(f"{self.limit} processor seconds")
            if done.returncode:
                raise RuntimeError(done.stderr.decode()[-2000:])
            result = np.load(made)
            many, some, seconds = result["many"], result["some"], float(result["seconds"])
        tables = [table.values for table in self.tally(many).answer(PAIRS)]
        return {**self.measures(tables), "search": searched(self.tally(some)), "seconds": seconds}

    def tally(self, codes: np.ndarray) -> mq.Tally:
        """Return the counts of records by codes."""
        columns = {
            name: np.asarray(SCHEMA[name].categories, dtype=object)[codes[:, i].astype(int)]
            for i, name in enumerate(SCHEMA)
        }
        return mq.tally(pd.DataFrame(columns), schema=SCHEMA)


def summarize(runs: list[Measures]) -> Mapping[str, object]:
    """Return medians over runs."""
    return {key: np.median(np.array([run[key] for run in runs]), axis=0).tolist() for key in runs[0]}


def main() -> None:
    """Run the methods that are not kept yet, and keep each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", help="records:ε")
    parser.add_argument("--only", action="append")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--limit", type=int, default=LIMIT)
    parser.add_argument("--dpmm", type=Path, help="the Python that has dpmm")
    parser.add_argument("--json", type=Path, default=KEPT)
    options = parser.parse_args()
    for text in options.case or CASES:
        n, epsilon = int(text.split(":")[0]), float(text.split(":")[1])
        study = Study(Case(n, epsilon), options.dpmm, options.limit)
        for name, run in study.methods().items():
            if name in load(options.json)["cases"].get(text, {}) or (
                options.only and name not in options.only
            ):
                continue
            if study.missing(name):
                print(f"{name}: {study.missing(name)} is not installed; omitted", flush=True)
                continue
            runs: list[Measures] = []
            try:
                for seed in range(1 if name.startswith("AIM") else options.repeats):
                    started = time.process_time()
                    found = run(seed)
                    runs.append({"seconds": time.process_time() - started} | found)
                result: Measures = {"median": summarize(runs), "runs": runs}
            except TimeoutError as stopped:
                result = {"stopped": str(stopped)}
            print(text, name, result.get("median", result), flush=True)
            kept = load(options.json)  # another process may run other methods
            kept["cases"].setdefault(text, {})[name] = result
            options.json.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load(file: Path) -> dict:
    """Return what is kept, with the versions of the programs."""
    kept = {"delta": DELTA, "links": len(LINKS), "pairs": len(PAIRS), "cases": {}}
    if file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
    versions = {name: version(name) for name in ("mbi", "jax", "opendp") if importlib.util.find_spec(name)}
    return kept | {"versions": kept.get("versions", {}) | versions}


if __name__ == "__main__":
    main()
