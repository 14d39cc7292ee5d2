"""`masquerade reproduce`: run the papers' experiments again and compare the results with the papers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from masquerade.cli import Json, as_json, emit, plain_table, progress, render
from masquerade.core import FileError

if TYPE_CHECKING:
    from masquerade_experiments.catalogue import Entry
    from masquerade_experiments.experiment import Experiment, Pending
    from masquerade_experiments.summary import Outcome

DATA = "MASQUERADE_DATA"


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Experiments: ids such as ma-2006-fig-5.4, papers such as ma-2006, patterns, or all.",
            metavar="[NAMES]...",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("reproduction"),
    runs: Annotated[
        int | None,
        typer.Option(help="Runs per setting. By default the paper's number, or 20 if it states none.", min=1),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer settings and runs: takes minutes.")] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Number of processes.", min=1, show_default="one per core")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help=f"Folder with the public data sets, instead of {DATA}.", metavar="DIR"),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Only list the experiments.")] = False,
    json: Json = False,
) -> None:
    """Run the experiments of the papers again, and write a report of the comparison.

    Finished runs are saved: after an interruption, the same command continues with the remaining runs.

    Example: masquerade reproduce ma-sivakumar-2005 --quick
    """
    from masquerade_experiments.catalogue import select  # noqa: PLC0415

    selection = select(names or (["all"] if listing else []))
    if listing:
        list_experiments(selection.entries, json=json)
        return
    check_folders(out, data)
    from masquerade_experiments.result_files import write_results  # noqa: PLC0415
    from masquerade_experiments.runner import reproduce  # noqa: PLC0415  (loads much)

    with data_folder(data), progress("reproducing") as advance:
        outcomes = reproduce(selection, out, runs=runs, quick=quick, jobs=jobs or cores(), progress=advance)
        report = write_results(outcomes, out, quick=quick)
    tell(outcomes, report, json=json)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def list_experiments(entries: Sequence[Entry], *, json: bool) -> None:
    """Print ids, papers and titles."""
    from masquerade_experiments.catalogue import Planned  # noqa: PLC0415
    from masquerade_experiments.experiment import Pending  # noqa: PLC0415

    found: list[Experiment | Pending] = [
        entry.load() if isinstance(entry, Planned) else entry for entry in entries
    ]
    if json:
        emit(
            as_json(
                [
                    {
                        "id": about.id,
                        "paper": about.paper,
                        "item": about.item,
                        "title": about.title,
                        "pending": isinstance(about, Pending),
                    }
                    for about in found
                ]
            )
        )
        return
    table = plain_table("Experiments")
    for name in ("id", "paper", "title"):
        table.add_column(name)
    for about in found:
        pending = " (pending)" if isinstance(about, Pending) else ""
        table.add_row(about.id, about.paper, about.title + pending)
    emit(render(table))


def check_folders(out: Path, data: Path | None) -> None:
    """Raise an error, before any work, if a folder cannot be used."""
    if out.exists() and not out.is_dir():
        raise FileError(f"{out}: cannot be written into: this is a file.")
    if data is not None and not data.is_dir():
        raise FileError(f"--data {data}: there is no such folder.")


@contextmanager
def data_folder(folder: Path | None) -> Iterator[None]:
    """Make this process and the processes it starts read data sets from a folder."""
    before = os.environ.get(DATA)
    if folder is not None:
        os.environ[DATA] = str(folder.resolve())
    try:
        yield
    finally:
        if before is not None:
            os.environ[DATA] = before
        else:
            os.environ.pop(DATA, None)


def tell(outcomes: Sequence[Outcome], report: Path, *, json: bool) -> None:
    """Print the verdicts and the path of the report."""
    from masquerade_experiments.summary import outcome_values, overall_text  # noqa: PLC0415

    if json:
        emit(as_json({"report": str(report), "experiments": [outcome_values(item) for item in outcomes]}))
        return
    table = plain_table(overall_text(outcomes))
    table.add_column("experiment")
    table.add_column("verdict")
    table.add_column("values that match", justify="right")
    table.add_column("seconds", justify="right")
    for outcome in outcomes:
        seconds = "" if outcome.findings is None else f"{outcome.findings.seconds:.1f}"
        table.add_row(outcome.about.id, outcome.verdict, outcome.counts, seconds)
    emit(render(table, *notes(outcomes), f"Report: {report}"))


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """Return notes: why experiments differ, why some did not run, and how undecided ones may be decided."""
    from masquerade_experiments.experiment import RAISED  # noqa: PLC0415

    lines = []
    for outcome in outcomes:
        if outcome.reason:
            lines.append(f"- {outcome.about.id}: {outcome.reason}")
        lines += [f"- {outcome.about.id} differs: {why}" for why in outcome.whys]
        if outcome.verdict == "undecided" and outcome.findings is not None:
            more = f"masquerade reproduce {outcome.about.id} --runs {RAISED * outcome.findings.runs}"
            lines.append(f"- {outcome.about.id} is undecided; more runs may decide it. Try: {more}")
    return lines
