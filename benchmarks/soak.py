"""Sessions one after the other, while processes are killed and disks are full.

Three parties and a miner, each a process of its own behind mutual TLS. Before most sessions a fault is drawn:
a process is killed at one of its messages, before or after it is worked on (the reply is then lost), at one
of the convener's steps, at a random moment, or while it is being started; or the files of a node cannot grow
for a while (a limit on the size of files, which fails every write beyond it as a full disk does). Whatever
broke is started again and the session is resumed, until it is done or refused with a message. In the end some
sessions run without faults, to see whether processes grow.

What must hold: every session ends in a model, or is refused with a message; sessions of the same text come to
the very same model, which a value drawn a second time would change; every party has one memo and, for each
policy, one draw in its ledger, and what recipients could learn after all sessions is what they could after
one.

python -m benchmarks.soak [--sessions N] [--quiet N] [--seed N] [--minutes N] [--json FILE]

A file that has the figures of other seeds keeps them.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import yaml
from benchmarks.timing import keep

from masquerade.core.errors import MasqueradeError
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes, eleven_nodes_policy
from masquerade.disguising.memo import Memo
from masquerade.services.common.client import Operator
from masquerade.services.common.ledger_totals import spending
from masquerade.services.common.release_ledger import RESTORED, inspect
from masquerade.services.common.settings import load
from masquerade.services.parties.example import MINER, OWNERS, split_columns, write_deployment
from masquerade.services.parties.node import Node
from masquerade.services.parties.session import LearningGoal, SessionSpec
from masquerade.services.parties.settings import MinerSettings, PartySettings, consent_values

PEOPLE = 25
KILL_BEFORE, KILL_AFTER, KILL_STEP, FULL = "killed before", "killed after", "killed at a step", "full disk"
KILL_ANY, KILL_START = "killed at any moment", "killed while starting"
FAULTS = (KILL_BEFORE, KILL_AFTER, KILL_STEP, FULL, KILL_ANY, KILL_START)
FULL_SIZES = (0, 4096, 65536)  # bytes beyond which no file grows
SHARE_OF_FAULTS = 0.9
MOST_TRIES = 12
SECONDS = 600.0
TEXTS = {  # what sessions are like, in turn
    "joined": (
        "vertical-with-miner",
        "intersection",
        LearningGoal(model="tables", tables=(("S", "T", "G"),)),
    ),
    "keyed": ("vertical-with-miner", "keyed", LearningGoal(model="tables", tables=(("A", "L"), ("X", "D")))),
    "own nodes": ("vertical-without-miner", "keyed", LearningGoal(model="network", structure=ELEVEN_NODES)),
}


@dataclass(frozen=True)
class Fault:
    """What befalls a node in a session, at a message or step; a full disk `lasts` for some of them."""

    node: str
    kind: str
    at: int = 0
    size: int = 0
    lasts: int = 0
    seconds: float = 0.0


class FaultyNode(Node):
    """A node that does to itself what a file tells it, once."""

    def __init__(self, settings, fault_file):
        self._fault_file, self._seen, self._full_until = fault_file, Counter(), None
        super().__init__(settings)

    def handle(self, call):
        """Answer a message, unless the process ends before or after it."""
        if not self._fault_file.exists():
            self._write_up_to(resource.RLIM_INFINITY)  # there is room again
        fault = None if "session" not in call.parameters else self._due("message")
        if fault is not None and fault["kind"] == KILL_BEFORE:
            os.kill(os.getpid(), signal.SIGKILL)
        reply = super().handle(call)
        if fault is not None and fault["kind"] == KILL_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    def note(self, name, step):
        """Note a step of a session that this node convenes, unless the process ends there."""
        fault = self._due("step")
        if fault is not None and fault["kind"] == KILL_STEP:
            os.kill(os.getpid(), signal.SIGKILL)
        super().note(name, step)

    def _due(self, what):
        """Return the fault that is due now, if one is."""
        try:
            fault = json.loads(self._fault_file.read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return None
        number = self._seen[what, fault["id"]]
        self._seen[what, fault["id"]] += 1
        if fault["kind"] == FULL and what == ("step" if self.settings.name == MINER else "message"):
            full = fault["at"] <= number < fault["at"] + fault["lasts"]
            self._write_up_to(fault["size"] if full else resource.RLIM_INFINITY)
        return fault if number == fault["at"] else None

    @staticmethod
    def _write_up_to(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def serve(file, fault_file):
    """Be a node until the end."""
    with Path(os.devnull).open("w", encoding="ascii") as nothing:
        os.dup2(nothing.fileno(), 2)
    FaultyNode(settings_of(Path(file)), Path(fault_file)).serve(lambda _line: None)


@cache
def settings_of(file):
    """Return the settings of a node, which list all sessions: reading them takes a while."""
    return load(file, MinerSettings if file.name == "miner.yaml" else PartySettings, environment={})


class Deployment:
    """Three parties and a miner, each a process that may be killed and started again."""

    def __init__(self, folder, sessions):
        plan = split_columns(
            eleven_nodes().sample(PEOPLE, seed=1),
            eleven_nodes_policy(),
            OWNERS,
            "vertical-with-miner",
            TEXTS["keyed"][2],
            seed=1,
            linking="keyed",
        )
        self.folder, self.files = folder, write_deployment(folder / "nodes", plan)
        self.specs = [
            self._spec(number, *text) for number, text in zip(range(sessions), _in_turn(), strict=False)
        ]
        for name, file in self.files.items():
            values = yaml.safe_load(file.read_text()) | {"retries": 1}
            if name != MINER:
                [consent] = values["consents"]
                own = {"variables": consent["variables"], "clear": "accepted"}  # made-up people
                values["consents"] = [consent_values(spec) | own for _, spec in self.specs]
            file.write_text(yaml.safe_dump(values))
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["benchmarks.soak"])
        self.processes, self.starts, self.killed = {}, Counter(), Counter()

    @staticmethod
    def _spec(number, kind, protocol, linking, goal):
        text = {"session": f"s{number:04d}", "protocol": protocol, "parties": tuple(OWNERS)}
        more = {"convener": MINER, "linking": linking, "learn": goal.model_dump(exclude_defaults=True)}
        return kind, SessionSpec.model_validate(text | more)

    def fault_file(self, name):
        """Return where a node looks for what is to befall it."""
        return self.folder / f"{name}.fault"

    def start(self, name):
        """Start a node, and wait until it says where it listens or has ended."""
        file = self.files[name]
        address = settings_of(file).address_file
        address.unlink(missing_ok=True)
        process = self.context.Process(target=serve, args=(str(file), str(self.fault_file(name))))
        process.start()
        self.processes[name] = process
        self.starts[name] += 1

    def begin(self):
        """Start all nodes."""
        for name in self.files:
            self.start(name)
        self.mend()

    def listening(self, name):
        """Wait until a node listens; tell whether it does."""
        address, until = settings_of(self.files[name]).address_file, time.monotonic() + SECONDS
        while self.processes[name].is_alive() and time.monotonic() < until:
            if address.exists():
                return True
            time.sleep(0.005)
        return False

    def kill(self, name):
        """End a process as a power failure does."""
        process = self.processes[name]
        if process.is_alive():
            self.killed[name] += 1
            process.kill()
        process.join()

    def mend(self):
        """Give disks room, and start what has ended."""
        for name in self.files:
            self.fault_file(name).unlink(missing_ok=True)
        for name, process in self.processes.items():
            if not process.is_alive():
                process.join()
                self.start(name)
        for name in self.files:
            if not self.listening(name):
                raise RuntimeError(f"{name} does not start any more.")

    def stop(self):
        """End all processes in order."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.join()

    def sizes(self):
        """Return the open files, threads and resident MiB of every process, and which process that was."""
        found = {}
        for name, process in self.processes.items():
            place = Path(f"/proc/{process.pid}")
            status = dict(
                line.split(":\t", 1) for line in (place / "status").read_text().splitlines() if ":\t" in line
            )
            found[name] = {
                "process": self.starts[name],
                "files": len(list((place / "fd").iterdir())),
                "threads": int(status["Threads"]),
                "mib": round(int(status["VmRSS"].split()[0]) / 1024, 1),
            }
        return found


def _in_turn():
    while True:
        for kind, text in TEXTS.items():
            yield kind, *text


def drawn_fault(generator):
    """Return a fault for a session, or none."""
    if generator.random() > SHARE_OF_FAULTS:
        return None
    kind = generator.choice(FAULTS)
    node = MINER if kind == KILL_STEP else generator.choice((*OWNERS, MINER))
    if node == MINER and kind in {KILL_BEFORE, KILL_AFTER}:
        kind = KILL_STEP  # a miner asks, and is asked nothing
    return Fault(
        node,
        kind,
        at=generator.randrange(10 if kind != KILL_STEP else 5),
        size=generator.choice(FULL_SIZES),
        lasts=generator.randrange(1, 6),
        seconds=generator.uniform(0, 2),
    )


class Miner:
    """The miner as its operator sees it, over one connection until that fails."""

    def __init__(self, deployment):
        self._settings, self._operator = settings_of(deployment.files[MINER]), None

    def ask(self, what, **values):
        """Let the miner do something; where it is not there, or cannot, say why."""
        self._operator = self._operator or Operator(self._settings, wait=0.0)
        try:
            return self._operator.ask(what, values)
        except MasqueradeError as error:
            self.close()
            return {"state": "unanswered", "reason": str(error)}

    def close(self):
        """Let go of the connection."""
        if self._operator is not None:
            self._operator.__exit__()
        self._operator = None


def tried(deployment, miner, spec, fault):
    """Run or resume a session once, and return what the miner says of it in the end."""
    until = time.monotonic() + SECONDS
    said = miner.ask("create", spec=spec.model_dump(mode="json"))
    if said["state"] != "unanswered":
        said = miner.ask("run", session=spec.session)
    if fault is not None and fault.kind in {KILL_ANY, KILL_START}:
        if fault.kind == KILL_START:
            deployment.kill(fault.node)
            deployment.start(fault.node)
        time.sleep(fault.seconds)
        deployment.kill(fault.node)
    while said["state"] == "running":
        if time.monotonic() > until:
            raise RuntimeError(f"{spec.session} hangs: {said}")
        time.sleep(0.1)
        said = miner.ask("status", session=spec.session)
    return said


def soaked(deployment, kind, spec, fault):
    """Bring a session to its end, whatever happens, and return how that went."""
    if fault is not None and fault.kind not in {KILL_ANY, KILL_START}:
        told = json.dumps(asdict(fault) | {"id": spec.session})
        deployment.fault_file(fault.node).write_text(told, encoding="ascii")
    reasons, miner = [], Miner(deployment)
    began = time.perf_counter()
    for tries in range(1, MOST_TRIES + 1):
        said = tried(deployment, miner, spec, fault if tries == 1 else None)
        if said["state"] == "done":
            break
        reasons.append(said.get("reason") or "")
        if not reasons[-1]:
            raise RuntimeError(f"{spec.session} ended without a message: {said}")
        deployment.mend()
    deployment.mend()
    told = miner.ask("model", session=spec.session) if said["state"] == "done" else None
    miner.close()
    return {
        "kind": kind,
        "fault": None if fault is None else f"{fault.kind}: {fault.node}",
        "state": said["state"],
        "tries": tries,
        "reasons": reasons,
        "model": None
        if told is None
        else hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest(),
        "seconds": time.perf_counter() - began,
    }


def memo_of(deployment, party):
    """Return the name of a party's memo."""
    return Memo.load(settings_of(deployment.files[party]).state / "memo.json").id


def draws(deployment):
    """Return, by party, what its memo and its ledger say of draws."""
    found = {}
    for party in OWNERS:
        state = settings_of(deployment.files[party]).state
        entries, _ = inspect(state)
        by_policy = {}
        for release in (entry.release for entry in entries):
            if release.policy is not None:
                by_policy.setdefault((release.draw or "").partition(":")[2], set()).add(release.draw)
        memo = memo_of(deployment, party)
        spent = {
            (one.recipient, ",".join(one.variables)): one.gamma
            for one in spending(entry for entry in entries if entry.release.policy is not None)
        }
        policy_gammas = {}
        for entry in entries:
            if entry.release.policy is not None:
                of = (entry.release.recipient, ",".join(sorted(set(entry.release.variables))))
                policy_gammas.setdefault(of, entry.release.gamma)
        found[party] = {
            "memo": memo,
            "most_draws_of_a_policy": max(map(len, by_policy.values()), default=0),
            "draws_of_other_memos": sum(
                not draw.startswith(f"{memo}:") for draws in by_policy.values() for draw in draws
            ),
            "spent_more_than_once": sum(spent[of] != gamma for of, gamma in policy_gammas.items()),
            "restored_lines": sum(entry.release.kind == RESTORED for entry in entries),
            "releases": len(entries),
        }
    return found


def soak(folder, faults, tell=lambda _line: None, seconds=float("inf")):
    """Run a session for every fault, None being none, and return what was seen.

    After so many seconds no further fault is brought about, and the sessions without any come next.
    """
    until = time.monotonic() + seconds
    deployment = Deployment(Path(folder), len(faults))
    ended, sizes = [], []
    try:
        deployment.begin()
        memos = {party: memo_of(deployment, party) for party in OWNERS}
        for number, ((kind, spec), fault) in enumerate(zip(deployment.specs, faults, strict=True)):
            if fault is not None and time.monotonic() > until:
                continue
            ended.append(soaked(deployment, kind, spec, fault))
            sizes.append(deployment.sizes())
            tell(f"{number + 1}: {ended[-1]}")
    finally:
        deployment.stop()
    last = max((i for i, one in enumerate(ended) if one["fault"] is not None), default=-1)
    return {
        "sessions": len(ended),
        "with_faults": sum(one["fault"] is not None for one in ended),
        "faults": dict(Counter((one["fault"] or "none").partition(":")[0] for one in ended)),
        "states": dict(Counter(one["state"] for one in ended)),
        "resumed": sum(one["tries"] > 1 for one in ended),
        "most_tries": max(one["tries"] for one in ended),
        "unsaid": sum(one["state"] != "done" and not all(one["reasons"]) for one in ended),
        "models_by_text": {
            kind: len({one["model"] for one in ended if one["kind"] == kind and one["model"]})
            for kind in TEXTS
        },
        "memos_unchanged": all(memo_of(deployment, party) == memos[party] for party in OWNERS),
        "draws": draws(deployment),
        "starts": dict(deployment.starts),
        "growth": growth(sizes[last + 1 :]),
        "growth_of_long_lives": long_lives(sizes),
        "median_seconds": round(statistics.median(one["seconds"] for one in ended), 2),
        "refusals": sorted({reason for one in ended if one["state"] != "done" for reason in one["reasons"]}),
        "interruptions": Counter(
            re.sub(r"https://\S+", "…", reason)[:120] for one in ended for reason in one["reasons"]
        ).most_common(12),
    }


def growth(sizes):
    """Return how processes grew over the sessions without faults."""
    if len(sizes) < 3:
        return {}
    return {
        name: {"sessions": len(sizes), **_grown([one[name] for one in sizes]), "at_the_end": sizes[-1][name]}
        for name in sizes[-1]
    }


def long_lives(sizes):
    """Return how the process of every node grew that lived through most sessions, faults of others or not."""
    found = {}
    for name in sizes[-1]:
        lives = {}
        for one in sizes:
            lives.setdefault(one[name]["process"], []).append(one[name])
        longest = max(lives.values(), key=len)
        found[name] = {"sessions": len(longest), **_grown(longest)}
    return found


def _grown(life):
    """Return how the middle of the last third of some sizes differs from that of the second third."""
    third = max(len(life) // 3, 1)
    earlier, later = life[-2 * third : -third] or life[:1], life[-third:]
    return {
        what: round(
            statistics.median(one[what] for one in later) - statistics.median(one[what] for one in earlier), 1
        )
        for what in ("files", "threads", "mib")
    }


def main():
    """Soak, print every session, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--quiet", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        generator = random.Random(given.seed)  # noqa: S311  (which faults, nothing secret)
        faults = [drawn_fault(generator) for _ in range(given.sessions)] + [None] * given.quiet
        found = soak(folder, faults, lambda line: print(line, flush=True), 60 * given.minutes)
    found["minutes"] = round((time.perf_counter() - began) / 60, 1)
    print(json.dumps(found, indent=2))
    if given.json:
        kept = json.loads(given.json.read_text(encoding="utf-8")) if given.json.exists() else {}
        keep(given.json, kept | {f"seed {given.seed}": found})


if __name__ == "__main__":
    main()
