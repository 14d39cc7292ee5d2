"""The command line: a module for every command of `masquerade`; other packages may add commands."""

import signal
import sys
from types import FrameType


def main() -> None:
    """Run the `masquerade` command."""
    try:
        # a polite kill ends like an error does, so that half-written files are removed
        signal.signal(signal.SIGTERM, _leave)
        from masquerade.cli.app import app  # noqa: PLC0415  (an interrupt while loading is still one line)

        app(prog_name="masquerade")
    except KeyboardInterrupt:
        sys.stderr.write("masquerade: interrupted.\n")
        sys.exit(130)


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  (the form signal handlers have)
    sys.exit(128 + number)
