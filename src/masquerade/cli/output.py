"""Results to standard output or whole into a file; everything else to standard error."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from masquerade.core import atomic
from masquerade.core.errors import FileError

if TYPE_CHECKING:
    from rich.console import RenderableType

PIPED_WIDTH = 200
TEXT_WIDTH = 96


def say(message: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"masquerade: {' '.join(message.split())}\n")


def render(*parts: RenderableType, to_file: bool = False) -> str:
    """Return tables and text as they will be shown: coloured and fitted on a terminal, plain elsewhere."""
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
        console.print(wrapped(part, console.width) if isinstance(part, str) else part)
    return "\n".join(line.rstrip() for line in buffer.getvalue().split("\n"))


def wrapped(paragraphs: str, width: int) -> str:
    """Return text broken into lines that are pleasant to read; a line that starts with "- " hangs."""
    lines = []
    for line in paragraphs.split("\n"):
        hang = "  " if line.startswith("- ") else ""
        kept = min(width, TEXT_WIDTH)
        lines += textwrap.wrap(line, kept, subsequent_indent=hang, break_on_hyphens=False) or [""]
    return "\n".join(lines)


def as_json(values: Any) -> str:
    """Return values as JSON text."""
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def emit(text: str, out: str | None = None, *, overwrite: bool = False) -> None:
    """Write a result to standard output, or to a file as a whole."""
    if out is not None and out != "-":
        write_whole(Path(out), text.encode(), overwrite=overwrite)
        return
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(text)
    else:  # UTF-8 wherever it goes
        sys.stdout.flush()
        stream.write(text.encode())
        stream.flush()


def check_target(target: Path, *, overwrite: bool) -> None:
    """Refuse, before any work, a file that cannot or must not be written."""
    if target.is_dir():
        raise FileError(f"{target}: cannot be written: this is a directory.")
    if target.exists() and not overwrite:
        raise FileError(f"{target}: exists already; --overwrite replaces it.")
    if not target.absolute().parent.is_dir():
        raise FileError(f"{target}: cannot be written: there is no directory {target.parent}.")
    if not os.access(target.absolute().parent, os.W_OK | os.X_OK):
        raise FileError(f"{target}: cannot be written: no permission in {target.absolute().parent}.")


def write_whole(target: Path, content: bytes, *, overwrite: bool) -> None:
    """Write a file that appears complete or not at all."""
    check_target(target, overwrite=overwrite)
    atomic.write_whole(target, content)


def silence_stdout() -> None:
    """Let what is left for a reader who has gone disappear, without complaint at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
