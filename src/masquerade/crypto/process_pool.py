"""Work for other processes, where threads would mostly wait for the interpreter's lock.

The processes are this interpreter started anew, not copies of the caller: they inherit no locks, and they do
not run the caller's script again. They end with their input, and so with the caller.
"""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")
_SIZE = 8


def spread(work: Callable[[Task], Result], tasks: Sequence[Task], workers: int) -> list[Result]:
    """Return work(task) for every task in order, done by at most `workers` processes.

    Both must be picklable: `work` is a function known by its name, or a partial of one. What no process can
    do, because it cannot start, ends early or is not sent such work, is done here.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        return [work(task) for task in tasks]
    results: dict[int, Result] = {}
    left, lock, stopped = iter(enumerate(tasks)), threading.Lock(), threading.Event()

    def following() -> tuple[int, Task] | None:
        with lock:
            return None if stopped.is_set() else next(left, None)

    def drive(_helper: int) -> None:
        with Helper() as helper:
            while (numbered := following()) is not None:
                number, task = numbered
                try:
                    results[number] = helper.ask(work, task)
                except (OSError, EOFError, pickle.PicklingError, AttributeError, TypeError):
                    results[number] = work(task)

    with ThreadPoolExecutor(workers) as pool:
        try:
            list(pool.map(drive, range(workers)))
        finally:
            stopped.set()  # after an interrupt, nobody waits for the rest
    return [results[number] for number in range(len(tasks))]


class Helper:
    """Another process that does one task after the other; the pipes to it are nobody else's."""

    def __init__(self) -> None:
        begin = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(  # noqa: S603
                [sys.executable or "", "-c", begin],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # an interrupt from the keyboard is the caller's affair
            )
        except OSError:
            self._process = None

    def ask(self, work: Callable[[Task], Result], task: Task) -> Result:
        """Return what the process makes of a task, or raise `EOFError` or `OSError` if it makes nothing."""
        packed = pickle.dumps((work, task))
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            raise EOFError
        send(self._process.stdin, packed)
        result: Result = pickle.loads(receive(self._process.stdout))  # noqa: S301
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            if kind is not None:
                self._process.kill()
            try:
                self._process.communicate()
            except (OSError, ValueError):  # it ended before: its pipes are closed
                self._process.wait()


def serve() -> None:
    """Do what comes in until nothing more does: the whole life of a helper."""
    gc.disable()  # nothing here is cyclic, and there are millions of objects to look through
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    for packed in frames(incoming):
        work, task = pickle.loads(packed)  # noqa: S301
        send(outgoing, pickle.dumps(work(task)))


def send(pipe: BinaryIO | Any, packed: bytes) -> None:
    """Write a message with its length."""
    pipe.write(len(packed).to_bytes(_SIZE, "big") + packed)
    pipe.flush()


def receive(pipe: BinaryIO | Any) -> bytes:
    """Read a message, or raise `EOFError` if there is none or only a part of it."""
    size = int.from_bytes(head := pipe.read(_SIZE), "big")
    packed: bytes = pipe.read(size)
    if len(head) < _SIZE or len(packed) < size:
        raise EOFError
    return packed


def frames(pipe: BinaryIO | Any) -> Iterator[bytes]:
    """Yield messages until there are no more."""
    while True:
        try:
            yield receive(pipe)
        except EOFError:
            return
