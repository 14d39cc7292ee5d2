"""What comparing all pairs costs, measured here and now, and the refusal of too many people."""

from __future__ import annotations

import time

from masquerade.core.errors import QueryRefused, Refusal
from masquerade.crypto.elgamal import Row, encrypt
from masquerade.crypto.group import Secret
from masquerade.crypto.proof_batches import Claim, Weighed
from masquerade.crypto.proofs import Knows, prove
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.crypto.transcript import NOT_YET, Context, Transcript
from masquerade.protocols.mix.key_holder import opening_statement
from masquerade.protocols.partition.comparison import check_mixing, mix_pairs, quotients

MOST_PEOPLE = 300
_MEASURED_ROWS = 4  # six pairs


def check_cost(people: int, attributes: int, holders: int, *, accept_cost: bool) -> None:
    """Refuse more than 300 people unless the cost is accepted, and say what it would be.

    The time is measured on this machine, by a handful of comparisons as the key holders make them.
    """
    if people <= MOST_PEOPLE or accept_cost:
        return
    tests = people * (people - 1) // 2 * attributes
    seconds = tests * seconds_per_test(attributes, holders)
    reason = (
        f"{people:,} people have {tests:,} comparisons of {attributes} attributes, which take "
        f"{holders} key holders about {duration(seconds)} in all, by comparisons timed here just now. More "
        f"than {MOST_PEOPLE} are refused unless that is accepted (accept_cost=True, or --accept-cost)."
    )
    raise QueryRefused([Refusal("too_many_people", reason)])


def seconds_per_test(attributes: int, holders: int) -> float:
    """Return the processor time that all holders together need to compare one attribute of one pair.

    Each blinds, shuffles and proves, checks all others, opens its part, as the miner does, and one party
    checks the openings.
    """
    secrets = [secp256k1.random_secret() for _ in range(holders + 1)]
    shares = [secp256k1.multiply_generator(secret) for secret in secrets]
    key, random = secp256k1.sum_points(shares), secp256k1.random_secret
    rows: list[Row] = [
        tuple(encrypt(secp256k1.multiply_generator(random()), key, random()) for _ in range(attributes))
        for _ in range(_MEASURED_ROWS)
    ]
    began = time.process_time()
    pairs = quotients(rows)
    for _ in range(holders):
        before = pairs
        message, pairs = mix_pairs(before, key, _where)
        for _ in range(holders - 1):
            check_mixing(before, key, message, _where)
    for secret in secrets:
        _open(pairs, secret)
    return (time.process_time() - began) / sum(len(row) for row in pairs)


def duration(seconds: float) -> str:
    """Return a time in words that suit its length.

    >>> duration(40), duration(4000), duration(40_000)
    ('40 seconds', '67 minutes', '11 hours')
    """
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"


def _open(rows: tuple[Row, ...], secret: Secret) -> None:
    partial = [secp256k1.multiply(pair.a, secret) for row in rows for pair in row]
    statement = opening_statement(rows, secp256k1.multiply_generator(secret), partial)
    proof = prove(statement, [Knows((secret,))], _where(b"opening"))
    weighed = Weighed()
    weighed.add(Claim(statement, proof, _where(b"opening")))
    weighed.holds()


def _where(label: bytes) -> Transcript:
    return Transcript(Context("partition cost", b"measured", NOT_YET, label, b"nobody", "holder"))
