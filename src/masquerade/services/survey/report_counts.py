"""How often every report came: kept while reports come and go, so that live figures read none again."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

Key = tuple[str, int, str]  # policy, mode, codes as they are kept
Stamp = tuple[int, int]  # how many reports there are, and how many were withdrawn


class ReportCounts:
    """Counts of equal reports, and of which state of the store they are.

    Each report that comes or goes moves the stamp, and no two states have the same: a report is withdrawn
    once and for all. So what another process did shows, and then everything is counted anew.
    """

    def __init__(self) -> None:
        self.changing = (
            threading.RLock()
        )  # held while reports are written and counted, and while counts are read
        self._counts: Counter[Key] | None = None
        self._stamp: Stamp = (0, 0)

    def add(self, keys: Iterable[Key]) -> None:
        """Count reports that were kept."""
        if self._counts is not None:
            new = Counter(keys)
            self._counts += new
            self._stamp = (self._stamp[0] + new.total(), self._stamp[1])

    def remove(self, key: Key) -> None:
        """Count a report no more that was withdrawn."""
        if self._counts is not None:
            self._counts[key] -= 1
            self._stamp = (self._stamp[0] - 1, self._stamp[1] + 1)

    def forget(self) -> None:
        """Count everything anew when asked."""
        self._counts = None

    def now(
        self, stamp: Stamp, recount: Callable[[], Mapping[Key, int]]
    ) -> dict[str, dict[tuple[int, tuple[int, ...]], int]]:
        """Return, by policy, how often reports of a mode and codes came."""
        if self._counts is None or self._stamp != stamp:
            self._counts, self._stamp = Counter(recount()), stamp
        found: dict[str, dict[tuple[int, tuple[int, ...]], int]] = {}
        for (policy, mode, codes), number in self._counts.items():
            if number:
                found.setdefault(policy, {})[mode, tuple(json.loads(codes))] = number
        return found
