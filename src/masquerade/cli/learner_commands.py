"""What all learners share on the command line: options, warnings as lines, models shown, drawn and saved."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import masquerade as mq
from masquerade.cli.data_source import Given
from masquerade.cli.output import as_json, check_target, emit, say, write_whole
from masquerade.cli.progress import watched
from masquerade.core.errors import InputError, MasqueradeWarning

if TYPE_CHECKING:
    from masquerade.core.tally import Tally


PLOT_ENDINGS = (".png", ".svg", ".pdf")

Target = Annotated[
    str, typer.Option(help="The variable to be predicted.", metavar="VARIABLE", show_default=False)
]
Features = Annotated[
    str | None, typer.Option(help="What it is predicted from. None: all other variables.", metavar="A,B")
]
Weights = Annotated[str | None, typer.Option(help="Column of survey weights.", metavar="COLUMN")]
Person = Annotated[
    str | None,
    typer.Option("--id", help="Column that names the person: a second record is refused.", metavar="COLUMN"),
]
Clear = Annotated[
    bool, typer.Option("--clear", help="DATA are clear records, read by the policy's variables.")
]
ModelOut = Annotated[
    str | None, typer.Option("--out", "-o", help="Save the model here too (.json).", metavar="MODEL.json")
]
ModelJson = Annotated[bool, typer.Option("--json", help="Print the model as JSON instead of a summary.")]
Plot = Annotated[
    str | None, typer.Option(help="Draw it into this file (.png, .svg or .pdf).", metavar="FILE")
]


@dataclass(frozen=True, slots=True)
class Results:
    """Where a model goes: a summary or JSON to standard output, a file, a picture."""

    out: str | None
    overwrite: bool
    json: bool
    plot: str | None = None

    def check(self) -> None:
        """Refuse, before any work, files that cannot or must not be written."""
        if self.out is not None and not self.out.lower().endswith(".json"):
            raise InputError(f"{self.out}: a model is saved as JSON; its name ends in .json.")
        if self.plot is not None and not self.plot.lower().endswith(PLOT_ENDINGS):
            raise InputError(f"{self.plot}: a plot ends in {' or '.join(PLOT_ENDINGS)}.")
        for target in filter(None, (self.out, self.plot)):
            check_target(Path(target), overwrite=self.overwrite)

    def give(self, model: Any, picture: bytes | None, text: str | None = None) -> None:
        """Write the files, then print the model; a model that cannot be JSON is refused first."""
        shown = as_json(model.to_dict()) if self.json else (text or model.summary()) + "\n"
        if self.out is not None:
            check_target(Path(self.out), overwrite=self.overwrite)
            mq.learn.save(model, self.out)
            say(f"the model is saved in {self.out}.")
        if self.plot is not None and picture is not None:
            write_whole(Path(self.plot), picture, overwrite=self.overwrite)
            say(f"it is drawn in {self.plot}.")
        emit(shown)


def learn(
    given: Given,
    learner: Callable[[Tally], Any],
    results: Results,
    *,
    drawn: Callable[[Tally, Any], Any] | None = None,
    text: Callable[[Any], str] | None = None,
) -> None:
    """Learn a model and give it out; all of its files are written, or none."""
    results.check()
    unsure = given.origin_note()
    with warnings_said(), watched("learning") as watch, given.opened(watch) as source:
        model = learner(source)
        figure = None
        if results.plot is not None:
            figure = model.plot() if drawn is None else drawn(source, model)
        picture = None if figure is None else picture_of(figure, str(results.plot))
    results.give(model, picture, None if text is None else text(model))
    if unsure is not None:
        say(unsure)


def picture_of(figure: Any, name: str) -> bytes:
    """Return a figure as the bytes of a file with this name."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=Path(name).suffix[1:].lower(), dpi=160)
    return buffer.getvalue()


@contextmanager
def warnings_said() -> Iterator[None]:
    """Say our warnings in a line each when the work is done; those of others pass."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MasqueradeWarning)
        yield
    ours = [str(item.message) for item in caught if issubclass(item.category, MasqueradeWarning)]
    for item in caught:
        if not issubclass(item.category, MasqueradeWarning):
            warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)
    for message in dict.fromkeys(ours):
        say(f"warning: {message}")
