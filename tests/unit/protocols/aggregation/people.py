"""Small populations and a driver that stops where a test wants to interfere."""

from __future__ import annotations

import numpy as np

import masquerade as mq
from masquerade.protocols.aggregation.batch import Batch, Table
from masquerade.protocols.aggregation.messages import kind_of
from masquerade.protocols.aggregation.parameters import Parameters
from masquerade.protocols.aggregation.server import Outcome, Server
from masquerade.protocols.aggregation.survivor_tree import Root
from masquerade.simulation.aggregation import Population

SCHEMA = mq.Schema({"a": ["x", "y"], "b": [1, 2, 3]})
CLEAR = mq.Policy.clear(SCHEMA)
DISGUISED = mq.Policy.build(
    SCHEMA, {"a": mq.channels.symmetric(2, "0.2"), "b": mq.channels.symmetric(3, "0.3")}
)
CIRCLE = Parameters(
    users=14,
    neighbours=8,
    threshold=6,
    colluders=1,
    dropouts=1,
    minimum=3,
    committee=3,
    server="malicious",
)  # far too few users for the bounds, but the same code as with ten thousand


def codes_of(users, seed=1):
    generator = np.random.default_rng(seed)
    return {
        "a": generator.integers(0, 2, users).astype(np.uint8),
        "b": generator.integers(0, 3, users).astype(np.uint8),
    }


def people(users=12, *, policy=CLEAR, server="malicious", minimum=5, dropouts="0.15", seed=1):
    parameters = Parameters.of(users, minimum=minimum, server=server, dropouts=dropouts)
    return Population(codes_of(users, seed), policy, parameters)


def on_a_circle(**changes):
    fields = {name: getattr(CIRCLE, name) for name in CIRCLE.__slots__} | changes
    return Population(codes_of(fields["users"]), CLEAR, Parameters(**fields))


def whole(population):
    """Return the batch that asks for everything: the table of both variables."""
    return Batch((Table((0, 1)),), population.terms.sizes)


def clear_counts(users, places, seed=1):
    codes, places = codes_of(users, seed), np.array(places)
    return np.bincount(codes["a"][places].astype(int) * 3 + codes["b"][places], minlength=6)


def server_of(population, number=1, before=None, nonce=bytes(16)):
    return Server(population.terms, nonce, number, whole(population), before=before)


def until(population, server, kind, silent=()):
    """Run a round up to the messages of a kind and return them, undelivered; none if it ends before."""
    outgoing = server.advance()
    while outgoing and kind_of(next(iter(outgoing.values()))) is not kind:
        for place, message in outgoing.items():
            if place not in silent:
                server.receive(place, population.users[place].receive(message))
        outgoing = server.advance()
    return outgoing


class InTheOpen:
    """Rounds without any protocol, for studies of estimates over thousands of rounds."""

    def __init__(self, rows, terms):
        self.rows, self.terms = rows, terms
        self.asked = []

    def refusals(self):
        return []

    def ask(self, batch):
        self.asked.append(batch)
        votes = [batch.vote(row, np.dtype(np.int64)) for row in self.rows]
        return Outcome(np.sum(votes, axis=0), tuple(range(len(self.rows))), Root(bytes(32), len(self.rows)))
