"""Organisations as processes of their own, from the commands, with a miner and without; one is killed.

What happens at every other place where a node can stop is in tests/services/parties; that Model I's errors
are on average no larger than Model II's is in tests/unit/protocols/vertical.
"""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
import yaml
from tests.e2e.test_cli_app import ok, refused

import masquerade as mq
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes
from masquerade.protocols.vertical.disguised_cells import cross_parents
from masquerade.services.common.client import Operator
from masquerade.services.common.settings import load
from masquerade.services.parties.example import OWNERS
from masquerade.services.parties.kinds import BUILT_IN
from masquerade.services.parties.settings import MinerSettings

COMMAND = str(Path(sys.executable).parent / "masquerade")
SECONDS = 600  # for a start on a busy machine
PEOPLE = 2500  # linking so many takes long enough to be seen
FEWER = 400


class World:
    """The folder of a deployment and the processes of its nodes."""

    def __init__(self, folder):
        self.folder, self.processes = folder, {}
        self.miner = self.file("university")

    def file(self, name):
        return self.folder / name / ("miner.yaml" if name in {"university", "helper"} else "party.yaml")

    def start(self, name):
        """Start a node."""
        kind = self.file(name).stem
        log = (self.folder / f"{name}.log").open("ab")
        process = subprocess.Popen(  # noqa: S603  (our own command)
            [COMMAND, kind, "serve", str(self.file(name))], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        log.close()
        self.processes[name] = process

    def wait(self, name):
        """Wait until a node says that it is ready."""
        process = self.processes[name]
        address, until = self.folder / name / "state" / "address", time.monotonic() + SECONDS
        while not address.exists() or not self.answers(name):
            assert process.poll() is None, self.log(name)
            assert time.monotonic() < until
            time.sleep(0.05)

    def answers(self, name):
        """Tell whether a node says that it is ready."""
        port = yaml.safe_load(self.file(name).read_text())["listen"]["port"]
        tls = self.folder / "tls"
        try:
            found = httpx.get(f"https://127.0.0.1:{port}/ready", verify=context(tls), trust_env=False)
        except httpx.TransportError:
            return False
        return found.json() == {"ready": True}

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def step(self):
        """Return what the session is doing."""
        with Operator(load(self.miner, MinerSettings, environment={})) as operator:
            status = operator.ask("status", {"session": "example"})
        return status["state"], status["step"]


def context(tls):
    """Return how to speak to nodes as the university."""
    found = ssl.create_default_context(cafile=str(tls / "ca.pem"))
    found.load_cert_chain(tls / "university.pem", tls / "university.key")
    return found


@contextmanager
def running(folder, *arguments):
    """Write a deployment with the command and start all of its nodes."""
    shown = ok("session", "example", folder, *arguments).stdout
    names = [Path(line.split()[3]).parent.name for line in shown.splitlines() if " serve " in line]
    with processes(World(folder)) as world:
        for name in names:
            world.start(name)
        for name in names:
            world.wait(name)
        yield world


@contextmanager
def processes(world):
    """End the processes of a deployment, whatever happens."""
    try:
        yield world
    finally:
        for process in world.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def test_a_party_is_killed_and_the_session_ends_well(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running(tmp_path / "try", "--n", PEOPLE) as world:
        created = ok("session", "create", world.folder / "session.yaml", "--node", world.miner).stdout
        assert "is created; digest to name in consents:" in created
        assert "created" in ok("session", "status", "--node", world.miner).stdout

        run = subprocess.Popen(  # noqa: S603  (our own command)
            [COMMAND, "session", "run", "example", "--node", str(world.miner)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until = time.monotonic() + SECONDS
        while world.step() != ("running", "linking"):
            assert time.monotonic() < until
            time.sleep(0.02)
        killed = world.processes["south"]
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        said = run.communicate(timeout=SECONDS)
        assert run.returncode == 1, said
        assert "was interrupted: Party 'south'" in said[1]
        assert "resume it: masquerade session run example --node" in said[1]
        assert "interrupted" in ok("session", "status", "example", "--node", world.miner).stdout

        world.start("south")
        world.wait("south")
        model = tmp_path / "model.json"
        done = ok("session", "run", "example", "--node", world.miner, "--out", model).stdout
        assert "done in" in done
        assert "university learnt disguised values of A: γ = 3" in done
        learnt = mq.learn.BayesianNetwork.from_dict(json.loads(model.read_text()))
        assert {name: set(parents) for name, parents in learnt.structure.items()} == {
            name: set(parents) for name, parents in ELEVEN_NODES.items()
        }
        # S is in clear: 6 standard errors of a share of PEOPLE/2 records or more
        share = float(learnt["S"].probabilities.ravel()[0])
        assert abs(share - eleven_nodes()["S"].probabilities.ravel()[0]) < 6 * 0.5 / (PEOPLE / 2) ** 0.5

        for name in ("north", "south", "registry"):
            state = world.folder / name / "state"
            assert json.loads((state / "models" / "example.json").read_text()) == json.loads(
                model.read_text()
            )
            verified = ok("party", "ledger", state, "verify").stdout
            assert "intact" in verified
            listed = json.loads(ok("party", "ledger", state, "--json").stdout)["releases"]
            assert {entry["recipient"] for entry in listed} == {"university"}
            drawn = [(entry["kind"], *entry["variables"]) for entry in listed if entry["policy"]]
            assert len(drawn) == len(set(drawn))  # nothing was disguised twice

        port = yaml.safe_load(world.file("north").read_text())["listen"]["port"]
        measured = httpx.get(
            f"https://127.0.0.1:{port}/metrics",
            verify=context(world.folder / "tls"),
            trust_env=False,
            timeout=SECONDS,
        ).text
        assert 'place="sessions/{session}/{role}"' in measured

        for process in world.processes.values():
            process.send_signal(signal.SIGTERM)
        assert [process.wait(SECONDS) for process in world.processes.values()] == [0] * 4
        assert not list(world.folder.glob("*/state/address"))
        for name in world.processes:
            lines = [line for line in world.log(name).splitlines() if not line.startswith("{")]
            said = ("listens at https://127.0.0.1:", "of its release ledger")
            assert all(any(part in line for part in said) for line in lines), lines
            assert "P000" not in world.log(name)  # no key of a record


def test_without_a_miner_parties_learn_the_network_from_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running(tmp_path / "try", "--protocol", "vertical-without-miner", "--n", FEWER) as world:
        ok("session", "create", world.folder / "session.yaml", "--node", world.miner)
        model = tmp_path / "model.json"
        ok("session", "run", "example", "--node", world.miner, "--out", model)
        learnt = mq.learn.BayesianNetwork.from_dict(json.loads(model.read_text()))
        clear = mq.learn.bayesian_network(mq.tally(joined(world), schema=eleven_nodes().schema), ELEVEN_NODES)
        exact = {
            name
            for name in ELEVEN_NODES
            if np.allclose(learnt[name].probabilities, clear[name].probabilities)
        }
        # the nodes whose parents are at their own party; of others an estimate near 0 or 1 may be exact by
        # chance, and what crossed between parties is compared below
        assert exact >= {"A", "T", "S", "L", "B", "G"}
        assert exact != set(ELEVEN_NODES)
        crossed = {
            (sender, entry["recipient"], *entry["variables"])
            for sender in OWNERS
            for entry in json.loads(ok("party", "ledger", world.folder / sender / "state", "--json").stdout)[
                "releases"
            ]
            if entry["recipient"] in OWNERS and entry["policy"]
        }
        needed = {
            (sender, recipient, name)
            for (sender, recipient), names in cross_parents(ELEVEN_NODES, OWNERS).items()
            for name in names
        }
        assert crossed == needed


def joined(world):
    """Return the clear records that all three have, side by side."""
    frames = [pd.read_parquet(world.folder / name / "records.parquet").set_index("person") for name in OWNERS]
    return pd.concat(frames, axis=1, join="inner")


@pytest.mark.parametrize("protocol", BUILT_IN)
def test_there_is_an_example_of_every_kind(protocol, tmp_path):
    folder = tmp_path / "try"
    lines = ok("session", "example", folder, "--protocol", protocol, "--n", 20).stdout.splitlines()
    for line in lines[:-3]:
        ok("config", "check", line.split()[3], "--kind", line.split()[1])
    for line in lines[-3:-1]:  # sessions are created and run at whoever convenes
        session = yaml.safe_load((folder / "session.yaml").read_text())
        assert Path(line.split()[line.split().index("--node") + 1]).parent.name == session["convener"]


def test_a_node_that_does_not_run_is_missed(tmp_path):
    ok("session", "example", tmp_path / "try", "--n", 20)
    file = tmp_path / "try" / "university" / "miner.yaml"
    said = refused("session", "status", "--node", file, "--wait", 0)
    assert "is not running on this machine" in said
    (file.parent / "state").mkdir()
    (file.parent / "state" / "address").write_text(
        "https://127.0.0.1:9\n"
    )  # left there by one that was killed
    assert "gave no answer" in refused("session", "status", "--node", file, "--wait", 0)


def test_commands_wait_for_services_that_are_being_started(tmp_path):
    """Services are started only after a command has said that it waits for them."""
    folder, parties = tmp_path / "try", ("north", "south", "registry")
    ok("session", "example", folder, "--protocol", "pooled-counts", "--n", 60)
    with processes(World(folder)) as world:
        # commands wait, not the node, which would pause longer and longer
        world.miner.write_text(world.miner.read_text() + "retries: 1\n")
        for command, waited_for, started in (
            (("create", folder / "session.yaml"), ("university",), ("university",)),
            (("run", "example"), parties, parties),
        ):
            call = [COMMAND, "session", *command, "--node", world.miner, "--wait", SECONDS]
            with subprocess.Popen(  # noqa: S603  (our own command)
                [*map(str, call)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as process:
                told = process.stderr.readline()
                assert any(
                    f"waiting for '{name}' to start, {SECONDS} seconds at most" in told for name in waited_for
                )
                for name in started:
                    world.start(name)
                said = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, said
        assert "done in" in said[0]


@pytest.mark.parametrize("kind", ["party", "miner"])
def test_settings_are_checked_before_a_node_serves(tmp_path, kind):
    ok("session", "example", tmp_path / "try", "--n", 20)
    file = tmp_path / "try" / ("north" if kind == "party" else "university") / f"{kind}.yaml"
    assert "is valid" in ok("config", "check", file, "--kind", kind).stdout
    file.with_name("identity.key").chmod(0o644)
    assert "may be read by others" in refused(kind, "serve", file)
    assert "may be read by others" in refused("config", "check", file, "--kind", kind)
    file.write_text(file.read_text().replace("state: state", "state: state\nstates: state"))
    assert "states" in refused(kind, "serve", file)


def test_an_example_is_written_once(tmp_path):
    ok("session", "example", tmp_path / "try", "--n", 20)
    assert "exists already" in refused("session", "example", tmp_path / "try", "--n", 20)
    assert (tmp_path / "try" / "north" / "identity.key").stat().st_mode & 0o077 == 0


def test_a_file_is_checked_for_what_it_is(tmp_path):
    ok("session", "example", tmp_path / "try", "--n", 20)
    session = tmp_path / "try" / "session.yaml"
    assert ok("config", "check", session).stdout == f"{session} is valid for a session.\n"
    session.write_text(session.read_text().replace("convener:", "convner:"))
    assert "convener" in refused("config", "check", session)
    said = refused("party", "serve", tmp_path / "try" / "university" / "miner.yaml")
    assert "this is a file of type 'miner', not 'party'" in said
