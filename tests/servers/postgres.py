"""A real PostgreSQL server in a temporary folder: a password user, loopback and a socket, gone at the end."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.servers.machine import answers, end_with_parent, free_port, postgres_programs, reap

START_SECONDS = 600  # a limit, for machines that are busy; the start itself is waited for
# durability is worth nothing in a test; every setting here makes the start or a load quicker
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "64MB",
    "max_connections": "40",
    "autovacuum": "off",
    "listen_addresses": "127.0.0.1",
    "password_encryption": "scram-sha-256",
    "log_min_messages": "warning",
}


@dataclass(frozen=True)
class Postgres:
    """A running server and how to reach it."""

    folder: Path
    port: int
    user: str
    password: str
    process_id: int
    database: str = "postgres"

    def __repr__(self) -> str:
        """Show where, never the password."""
        return f"Postgres(127.0.0.1:{self.port})"

    @property
    def url(self) -> str:
        """Return the address with the password, over loopback."""
        return f"postgresql://{self.user}:{self.password}@127.0.0.1:{self.port}/{self.database}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the usual variables of PostgreSQL's own clients; the host is the socket's folder."""
        return {
            "PGHOST": str(self.folder),
            "PGPORT": str(self.port),
            "PGUSER": self.user,
            "PGPASSWORD": self.password,
            "PGDATABASE": self.database,
        }

    def fresh_database(self) -> Postgres:
        """Return the same server with a new, empty database."""
        import psycopg  # noqa: PLC0415

        name = f"test_{secrets.token_hex(6)}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return replace(self, database=name)

    def kill(self) -> None:
        """Lose the server as a power cut would: every connection breaks, nothing is tidied, all is gone."""
        children = Path(f"/proc/{self.process_id}/task/{self.process_id}/children").read_text().split()
        for process_id in (self.process_id, *map(int, children)):
            try:
                os.kill(process_id, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until = time.monotonic() + START_SECONDS
        while answers(self.port) and time.monotonic() < until:  # a busy machine ends processes later
            time.sleep(0.01)


@contextmanager
def postgres_server(settings: Mapping[str, str] | None = None) -> Iterator[Postgres]:
    """Start a server of its own, with further settings, and stop it, whatever happens inside."""
    # a socket's path has at most 107 bytes, so the folder stands directly below /tmp
    folder = Path(tempfile.mkdtemp(prefix="mqpg-", dir="/tmp"))
    owner = _owner()
    process: subprocess.Popen[bytes] | None = None
    try:
        if owner:
            os.chown(folder, int(owner["user"]), int(owner["group"]))
        password = secrets.token_urlsafe(18)
        _initialise(folder, password, owner)
        process, port = _started(folder, owner, settings or {})
        yield Postgres(folder, port, "tester", password, process.pid)
    finally:
        if process is not None:
            reap(process, signal.SIGQUIT)  # "immediate shutdown": nothing here is worth flushing
        shutil.rmtree(folder, ignore_errors=True)


def _owner() -> dict[str, int | list[int]]:
    """Return whom to run as: PostgreSQL refuses root, so root hands over to another account."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    raise RuntimeError("PostgreSQL does not run as root, and there is no account 'postgres' or 'nobody'.")


def _initialise(folder: Path, password: str, owner: dict[str, int | list[int]]) -> None:
    """Create the cluster; the password goes through a pipe, never through a command line or a file."""
    reader, writer = os.pipe()
    if owner:
        os.fchown(reader, int(owner["user"]), int(owner["group"]))
    os.write(writer, password.encode() + b"\n")
    os.close(writer)
    try:
        made = subprocess.run(  # noqa: S603
            [
                postgres_programs()["initdb"], "--pgdata", str(folder / "data"), "--username", "tester",
                f"--pwfile=/proc/self/fd/{reader}", "--auth", "scram-sha-256", "--no-sync",
                "--no-instructions", "--encoding", "UTF8", "--locale", "C",
            ],
            **owner, pass_fds=[reader], cwd=folder, capture_output=True, check=False, text=True,
        )  # fmt: skip
    finally:
        os.close(reader)
    if made.returncode:
        raise RuntimeError(f"initdb failed: {made.stderr.strip()}")


def _started(
    folder: Path, owner: dict[str, int | list[int]], more: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the server; a port that another process took in between is tried again with a new one."""
    log = folder / "log"
    for _ in range(5):
        port = free_port()
        settings = {**SETTINGS, "port": str(port), "unix_socket_directories": str(folder), **more}
        arguments = [f"-c{name}={value}" for name, value in settings.items()]
        with log.open("wb") as sink:
            process = subprocess.Popen(  # noqa: S603
                [postgres_programs()["postgres"], "-D", str(folder / "data"), *arguments],
                **owner, cwd=folder, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL,
                preexec_fn=end_with_parent,  # noqa: PLW1509
            )  # fmt: skip
        try:
            if _ready(folder, process):
                return process, port
        except BaseException:
            reap(process, signal.SIGQUIT)
            raise
        reap(process, signal.SIGQUIT)
        if "in use" not in log.read_text(errors="replace"):
            break
    raise RuntimeError(f"PostgreSQL did not start: {log.read_text(errors='replace').strip()[-2000:]}")


def _ready(folder: Path, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the server says in its own file that it takes connections."""
    state = folder / "data" / "postmaster.pid"
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        if state.exists() and state.read_text(errors="replace").rstrip().endswith("ready"):
            return True
        time.sleep(0.02)
    return False


if __name__ == "__main__":  # try it by hand: python -m tests.servers.postgres
    with postgres_server() as server:
        sys.stdout.write(f"{server.url}\npress return to stop\n")
        sys.stdout.flush()
        sys.stdin.readline()
