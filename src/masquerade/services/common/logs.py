"""Log lines without data: JSON on standard error, one event per line, facts from a fixed list.

Values of records cannot get into a line. A fact is written only if its name is in a fixed list (a status, a
number of bytes, a peer), and only if its value has the type of that name: a number, or one short word without
spaces. For any other fact only the name is written, so that logging neither stops a service nor leaks data.
"""

from __future__ import annotations

import json
import math
import re
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

# sizes, durations, counts, flags
NUMBERS: Final = frozenset({"days", "ms", "number", "received", "replayed", "sent", "status"})
# names from the settings, the protocol and the program
WORDS: Final = frozenset(
    {"address", "at", "code", "error", "method", "peer", "place", "request", "session", "source", "whose"}
)
WORD: Final = re.compile(r"[A-Za-z0-9_.:/@+=\[\]{}%~-]{0,200}")
NAME: Final = re.compile(r"[a-z][a-z0-9_ ]{0,60}")
_writing = threading.Lock()


class Seldom:
    """Rate limit of log lines: at most `most` per kind in `seconds`; further lines are only counted.

    Used for lines that unauthenticated callers can cause, so that they cannot fill the disk.
    """

    def __init__(self, most: int = 100, seconds: float = 10.0) -> None:
        self._most, self._seconds = most, seconds
        self._kinds: dict[str, tuple[float, int, int]] = {}
        self._guard = threading.Lock()

    def left_out(self, kind: str) -> int | None:
        """Return the number of lines omitted since the last written line; None to omit this line, too."""
        with self._guard:
            now = time.monotonic()
            began, written, left = self._kinds.get(kind, (now, 0, 0))
            if now - began > self._seconds:
                began, written = now, 0
            if written >= self._most:
                self._kinds[kind] = (began, written, left + 1)
                return None
            self._kinds[kind] = (began, written + 1, 0)
            return left


@dataclass(frozen=True, slots=True)
class Logger:
    """Writes events of one component of a service."""

    name: str

    def info(self, event: str, **facts: Any) -> None:
        """Write an ordinary event."""
        self._write("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Write an event that the operator should look at."""
        self._write("warning", event, facts)

    def _write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        line = json.dumps(self.record(level, event, facts), separators=(",", ":")) + "\n"
        with _writing:
            sys.stderr.write(line)
            sys.stderr.flush()

    def record(self, level: str, event: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Return the values of a line: allowed facts, and the names of withheld facts."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        # an event must be a fixed phrase of the program, never text with data
        shown = event if NAME.fullmatch(event) else "withheld"
        line: dict[str, Any] = {"time": now, "level": level, "name": self.name, "event": shown}
        kept = {name: value for name, value in facts.items() if self._may(name, value)}
        withheld = sorted(name if NAME.fullmatch(name) else "?" for name in facts if name not in kept)
        return line | {"facts": kept} | ({"withheld": withheld} if withheld else {})

    def _may(self, name: str, value: Any) -> bool:
        if value is None:
            return name in NUMBERS or name in WORDS
        if name in NUMBERS:
            return type(value) in (bool, int) or (type(value) is float and math.isfinite(value))
        return name in WORDS and type(value) is str and WORD.fullmatch(value) is not None
