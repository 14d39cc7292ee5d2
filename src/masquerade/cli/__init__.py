"""The command line, with one module per command of `masquerade`.

Other packages may add commands, which print through the functions exported here.
"""

import gc
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.cli.options import Json as Json
    from masquerade.cli.output import as_json as as_json
    from masquerade.cli.output import emit as emit
    from masquerade.cli.output import plain_table as plain_table
    from masquerade.cli.output import progress as progress
    from masquerade.cli.output import render as render

__all__ = ["Json", "as_json", "emit", "main", "plain_table", "progress", "render"]

__getattr__, __dir__, _ = lazy_exports(__name__)

# Thresholds of the garbage collector: with Python's default of 700 new objects, collections take a fifth of
# the time of a report.
COLLECT_AFTER = (50_000, 20, 20)


def main() -> None:
    """Run the `masquerade` command."""
    gc.set_threshold(*COLLECT_AFTER)
    try:
        # SIGTERM raises SystemExit, so that partly written files are removed
        signal.signal(signal.SIGTERM, _exit_on_signal)
        from masquerade.cli.app import app  # noqa: PLC0415  (so that an interrupt while loading prints one line)

        app(prog_name="masquerade")
    except KeyboardInterrupt:
        sys.stderr.write("masquerade: interrupted.\n")
        sys.exit(130)


def _exit_on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  (signature of signal handlers)
    sys.exit(128 + number)
