"""Counts of equal reports: kept while reports come and go, so that live figures read none again."""

from __future__ import annotations

import json
import threading
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
        self._counts: dict[str, dict[tuple[int, tuple[int, ...]], int]] | None = None
        self._stamp: Stamp = (0, 0)

    def add(self, keys: Iterable[Key]) -> None:
        """Count reports that were kept."""
        if self._counts is not None:
            reports, withdrawn = self._stamp
            self._stamp = (reports + sum(self._move(key, 1) for key in keys), withdrawn)

    def remove(self, key: Key) -> None:
        """Count a report no more that was withdrawn."""
        if self._counts is not None:
            self._move(key, -1)
            self._stamp = (self._stamp[0] - 1, self._stamp[1] + 1)

    def forget(self) -> None:
        """Count everything anew when asked."""
        self._counts = None

    def now(
        self, stamp: Stamp, recount: Callable[[], Mapping[Key, int]]
    ) -> dict[str, dict[tuple[int, tuple[int, ...]], int]]:
        """Return, by policy, how often reports of a mode and codes came."""
        if self._counts is None or self._stamp != stamp:
            self._counts, self._stamp = {}, stamp
            for key, number in recount().items():
                self._move(key, number)
        return {policy: dict(counts) for policy, counts in self._counts.items() if counts}

    def _move(self, key: Key, by: int) -> int:
        assert self._counts is not None  # noqa: S101  (asked by the callers)
        policy, mode, text = key
        counts, content = self._counts.setdefault(policy, {}), (mode, tuple(json.loads(text)))
        number = counts.get(content, 0) + by
        if number:
            counts[content] = number
        else:
            counts.pop(content, None)
        return by
