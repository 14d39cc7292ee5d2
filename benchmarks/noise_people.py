"""Secure aggregation over HTTPS with and without noise, in one run: seconds and bytes of the same count.

    python -m benchmarks.noise_people [--people 10000] [--repeats 1] [--json FILE]

The miner is a process, and so are the devices of 5,000 people. Each device has a ledger file, and steps
when it is due, as `Device.run` does. Devices share connections that stay open. They also share the terms of
the count, which are equal for all. All devices have started before the question is asked. Each person has
one of 1,000 categories, and one table is asked. The counts with and without noise run at the same time, so
that both have the same share of the machine. Processor seconds are those of all devices and of the miner
from the question to the counts, and include requests of devices that wait; those of answers are without
these. Bytes are bodies of messages that devices send and receive. To be reached: at most 1.1 times those
without noise. Figures are kept for each number of people. Temporary files are in `TMPDIR`.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import masquerade as mq
from masquerade.channels.privacy_level import parse_limit
from masquerade.core.errors import MasqueradeError
from masquerade.services.common.device_client import DeviceClient
from masquerade.services.common.settings import load
from masquerade.services.counting.device import Device
from masquerade.services.counting.example import write_count
from masquerade.services.counting.messages import ASK_TERMS, CountTerms
from masquerade.services.counting.office import enrol
from masquerade.services.counting.person_file import Admission, PersonFile
from masquerade.services.counting.settings import CountOfficeSettings

COUNTS = 1000
NOISE: dict[str, object] = {"epsilon": 1.0, "tables": 10, "enrolment": "verified"}
COUNTED: dict[str, dict[str, object] | None] = {"without": None, "with noise": NOISE}
LIMIT = 1.1
LONG = 14_400.0
CONNECTIONS = 56  # of all devices; the miner works on 64 requests at once
PAUSE_OF_A_PERSON = 0.004  # seconds, as the miner asks devices to wait
PEOPLE_OF_A_PROCESS = 5000  # each has up to three open files
SPAWN = get_context("spawn")
KEPT = Path(__file__).parent / "results" / "noise_people.json"


def processor_seconds(process: int) -> float:
    """Return the processor seconds of another process so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Crowd:
    """Devices of some people in a process of their own: each steps when it is due, as `Device.run` does."""

    def __init__(self, files: list[Path], records: list[dict[str, int]], threads: int) -> None:
        started: Connection
        self._pipe, started = SPAWN.Pipe()
        self._process = SPAWN.Process(target=run_crowd, args=(files, records, threads, started), daemon=True)
        self._process.start()
        started.close()

    def wait(self) -> None:
        """Wait until all devices have started."""
        self._pipe.recv()

    def start(self) -> None:
        """Let all devices answer."""
        self._pipe.send("start")

    def end(self) -> tuple[float, float, int, int]:
        """Stop all devices; return processor seconds, those of answers alone, and bytes sent and received."""
        self._pipe.send("end")
        figures: tuple[float, float, int, int] = self._pipe.recv()
        self._process.join(LONG)
        return figures


class Devices:
    """Devices that take turns in threads, each of which has a connection."""

    def __init__(self, files: list[Path], records: list[dict[str, int]], threads: int) -> None:
        self._lock, self._stop = threading.Lock(), threading.Event()
        admission, terms = None, b""
        self._clients: list[DeviceClient] = []
        self._figures = [[0, 0] for _ in range(threads)]
        self._answering = [0.0] * threads
        self._due: list[tuple[float, int]] = []
        self._devices: list[Device] = []
        for path, record in zip(files, records, strict=True):
            person = PersonFile(path)
            if admission is None:
                admission = person.admission()
                self._clients = [self._client(admission, figures) for figures in self._figures]
            device = Device(person, admission, record, limit=parse_limit("5%:50%,delta=1e-6"))
            device.http.close()
            device.http = self._clients[0]
            if not terms:
                terms = device._request(ASK_TERMS)  # noqa: SLF001
                share_terms(terms)
            device._start()  # noqa: SLF001
            self._devices.append(device)
        self._threads = [
            threading.Thread(target=self._live, args=(i, client)) for i, client in enumerate(self._clients)
        ]

    def _client(self, admission: Admission, figures: list[int]) -> DeviceClient:
        client = admission.client()
        exchange = client.exchange

        def counted(place: str, body: bytes, **options: bool) -> bytes:
            reply = exchange(place, body, **options)
            figures[0], figures[1] = figures[0] + len(body), figures[1] + len(reply)
            return reply

        client.exchange = counted  # type: ignore[method-assign]
        return client

    def start(self) -> None:
        """Let all devices answer; their first requests are spread over a pause, as those of people are."""
        for figures in self._figures:
            figures[:] = [0, 0]
        now = time.monotonic()
        self._due = [(now + i * PAUSE_OF_A_PERSON, i) for i in range(len(self._devices))]
        for thread in self._threads:
            thread.start()

    def _next(self) -> tuple[float, int] | None:
        """Return the seconds until a device is due, and the device; None after the end."""
        with self._lock:
            if self._stop.is_set() or not self._due:
                return None
            wait = self._due[0][0] - time.monotonic()
            return (wait, -1) if wait > 0 else (0.0, heapq.heappop(self._due)[1])

    def _live(self, thread: int, client: DeviceClient) -> None:
        while (due := self._next()) is not None:
            wait, index = due
            if index < 0:
                self._stop.wait(min(wait, 0.05))
                continue
            device = self._devices[index]
            device.http, answered, started = client, device.answered, time.thread_time()
            try:
                pause = device.step()
                if device.answered > answered:
                    self._answering[thread] += time.thread_time() - started
            except MasqueradeError as error:
                print(f"device {index}: {error}", flush=True)
                pause = 1.0
            with self._lock:
                heapq.heappush(self._due, (time.monotonic() + pause, index))

    def end(self) -> tuple[float, int, int]:
        """Stop all devices; return the processor seconds of answers, and the bytes sent and received."""
        answering = sum(self._answering)
        sent, received = (sum(figures[i] for figures in self._figures) for i in (0, 1))
        self._stop.set()
        for thread in self._threads:
            thread.join(LONG)
        for device in self._devices:
            device.person.close()
        for client in self._clients:
            client.close()
        return answering, sent, received


def share_terms(encoded: bytes) -> None:
    """Let all devices of this process share the terms, which are the same for all."""
    terms = CountTerms.decode(encoded)
    agree = lru_cache(maxsize=4)(partial(CountTerms.protocol_terms, terms, None))
    CountTerms.protocol_terms = lambda _terms, limit: agree(limit)  # type: ignore[method-assign]
    PersonFile.known_terms = lambda _person, _admission: encoded  # type: ignore[method-assign]
    PersonFile.keep_terms = lambda _person, _admission, _data: terms  # type: ignore[method-assign]


def run_crowd(files: list[Path], records: list[dict[str, int]], threads: int, pipe: Connection) -> None:
    """Run devices until the other process says that the count is over."""
    allow_files()
    devices = Devices(files, records, threads)
    pipe.send("ready")
    pipe.recv()
    before = resource.getrusage(resource.RUSAGE_SELF)
    devices.start()
    pipe.recv()
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    pipe.send((seconds, *devices.end()))


def allow_files() -> None:
    """Let this process open as many files as it may."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def measure(
    people: int, processes: int, noise: dict[str, object] | None, ready: threading.Barrier
) -> dict[str, float]:
    """Return the seconds and bytes of one count, which starts when all counts are ready."""
    records = [{"cell": i * 7 % COUNTS} for i in range(people)]
    policy = {"masquerade": 1, "variables": {"cell": {"categories": list(range(COUNTS))}}}
    more = {} if noise is None else {"noise": noise}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "count"
        files = write_count(
            folder,
            protocol="aggregation",
            records=records,
            policy=policy,
            patience=LONG,
            minimum=people - people // 20,
            **more,
        )
        command = [sys.executable, "-m", "masquerade", "count", "serve", str(files["miner"])]
        miner = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
        try:
            began = time.time()
            names = files["names"].read_text(encoding="utf-8").split()
            made = enrol(names, load(files["office"], CountOfficeSettings), folder / "people", wait=LONG)
            print(f"enrolled after {time.time() - began:.0f} s", flush=True)
            paths = list(made.values())
            crowds = [
                Crowd(paths[i::processes], records[i::processes], CONNECTIONS // processes)
                for i in range(processes)
            ]
            for crowd in crowds:
                crowd.wait()
            print(f"devices ready after {time.time() - began:.0f} s", flush=True)
            source = mq.people.count(files["miner"], wait=LONG)
            ready.wait()
            before = processor_seconds(miner.pid), time.time()
            for crowd in crowds:
                crowd.start()
            [table] = source.answer([mq.Query(by="cell")])
            after = processor_seconds(miner.pid), time.time()
            figures = [crowd.end() for crowd in crowds]
        finally:
            miner.kill()
            miner.wait()
    exact = np.bincount([record["cell"] for record in records], minlength=COUNTS)
    assert table.n == people
    assert (noise is not None) == bool(np.any(table.values != exact))
    seconds, answering, sent, received = (sum(one[i] for one in figures) for i in range(4))
    return {
        "devices, processor seconds": seconds,
        "devices, processor seconds of answers": answering,
        "miner, processor seconds": after[0] - before[0],
        "seconds": after[1] - before[1],
        "bytes sent by a person": sent / people,
        "bytes received by a person": received / people,
    }


def main() -> None:
    """Measure both, alternating, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=Path, default=KEPT)
    options = parser.parse_args()
    processes = options.processes or max(2, -(-options.people // PEOPLE_OF_A_PROCESS))
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in COUNTED}
    for _ in range(options.repeats):
        ready = threading.Barrier(len(COUNTED))
        with ThreadPoolExecutor(len(COUNTED)) as pool:
            counts = {
                name: pool.submit(measure, options.people, processes, noise, ready)
                for name, noise in COUNTED.items()
            }
        for name, count in counts.items():
            runs[name].append(count.result())
            print(name, runs[name][-1], flush=True)
        keep(options.json, options.people, runs)


def keep(file: Path, people: int, runs: dict[str, list[dict[str, float]]]) -> None:
    """Store the runs of a number of people, their medians and the ratios of the medians."""
    medians = {
        name: {key: float(np.median([run[key] for run in some])) for key in some[0]}
        for name, some in runs.items()
    }
    ratios = {key: medians["with noise"][key] / value for key, value in medians["without"].items()}
    print(ratios, flush=True)
    kept = {"counts": COUNTS, "limit": LIMIT, "people": {}}
    if file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
    repeats = len(runs["without"])
    kept["people"][str(people)] = {"repeats": repeats, "medians": medians, "ratios": ratios, "runs": runs}
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
