"""Work of a worker process: measure some runs of an experiment, or compare and draw all of its runs."""

from __future__ import annotations

import io
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from masquerade.core import DataMissing
from masquerade_experiments.experiment import Comparison, Experiment, Row
from masquerade_experiments.summary import Picture, means
from masquerade_experiments.tasks import Task, plain
from masquerade_experiments.wording import setting_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Measured:
    """The rows of each run of a task, and the time in seconds."""

    runs: list[list[Row]]
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Complete:
    """All rows of an experiment, and the names of the setting's columns."""

    id: str
    module: str
    frame: pd.DataFrame
    setting: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Presented:
    """Results of an experiment for readers."""

    comparisons: tuple[Comparison, ...]
    table: pd.DataFrame
    picture: Picture


@dataclass(frozen=True, slots=True)
class Failed:
    """A problem in one line; `missing` if a data set was not found."""

    line: str
    missing: bool = False


def measured(task: Task) -> Measured | Failed:
    """Run a task: its runs in sequence, each with its own seed."""
    experiment: Experiment = import_module(task.module).EXPERIMENT
    start = time.perf_counter()
    runs: list[list[Row]] = []
    for run in range(task.first, task.last):
        seed = task.seed(run)
        try:
            rows = experiment.measure(task.setting, seed)
            runs.append(
                [{name: plain(value, f"column {name!r}") for name, value in row.items()} for row in rows]
            )
        except DataMissing as error:
            return Failed(one_line(error), missing=True)
        except Exception as error:  # noqa: BLE001  (any error of an experiment is reported in one line)
            where = f"the run at {setting_text(task.setting)} with seed {seed}"
            return Failed(f"{task.id}: {where} failed: {error_line(error)}")
    return Measured(runs, time.perf_counter() - start)


def presented(complete: Complete) -> Presented | Failed:
    """Compare the rows with the paper and draw them."""
    experiment: Experiment = import_module(complete.module).EXPERIMENT
    frame = complete.frame
    doing = "comparing"
    try:
        comparisons = tuple(checkable(item, complete.id) for item in experiment.compare(frame.copy()))
        doing = "tabulating"
        table = means(frame, complete.setting) if experiment.table is None else experiment.table(frame.copy())
        doing = "drawing"
        picture = drawn(lambda: experiment.draw(frame.copy()), complete.id)
    except DataMissing as error:
        return Failed(one_line(error), missing=True)
    except Exception as error:  # noqa: BLE001
        return Failed(f"{complete.id}: {doing} its rows failed: {error_line(error)}")
    return Presented(comparisons, table, picture)


def checkable(comparison: Comparison, identity: str) -> Comparison:
    """Return a comparison with a command that shows its reason, by default the run of the experiment."""
    if not comparison.why or comparison.check:
        return comparison
    return replace(comparison, check=f"masquerade reproduce {identity}")


def drawn(draw: Callable[[], Figure], identity: str) -> Picture:
    """Return a plot in the report's style, in all formats."""
    from masquerade.report import house_style, png, svg  # noqa: PLC0415  (loads matplotlib)

    with house_style():
        figure = draw()
        name = identity.replace(".", "-")
        return Picture(svg(figure, name), svg_file(figure), png(figure))


def svg_file(figure: Figure) -> bytes:
    """Return a figure as an SVG file with a white background."""
    buffer = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", facecolor="white", metadata=nothing)
    return buffer.getvalue()


def error_line(error: Exception) -> str:
    """Return an error and the position at which it was raised, in one line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {one_line(error)}"


def one_line(error: Exception) -> str:
    """Return an error's message in one line."""
    return " ".join(str(error).split())
