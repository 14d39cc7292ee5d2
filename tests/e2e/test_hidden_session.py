"""Computations on shares between processes of their own, over TLS; one is killed between two rounds."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.datasets import load_iris
from tests.e2e.test_cli_parties import SECONDS, World, processes
from tests.services.parties.deployments import waited

import masquerade as mq
from masquerade.learn.classifiers.label_tree import LabelTree
from masquerade.services.common.client import Operator
from masquerade.services.common.settings import load
from masquerade.services.common.state import peek_claims
from masquerade.services.parties.example import split_cells, split_columns, write_deployment
from masquerade.services.parties.session import LearningGoal, SessionSpec
from masquerade.services.parties.session_store import RUNS
from masquerade.services.parties.settings import MinerSettings, consent_values

OWNERS = {"north": ("asia", "smoke", "bronc", "xray"), "south": ("tub", "lung", "either", "dysp")}
PEOPLE = 400


def burnt(world, name):
    """Return how many computations a party has begun."""
    return len(peek_claims(world.folder / name / "state", RUNS))


def asia():
    """Return a session that finds asia's structure, and what its model must say."""
    network = mq.data.network("asia")
    order = tuple(network.structure)
    frame = network.sample(PEOPLE, seed=6)
    goal = LearningGoal(model="structure", order=order, max_parents=2, score="k2")
    policy = mq.Policy.clear(network.schema)
    source = mq.tally(frame, schema=network.schema)
    due = mq.learn.structure(source, order=order, max_parents=2, score="k2").structure

    def check(model):
        assert {x: set(given) for x, given in model["parents"].items()} == {x: set(y) for x, y in due.items()}

    return split_columns(frame, policy, OWNERS, "hidden-structure", goal, seed=1, linking="keyed"), check


def petals():
    """Return a session that finds clusters of cells that lie anywhere, and what its model must say."""
    numbers = load_iris().data[:, 2:]
    frame = pd.DataFrame(np.rint(4 * numbers).astype(int), columns=["length", "width"])
    schema = mq.Schema([mq.Variable(name, tuple(range(29))) for name in frame])
    start = [[5, 1], [18, 5], [22, 8]]
    goal = LearningGoal(model="k-means", k=3, names=tuple(frame), start=start)
    owners = {"north": ("length",), "south": ("width",)}
    plan = split_cells(frame, mq.Policy.clear(schema), owners, goal, seed=1)
    due = mq.learn.k_means(mq.tally(frame, schema=schema), 3, start=start)

    def check(model):
        found = mq.learn.Clusters.from_dict(model)
        assert np.allclose(found.centres, due.centres, rtol=0, atol=1e-12)
        assert np.allclose(found.shares, due.shares, rtol=0, atol=1e-12)

    terms = {"clusters": {"hide_steps": True, "steps": 6}}
    return replace(plan, protocol="hidden-k-means", linking="keyed", terms=terms), check


def with_tree(files, plan):
    """Let the nodes of asia's session consent to a tree of the same people; return it, and the clear one."""
    said = {"session": "tree", "protocol": "hidden-tree"}
    told = {"target": "dysp", "max_depth": 2, "min_records": 5}
    spec = load(files["university"].parent.parent / "session.yaml", SessionSpec, environment={})
    goal = LearningGoal(model="tree", significance=1, **told).model_dump(exclude_defaults=True)
    text = spec.model_dump(mode="json", exclude_defaults=True) | said | {"learn": goal}
    grown = SessionSpec.model_validate(text)
    for file in files.values():
        values = yaml.safe_load(file.read_text())
        given = values.get("consents", [])
        values["consents"] = [it for own in given for it in (own, own | consent_values(grown))]
        file.write_text(yaml.safe_dump(values))
    frame = pd.concat([own[0].set_index("person") for own in plan.frames.values()], axis=1)
    features = [name for names in OWNERS.values() for name in names if name != "dysp"]
    source = mq.tally(frame, schema=mq.data.network("asia").schema)
    due = mq.learn.decision_tree(source, features=features, significance=None, **told)
    return grown, LabelTree.of(due)


def give_way(world):
    """Lower the priority of the helper, which every round waits for: a run must be seen before it ends."""
    os.setpriority(os.PRIO_PROCESS, world.processes["helper"].pid, 10)


@pytest.mark.filterwarnings("ignore::masquerade.core.errors.MasqueradeWarning")
@pytest.mark.parametrize("made", [asia, pytest.param(petals, marks=pytest.mark.slow)])
def test_a_killed_party_ends_a_computation_between_processes_and_another_finds_what_is_clear(made, tmp_path):
    plan, check = made()
    files = write_deployment(tmp_path / "try", plan)
    files["university"].write_text(files["university"].read_text() + "retries: 1\n")
    for file in files.values():  # what is killed may have opened something by then
        values = yaml.safe_load(file.read_text())
        values["consents"] = [consent | {"openings": 3} for consent in values.get("consents", [])]
        file.write_text(yaml.safe_dump(values))
    tree, due = with_tree(files, plan) if made is asia else (None, None)
    with processes(World(tmp_path / "try")) as world, ExitStack() as stack:
        names = ("north", "south", "university", "helper")
        for name in names:
            world.start(name)
        for name in names:
            world.wait(name)
        give_way(world)
        operator = stack.enter_context(Operator(load(world.miner, MinerSettings, environment={})))
        spec = load(world.folder / "session.yaml", SessionSpec, environment={})
        operator.ask("create", {"spec": spec.model_dump(mode="json")})
        operator.ask("run", {"session": "example"})
        until = time.monotonic() + SECONDS
        while not burnt(world, "south"):  # on the disk before its first number leaves
            assert time.monotonic() < until
            time.sleep(0.002)
        world.processes["helper"].send_signal(signal.SIGSTOP)  # no round goes on meanwhile
        world.processes["south"].kill()
        world.processes["south"].wait()
        world.processes["helper"].send_signal(signal.SIGCONT)
        status = waited(operator, "example")
        assert status["state"] == "interrupted"
        assert "'south'" in status["reason"] or "has not begun here" in status["reason"]
        assert not list(world.folder.glob("*/state/models/*"))  # nobody has a structure

        world.start("south")
        world.wait("south")
        operator.ask("run", {"session": "example"})
        until = time.monotonic() + SECONDS
        while burnt(world, "north") < 2:
            assert time.monotonic() < until
            time.sleep(0.002)
        world.processes["south"].send_signal(signal.SIGSTOP)  # no round goes on meanwhile
        world.processes["helper"].kill()
        world.processes["helper"].wait()
        world.processes["south"].send_signal(signal.SIGCONT)
        assert waited(operator, "example")["state"] == "interrupted"
        assert not list(world.folder.glob("*/state/models/*"))

        world.start("helper")
        world.wait("helper")
        give_way(world)
        operator.ask("run", {"session": "example"})
        done = waited(operator, "example")
        assert done["state"] == "done"
        assert [burnt(world, name) for name in OWNERS] == [3, 3]  # begun anew, not taken up
        check(json.loads((world.folder / "south" / "state" / "models" / "example.json").read_text()))
        assert "deals falsely" in json.dumps(done["guarantee"])

        if tree is None:
            return
        operator.ask("create", {"spec": tree.model_dump(mode="json")})
        operator.ask("run", {"session": "tree"})
        until = time.monotonic() + SECONDS
        while burnt(world, "north") < 4:
            assert time.monotonic() < until
            time.sleep(0.002)
        world.processes["helper"].send_signal(signal.SIGSTOP)
        world.processes["north"].kill()
        world.processes["north"].wait()
        world.processes["helper"].send_signal(signal.SIGCONT)
        assert waited(operator, "tree")["state"] == "interrupted"
        assert not list(world.folder.glob("*/state/models/tree.json"))
        world.start("north")
        world.wait("north")
        operator.ask("run", {"session": "tree"})
        done = waited(operator, "tree")
        assert done["state"] == "done", done
        for name in OWNERS:
            model = json.loads((world.folder / name / "state" / "models" / "tree.json").read_text())
            assert LabelTree.from_dict(model).nodes == due.nodes
        assert burnt(world, "north") == 5
        assert len(due.nodes) > 3
