"""Random sequences of questions against inference control, and what brute force finds out from the answers.

    python -m benchmarks.inference_control [SEQUENCES] [FILE]

Every sequence has its own small table of people (some of its cells impossible, and known to be), its own
rules, and up to eight questions. Whatever was answered is written as 0/1 vectors over all combinations that
can occur, and every cell of every set of variables is tried against their row space by dense floating-point
algebra, which shares nothing with the control. Each run adds one to those in results/inference_control.json.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import masquerade as mq
from masquerade.core.guarantee import Guarantee
from masquerade.core.linear_covariance import LinearCovariance
from masquerade.estimate.evidence import ReportEvidence

SEQUENCES, QUESTIONS, LEAST_PEOPLE, LARGEST_COUNT = 100_000, 8, 4, 9
AT_ONCE, UNCONTROLLED = 100, 500
SHAPES = ((2, 2), (2, 3), (2, 2, 2), (3, 2, 2), (2, 2, 2, 2))
RESULT = Path(__file__).parent / "results" / "inference_control.json"


@dataclass
class OneTable:
    """A table of exact counts as a source."""

    schema: mq.Schema
    counts: np.ndarray
    guarantee: Guarantee = field(default_factory=lambda: Guarantee(()))
    known: dict[mq.Query, mq.CountTable] = field(default_factory=dict)

    def check(self, queries: Sequence[mq.Query]) -> list[mq.Refusal]:
        for query in queries:
            query.check(self.schema)
        return []

    def answer(self, queries: Sequence[mq.Query]) -> list[mq.CountTable]:
        for query in queries:
            if query not in self.known:
                self.known[query] = self._table(query)
        return [self.known[query] for query in queries]

    def _table(self, query: mq.Query) -> mq.CountTable:
        names, counts = list(self.schema), self.counts
        for name, label in query.where:
            counts = counts.take(self.schema[name].code(label), axis=names.index(name))
            names.remove(name)
        for name in [name for name in names if name not in query.by]:
            counts = counts.sum(axis=names.index(name))
            names.remove(name)
        counts = counts.transpose([names.index(name) for name in query.by]).astype(float)
        n = int(self.counts.sum())
        evidence = ReportEvidence.clear(counts, LinearCovariance.clear(counts, n, query.by))
        return mq.CountTable(tuple(self.schema[name] for name in query.by), counts, n, evidence)


@dataclass(frozen=True)
class World:
    """A table of people, the combinations that can occur, and the rules."""

    source: OneTable
    possible: np.ndarray
    rules: mq.Rules

    def vectors(self, query: mq.Query) -> np.ndarray:
        """Return the cells of a question over the combinations that can occur."""
        places, cells = all_cells(self.possible.shape)
        where, names = dict(query.where), self.source.schema.names
        asked = []
        for labels in product(*map(range, self.source.schema.shape(query.by))):
            cell = {**where, **dict(zip(query.by, labels, strict=True))}
            asked.append(places[tuple(cell.get(name) for name in names)])
        return cells[asked][:, self.possible.ravel()]


@cache
def all_cells(shape: tuple[int, ...]) -> tuple[dict[tuple[int | None, ...], int], np.ndarray]:
    """Return every cell of every set of variables (None: not named), and its combinations as 0/1 rows."""
    codes = np.indices(shape).reshape(len(shape), -1)
    cells = list(product(*([None, *range(size)] for size in shape)))
    rows = [
        np.all(
            [codes[axis] == code for axis, code in enumerate(cell) if code is not None] or [codes[0] >= 0],
            axis=0,
        )
        for cell in cells
    ]
    return {cell: place for place, cell in enumerate(cells)}, np.array(rows, dtype=float)


def drawn_world(generator: np.random.Generator, *, telling: bool) -> World:
    shape = SHAPES[generator.integers(len(SHAPES))]
    names = "abcd"[: len(shape)]
    schema = mq.Schema({name: list(range(size)) for name, size in zip(names, shape, strict=True)})
    impossible: list[dict[str, int]] = []
    possible = np.ones(shape, dtype=bool)
    for _ in range(generator.integers(0, 3)):
        barred = {
            names[axis]: int(generator.integers(shape[axis]))
            for axis in generator.choice(len(shape), 2, replace=False)
        }
        place = tuple(barred.get(name, slice(None)) for name in names)
        if possible.sum() > possible[place].sum():
            possible[place] = False
            impossible.append(barred)
    sparse = generator.integers(0, LARGEST_COUNT + 1, shape) * (generator.random(shape) < generator.random())
    counts = (generator.integers(0, LARGEST_COUNT + 1, shape) + 3 * sparse) * possible
    data = None
    if telling:
        data = mq.DataDependentRules(LEAST_PEOPLE, show_empty=bool(generator.integers(2)))
    rules = mq.Rules(
        impossible=tuple(impossible), data_dependent=data, most_variables=len(shape) if telling else None
    )
    return World(OneTable(schema, counts), possible, rules)


def drawn_question(generator: np.random.Generator, schema: mq.Schema) -> mq.Query:
    uses = generator.choice(3, len(schema), p=[0.45, 0.25, 0.3])
    by = [name for name, use in zip(schema, uses, strict=True) if use == 1]
    where = {
        name: int(generator.integers(len(schema[name])))
        for name, use in zip(schema, uses, strict=True)
        if use == 2
    }
    return mq.Query(by=by, where=where)


def given_away(world: World, answered: Sequence[mq.Query]) -> list[tuple[int | None, ...]]:
    """Return the protected cells that the answers determine, by brute force."""
    places, cells = all_cells(world.possible.shape)
    inside = cells[:, world.possible.ravel()]
    everybody = np.ones((1, inside.shape[1]))
    rows = np.concatenate([everybody, *map(world.vectors, answered)])
    determined = np.all(np.abs(inside @ (np.linalg.pinv(rows) @ rows) - inside) < 1e-9, axis=1)
    data = world.rules.data_dependent
    if data is None:
        protected = np.array([None not in cell for cell in places])
    else:
        counts = world.source.counts[world.possible]
        people = inside @ counts
        few = [
            (it < data.least_people) & ~(data.show_empty & (it == 0))
            for it in (people, counts.sum() - people)
        ]
        protected = np.logical_or(*few) & (inside.sum(axis=1) < inside.shape[1])  # everybody is no set
    found = determined & protected & inside.any(axis=1)
    return [cell for cell, place in places.items() if found[place]]


def sequence(generator: np.random.Generator, *, telling: bool) -> tuple[Counter[str], list[Any]]:
    """Ask one sequence; return how often what happened, and what was given away."""
    world = drawn_world(generator, telling=telling)
    source = mq.Controlled(world.source, world.rules)
    answered, happened = [], Counter[str]()
    for _ in range(QUESTIONS):
        query = drawn_question(generator, world.source.schema)
        try:
            source.answer([query])
        except mq.QueryRefused as refused:
            happened[refused.refusals[0].code] += 1
        else:
            answered.append(query)
            happened["answered"] += 1
    return happened, given_away(world, answered)


def gives_away(generator: np.random.Generator, *, telling: bool) -> bool:
    """Tell whether a sequence whose every question is answered would have given a protected cell away."""
    world = drawn_world(generator, telling=telling)
    asked = [drawn_question(generator, world.source.schema) for _ in range(QUESTIONS)]
    return bool(given_away(world, asked))


def study(sequences: int, kept: Path | None = None) -> dict[str, Any]:
    """Ask so many sequences, half under each kind of rules; keep what was found, after earlier runs."""
    generator = np.random.default_rng()
    rows: dict[str, Counter[str]] = {"simulatable": Counter(), "data_dependent": Counter()}
    lost, seconds = Counter[str](), Counter[str]()
    uncontrolled = {
        name: sum(gives_away(generator, telling=name != "simulatable") for _ in range(UNCONTROLLED))
        for name in rows
    }
    found: dict[str, Any] = {}
    earlier = json.loads(kept.read_text(encoding="utf-8")) if kept is not None and kept.exists() else []
    for done in range(AT_ONCE, sequences // 2 + 1, AT_ONCE):
        for name, happened in rows.items():
            started = time.process_time()
            for _ in range(AT_ONCE):
                more, cells = sequence(generator, telling=name != "simulatable")
                happened.update(more)
                lost[name] += bool(cells)
            seconds[name] += time.process_time() - started
            found[name] = {
                "sequences": done,
                "gave_a_protected_cell_away": lost[name],
                f"would_have_without_control_of_{UNCONTROLLED}": uncontrolled[name],
                "happened": dict(sorted(happened.items())),
                "seconds": round(seconds[name], 1),
            }
        if kept is not None:
            kept.write_text(json.dumps([*earlier, found], indent=1) + "\n", encoding="utf-8")
    return found


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else SEQUENCES
    print(json.dumps(study(wanted, Path(sys.argv[2]) if len(sys.argv) > 2 else RESULT), indent=1))
