"""Secure aggregation over HTTPS with and without noise, in one run: seconds and bytes of the same count.

    python -m benchmarks.noise_people [--people 10000] [--repeats 1] [--json FILE]

The miner is a process of its own. Devices are objects of one process with a ledger file each. They take turns
in `--threads` threads, and those of a thread share a connection. The process decodes the terms of the count
once, since 10,000 copies of 10,000 keys would not fit; all devices have started before the question is asked.
Each person has one of 1,000 categories, and one table is asked. Seconds are processor seconds of all devices
and the miner from the question to the counts; bytes are bodies of messages that devices send and receive. To
be reached: at most 1.1 times those without noise. Figures are kept for each number of people.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

import masquerade as mq
from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit, parse_limit
from masquerade.core.errors import MasqueradeError
from masquerade.services.common.settings import load
from masquerade.services.counting.device import Device
from masquerade.services.counting.example import write_count
from masquerade.services.counting.messages import CountTerms
from masquerade.services.counting.office import enrol
from masquerade.services.counting.person_file import PersonFile
from masquerade.services.counting.settings import CountOfficeSettings

COUNTS = 1000
NOISE = {"epsilon": 1.0, "tables": 10, "enrolment": "verified"}
LIMIT = 1.1
LONG = 7200.0
KEPT = Path(__file__).parent / "results" / "noise_people.json"


def processor_seconds(process: int) -> float:
    """Return the processor seconds of another process so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def decode_terms_once() -> None:
    """Let all devices of this process share the terms that they decode."""
    decode, agree = CountTerms.decode.__func__, CountTerms.protocol_terms
    agreed = lru_cache(maxsize=4)(agree)

    def protocol_terms(
        terms: CountTerms, policy: object = None, limit: PrivacyLimit = DEFAULT_LIMIT
    ) -> object:
        return agreed(terms, None, limit) if policy is None else agree(terms, policy, limit)

    CountTerms.decode = classmethod(lru_cache(maxsize=4)(decode))  # type: ignore[method-assign]
    CountTerms.protocol_terms = protocol_terms  # type: ignore[method-assign]


class Crowd:
    """Devices of all people, in turns."""

    def __init__(self, files: dict[str, Path], records: list[dict[str, int]], threads: int) -> None:
        self.sent = self.received = 0
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._devices = [
            self._device(path, record) for path, record in zip(files.values(), records, strict=True)
        ]
        parts = [self._devices[i::threads] for i in range(threads)]
        for part in parts:
            shared = part[0].admission.client()
            shared.exchange = self._counted(shared.exchange)
            for device in part:
                device.http = shared
                while device._start() is None:  # noqa: SLF001
                    time.sleep(0.05)
        self._threads = [threading.Thread(target=self._live, args=(part,), daemon=True) for part in parts]

    def start(self) -> None:
        """Let all devices answer."""
        self.sent = self.received = 0
        for thread in self._threads:
            thread.start()

    def _device(self, path: Path, record: dict[str, int]) -> Device:
        person = PersonFile(path)
        return Device(person, person.admission(), record, limit=parse_limit("5%:50%,delta=1e-6"))

    def _counted(self, exchange: Callable[..., bytes]) -> Callable[..., bytes]:
        def counted(place: str, body: bytes, **options: object) -> bytes:
            reply = exchange(place, body, **options)
            with self._lock:
                self.sent, self.received = self.sent + len(body), self.received + len(reply)
            return reply

        return counted

    def _live(self, devices: list[Device]) -> None:
        while not self._stop.is_set():
            for device in devices:
                if self._stop.is_set():
                    return
                try:
                    device.step()
                except MasqueradeError:
                    time.sleep(0.05)

    def end(self) -> None:
        """Stop all devices."""
        self._stop.set()
        for thread in self._threads:
            thread.join(LONG)
        for device in self._devices:
            device.http.close()
            device.person.close()


def measure(people: int, threads: int, noise: dict[str, object] | None) -> dict[str, float]:
    """Return the seconds and bytes of one count."""
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
            names = files["names"].read_text(encoding="utf-8").split()
            made = enrol(names, load(files["office"], CountOfficeSettings), folder / "people", wait=LONG)
            source = mq.people.count(files["miner"], wait=LONG)
            crowd = Crowd(made, records, threads)
            crowd.start()
            usage = resource.getrusage(resource.RUSAGE_SELF)
            before = usage.ru_utime + usage.ru_stime, processor_seconds(miner.pid), time.time()
            [table] = source.answer([mq.Query(by="cell")])
            usage = resource.getrusage(resource.RUSAGE_SELF)
            after = usage.ru_utime + usage.ru_stime, processor_seconds(miner.pid), time.time()
            sent, received = crowd.sent, crowd.received
            crowd.end()
        finally:
            miner.kill()
            miner.wait()
    exact = np.bincount([record["cell"] for record in records], minlength=COUNTS)
    assert table.n == people
    assert (noise is not None) == bool(np.any(table.values != exact))
    seconds = [b - a for a, b in zip(before, after, strict=True)]
    return {
        "devices, processor seconds": seconds[0],
        "miner, processor seconds": seconds[1],
        "seconds": seconds[2],
        "bytes sent by a person": sent / people,
        "bytes received by a person": received / people,
    }


def main() -> None:
    """Measure both, alternating, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=Path, default=KEPT)
    options = parser.parse_args()
    decode_terms_once()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * options.people + 2000,) * 2)
    runs: dict[str, list[dict[str, float]]] = {"without": [], "with noise": []}
    for _ in range(options.repeats):
        for name, noise in (("without", None), ("with noise", NOISE)):
            runs[name].append(measure(options.people, options.threads, noise))
            print(name, runs[name][-1], flush=True)
    medians = {
        name: {key: float(np.median([run[key] for run in some])) for key in some[0]}
        for name, some in runs.items()
    }
    ratios = {key: medians["with noise"][key] / value for key, value in medians["without"].items()}
    print(ratios)
    kept = {"counts": COUNTS, "limit": LIMIT, "people": {}}
    if options.json.exists():
        kept = json.loads(options.json.read_text(encoding="utf-8"))
    kept["people"][str(options.people)] = {"repeats": options.repeats, "medians": medians, "ratios": ratios}
    options.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
