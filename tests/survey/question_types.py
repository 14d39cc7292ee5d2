"""Every type of question, answered by synthetic people through the page's own code in Node.

    python -m tests.survey.question_types [--people 2000] [--runs 2000] [--seed 37]

writes benchmarks/results/survey_question_types.json: for each type the mean error of the estimated shares in
standard errors, and how often 95% intervals contain the true shares. People and draws follow from the seed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.stats import beta
from tests.statistical.checks import normal_bound
from tests.survey.programs import node

from masquerade.core.query import Query
from masquerade.sources.records import Records
from masquerade.survey import Survey
from masquerade.survey.page.page import page_values

KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "survey_question_types.json"
SEED = 37
MASK = {"kind": "for_gamma", "gamma": 4}
YES_NO = {"categories": ["yes", "no"]}
POLICY = {
    "masquerade": 1,
    "variables": {
        "single": {"categories": ["a", "b", "other", "refused"], "missing": "refused", "channel": MASK},
        "scale": {"categories": [1, 2, 3, 4, 5], "channel": MASK},
        "number": {"bins": [16, 20, 30, 50, 99], "missing": "refused", "channel": MASK},
        "slider": {"categories": ["low", "high"], "channel": MASK},
        "age": {"categories": ["young", "middle", "old"], "channel": MASK},
        "period": {"categories": ["before", "during", "after"], "channel": MASK},
        "beer": YES_NO,
        "wine": YES_NO,
        "water": YES_NO | {"channel": MASK},
        "first": {"categories": ["never", "often"], "channel": MASK},
        "second": {"categories": ["never", "often"], "channel": MASK},
        "follow": {"categories": ["few", "many", "not asked"], "missing": "not asked", "channel": MASK},
        "clear": {"categories": ["x", "y"]},
    },
    "joint": [{"variables": ["beer", "wine"], "channel": MASK}],
    "clear": "accepted",
}
SURVEY: dict[str, Any] = {
    "masquerade_survey": 1,
    "title": "T",
    "policy": "policy.yaml",
    "collector": "https://survey.example.org",
    "contact": "C",
    "consent": "D",
    "questions": [
        {"variable": "single", "text": "1", "answers": {"a": "A", "b": "B", "other": "Other"}},
        {"variable": "scale", "type": "scale", "text": "2"},
        {"variable": "number", "text": "3"},
        {"variable": "slider", "text": "4", "number": {"min": 0, "max": 100, "bins": [50], "slider": True},
         "type": "number"},
        {"variable": "age", "type": "date", "text": "5",
         "date": {"from": 1930, "to": 2010, "bins": [30, 60]}},
        {"variable": "period", "type": "date", "text": "6",
         "date": {"as": "year", "from": 1990, "to": 2026, "bins": [2000, 2020]}},
        {"type": "multiple", "text": "7", "items": {"beer": "Beer", "wine": "Wine", "water": "Water"}},
        {"type": "matrix", "text": "8", "items": {"first": "First", "second": "Second"}},
        {"variable": "follow", "text": "9", "type": "number", "number": {"min": 1, "max": 60, "bins": [10]},
         "show_if": {"beer": ["yes"]}, "not_asked": "not asked"},
        {"variable": "clear", "text": "10"},
    ],
}  # fmt: skip
TYPES = {
    "single": "choice", "scale": "scale", "number": "number", "slider": "slider", "age": "date as age",
    "period": "date as period", "beer": "multiple, set mask", "wine": "multiple, set mask",
    "water": "multiple, own mask", "first": "matrix", "second": "matrix", "follow": "number, show_if",
}  # fmt: skip
# kinds of people with their shares: what each of them enters; dates are [year, month], ticks true or false
PEOPLE: list[tuple[float, dict[str, Any]]] = [
    (0.35, {"single": 0, "scale": 0, "number": 19, "slider": 20, "age": [1997, 7], "period": 1999,
            "beer": True, "wine": True, "water": False, "first": 0, "second": 1, "follow": 9, "clear": 0}),
    (0.25, {"single": 1, "scale": 4, "number": 20, "slider": 50, "age": [1997, 6], "period": 2000,
            "beer": True, "wine": False, "water": True, "first": 1, "second": 1, "follow": 10, "clear": 1}),
    (0.22, {"single": 2, "scale": 2, "number": 49, "slider": 49, "age": [1967, 6], "period": 2019,
            "beer": False, "wine": False, "water": True, "first": 0, "second": 0, "follow": 40, "clear": 0}),
    (0.18, {"single": 3, "scale": 1, "number": 99, "slider": 100, "age": [1930, 1], "period": 2026,
            "beer": False, "wine": True, "water": False, "first": 1, "second": 0, "follow": 1, "clear": 1}),
]  # fmt: skip
CUTS = {"number": (20, 30, 50), "slider": (50,), "period": (2000, 2020), "follow": (10,)}


def true_code(name: str, person: dict[str, Any]) -> int:
    """Return the code of a person's answer, by rules written apart from the page's."""
    entered = person[name]
    if name == "follow" and not person["beer"]:
        return 2
    if name == "age":
        months = (2027 - entered[0]) * 12 + 6 - entered[1]
        return bisect_right((30, 60), months // 12)
    if name in CUTS:
        return bisect_right(CUTS[name], entered)
    return int(not entered) if isinstance(entered, bool) else int(entered)


def true_shares(survey: Survey) -> dict[str, np.ndarray]:
    shares = {name: np.zeros(len(survey.policy.schema[name])) for name in TYPES}
    for weight, person in PEOPLE:
        for name, share in shares.items():
            share[true_code(name, person)] += weight
    return shares


def loaded(folder: Path) -> Survey:
    (folder / "policy.yaml").write_text(yaml.safe_dump(POLICY, sort_keys=False))
    (folder / "survey.yaml").write_text(yaml.safe_dump(SURVEY, sort_keys=False))
    return Survey.load(folder / "survey.yaml")


def counts_of(
    folder: Path, survey: Survey, people: int, runs: int, seed: int
) -> Iterator[list[dict[str, int]]]:
    """Yield for every run the counts of reports of each group."""
    values = page_values(survey)
    shown = {"mechanism": values["mechanism"], "questions": values["questions"], "truths": PEOPLE}
    (folder / "survey.json").write_text(json.dumps(shown))
    script = str(files("masquerade.survey.page") / "assets" / "masquerade.js")
    shutil.copy(script, folder / "masquerade.mjs")
    command = [node(), str(Path(__file__).with_suffix(".mjs")), str(folder)]
    command += map(str, (people, runs, seed))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:  # noqa: S603
        assert running.stdout is not None
        for line in running.stdout:
            yield json.loads(line)
    assert running.returncode == 0


def estimates(survey: Survey, counts: list[dict[str, int]]) -> Iterator[tuple[str, Any]]:
    """Yield each disguised variable with its table of counts."""
    policy = survey.policy
    rows: dict[str, np.ndarray] = {}
    for group, of_group in zip(policy.groups, counts, strict=True):
        codes = np.array([[int(code) for code in key.split()] for key in of_group])
        repeated = np.repeat(codes, list(of_group.values()), axis=0)
        for j, column in enumerate(group.reports):
            size = len(policy.observed[column])
            rows[column] = repeated[:, j].astype(np.min_scalar_type(size - 1))
    source = Records(rows, policy)
    names = list(TYPES)
    yield from zip(names, source.answer([Query(by=(name,)) for name in names]), strict=True)


def study(folder: Path, people: int, runs: int, seed: int = SEED) -> dict[str, Any]:
    """Return, by variable: intervals, those that contain the truth, and the largest mean error."""
    survey = loaded(folder)
    truth = true_shares(survey)
    covered = dict.fromkeys(TYPES, 0)
    errors: dict[str, list[np.ndarray]] = {name: [] for name in TYPES}
    for counts in counts_of(folder, survey, people, runs, seed):
        for name, table in estimates(survey, counts):
            low, high = table.conf_int(0.95)
            expected = truth[name] * table.n
            covered[name] += int(np.sum((low <= expected) & (expected <= high)))
            errors[name].append((table.values - expected) / table.stderr())
    found: dict[str, Any] = {"people": people, "runs": runs, "seed": seed, "types": {}}
    for name, kind in TYPES.items():
        intervals = runs * len(truth[name])
        mean = np.mean(errors[name], axis=0) * np.sqrt(runs)
        found["types"][name] = {
            "type": kind,
            "intervals": intervals,
            "covered": covered[name] / intervals,
            "largest_mean_error": float(np.max(np.abs(mean))),
        }
    return found


def judge(found: dict[str, Any]) -> None:
    """Assert that no mean error is beyond chance, over all cells at a false-alarm rate of 1e-6."""
    cells = sum(one["intervals"] for one in found["types"].values()) // found["runs"]
    for name, one in found["types"].items():
        assert one["largest_mean_error"] < normal_bound(cells), name


def coverage_bounds(covered: float, runs: int) -> tuple[float, float]:
    """Return a Clopper-Pearson interval (1 − 1e-6) of a coverage, over runs: cells of one run depend."""
    hits = round(covered * runs)
    low, high = beta.ppf([5e-7, 1 - 5e-7], [hits, hits + 1], [runs - hits + 1, max(runs - hits, 1)])
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = study(Path(folder), chosen.people, chosen.runs, chosen.seed)
    judge(found)
    KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
