"""What threads share, and what belongs to the process that opened it: sources in other people's programs."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import NoReturn

from masquerade.core.errors import InputError


class Turns:
    """A lock that threads take turns by; a copy in another process, forked or pickled, begins unlocked."""

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()

    def __enter__(self) -> None:
        if self._process != os.getpid():  # whoever held it is not in this process
            self.__init__()  # type: ignore[misc]
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Turns], tuple[()]]:
        """Return how to make one: a lock itself does not pickle."""
        return Turns, ()


class Owner:
    """The process, and where it matters the thread, that opened what no other one can use.

    `what` begins the error of whoever tries, and `instead` ends it. Whatever holds an owner does not pickle.
    """

    def __init__(self, what: str, instead: str, *, thread: bool = False) -> None:
        self._what, self._instead = what, instead
        self._process = os.getpid()
        self._thread = threading.get_ident() if thread else None

    @property
    def here(self) -> bool:
        """Tell whether this is the process that opened it."""
        return self._process == os.getpid()

    def check(self) -> None:
        """Refuse another process, or another thread where that matters."""
        if not self.here:
            self._refuse("process")
        if self._thread not in {None, threading.get_ident()}:
            self._refuse("thread")

    def __reduce__(self) -> NoReturn:
        """Refuse to be sent to another process."""
        self._refuse("process")

    def _refuse(self, place: str) -> NoReturn:
        raise InputError(f"{self._what} belongs to the {place} that opened it. {self._instead}")
