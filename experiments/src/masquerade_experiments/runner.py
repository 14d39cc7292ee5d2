"""Run experiments: distribute tasks over processes, save each result, and present the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from masquerade.core import DataMissing, MasqueradeError
from masquerade_experiments.catalogue import Entry, Planned, Selection
from masquerade_experiments.experiment import Experiment, Pending
from masquerade_experiments.measurement import Complete, Measured, Presented, measured, one_line, presented
from masquerade_experiments.result_files import make_directory, read_saved, save, saved_file, work_folder
from masquerade_experiments.summary import Findings, Outcome
from masquerade_experiments.tasks import Task, tasks_of
from masquerade_experiments.worker_pool import Crew, crew

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Job:
    """A running experiment: its tasks, and the results so far, by key."""

    planned: Planned
    experiment: Experiment
    runs: int
    tasks: list[Task]
    results: dict[str, Measured] = field(default_factory=dict)
    missing: str = ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return all rows: the setting's columns, the run, and the measurements."""
        return [
            {**task.setting, "run": run, **row}
            for task in self.tasks
            for run, rows in enumerate(self.results[task.key].runs, start=task.first)
            for row in rows
        ]

    def complete(self) -> Complete:
        """Return the rows as a frame, with the data needed to present them."""
        import pandas as pd  # noqa: PLC0415

        names = tuple(dict.fromkeys(name for task in self.tasks for name in task.setting))
        return Complete(self.planned.id, self.planned.module, pd.DataFrame(self.rows), names)

    def findings(self, complete: Complete, shown: Presented) -> Findings:
        """Return the findings: rows, comparisons, table, plot and cost."""
        return Findings(
            complete.frame,
            shown.comparisons,
            shown.table,
            shown.picture,
            settings=sum(task.first == 0 for task in self.tasks),
            runs=self.runs,
            seed=self.tasks[0].seed(0),
            seconds=sum(self.results[task.key].seconds for task in self.tasks),
        )


def reproduce(
    selection: Selection,
    out: Path,
    *,
    runs: int | None = None,
    quick: bool = False,
    jobs: int = 1,
    progress: Progress = lambda _done, _total: None,
) -> list[Outcome]:
    """Run experiments and return their outcomes, in order.

    Results are saved under `out`/work as they are computed. Saved results are not computed again unless the
    experiment or the library has changed. `progress` is called with the number of runs done and of all runs.
    """
    loaded = {entry.id: entry.load() for entry in selection.entries if isinstance(entry, Planned)}
    reasons = dict(missing_data(loaded))
    check_asked(selection, reasons)
    started = [
        begun(entry, loaded[entry.id], runs=runs, quick=quick)
        for entry in selection.entries
        if isinstance(entry, Planned) and entry.id not in reasons
    ]
    with crew(jobs) as workers:
        measure_all(started, out, workers, progress)
        shown = present_all([job for job in started if not job.missing], workers)
    reasons |= {job.planned.id: job.missing for job in started if job.missing}
    check_asked(selection, reasons)
    return [outcome_of(entry, loaded, reasons, shown) for entry in selection.entries]


def outcome_of(
    entry: Entry,
    loaded: Mapping[str, Experiment],
    reasons: Mapping[str, str],
    findings: Mapping[str, Findings],
) -> Outcome:
    """Return the outcome of an entry at the end."""
    if isinstance(entry, Pending):
        return Outcome(entry, reason=waits(entry))
    return Outcome(loaded[entry.id], findings.get(entry.id), reasons.get(entry.id, ""))


def waits(entry: Pending) -> str:
    """Describe why an experiment is pending."""
    return f"It waits for {entry.waits_for}."


def missing_data(experiments: Mapping[str, Experiment]) -> Iterator[tuple[str, str]]:
    """Yield the ids of experiments whose data are missing, each with a message; load each data set once."""
    lacking: dict[str, str] = {}
    for name in dict.fromkeys(name for experiment in experiments.values() for name in experiment.data):
        try:
            fetch(name)
        except DataMissing as error:
            lacking[name] = one_line(error)
    for identity, experiment in experiments.items():
        found = [lacking[name] for name in experiment.data if name in lacking]
        if found:
            yield identity, found[0]


def fetch(name: str) -> None:
    """Load a data set or network, to check that it is available."""
    from masquerade import data  # noqa: PLC0415  (loads pandas)

    if name in data.names("network"):
        data.network(name)
    else:
        data.load(name)


def check_asked(selection: Selection, reasons: Mapping[str, str]) -> None:
    """Raise an error if an experiment that was requested by its id cannot run, or if none can run."""
    waiting = {entry.id: waits(entry) for entry in selection.entries if isinstance(entry, Pending)}
    cannot = {**waiting, **reasons}
    refused = [identity for identity in cannot if identity in selection.named]
    if not refused and len(cannot) == len(selection.entries):
        refused = list(cannot)
    if refused:
        raise MasqueradeError(f"{refused[0]} cannot run. {cannot[refused[0]]}")


def begun(planned: Planned, experiment: Experiment, *, runs: int | None, quick: bool) -> Job:
    """Return an experiment, divided into tasks."""
    number = runs if runs is not None else (experiment.quick_runs if quick else experiment.runs)
    return Job(planned, experiment, number, tasks_of(planned, experiment, runs=number, quick=quick))


def measure_all(started: Sequence[Job], out: Path, workers: Crew, progress: Progress) -> None:
    """Run all tasks whose results are not saved yet, and save the results; stop at the first failure."""
    holders: dict[str, list[Job]] = {}  # experiments that repeat another share its tasks
    tasks: dict[str, Task] = {}
    for job in started:
        for task in job.tasks:
            holders.setdefault(task.key, []).append(job)
            tasks[task.key] = task
    left = take_saved(tasks.values(), holders, out)
    for identity in dict.fromkeys(task.id for task in left):
        make_directory(work_folder(out, identity))
    total = sum(
        task.last - task.first for task in {it.key: it for job in started for it in job.tasks}.values()
    )
    done = total - sum(task.last - task.first for task in left)
    progress(done, total)
    for task, result in workers.each(measured, left):
        if isinstance(result, Measured):
            save(saved_file(out, task), task, result)
            for job in holders[task.key]:
                job.results[task.key] = result
        elif result.missing:
            for job in holders[task.key]:
                job.missing = result.line
        else:
            raise MasqueradeError(result.line)
        done += task.last - task.first
        progress(done, total)


def take_saved(tasks: Iterable[Task], holders: Mapping[str, Sequence[Job]], out: Path) -> list[Task]:
    """Add saved results to the experiments that need them, and return the tasks without a saved result."""
    left = []
    for task in tasks:
        saved = read_saved(saved_file(out, task), task)
        if saved is None:
            left.append(task)
            continue
        for job in holders[task.key]:
            job.results[task.key] = saved
    return left


def present_all(finished: Sequence[Job], workers: Crew) -> dict[str, Findings]:
    """Compare and draw every experiment, from its complete rows."""
    by_id = {job.planned.id: job for job in finished}
    found: dict[str, Findings] = {}
    for complete, result in workers.each(presented, [job.complete() for job in finished]):
        job = by_id[complete.id]
        if isinstance(result, Presented):
            found[complete.id] = job.findings(complete, result)
        elif result.missing:
            job.missing = result.line
        else:
            raise MasqueradeError(result.line)
    return found
