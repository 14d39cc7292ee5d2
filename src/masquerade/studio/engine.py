"""Worker process that runs `masquerade` commands in sequence and reports progress; killed to cancel a job."""

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
GRACE = 5.0  # seconds for a cancelled command to remove partly written files
KEPT = 200  # number of finished jobs to keep
CONTRADICTED = 1  # exit code of an audit with findings
SAFE_PATH = "PYTHONSAFEPATH"  # keeps a new process from importing from its working directory


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """The exit code of a command, its output, and its messages."""

    code: int
    printed: str
    said: tuple[str, ...]


@dataclass(eq=False)
class StudioJob:
    """A command to run, with or without the passwords of the environment."""

    name: str
    argv: tuple[str, ...]
    credentials: bool = False
    state: State = "waiting"
    share: float | None = None
    outcome: CommandOutcome | None = None
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def words(self) -> str:
        """Return the message of a job that did not succeed."""
        if self.state == "cancelled":
            return "cancelled."
        said = self.outcome.said if self.outcome is not None else ()
        return "\n".join(said) or "the command ended without a message."


def run_command(argv: Sequence[str], listener: Callable[[int, int | None], None]) -> CommandOutcome:
    """Run a `masquerade` command in this process, as from the command line."""
    from masquerade.cli.app import app  # noqa: PLC0415  (loads the commands)
    from masquerade.cli.output import report_progress_to  # noqa: PLC0415

    printed, said = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said), report_progress_to(listener):
        try:
            app(args=list(argv), prog_name="masquerade")
        except SystemExit as leaving:
            code = leaving.code
    lines = [line.removeprefix("masquerade: ") for line in said.getvalue().splitlines() if line.strip()]
    return CommandOutcome(code if isinstance(code, int) else 0, printed.getvalue(), tuple(lines))


def _work(pipe: Connection, folder: str) -> None:
    """Run commands from a pipe until the pipe closes."""
    os.environ[SAFE_PATH] = "1"  # for child processes of a command, which start in the project's folder
    os.chdir(folder)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles an interrupt from the terminal
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
    """Keep child processes from importing modules from the working directory, which may be untrusted."""
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
    """End this process when the server ends for any reason; else the ledger might lack a release."""
    server = multiprocessing.parent_process()
    if server is not None:
        server.join()
        os.kill(os.getpid(), signal.SIGTERM)


class CommandRunner:
    """A queue of jobs for one worker process; a job that is submitted again is returned, not repeated."""

    def __init__(self, folder: Path, finished: Callable[[StudioJob], None] = lambda _job: None) -> None:
        self._folder = folder
        self._finished = finished
        self._jobs: OrderedDict[str, StudioJob] = OrderedDict()
        self._turn = threading.Condition()
        self._closed = False
        self._worker: Any = None
        self._pipe: Connection | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def submit(self, name: str, argv: Sequence[str], *, credentials: bool = False) -> StudioJob:
        """Return the job of that name; create it if there is none, or it failed or was cancelled.

        A new job runs without the passwords of the environment unless `credentials` is True.
        """
        with self._turn:
            known = self._jobs.get(name)
            if known is not None and known.state in {"waiting", "running", "done"}:
                return known
            job = self._jobs[name] = StudioJob(name, tuple(argv), credentials)
            self._jobs.move_to_end(name)
            for old in [key for key, one in self._jobs.items() if one.over.is_set()][:-KEPT]:
                del self._jobs[old]
            self._turn.notify_all()
            return job

    def job(self, name: str) -> StudioJob | None:
        """Return the job of a name."""
        return self._jobs.get(name)

    def forget(self, name: str) -> None:
        """Remove a finished job, so that it can be submitted again."""
        with self._turn:
            job = self._jobs.get(name)
            if job is not None and job.over.is_set():
                del self._jobs[name]

    def cancel(self, name: str) -> None:
        """Cancel a job: drop it if it waits, end its process if it runs."""
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
        """End the worker and drop all waiting jobs."""
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
                if job.over.is_set():  # cancelled in the meantime
                    continue
                job.outcome = outcome
                good = outcome.code in {0, CONTRADICTED} and (bool(outcome.printed) or "--out" in job.argv)
                job.state = "done" if good else "failed"
            if good:
                try:
                    self._finished(job)
                except Exception as error:  # noqa: BLE001  (the job must end in any case)
                    job.outcome, job.state = CommandOutcome(2, "", (str(error),)), "failed"
            job.over.set()

    def _next(self) -> StudioJob | None:
        return next((job for job in self._jobs.values() if job.state == "waiting"), None)

    def _run(self, job: StudioJob) -> CommandOutcome:
        try:
            pipe = self._start_worker()
            pipe.send((list(job.argv), job.credentials))
            while True:
                kind, value = pipe.recv()
                if kind == "outcome":
                    return value  # type: ignore[no-any-return]
                job.share = value
        except (EOFError, OSError):
            self._stop()
            return CommandOutcome(2, "", ("the worker process ended; there may be too little memory.",))

    def _start_worker(self) -> Connection:
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
