"""Whole deployments in one process: every node behind real TLS on loopback, none of it simulated."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pandas as pd
import yaml
from tests.services.background import background

import masquerade as mq
from masquerade.core.util.atomic import write_whole
from masquerade.data.example_networks import eleven_nodes, eleven_nodes_policy
from masquerade.services.common.client import HttpTransport, Operator
from masquerade.services.common.problems import Busy
from masquerade.services.common.release_ledger import inspect
from masquerade.services.common.settings import load
from masquerade.services.parties.example import (
    HELPER,
    MINER,
    DeploymentPlan,
    split_columns,
    split_rows,
    write_deployment,
)
from masquerade.services.parties.node import Node
from masquerade.services.parties.session import LearningGoal, SessionSpec, SessionText
from masquerade.services.parties.session_store import SCOPE
from masquerade.services.parties.settings import MinerSettings, PartySettings, SessionConsent, consent_values

__all__ = [
    "HELPER",
    "MINER",
    "OWNERS",
    "Deployment",
    "DeploymentPlan",
    "LearningGoal",
    "deployed",
    "split_columns",
    "split_rows",
]

SCHEMA = eleven_nodes().schema
CLEAR, TABLE_1 = mq.Policy.clear(SCHEMA), eleven_nodes_policy()
SESSION = "example"
OWNERS = {"north": ("A", "T", "E"), "south": ("S", "L", "B", "D"), "registry": ("X", "C", "F", "G")}
OWN_TERMS = set(SessionConsent.model_fields) - set(SessionText.model_fields) - {"spec"}  # of a consent alone
SECONDS = 600.0  # a limit that a machine ten times slower keeps; nobody waits for it where all goes well


def people(n, seed=1):
    """Return made-up people of the papers' network."""
    return eleven_nodes().sample(n, seed=seed)


def joined(plan):
    """Return the records that all parties have, their columns side by side, in clear."""
    whole = None
    for frames in plan.frames.values():
        own = pd.concat(frames).set_index(plan.key)
        whole = own if whole is None else whole.join(own, how="inner")
    return whole.sort_index()[list(SCHEMA)].reset_index(drop=True)


def clear_counts(frame, by):
    """Return a table counted by pandas, in the order of the schema's categories."""
    index = pd.MultiIndex.from_product([SCHEMA[name].categories for name in by], names=list(by))
    counts = frame.groupby(list(by), observed=False).size().reindex(index, fill_value=0)
    return counts.to_numpy().reshape(SCHEMA.shape(by))


def written_before(folder):
    """Return the settings files of a deployment, by node."""
    files = [file for file in folder.glob("*/*.yaml") if file.name in {"party.yaml", "miner.yaml"}]
    return {file.parent.name: file for file in sorted(files)}


class Deployment:
    """The nodes of a plan, or of a folder that has them already; each can be stopped and started again.

    `limits` and `retries` go into every node's settings; `changed` are other keys, by node.
    """

    def __init__(self, folder, plan=None, *, retries=1, limits=None, changed=None):
        self.plan, self.folder = plan, folder
        self.files = write_deployment(folder, plan) if plan else written_before(folder)
        self.spec = load(folder / "session.yaml", SessionSpec, environment={})
        for name, file in self.files.items():
            values = yaml.safe_load(file.read_text()) | {"retries": retries, "limits": limits or {}}
            file.write_text(yaml.safe_dump(values | (changed or {}).get(name, {})))
        self.nodes, self._running, self.seen = {}, {}, {}
        self._stops, self._services = {}, {}

    def consent_to(self, *specs, **more):
        """Write consents to exactly these sessions into every node's file, for its next start.

        What else its consent says stays; `more` is said in addition.
        """
        for file in self.files.values():
            values = yaml.safe_load(file.read_text())
            for consent in values.get("consents", [])[:1]:
                own = {name: consent[name] for name in consent if name in OWN_TERMS} | more
                values["consents"] = [{**consent_values(spec), **own} for spec in specs]
            file.write_text(yaml.safe_dump(values))

    def settings(self, name):
        """Return the settings of a node."""
        file = self.files[name]
        return load(file, MinerSettings if file.name == "miner.yaml" else PartySettings, environment={})

    def start(self, *names):
        """Start nodes, all of them unless some are named."""
        for name in names or self.files:
            settings = self.settings(name)
            node = Node(settings)
            self.nodes[name], answer = node, node.handle
            node.handle = lambda call, name=name, answer=answer: self._handled(name, answer, call)
            service = self._services[name] = node.service()
            stack = ExitStack()
            stack.callback(node.close)
            url = stack.enter_context(
                background(service, port=settings.listen.port, tls=settings.tls_files())
            )
            write_whole(settings.address_file, url + "\n", private=True)
            self._running[name] = stack

    def stop(self, *names):
        """Stop nodes, all that run unless some are named."""
        stacks = [self._running.pop(name) for name in names or list(self._running)]
        with ThreadPoolExecutor(max_workers=len(stacks) or 1) as pool:
            list(pool.map(ExitStack.close, stacks))

    def _handled(self, name, answer, call):
        """Answer a call and remember it, unless a test wants the node to be stopped here."""
        stop = self._stops.get(name)
        here = stop is not None and stop.met(call.place.rpartition("/")[2])
        if here and not stop.lost:
            self._stopped(stop)
        reply = answer(call)
        self.seen.setdefault(name, []).append((call.peer.name, call.place, call.body, reply))
        if here:
            self._stopped(stop)
        return reply

    def _stopped(self, stop):
        """Stop the node without an answer."""
        stop.reached.set()
        until = time.monotonic() + SECONDS
        while not self._services[stop.who].jobs.stopping and time.monotonic() < until:
            time.sleep(0.001)
        raise Busy("This node is being stopped.")

    @contextmanager
    def halting(self, name, role, after=0, *, lost=False, stops=None):
        """Stop a node while this runs: at the message of a role that has `after` ones before it.

        The message is not worked on; or it is, and its reply is `lost`. `stops` names another node to stop.
        """
        stop = self._stops[name] = Stop(role, after, lost, stops or name)
        thread = threading.Thread(
            target=lambda: stop.reached.wait(SECONDS) and self.stop(stop.who), daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            thread.join(SECONDS)
            del self._stops[name]
            assert stop.reached.is_set()

    def replies(self, name, role):
        """Return the replies of a node in a role, as (message, reply), each message once."""
        return [(body, reply) for _, place, body, reply in self.seen.get(name, ()) if place.endswith(role)]

    def operator(self, name=None):
        """Return the operator's client of the convener, or of another node."""
        return Operator(self.settings(name or self.spec.convener))

    def run(self, spec=None):
        """Create a session, unless it is there, run or resume it, and return how it ended."""
        spec = spec or self.spec
        with self.operator() as operator:
            operator.ask("create", {"spec": spec.model_dump(mode="json")})
            operator.ask("run", {"session": spec.session})
            return waited(operator, spec.session)

    def done(self):
        """Run a session that must end well, and return its model."""
        status = self.run()
        assert status["state"] == "done", status
        with self.operator() as operator:
            return operator.ask("model", {"session": self.spec.session})

    def say(self, caller, node, role, body, *, session=SESSION, key=None):
        """Send a message of a session as one node to another, and return the reply."""
        with self.speaking(caller) as http:
            message = body if isinstance(body, bytes) else json.dumps(body).encode()
            return http.exchange(node, message, place=f"sessions/{session}/{role}", key=key)

    def speaking(self, caller):
        """Return a client with a node's own credentials."""
        settings = self.settings(caller)
        return HttpTransport(caller, self.nodes[caller].peers, tls=settings.tls_files(), retries=0)

    def ledger(self, name):
        """Return the releases of a party, from its checked ledger."""
        return [entry.release for entry in inspect(self.settings(name).state)[0]]

    def begun(self, name):
        """Return the notes of a node about sessions."""
        notes = self.nodes[name].state.notes
        return {key: notes.get(SCOPE, key) for key in notes.names(SCOPE)}


class Stop:
    """A place in a session at which a node is stopped."""

    def __init__(self, role, after, lost, who):
        self.role, self.left, self.lost, self.who = role, after, lost, who
        self.reached = threading.Event()

    def met(self, role):
        """Return True for the chosen message, and for no later one."""
        if role == self.role:
            self.left -= 1
        return role == self.role and self.left == -1


def waited(operator, session):
    """Return the status of a session once it does not run any more."""
    until = time.monotonic() + SECONDS
    while (status := operator.ask("status", {"session": session}))["state"] == "running":
        assert time.monotonic() < until, status
        time.sleep(0.05)
    return status


@contextmanager
def deployed(folder, plan, **options):
    """Write and start a deployment, and stop it in the end."""
    with started(Deployment(folder / "deployment", plan, **options)) as deployment:
        yield deployment


@contextmanager
def started(deployment):
    """Start a deployment, and stop it in the end."""
    try:
        deployment.start()
        yield deployment
    finally:
        deployment.stop()
