"""A progress bar on standard error, for people only and only when it takes a while."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 1.0  # seconds before a bar appears

THOUSANDTHS = 1000

Advance = Callable[[int, int | None], None]
Watch = Callable[[float | None], None]


@contextmanager
def progress(doing: str) -> Iterator[Advance]:
    """Yield a function that takes (done, total); the bar appears after a second, on a terminal."""
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
def watched(doing: str) -> Iterator[Watch | None]:
    """Yield a function that takes the share of a scan that is done, if known; None where nobody looks."""
    with progress(doing) as advance:

        def watch(share: float | None) -> None:
            if share is not None:
                advance(round(share * THOUSANDTHS), THOUSANDTHS)

        yield watch if sys.stderr.isatty() else None
