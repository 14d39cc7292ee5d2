"""What was checked last is remembered, so that those who check the same do it once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Checks:
    """Remembers the last outcome of every check.

    Every user has one of their own: the miner is the adversary, so nobody relies on its checks or on another
    user's. A simulation may hand one object to all users of a process: what is public is then checked once,
    which proves the same to a process that holds all users anyway, and the guarantee says so.
    """

    def __init__(self) -> None:
        self._last: dict[Callable[..., Any], tuple[Any, Any]] = {}

    def once(self, check: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Return what a check returns, and do not check the same again; what it raises is not kept."""
        last = self._last.get(check)
        if last is None or last[0] != (given, named):
            last = self._last[check] = ((given, named), check(*given, **named))
        found: T = last[1]
        return found
