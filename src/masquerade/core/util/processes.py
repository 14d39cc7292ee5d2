"""Locks and ownership of resources across threads and forked processes."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import NoReturn

from masquerade.core.errors import InputError


class ForkSafeLock:
    """A re-entrant lock for threads; its copy in another process, forked or pickled, starts unlocked."""

    def __init__(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()

    def __enter__(self) -> None:
        if self._process != os.getpid():  # its holder is a thread of another process
            self.__init__()  # type: ignore[misc]
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[ForkSafeLock], tuple[()]]:
        """Return the pickled form, a new lock: a lock itself cannot be pickled."""
        return ForkSafeLock, ()


class ResourceOwner:
    """The process, and optionally the thread, that opened a resource no other can use.

    `what` starts the error message for other processes, `instead` ends it. Objects that hold an owner cannot
    be pickled.
    """

    def __init__(self, what: str, instead: str, *, thread: bool = False) -> None:
        self._what, self._instead = what, instead
        self._process = os.getpid()
        self._thread = threading.get_ident() if thread else None

    @property
    def is_here(self) -> bool:
        """Return True if this process opened the resource."""
        return self._process == os.getpid()

    def check(self) -> None:
        """Raise InputError in another process, or in another thread if that matters."""
        if not self.is_here:
            self._refuse("process")
        if self._thread not in {None, threading.get_ident()}:
            self._refuse("thread")

    def __reduce__(self) -> NoReturn:
        """Raise InputError: the resource cannot be sent to another process."""
        self._refuse("process")

    def _refuse(self, place: str) -> NoReturn:
        raise InputError(f"{self._what} belongs to the {place} that opened it. {self._instead}")
