"""A cache of verification results, so that several users in one process verify the same data once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Checks:
    """Caches the last result of every check.

    Every user has a separate cache: the miner is the adversary, so no user relies on the checks of the miner
    or of another user. A simulation may pass one cache to all users of a process, so that public data are
    checked once; the guarantee states this.
    """

    def __init__(self) -> None:
        self._last: dict[Callable[..., Any], tuple[Any, Any]] = {}

    def once(self, check: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Return the result of a check, cached; an exception is not cached."""
        last = self._last.get(check)
        if last is None or last[0] != (given, named):
            last = self._last[check] = ((given, named), check(*given, **named))
        found: T = last[1]
        return found
