"""A small population whose parties can be made to cheat: what they send is signed all the same."""

from __future__ import annotations

from masquerade.protocols.k_anonymity.suppression.comparison import mixing_place, quotients
from masquerade.protocols.k_anonymity.suppression.messages import Word
from masquerade.protocols.mixnet.messages import MixBoard, SignedMixMessage, board_hash
from masquerade.protocols.mixnet.roles import opened_batch
from masquerade.simulation.suppression_run import SuppressionRun

ROWS = [
    ("Hoboken", "nurse"),
    ("Hoboken", "nurse"),
    ("Newark", "baker"),
    ("Newark", "clerk"),
]


def small(rows=ROWS, k=2, **options):
    return SuppressionRun(rows, k, **options)


def clear_distances(rows):
    return [[sum(a != b for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]


def signed(population, sender, kind, payload):
    """Return a message of the first phase that a party signs, whatever it says."""
    identity = population.identities[sender]
    return SignedMixMessage.make(population.terms.mix, identity, kind, sender, payload).encode()


def word(population, sender, kind, payload):
    """Return a message of the later phases that a party signs, whatever it says."""
    return Word.make(population.terms, population.identities[sender], kind, sender, payload).encode()


def pairs(population, batch):
    """Return what the first key holder is to mix, and where its proofs begin."""
    mix, key = population.terms.mix, population.holders[0].key
    where = mixing_place(mix, key, board_hash(b"batch", batch), "key holder 1")
    return quotients(opened_batch(mix, key, batch)), key.point, where


def board(*parts):
    return MixBoard(parts).encode()
