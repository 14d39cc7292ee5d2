"""The process that works: commands of `masquerade`, one after the other, with progress; killed to cancel."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from masquerade.studio.reach import without_credentials

State = Literal["waiting", "running", "done", "failed", "cancelled"]
GRACE = 5.0  # seconds in which a cancelled command may remove what it has half written
KEPT = 200  # jobs that are remembered when they are over
CONTRADICTED = 1  # an audit prints its findings and exits with this
SAFE_PATH = "PYTHONSAFEPATH"  # with it a new process does not import from the folder it starts in


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command printed, what it said, and its exit code."""

    code: int
    printed: str
    said: tuple[str, ...]


@dataclass(eq=False)
class Job:
    """A command that is worked on, by its name; with or without the passwords of the environment."""

    name: str
    argv: tuple[str, ...]
    credentials: bool = False
    state: State = "waiting"
    share: float | None = None
    outcome: Outcome | None = None
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def words(self) -> str:
        """Return what to tell of a job that did not succeed."""
        if self.state == "cancelled":
            return "cancelled."
        said = self.outcome.said if self.outcome is not None else ()
        return "\n".join(said) or "the command ended without a word."


def run_command(argv: Sequence[str], listener: Callable[[int, int | None], None]) -> Outcome:
    """Run a command of `masquerade` in this process, as its command line would."""
    from masquerade.cli.app import app  # noqa: PLC0415  (loads the commands)
    from masquerade.cli.output import heard_by  # noqa: PLC0415

    printed, said = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said), heard_by(listener):
        try:
            app(args=list(argv), prog_name="masquerade")
        except SystemExit as leaving:
            code = leaving.code
    lines = [line.removeprefix("masquerade: ") for line in said.getvalue().splitlines() if line.strip()]
    return Outcome(code if isinstance(code, int) else 0, printed.getvalue(), tuple(lines))


def _work(pipe: Connection, folder: str) -> None:
    """Take commands from a pipe until it closes."""
    os.environ[SAFE_PATH] = "1"  # for processes that a command starts, in the project's folder
    os.chdir(folder)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's interrupt is the server's to handle
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    last = -1

    def listener(done: int, total: int | None) -> None:
        nonlocal last
        now = -1 if not total else done * 1000 // total
        if now != last:
            last = now
            pipe.send(("share", None if not total else done / total))

    with contextlib.suppress(EOFError, OSError):
        while True:
            argv, credentials = pipe.recv()
            with contextlib.nullcontext() if credentials else without_credentials():
                outcome = run_command(argv, listener)
            pipe.send(("outcome", outcome))


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Start processes that import nothing from the working directory, which may be a received folder."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


def _end_with_the_server() -> None:
    """End this process when the server is gone, however it went: nobody would write down what it releases."""
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
        os.kill(os.getpid(), signal.SIGTERM)


class Engine:
    """One worker, and the jobs that wait for it; whoever asks for a job again gets the same one."""

    def __init__(self, folder: Path, finished: Callable[[Job], None] = lambda _job: None) -> None:
        self._folder = folder
        self._finished = finished
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._turn = threading.Condition()
        self._closed = False
        self._worker: Any = None
        self._pipe: Connection | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def submit(self, name: str, argv: Sequence[str], *, credentials: bool = False) -> Job:
        """Return the job of that name: the one there is, unless it failed, else a new one.

        A new job runs without the passwords of the environment unless it is given `credentials`.
        """
        with self._turn:
            known = self._jobs.get(name)
            if known is not None and known.state in {"waiting", "running", "done"}:
                return known
            job = self._jobs[name] = Job(name, tuple(argv), credentials)
            self._jobs.move_to_end(name)
            for old in [key for key, one in self._jobs.items() if one.over.is_set()][:-KEPT]:
                del self._jobs[old]
            self._turn.notify_all()
            return job

    def job(self, name: str) -> Job | None:
        """Return the job of a name."""
        return self._jobs.get(name)

    def forget(self, name: str) -> None:
        """Forget a job that is over, so that it can be asked again."""
        with self._turn:
            job = self._jobs.get(name)
            if job is not None and job.over.is_set():
                del self._jobs[name]

    def cancel(self, name: str) -> None:
        """End a job: one that waits is dropped, of one that runs the process is ended."""
        with self._turn:
            job = self._jobs.get(name)
            if job is None or job.over.is_set():
                return
            running = job.state == "running"
            job.state = "cancelled"
            job.over.set()
        if running:
            self._stop()

    def close(self) -> None:
        """End the worker; what waits is dropped."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        self._stop()
        self._thread.join(GRACE)

    def _serve(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._closed or self._next() is not None)
                job = self._next()
                if self._closed or job is None:
                    return
                job.state = "running"
            outcome = self._run(job)
            with self._turn:
                if job.over.is_set():  # cancelled meanwhile
                    continue
                job.outcome = outcome
                good = outcome.code in {0, CONTRADICTED} and (bool(outcome.printed) or "--out" in job.argv)
                job.state = "done" if good else "failed"
            if good:
                try:
                    self._finished(job)
                except Exception as error:  # noqa: BLE001  (whatever it is, the job has to end)
                    job.outcome, job.state = Outcome(2, "", (str(error),)), "failed"
            job.over.set()

    def _next(self) -> Job | None:
        return next((job for job in self._jobs.values() if job.state == "waiting"), None)

    def _run(self, job: Job) -> Outcome:
        try:
            pipe = self._started()
            pipe.send((list(job.argv), job.credentials))
            while True:
                kind, value = pipe.recv()
                if kind == "outcome":
                    return value  # type: ignore[no-any-return]
                job.share = value
        except (EOFError, OSError):
            self._stop()
            return Outcome(2, "", ("the process that counts ended; there may be too little memory.",))

    def _started(self) -> Connection:
        if self._worker is None or not self._worker.is_alive() or self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._worker = context.Process(target=_work, args=(theirs, str(self._folder)), daemon=True)
            with _safe_path():
                self._worker.start()
            theirs.close()
        return self._pipe

    def _stop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None and worker.is_alive():
            worker.terminate()
            worker.join(GRACE)
            if worker.is_alive():
                worker.kill()
                worker.join()
