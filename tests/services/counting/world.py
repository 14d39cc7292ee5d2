"""A count on this machine: real servers, devices as processes or as threads, and the clear records."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd

import masquerade as mq
from masquerade.services.common.client import Operator
from masquerade.services.common.settings import load
from masquerade.services.counting.device import Device
from masquerade.services.counting.example import example_records, write_count
from masquerade.services.counting.office import enrol
from masquerade.services.counting.person_file import PersonFile
from masquerade.services.counting.settings import CountMinerSettings, CountOfficeSettings

DEADLY = """
import importlib, os, signal, sys
from masquerade.protocols.mixnet.roles import Leader
where, _, step = sys.argv.pop(1).rpartition(" ")
role = Leader
if where:
    module, _, name = where.rpartition(".")
    role = getattr(importlib.import_module(module), name)
real = getattr(role, step)
def killed(*given):
    real(*given)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(role, step, killed)
if sys.argv[1:2] == ["device"]:
    from masquerade.services.counting.__main__ import main
    sys.exit(main(sys.argv[2]))
from masquerade.cli import main
main()
"""
PATIENT = """
import sys
from pathlib import Path
from masquerade.services.counting.message_queue import MessageQueue
left = Path(sys.argv.pop(1))
real = MessageQueue.replies
def replies(desk, letters, patience=None):
    gone = set(left.read_text().split() if left.exists() else ()) & set(letters)
    waited = len(letters) - len(gone)
    for reply in real(desk, letters, patience) if waited else ():
        yield reply
        waited -= 1
        if not waited:
            return
MessageQueue.replies = replies
from masquerade.cli import main
main()
"""
LONG = 300.0  # seconds that nothing here takes, on a machine ten times slower either


def until(condition, what):
    """Wait for a condition."""
    end = time.monotonic() + LONG
    while not (found := condition()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


class World:
    """A deployment of one protocol, with people enrolled."""

    def __init__(self, folder: Path, protocol: str, people: int, **more) -> None:
        self.folder, self.records = folder / "count", example_records(people)
        self.accepting = protocol == "suppression"  # distances between all people have no limit
        self.files = write_count(self.folder, protocol=protocol, records=self.records, **more)
        self.node = self.files["miner"]
        self.left = self.folder / "left"  # the names of those who answer no more, once there are any
        self.names = self.files["names"].read_text().split()
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self.devices: dict[str, subprocess.Popen[bytes]] = {}
        self.threads: list[threading.Thread] = []
        self.stopping = threading.Event()

    def serve(self, *roles: str, deadly: str = "", left: Path | None = None) -> None:
        """Start servers; one that is `deadly` is killed when it has done that, before it says so.

        A miner with a file `left` loses its patience with those named there when all others have answered.
        """
        for role in roles:
            log = self.folder / f"{role}.log"
            program = ["-c", DEADLY, deadly] if deadly else ["-m", "masquerade"]
            program = ["-c", PATIENT, str(left)] if left else program
            command = [sys.executable, *program, "count", "serve", str(self.files[role])]
            self.servers[role] = _started(command, log)

    def serve_again(self, role: str) -> None:
        """Start a server that was killed, and wait until it listens."""
        address = self.folder / role / "state" / "address"
        address.unlink(missing_ok=True)
        self.serve(role)
        until(address.exists, f"{role} to listen")

    def enrol(self) -> None:
        office = load(self.files["office"], CountOfficeSettings)
        self.people = enrol(self.names, office, self.folder / "people", wait=LONG)

    def kill(self, role: str) -> None:
        """Kill a server, as a power failure would."""
        self.servers[role].kill()
        self.servers[role].wait()

    def start_devices(self) -> None:
        """Start everybody's device, a process each."""
        for name in self.people:
            self.start_device(name)

    def start_device(self, name: str, *, deadly: str = "") -> None:
        """Start a person's device as a process; one that is `deadly` is killed when it has done that."""
        record = str(self.files["records"] / f"{name}.json")
        options = {"file": str(self.people[name]), "record": record, "json": True}
        options |= {"accept_clear": self.accepting}
        program = ["-c", DEADLY, deadly, "device"] if deadly else ["-m", "masquerade.services.counting"]
        command = [sys.executable, "-P", *program, json.dumps(options)]
        self.devices[name] = _started(command, self.folder / f"{name}.log")

    def device(self, name: str) -> Device:
        person = PersonFile(self.people[name])
        record = self.records[self.names.index(name)]
        return Device(person, person.admission(), record, accept_clear=self.accepting)

    def start_threads(self, change=lambda *_: None, but=()) -> None:
        """Start everybody's device, a thread each; `change` may tamper with one."""
        for name in [name for name in self.names if name not in but]:
            device = self.device(name)
            device.http.patience = 1.0  # _live tries again, and looks whether to stop
            change(name, device)
            thread = threading.Thread(target=self._live, args=(device,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _live(self, device: Device) -> None:
        while not (self.stopping.is_set() or device.over):
            try:
                time.sleep(device.step())
            except mq.MasqueradeError:
                time.sleep(0.05)
        device.http.close()
        device.person.close()

    def source(self):
        return mq.people.count(self.node, wait=LONG)

    def status(self) -> dict:
        with Operator(load(self.node, CountMinerSettings), wait=LONG) as operator:
            return operator.ask("status", {})

    def close(self) -> dict:
        with Operator(load(self.node, CountMinerSettings), wait=LONG) as operator:
            return operator.ask("close", {})

    def clear(self, without=()):
        """Return the clear records as a source, some people left out."""
        frame = pd.DataFrame([r for n, r in zip(self.names, self.records, strict=True) if n not in without])
        return mq.tally(frame, mq.Policy.load(self.folder / "policy.yaml"))

    def end(self) -> None:
        """End everything that was started here."""
        self.stopping.set()
        for process in [*self.devices.values(), *self.servers.values()]:
            process.kill()
            process.wait()
        for thread in self.threads:
            thread.join(LONG)


def _started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=stream)  # noqa: S603


def memory_of(process: int) -> dict[str, int]:
    """Return the kilobytes that a process has, and had at most."""
    text = Path(f"/proc/{process}/status").read_text()
    return {name: int(value) for name, value in re.findall(r"(VmHWM|VmRSS):\s+(\d+)", text)}


def libraries_of(process: int) -> str:
    """Return what a process has loaded from files."""
    return Path(f"/proc/{process}/maps").read_text()


def kill_now(process: int) -> None:
    """End a process at once."""
    os.kill(process, signal.SIGKILL)
