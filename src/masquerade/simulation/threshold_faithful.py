"""Formulation 1 as in the talk: a dealer's polynomial, shares in the exponent, a miner that interpolates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from masquerade.crypto.errors import ProofRejected
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.protocols.threshold.faithful import Dealer, Miner, Submission, User
from masquerade.protocols.threshold.guarantees import faithful_guarantee
from masquerade.protocols.threshold.row_schema import Form
from masquerade.simulation.costs import Meter
from masquerade.simulation.outcome import Caught, name_of
from masquerade.simulation.threshold_outcome import Opened, Row

DEALER, MINER = "dealer", "miner"
BELOW, BAD = "the class has fewer than k good points", "the point is not the one it was dealt"


def run(rows: Sequence[Row], form: Form, k: int, leaving: frozenset[int], cheating: frozenset[int]) -> Opened:
    """Run an epoch; the miner sees who submits which quasi-identifier."""
    meter = Meter(len(rows))
    staying = [place for place in range(len(rows)) if place not in leaving]
    with meter.role(DEALER):
        dealer = Dealer("simulation", k=k, users=len(rows), sensitive_size=len(rows[0][1]))
        dealing = dealer.dealing()
        deals = [dealer.deal(place + 1) for place in range(len(rows))]
    submissions = []
    for place in staying:
        with meter.user(place):
            submission = User(dealing, deals[place]).submit(*rows[place])
        meter.received[place] = len(dealing) + len(deals[place])
        meter.sent[place] = len(submission)
        submissions.append(spoilt(submission) if place in cheating else submission)
    faults: list[Caught] = []
    with meter.role(MINER):
        miner = Miner(dealing)
        for place, submission in zip(staying, submissions, strict=True):
            try:
                miner.take(submission)
            except ProofRejected:
                faults.append(Caught(name_of(place), BAD))
        opened = miner.open_classes()
    faults += [Caught(name_of(index - 1), why) for index, why in opened.faults]
    closed = Counter(fault.why for fault in faults)
    closed[BELOW] = len(staying) - len(opened.rows) - len(faults)
    return Opened(
        opened.rows,
        {why: n for why, n in closed.items() if n},
        tuple(faults),
        meter.cost(staying, staying, 1),
        faithful_guarantee(k, form.quasi, form.sensitive),
    )


def spoilt(submission: bytes) -> bytes:
    """Return a submission with another point than the one that was dealt."""
    given = Submission.decode(submission)
    other = given.point + ristretto255.generator
    return Submission(given.index, given.quasi, other, given.proof, given.sealed).encode()
