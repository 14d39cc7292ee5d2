"""What this machine has: Java, the programs of PostgreSQL, free ports; and ending what was started."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
from functools import cache
from pathlib import Path

from masquerade.services.common.example_deployment import free_ports

STOP_SECONDS = 10
PR_SET_PDEATHSIG = 1


@cache
def java() -> str | None:
    """Return the Java program, from JAVA_HOME or the path; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(Path(home, "bin", "java"), os.X_OK):
        return str(Path(home, "bin", "java"))
    return shutil.which("java")


@cache
def postgres_programs() -> dict[str, str]:
    """Return where `initdb` and `postgres` are; empty if one is missing."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: p.parent.name.zfill(4))
    folders = os.pathsep.join([*map(str, reversed(versions)), os.environ.get("PATH", "")])
    found = {name: shutil.which(name, path=folders) for name in ("initdb", "postgres")}
    return {name: str(path) for name, path in found.items()} if all(found.values()) else {}


def free_port() -> int:
    """Return a free port, one that no other process of the run takes."""
    return free_ports(["server"])["server"]


def answers(port: int) -> bool:
    """Tell whether somebody listens on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def end_with_parent() -> None:
    """Have the kernel end this process when its parent dies, even by force: no server outlives a test run."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def reap(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """End a process: first by a signal, then by force; return when it is gone."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
