"""Services of the first version, started anew with this one, from its commands."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.compatibility.first_version import copied, never_moved
from tests.servers.machine import end_with_parent, free_port, reap

SECONDS = 600  # for a start on a busy machine


def deployed(part: str, to: Path, *, moved: bool = False) -> Path:
    """Return a copy of services' folders, with free ports; states as if never moved, unless they were."""
    place = copied(part, to)
    if not moved:
        for once in place.rglob("once"):
            never_moved(once.parent)
    settings = {file: file.read_text(encoding="utf-8") for file in place.rglob("*.yaml")}
    known = sorted({port for text in settings.values() for port in re.findall(r"127\.0\.0\.1:(\d+)", text)})
    ports: dict[str, int] = {}
    while len(ports) < len(known):
        if (port := free_port()) not in ports.values():
            ports[known[len(ports)]] = port
    for file, text in settings.items():
        file.write_text(
            re.sub(r"(?<=127\.0\.0\.1:)\d+|(?<=port: )\d+", lambda found: str(ports[found[0]]), text),
            encoding="utf-8",
        )
    return place


class Services:
    """Services of a deployment, as processes of their own, from the commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[Path, subprocess.Popen[bytes]] = {}

    def start(self, *commands: str) -> None:
        """Start services by their commands, whose last word is the file, and wait for them."""
        for command in commands:
            *words, name = command.split()
            file = self.folder / name
            with self.log(file).open("wb") as log:
                self._running[file] = subprocess.Popen(  # noqa: S603  (our own command)
                    [sys.executable, "-m", "masquerade", *words, str(file)],
                    stdout=log,
                    stderr=log,
                    preexec_fn=end_with_parent,  # noqa: PLW1509  (one system call)
                )
        for command in commands:
            self._wait(self.folder / command.split()[-1])

    def log(self, file: Path) -> Path:
        """Return where a service's words go."""
        return file.with_suffix(".log")

    def _wait(self, file: Path) -> None:
        until = time.monotonic() + SECONDS
        while "listens" not in self.log(file).read_text(encoding="utf-8"):
            assert self._running[file].poll() is None, self.log(file).read_text(encoding="utf-8")
            assert time.monotonic() < until, f"{file} does not start"
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop all of them, and wait until they are gone."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            reap(process)
        self._running.clear()


@contextmanager
def serving(folder: Path, *commands: str) -> Iterator[Services]:
    """Run services for as long as this block takes."""
    services = Services(folder)
    try:
        services.start(*commands)
        yield services
    finally:
        services.stop()
