"""People counted on their own devices: many device processes, and many simulated people of one load process.

First `--processes` people, a process each, are counted by the real miner over TLS, by frequency mining: the
memory of every device and of the miner, and that the counts are those of the clear records. Then
`--simulated` people of one load process send their records through a mix of real services, a few connections
at a time: requests a second, and the memory of the miner and the leaders. Seconds are of a machine that
others use as well.

    python -m benchmarks.people [--processes N] [--simulated N] [--connections N] [--json FILE]
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

import masquerade as mq
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.mixnet.roles import Respondent
from masquerade.services.common.client import HttpTransport, Operator
from masquerade.services.common.settings import load
from masquerade.services.counting.example import example_records, write_count
from masquerade.services.counting.messages import ASK_LETTER, DeviceReply, DeviceRequest, Letter
from masquerade.services.counting.office import enrol
from masquerade.services.counting.person_file import Admission
from masquerade.services.counting.settings import CountMinerSettings, CountOfficeSettings

LONG = 3600.0
MOST_DEVICE_KILOBYTES = 40 * 1024


def kilobytes(process):
    """Return the most kilobytes that a process had."""
    text = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(text.split("VmHWM:")[1].split()[0])


def started(folder, *arguments):
    """Start a process of ours, its output in a file."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen([sys.executable, "-P", "-m", *arguments], stdout=log, stderr=log)  # noqa: S603


def serving(files, folder):
    """Start the miner and the leaders of a count."""
    roles = [role for role in files if role == "miner" or role.startswith("leader")]
    return {role: started(folder, "masquerade", "count", "serve", str(files[role])) for role in roles}


def device_processes(number):
    """Return what so many devices took to answer one round, a process each."""
    with tempfile.TemporaryDirectory() as made:
        folder, records = Path(made) / "count", example_records(number)
        files = write_count(folder, protocol="frequency", records=records, patience=LONG)
        servers, devices = serving(files, folder), []
        try:
            office = load(files["office"], CountOfficeSettings)
            people = enrol(files["names"].read_text().split(), office, folder / "people", wait=LONG)
            for name, file in people.items():
                options = {"file": str(file), "record": str(files["records"] / f"{name}.json"), "json": True}
                devices.append(started(folder, "masquerade.services.counting", json.dumps(options)))
            began = time.perf_counter()
            query = [mq.Query(by=("smoker", "illness"))]
            [table] = mq.people.count(files["miner"], wait=LONG).answer(query)
            seconds = time.perf_counter() - began
            [clear] = mq.tally(pd.DataFrame(records), mq.Policy.load(folder / "policy.yaml")).answer(query)
            memory = [kilobytes(device.pid) for device in devices]
            return {
                "processes": number,
                "seconds of a round, their start included": round(seconds, 1),
                "equal to the clear counts": bool((table.values == clear.values).all()),
                "most kilobytes of a device": max(memory),
                "kilobytes of the miner": kilobytes(servers["miner"].pid),
            }
        finally:
            for process in [*devices, *servers.values()]:
                process.kill()
                process.wait()


class Load:
    """People in this process who send their records through a mix, some connections at a time."""

    def __init__(self, terms, keys, records, admission):
        self.agreed, self.form, self.digest = terms.protocol_terms(), terms.report_form, terms.digest
        self.keys, self.records, self.admission = keys, records, admission
        self.left, self.requests, self.lock = iter(list(keys)), 0, threading.Lock()

    def run(self, connections):
        """Send everybody's record; return the seconds."""
        began = time.perf_counter()
        threads = [threading.Thread(target=self._some) for _ in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began

    def _some(self):
        with self.admission.client(patience=LONG) as http:
            while True:
                with self.lock:
                    name = next(self.left, None)
                if name is None:
                    return
                said = DeviceRequest.make(ASK_LETTER, name, self.digest, self.keys[name]).encode()
                while (letter := Letter.decode(http.exchange(ASK_LETTER, said, once=False))).kind == "wait":
                    time.sleep(letter.pause / 1000)
                codes = self.form.codes(self.records[name])
                person = Respondent(name, self.keys[name], self.agreed)
                sent = person.report(letter.content, codes, self.form)
                reply = DeviceReply.make(name, letter.id, sent, self.digest, self.keys[name])
                http.exchange("replies", reply.encode())
                with self.lock:
                    self.requests += 2


def simulated(number, connections):
    """Return what so many people of one process took to go through a mix of real services."""
    with tempfile.TemporaryDirectory() as made:
        folder, records = Path(made) / "count", example_records(number)
        files = write_count(folder, protocol="mix", records=records[:1])
        names = [f"P{i + 1:05d}" for i in range(number)]
        keys = {name: SigningKey() for name in names}
        servers = serving(files, folder)
        try:
            office = load(files["office"], CountOfficeSettings)
            terms = office.description().terms({name: key.public for name, key in keys.items()})
            peers = [office.miner.peer("the miner"), *[p.peer(name) for name, p in office.leaders.items()]]
            with HttpTransport("office", peers, tls=office.tls.files(), retries=20) as http:
                for peer in reversed(peers):
                    http.exchange(peer.name, terms.encode(), place="enrol")
            authority = office.tls.authority.read_text(encoding="ascii")
            miner = Admission("load", office.miner.url, office.miner.fingerprints, authority, "")
            load_process = Load(terms, keys, dict(zip(names, records, strict=True)), miner)
            seconds = load_process.run(connections)
            began = time.perf_counter()
            with Operator(load(files["miner"], CountMinerSettings), wait=LONG) as operator:
                closed = operator.ask("close", {})
            opening = time.perf_counter() - began
            source = mq.people.count(files["miner"], wait=LONG)
            query = [mq.Query(by=("smoker", "illness"))]
            [table] = source.answer(query)
            policy = mq.Policy.load(folder / "policy.yaml")
            [clear] = mq.tally(pd.DataFrame(records), policy).answer(query)
            return {
                "simulated": number,
                "connections": connections,
                "requests": load_process.requests,
                "seconds of sending": round(seconds, 1),
                "requests a second": round(load_process.requests / seconds, 1),
                "seconds of shuffling and opening": round(opening, 1),
                "records": closed["records"],
                "equal to the clear counts": bool((table.values == clear.values).all()),
                "kilobytes": {role: kilobytes(process.pid) for role, process in servers.items()},
            }
        finally:
            for process in servers.values():
                process.kill()
                process.wait()


def main():
    """Run both, and print or keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=200)
    parser.add_argument("--simulated", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": [round(one, 1) for one in os.getloadavg()],
        "most kilobytes of a device": MOST_DEVICE_KILOBYTES,
    }
    if given.processes:
        results["devices"] = device_processes(given.processes)
        print(json.dumps(results["devices"], indent=2))
    if given.simulated:
        results["mix"] = simulated(given.simulated, given.connections)
        print(json.dumps(results["mix"], indent=2))
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
