"""Distribute tasks over processes, which end when the command ends, even if it is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from typing import Any, Protocol, TypeVar

from masquerade.core import MasqueradeError

Item = TypeVar("Item")
Result = TypeVar("Result")

ONE_THREAD = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Crew(Protocol):
    """Interface of a worker pool."""

    def each(self, do: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Yield every item with its result, in order of completion."""
        ...


@contextmanager
def crew(jobs: int) -> Iterator[Crew]:
    """Run tasks in `jobs` processes; with one job, in this process."""
    if jobs == 1:
        yield Alone()
        return
    others = set(active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin)
    try:
        yield Processes(pool)
    except BaseException as error:
        # unfinished tasks can be killed, because results are written by this process only
        for process in set(active_children()) - others:
            process.kill()
        if isinstance(error, BrokenProcessPool):
            raise MasqueradeError(
                "A process that ran an experiment was killed, perhaps because memory ran out. Finished runs "
                "are saved: run the command again, with fewer --jobs."
            ) from None
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class Alone:
    """Tasks run in this process, in sequence."""

    def each(self, do: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Yield every item with its result."""
        for item in items:
            yield item, do(item)


class Processes:
    """Tasks run by a pool of processes."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self.pool = pool

    def each(self, do: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Yield every item with its result, in order of completion."""
        waiting: dict[Future[Any], Item] = {}
        # processes inherit the signal mask, so a keyboard interrupt reaches this process only
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            for item in items:
                waiting[self.pool.submit(do, item)] = item
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def _begin() -> None:
    """Prepare a worker process: one computing thread, and a thread that ends it with the command."""
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))  # read when libraries are loaded, later
    threading.Thread(target=_end_with_the_command, daemon=True).start()


def _end_with_the_command() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
