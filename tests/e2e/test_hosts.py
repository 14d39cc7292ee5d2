"""Organisations on machines of their own: four network namespaces with a switch in a fifth, and no way out.

Each machine has a folder that `session example --hosts` wrote, and nothing of the others. A process is killed
and a link is cut in the middle of the session.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from tests.e2e.test_cli_app import ok

COMMAND = str(Path(sys.executable).parent / "masquerade")
HOSTS = {"north": "10.77.0.1", "south": "10.77.0.2", "registry": "10.77.0.3", "university": "10.77.0.4"}
SECONDS = 600  # for a start on a busy machine
PEOPLE = 1500  # linking so many takes long enough to be interrupted
MOST_STATUS_REQUESTS = 20


def ip(*words):
    """Run `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True)  # noqa: S603, S607


@contextmanager
def machines(names):
    """Make a network namespace for each name, with addresses only there; give the namespaces by name."""
    mark = f"mq{os.getpid()}"
    switch, spaces, made = f"{mark}-switch", {name: f"{mark}-{name}" for name in names}, []
    try:
        ip("netns", "add", switch)
        made.append(switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for i, (name, space) in enumerate(spaces.items()):
            ip("netns", "add", space)
            made.append(space)
            ip("link", "add", "e0", "netns", space, "type", "veth", "peer", "name", f"v{i}", "netns", switch)
            ip("-n", switch, "link", "set", f"v{i}", "master", "br0", "up")
            ip("-n", space, "addr", "add", f"{names[name]}/24", "dev", "e0")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "set", "e0", "up")
        yield spaces
    finally:
        for space in made:
            ip("netns", "del", space)


class World:
    """The folders of machines, their namespaces, and the processes in them."""

    def __init__(self, folder, spaces):
        self.folder, self.spaces, self.processes = folder, spaces, {}

    def file(self, name):
        return self.folder / name / ("miner.yaml" if name == "university" else "party.yaml")

    def at(self, name, *words):
        """Return the words of a command that runs on a machine."""
        return ["ip", "netns", "exec", self.spaces[name], *map(str, words)]

    def start(self, name):
        log = (self.folder / f"{name}.log").open("ab")
        words = self.at(name, COMMAND, self.file(name).stem, "serve", self.file(name))
        self.processes[name] = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603
        log.close()
        self.until((self.folder / name / "state" / "address").exists, name)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def until(self, condition, name="university"):
        """Wait for a condition while a node runs."""
        limit = time.monotonic() + SECONDS
        while not condition():
            assert self.processes[name].poll() is None, self.log(name)
            assert time.monotonic() < limit
            time.sleep(0.02)

    def answered(self, name, role):
        """Return the number of messages of a role that a node has answered."""
        return self.log(name).count(f'"place":"sessions/example/{role}"')

    def run(self):
        """Run the session at the university, or resume it."""
        words = self.at("university", COMMAND, "session", "run", "example", "--node", self.file("university"))
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603

    def end(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def probe(world, name):
    """Return what a probe without a certificate gets, on the machine of a node."""
    settings = yaml.safe_load(world.file(name).read_text())["listen"]["probe"]
    url = f"http://{settings['host']}:{settings['port']}/ready"
    words = world.at(
        name, sys.executable, "-c", f"import {urllib.request.__name__} as u; print(u.urlopen({url!r}).read())"
    )
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout  # noqa: S603


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("ip") is None,
    reason="only root makes network namespaces",
)
def test_four_machines_a_kill_and_a_cut_link(tmp_path):
    folder = tmp_path / "try"
    named = ",".join(f"{name}={address}" for name, address in HOSTS.items())
    ok("session", "example", folder, "--n", PEOPLE, "--hosts", named)
    shutil.rmtree(folder / "tls")  # no machine has the authority's key
    for file in folder.glob("*/*.yaml"):
        if file.name in {"party.yaml", "miner.yaml"}:
            values = yaml.safe_load(file.read_text()) | {"retries": 1, "limits": {"seconds": 20}}
            file.write_text(yaml.safe_dump(values))
    with machines(HOSTS) as spaces:
        world = World(folder, spaces)
        try:
            for name in HOSTS:
                world.start(name)
            assert "true" in probe(world, "north")
            created = world.at(
                "university", COMMAND, "session", "create", folder / "session.yaml",
                "--node", world.file("university"),
            )  # fmt: skip
            subprocess.run(created, check=True, capture_output=True)  # noqa: S603

            run = world.run()
            world.until(lambda: world.answered("south", "linking") >= 1)
            killed = world.processes["south"]
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            said = run.communicate(timeout=SECONDS)
            assert run.returncode == 1, said
            assert "was interrupted: Party 'south'" in said[1]
            assert "resume it" in said[1]
            (folder / "south" / "state" / "address").unlink()
            world.start("south")

            before = world.answered("north", "linking")
            run = world.run()
            world.until(lambda: world.answered("north", "linking") > before)
            ip("-n", spaces["north"], "link", "set", "e0", "down")
            said = run.communicate(timeout=SECONDS)
            assert run.returncode == 1, said
            assert "was interrupted: Party 'north'" in said[1]
            assert all(process.poll() is None for process in world.processes.values())
            ip("-n", spaces["north"], "link", "set", "e0", "up")

            said = (run := world.run()).communicate(timeout=SECONDS)
            assert run.returncode == 0, said
            assert "done in" in said[0]
            requests = world.log("university").count('"place":"operate/status"')
            assert requests <= MOST_STATUS_REQUESTS, requests
        finally:
            world.end()
    models = {
        (folder / name / "state" / "models" / "example.json").read_text()
        for name in HOSTS
        if name != "university"
    }
    assert len(models) == 1
    for name in ("north", "south", "registry"):
        state = folder / name / "state"
        assert "intact" in ok("party", "ledger", state, "verify").stdout
        listed = json.loads(ok("party", "ledger", state, "--json").stdout)["releases"]
        drawn = [(entry["kind"], *entry["variables"]) for entry in listed if entry["policy"]]
        assert drawn
        assert len(drawn) == len(set(drawn))  # nothing disguised left twice
        assert {entry["recipient"] for entry in listed} == {"university"}
