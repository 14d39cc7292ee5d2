"""Log lines without data: JSON on standard error, one event a line, facts from a fixed list.

A record's values cannot get into a line: a fact is written only under a name that is known to be about the
service (a status, a number of bytes, a peer) and only in that name's form: a number, or one short word
without spaces. Anything else is withheld and its name alone is listed, so that a service never fails, and
never leaks, because of its log.
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

# how large a thing is, how long it took, how often it happened, whether it did
NUMBERS: Final = frozenset({"ms", "number", "received", "replayed", "sent", "status"})
# who, where, what kind: names from the settings, the protocol and the program
WORDS: Final = frozenset(
    {"address", "at", "code", "error", "method", "peer", "place", "request", "session", "source"}
)
WORD: Final = re.compile(r"[A-Za-z0-9_.:/@+=\[\]{}%~-]{0,200}")
NAME: Final = re.compile(r"[a-z][a-z0-9_ ]{0,60}")
_writing = threading.Lock()


class Seldom:
    """Lets `most` lines of a kind through in so many seconds, and counts the others.

    For lines that strangers cause: they must not fill a disk.
    """

    def __init__(self, most: int = 100, seconds: float = 10.0) -> None:
        self._most, self._seconds = most, seconds
        self._kinds: dict[str, tuple[float, int, int]] = {}
        self._guard = threading.Lock()

    def left_out(self, kind: str) -> int | None:
        """Return how many lines were left out since the last one, None where this one is left out, too."""
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
    """Writes events of one part of a service."""

    name: str

    def info(self, event: str, **facts: Any) -> None:
        """Write an event in the ordinary course of things."""
        self._write("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Write an event that somebody should look at."""
        self._write("warning", event, facts)

    def _write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        line = json.dumps(self.record(level, event, facts), separators=(",", ":")) + "\n"
        with _writing:
            sys.stderr.write(line)
            sys.stderr.flush()

    def record(self, level: str, event: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Return what is written: facts that may be, and the names of those that may not."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        # an event is a fixed phrase of the program
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
