"""Model II between real processes on this machine: three parties with five columns each, one miner.

Every node is its own process, speaks HTTPS with mutual TLS, keeps its state on the disk and its ledger.
Parties link by a key that they share; the miner joins disguised records part by part and learns naive Bayes.

python -m benchmarks.parties_network [--rows N] [--json FILE]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks.timing import keep

from masquerade.channels.policy import Policy
from masquerade.services.parties.example import DeploymentPlan, write_deployment
from masquerade.services.parties.session import LearningGoal

PARTIES = ("north", "south", "registry")
COLUMNS = 5


def plan(rows):
    """Return three parties with five columns of three categories each, of the same people."""
    frames, policies = {}, {}
    for place, party in enumerate(PARTIES):
        generator = np.random.default_rng(place)
        names = [f"{party}_{i}" for i in range(COLUMNS)]
        frame = pd.DataFrame({name: generator.integers(0, 3, rows, dtype=np.int8) for name in names})
        frame.insert(0, "person", generator.permutation(rows))
        frames[party] = [frame]
        channel = {"kind": "symmetric", "p": "0.3"}
        policies[party] = Policy.from_dict(
            {
                "masquerade": 1,
                "variables": {name: {"categories": [0, 1, 2], "channel": channel} for name in names},
            }
        )
    goal = LearningGoal(model="naive-bayes", target="north_0")
    return DeploymentPlan("vertical-with-miner", frames, policies, "person", goal, "keyed")


def peak(process):
    """Return the most memory that a process had, in MiB."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def worked(process):
    """Return the seconds of the processor that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def held(made):
    """Hold a session between processes; return its status, its seconds, and work and memory by node."""
    with tempfile.TemporaryDirectory() as folder:
        files = write_deployment(Path(folder) / "nodes", made)
        command = [sys.executable, "-m", "masquerade"]
        nodes = {
            name: subprocess.Popen(  # noqa: S603
                [*command, "miner" if file.name == "miner.yaml" else "party", "serve", str(file)],
                stderr=subprocess.DEVNULL,
                env={**os.environ, "MASQUERADE_LIMITS__SECONDS": "1800"},
            )
            for name, file in files.items()
        }
        try:
            at = ["--node", str(files["university"])]
            subprocess.run(  # noqa: S603
                [*command, "session", "create", str(Path(folder) / "nodes" / "session.yaml"), *at], check=True
            )
            before = {name: worked(node) for name, node in nodes.items()}
            started = time.perf_counter()
            done = subprocess.run(  # noqa: S603
                [*command, "session", "run", "example", *at, "--json"], check=True, capture_output=True
            )
            seconds = time.perf_counter() - started
            spent = {name: worked(node) - before[name] for name, node in nodes.items()}
            memory = {name: peak(node) for name, node in nodes.items()}
            model = files["university"].parent / "state" / "models" / "example.json"
            return json.loads(done.stdout) | {"model": json.loads(model.read_text())}, seconds, spent, memory
        finally:
            for node in nodes.values():
                node.send_signal(signal.SIGTERM)
            for node in nodes.values():
                node.wait(60)


def measured(rows):
    """Run one session and return its seconds, and everybody's work and memory."""
    status, seconds, spent, memory = held(plan(rows))
    return {
        "rows": rows,
        "records": status["records"],
        "seconds": round(seconds, 1),
        "cpu_seconds_of_the_miner": round(spent["university"], 1),
        "cpu_seconds_of_a_party": [round(spent[party], 1) for party in PARTIES],
        "miner_mib": round(memory["university"]),
        "largest_party_mib": round(max(memory[party] for party in PARTIES)),
    }


def main():
    """Measure a hundredth of the rows, a tenth and all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = []
    for rows in (given.rows // 100, given.rows // 10, given.rows):
        busy = os.getloadavg()[0]
        found.append({**measured(rows), "load_of_the_machine_before": round(busy, 1)})
        print(found[-1], flush=True)
    keep(given.json, {"model_two_over_the_network": found})


if __name__ == "__main__":
    main()
