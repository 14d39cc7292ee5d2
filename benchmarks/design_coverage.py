"""How often intervals and tests hold for indirect questions: fourteen designs, prevalence, test, regression.

    python -m benchmarks.design_coverage             the whole study, kept in benchmarks/results/
    python -m benchmarks.design_coverage warner      one design of it

Every run draws the table of reports of n people from its exact distribution (groups of people have fixed
sizes) and goes through the public functions. A covariate g is clear: 20% of its first half say yes, 35% of
the second. The test is that of equal prevalences, of a population where 25% do in both. Refused is a
regression without a root: counted, and not among those that cover.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path

import numpy as np

import masquerade as mq
from masquerade.core.errors import NotConverged
from masquerade.sources.query_plan import layouts_of
from masquerade.sources.record_store import Observed
from masquerade.sources.report_tally import ReportTally
from masquerade.stats.regression.families import Mean
from masquerade.stats.regression.formula import Formula, cells_of
from masquerade.stats.regression.score_fit import regression_of

RESULTS = Path(__file__).parent / "results" / "design_coverage.json"
RUNS = 2000
SIZES = (2000, 20_000)
YES_NO = {"x": ["yes", "no"]}
CHEATS = {"x": ["yes", "no", "other"]}
BAND = (0.94, 0.965)
SHARES = {"effect": (0.20, 0.35), "null": (0.25, 0.25)}


@dataclass(frozen=True)
class Design:
    """A design, its variables, and the shares of its truths where a share of people would say yes."""

    variables: dict[str, list]
    channel: mq.Channel

    def truths(self, share: float) -> np.ndarray:
        """Return the shares of the truths, those who do not play along a tenth."""
        names = list(self.variables)
        if names == ["x"]:
            size = len(self.variables["x"])
            return np.array([share, 1 - share] if size == 2 else [share, 0.9 - share, 0.1])
        parts = [_held(len(self.variables[name]) - 1) for name in names if name != "x"]
        yes = np.array([share, 1 - share])
        order = [yes if name == "x" else parts.pop(0) for name in names]
        whole = np.ones(())
        for part in order:
            whole = np.multiply.outer(whole, part)
        return whole.ravel()


def _held(items: int) -> np.ndarray:
    """Return how many of some harmless statements hold, half of the people each."""
    return np.array([comb(items, held) for held in range(items + 1)]) / 2**items


C = mq.channels
ITEMS = {"items": [0, 1, 2, 3], "x": ["yes", "no"]}
DESIGNS = {
    "warner": Design(YES_NO, C.warner("0.8")),
    "unrelated question": Design(YES_NO, C.unrelated_question("0.7", "0.25")),
    "forced response": Design(YES_NO, C.forced_response("1/6", "1/6")),
    "kuk": Design(YES_NO, C.kuk("0.8", "0.2")),
    "crosswise": Design(YES_NO, C.crosswise("0.15")),
    "triangular": Design(YES_NO, C.triangular("0.25")),
    "mangat": Design(YES_NO, C.mangat("0.7")),
    "cheater detection": Design(CHEATS, C.cheater_detection([0.1, 0.6])),
    "symmetric cheater detection": Design(CHEATS, C.cheater_detection([0.1, 0.6], [0.1, 0.1])),
    "stochastic lie detector": Design(CHEATS, C.stochastic_lie_detector([0.9, 0.4])),
    "crosswise with anchor": Design(CHEATS, C.crosswise("0.15", "0.15")),
    "unrelated, unknown prevalence": Design(
        {"x": ["yes", "no"], "u": ["yes", "no"]}, C.unrelated_unknown([0.8, 0.2])
    ),
    "list experiment": Design(ITEMS, C.list_experiment(3)),
    "double list": Design({"a": [0, 1, 2, 3], "b": [0, 1, 2, 3], "x": ["yes", "no"]}, C.double_list(3, 3)),
}


class CountedReports(ReportTally):
    """A source over the table of all reports, as a statistical office may hold it."""

    def __init__(self, policy: mq.Policy, table: np.ndarray) -> None:
        super().__init__(policy)
        self.table, self.n = table, int(table.sum())
        (self.layout,) = layouts_of(policy)

    def parts(self, questions: int) -> Sequence[CountedReports]:
        """Return the one part: itself."""
        del questions
        return (self,)

    def observe(self, plans) -> list[Observed]:
        """Return the sums that plans want, from the table."""
        names = list(self.policy.observed)
        found = []
        for plan in plans:
            keep = [names.index(name) for name in plan.joint_columns]
            sums = np.einsum(self.table, list(range(len(names))), keep).reshape(plan.joint_shape)
            found.append(Observed.of(plan, plan.select_met(sums)))
        return found


@dataclass(frozen=True)
class Study:
    """A design with a clear covariate: the policy, and the chances of every report."""

    policy: mq.Policy
    chances: np.ndarray
    groups: int

    @classmethod
    def of(cls, design: Design, shares: tuple[float, float]) -> Study:
        """Return the study of people of whom so many say yes, in both halves of the covariate."""
        names = tuple(design.variables)
        key = names if len(names) > 1 else names[0]
        policy = mq.Policy.build({"g": ["a", "b"], **design.variables}, {key: design.channel})
        sizes = [len(variable) for variable in policy.observed.variables]
        rows = [design.truths(share) @ design.channel.matrix / 2 for share in shares]
        groups = 1 if design.channel.sampled_channel is None else sizes[1]
        return cls(policy, np.array(rows).reshape(sizes), groups)

    def drawn(self, n: int, generator: np.random.Generator) -> CountedReports:
        """Return a source of n people, the groups of the design equally large."""
        shape = self.chances.shape
        if self.groups == 1:
            table = generator.multinomial(n, self.chances.ravel()).reshape(shape)
        else:
            parts = self.chances.reshape(shape[0], self.groups, -1)
            tables = [
                generator.multinomial(n // self.groups, (part / part.sum()).ravel()).reshape(part.shape)
                for part in (parts[:, group] for group in range(self.groups))
            ]
            table = np.stack(tables, axis=1).reshape(shape)
        return CountedReports(self.policy, table.astype(float))


def run(name: str, n: int, runs: int, seed: int = 11) -> list[dict]:
    """Return the coverage of prevalence and regression and of the test, of one design.

    Begins with so many runs; an analysis is continued, up to five times as many, while its coverage is
    within two standard errors of an end of the band that is asked for.
    """
    design = DESIGNS[name]
    effect, null = (Study.of(design, shares) for shares in SHARES.values())
    prevalence = float(np.mean(SHARES["effect"]))
    slope = float(np.subtract(*[np.log(share / (1 - share)) for share in SHARES["effect"][::-1]]))
    cells = cells_of(Formula.of("x ~ g"), effect.policy.schema, None, None)
    family = Mean("logistic", np.eye(len(effect.policy.schema["x"]))[0])

    def held(analysis: str, generator: np.random.Generator) -> bool | None:
        if analysis == "test":
            source = null.drawn(n, generator)
            return bool(mq.stats.difference(source, "x", "g", category="yes").p_values[0] >= 0.05)
        source = effect.drawn(n, generator)
        if analysis == "prevalence":
            found = mq.stats.shares(source, "x")
            return bool(found.lower[0] <= prevalence <= found.upper[0])
        (table,) = source.answer([mq.Query(by=("g", "x"))])
        try:
            fit = regression_of(table, cells, family, kind="logistic")
        except NotConverged:
            return None
        return bool(abs(fit.values[1] - slope) <= 1.959964 * np.sqrt(fit.covariance[1, 1]))

    rows = []
    for place, analysis in enumerate(("prevalence", "regression", "test")):
        generator = np.random.default_rng([seed, n, list(DESIGNS).index(name), place])
        found: list[bool | None] = []
        while len(found) < 5 * runs:
            found += [held(analysis, generator) for _ in range(runs)]
            kept = [each for each in found if each is not None]
            coverage = float(np.mean(kept))
            error = (coverage * (1 - coverage) / len(kept)) ** 0.5
            if min(abs(coverage - end) for end in BAND) > 2 * error:
                break
        row = {
            "design": name,
            "analysis": analysis,
            "n": n,
            "runs": len(found),
            "coverage": round(coverage, 4),
        }
        rows.append(row | ({"refused": len(found) - len(kept)} if analysis == "regression" else {}))
    return rows


def main(names: Sequence[str], runs: int = RUNS) -> None:
    """Run the study of some designs, or of all, and keep the figures."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    for name in names or DESIGNS:
        for n in SIZES:
            rows = run(name, n, runs)
            kept = [row for row in kept if (row["design"], row["n"]) != (name, n)] + rows
            for row in rows:
                print(row, flush=True)
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
