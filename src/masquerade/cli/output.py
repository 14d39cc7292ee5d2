"""Output of commands: results to standard output or a file; messages and progress to standard error."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from masquerade.core.errors import FileError, InputError, MasqueradeWarning
from masquerade.core.util import atomic
from masquerade.core.util.formatting import visible
from masquerade.kernels.jit import announce_compilation

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

PIPED_WIDTH = 200
TEXT_WIDTH = 96
PATIENCE = 1.0  # seconds before a bar appears
THOUSANDTHS = 1000
PLOT_ENDINGS = (".png", ".svg", ".pdf")

Advance = Callable[[int, int | None], None]
Watch = Callable[[float | None], None]


def say(message: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"masquerade: {visible(' '.join(message.split()))}\n")


@contextmanager
def report_warnings() -> Iterator[None]:
    """Print masquerade's warnings, one per line, when the context ends; issue other warnings again."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MasqueradeWarning)
        yield
    messages = [str(item.message) for item in caught if issubclass(item.category, MasqueradeWarning)]
    for item in caught:
        if not issubclass(item.category, MasqueradeWarning):
            warnings.warn_explicit(item.message, item.category, item.filename, item.lineno)
    for message in dict.fromkeys(messages):
        say(f"warning: {message}")


def join_names(names: Iterable[object], most: int = 12) -> str:
    """Join names with commas; if there are more than `most`, show the first and the number of others."""
    everything = [str(name) for name in names]
    first = ", ".join(everything[:most])
    return first + (f" and {len(everything) - most} more" if len(everything) > most else "")


def plain_table(title: str, left: Iterable[str] = (), right: Iterable[str] = ()) -> Table:
    """Return an empty table in the common style, with left-aligned and right-aligned columns."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    class PlainTable(Table):
        """A table that escapes control characters in its cells."""

        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(
                *(visible(cell, lines=True) if isinstance(cell, str) else cell for cell in cells), **options
            )

    table = PlainTable(
        title=visible(title, lines=True),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    for name in left:
        table.add_column(visible(name, lines=True))
    for name in right:
        table.add_column(visible(name, lines=True), justify="right")
    return table


def render(*parts: RenderableType, to_file: bool = False) -> str:
    """Return tables and text as they will be shown: styled to fit a terminal, plain elsewhere."""
    from rich.console import Console  # noqa: PLC0415

    terminal = sys.stdout.isatty() and not to_file
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        force_terminal=terminal,
        no_color=not terminal or bool(os.environ.get("NO_COLOR")),
        width=None if terminal else PIPED_WIDTH,
        highlight=False,
        emoji=False,
        markup=False,
    )
    for part in parts:
        console.print(_wrap(part, console.width) if isinstance(part, str) else part)
    return "\n".join(line.rstrip() for line in buffer.getvalue().split("\n"))


def _wrap(paragraphs: str, width: int) -> str:
    """Wrap text to a readable width; a line that starts with "- " gets a hanging indent."""
    lines = []
    for line in visible(paragraphs, lines=True).split("\n"):
        hang = "  " if line.startswith("- ") else ""
        kept = min(width, TEXT_WIDTH)
        lines += textwrap.wrap(line, kept, subsequent_indent=hang, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def as_json(values: Any) -> str:
    """Return values as JSON text; escape all but ASCII if control characters occur."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if text.replace("\n", "").isprintable():
        return text
    return json.dumps(values, indent=2, allow_nan=False) + "\n"


def emit(result: Any, out: str | None = None, *, overwrite: bool = False) -> None:
    """Write a result, as text or as JSON, to standard output or atomically to a file."""
    text: str = result if isinstance(result, str) else as_json(result)
    if out is not None and out != "-":
        write_whole(out, text.encode(), overwrite=overwrite)
        return
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(text)
    else:  # always UTF-8, whatever the locale
        sys.stdout.flush()
        stream.write(text.encode())
        stream.flush()


def refuse(*rules: tuple[bool, str]) -> None:
    """Raise InputError with the message of the first rule whose condition is True."""
    for broken, complaint in rules:
        if broken:
            raise InputError(complaint)


def check_target(out: str | Path | None, *, overwrite: bool) -> None:
    """Raise FileError, before any work, if a file cannot be written; None and - are standard output."""
    if out is None or out == "-":
        return
    target = Path(out)
    atomic.check_replaceable(target)
    if (target.exists() or target.is_symlink()) and not overwrite:
        raise FileError(f"{target}: exists already; --overwrite replaces it.")
    if not target.absolute().parent.is_dir():
        raise FileError(f"{target}: cannot be written: there is no directory {target.parent}.")
    if not os.access(target.absolute().parent, os.W_OK | os.X_OK):
        raise FileError(f"{target}: cannot be written: no permission in {target.absolute().parent}.")


def check_plot(plot: str | None, *, overwrite: bool, endings: tuple[str, ...] = PLOT_ENDINGS) -> None:
    """Raise an error, before any work, if a plot cannot be written."""
    if plot is not None and not plot.lower().endswith(endings):
        raise InputError(f"{plot}: a plot ends in {' or '.join(endings)}.")
    check_target(plot, overwrite=overwrite)


def check_streams(out: str | None, *, json: bool) -> None:
    """Raise InputError if two results would go to standard output."""
    if json and out == "-":
        raise InputError("--json and --out - both write to standard output; choose one.")


def check_new(folder: Path) -> None:
    """Raise FileError if a folder exists."""
    if folder.exists():
        raise FileError(f"{folder}: exists already; name a new folder.")


def write_whole(target: str, content: bytes, *, overwrite: bool) -> None:
    """Write a file atomically."""
    check_target(target, overwrite=overwrite)
    atomic.write_whole(Path(target), content)


def picture_of(axes: Any, name: str) -> bytes:
    """Return a plot as the bytes of an image file, in the format of the suffix of `name`."""
    buffer = io.BytesIO()
    axes.figure.savefig(buffer, format=Path(name).suffix[1:].lower(), dpi=160)
    return buffer.getvalue()


def silence_stdout() -> None:
    """Discard standard output after its reader has closed the pipe, so that exit raises no error."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_listener: ContextVar[Advance | None] = ContextVar("listener", default=None)


@contextmanager
def report_progress_to(listener: Advance) -> Iterator[None]:
    """Pass the progress of commands to `listener` as (done, total) instead of showing a bar."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def progress(doing: str) -> Iterator[Advance]:
    """Yield a function that shows progress as (done, total); on a terminal, a bar appears after a second."""
    if sys.stderr.isatty():  # not in logs, which must not depend on whether code was compiled before
        announce_compilation(lambda: say("compiling once for this machine; later runs start without it."))
    listener = _listener.get()
    if listener is not None:
        yield listener
        return
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(doing, total=None)
    timer = threading.Timer(PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done, total: bar.update(task, completed=done, total=total)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


@contextmanager
def watch_progress(doing: str) -> Iterator[Watch | None]:
    """Yield a function that shows the completed fraction of a scan; None if no progress is shown."""
    with progress(doing) as advance:

        def watch(share: float | None) -> None:
            if share is not None:
                advance(round(share * THOUSANDTHS), THOUSANDTHS)

        yield watch if sys.stderr.isatty() or _listener.get() is not None else None
