"""Small populations and a driver that stops where a test wants to interfere."""

from __future__ import annotations

import numpy as np

import masquerade as mq
from masquerade.crypto.keys import SIGNATURE_SIZE
from masquerade.protocols.people.questions import Question
from masquerade.protocols.secure_aggregation.agreement import Parameters, QuestionBatch
from masquerade.protocols.secure_aggregation.messages import TAG_SIZE, UserMessage, kind_of
from masquerade.protocols.secure_aggregation.server import AggregationOutcome, Server
from masquerade.protocols.secure_aggregation.user import AggregationUser
from masquerade.simulation.aggregation import Aggregation

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
    witnesses=7,
    quorum=5,
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
    return Aggregation(codes_of(users, seed), policy, parameters)


def on_a_circle(**changes):
    fields = {name: getattr(CIRCLE, name) for name in CIRCLE.__slots__} | changes
    return Aggregation(codes_of(fields["users"]), CLEAR, Parameters(**fields))


def whole(population):
    """Return the batch that asks for everything: the table of both variables."""
    return QuestionBatch((Question(("a", "b")),), population.terms.sizes)


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
            reply = None if place in silent else population.users[place].receive(message)
            if reply is not None:
                server.receive(place, reply)
        outgoing = server.advance()
    return outgoing


def where(kind, field=0):
    """Return how many bytes of a message of a kind come before a byte of its fields."""
    return 4 + len(kind.TAG) + TAG_SIZE + (SIGNATURE_SIZE if issubclass(kind, UserMessage) else 0) + field


def again(population, place, ledger):
    """Return a user once more, with another ledger: a second process, or after a restart."""
    old = population.users[place]
    record = {name: int(column[place]) for name, column in codes_of(len(population.users)).items()}
    return AggregationUser(old.name, old._identity, record, population.terms, ledger=ledger)


class InTheOpen:
    """Rounds without any protocol, for studies of estimates over thousands of rounds."""

    def __init__(self, rows, terms):
        self.rows, self.terms = rows, terms
        self.asked = []

    def refusals(self):
        return []

    def ask(self, batch):
        self.asked.append(batch)
        records = [dict(zip(self.terms.sizes, row, strict=True)) for row in self.rows]
        votes = [np.frombuffer(batch.vote(record, 8), dtype="<i8") for record in records]
        return AggregationOutcome(np.sum(votes, axis=0), tuple(range(len(self.rows))))
