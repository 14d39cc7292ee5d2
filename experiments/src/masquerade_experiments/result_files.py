"""Files of a reproduction: results of tasks, and the files for readers, each written atomically."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from masquerade.core import FileError, write_whole
from masquerade_experiments.experiment import Comparison
from masquerade_experiments.measurement import Measured
from masquerade_experiments.page import report_html
from masquerade_experiments.summary import Outcome, comparison_values, outcome_values
from masquerade_experiments.tasks import Task

WORK, REPORT = "work", "index.html"


def work_folder(out: Path, identity: str) -> Path:
    """Return the folder with the results of an experiment's tasks."""
    return out / WORK / identity


def saved_file(out: Path, task: Task) -> Path:
    """Return the path of the result of a task."""
    return work_folder(out, task.id) / f"{task.key}.json"


def read_saved(path: Path, task: Task) -> Measured | None:
    """Return a saved result; None if it is missing or incomplete."""
    try:
        values = json.loads(path.read_bytes())
        found = Measured(values["runs"], values["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if len(found.runs) == task.last - task.first else None


def save(path: Path, task: Task, result: Measured) -> None:
    """Store the result of a task, next to a readable description of the task."""
    values = {
        "experiment": task.id,
        "setting": dict(task.setting),
        "first_run": task.first,
        "seconds": result.seconds,
        "runs": result.runs,
    }
    write_whole(path, json.dumps(values) + "\n")


def make_directory(path: Path) -> None:
    """Make a directory if it does not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{path}: no directory can be made here ({error.strerror}).") from None


def write_results(outcomes: Sequence[Outcome], out: Path, *, quick: bool) -> Path:
    """Write the rows, comparisons and plots of every experiment, and the report; return the report's path."""
    page = report_html(outcomes, quick=quick)
    for outcome in outcomes:
        if outcome.findings is not None:
            write_findings(outcome, out / outcome.about.id)
    write_whole(out / REPORT, page)
    return out / REPORT


def write_findings(outcome: Outcome, folder: Path) -> None:
    """Write the files of one experiment."""
    findings = outcome.findings
    if findings is None:
        return
    make_directory(folder)
    write_whole(folder / "data.csv", findings.frame.to_csv(index=False))
    write_whole(folder / "comparison.csv", comparison_csv(findings.comparisons))
    values = json.dumps(outcome_values(outcome), indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(folder / "comparison.json", values + "\n")
    write_whole(folder / "figure.svg", findings.picture.svg)
    write_whole(folder / "figure.png", findings.picture.png)


def comparison_csv(comparisons: Sequence[Comparison]) -> str:
    """Return comparisons as CSV, one per line."""
    import pandas as pd  # noqa: PLC0415

    columns = comparison_values(Comparison("", None, 0.0))
    rows = [comparison_values(item) for item in comparisons]
    return str(pd.DataFrame(rows, columns=list(columns)).to_csv(index=False))
