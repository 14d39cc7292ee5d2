"""Checking everybody's keys: what each user does before masking anything with them."""

from __future__ import annotations

import hashlib
from functools import partial

from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.proof_batches import rejected
from masquerade.protocols.frequency.agreement import Terms
from masquerade.protocols.frequency.ballots import (
    Booth,
    Setting,
    keys_claim,
    read_keys,
    spans_of,
    sum_of_keys,
)
from masquerade.protocols.frequency.messages import ROUND, Gathered, Invitation, Signed, Step, roster_hash
from masquerade.protocols.people.roster import aborted


def setting_of(terms: Terms, number: int, invitation: bytes) -> Setting:
    """Return what the proofs of a round's keys are bound to."""
    return Setting(terms.id + number.to_bytes(ROUND, "big"), hashlib.sha256(invitation).digest())


def opened_booth(terms: Terms, invitation: bytes, roster: bytes, *, workers: int = 1) -> Booth:
    """Return where votes are cast: all keys of a roster are checked and added up, or the culprits named.

    Cost: two Schnorr proofs for every user and count, checked as one batch.
    """
    asked = Invitation.decode(invitation, terms)
    counts = asked.counts(terms)
    posts = _signed_by_all(terms, asked, Step.KEYS, roster)
    setting = setting_of(terms, asked.number, invitation)
    claim = partial(keys_claim, counts=counts, setting=setting)
    sent = [(post.user, post.payload) for post in posts]
    bad = [posts[place].user for place in rejected(sent, claim, workers=workers, each=counts)]
    if bad:
        raise aborted(f"The keys of {', '.join(bad[:5])} come without proof that they are known.", *bad)
    keys = {post.user: read_keys(post.payload, counts)[0] for post in posts}
    total = sum_of_keys(list(keys.values()))
    if any(point.is_identity for point in (*total.X, *total.Y)):
        raise aborted("The keys of all users cancel out.")
    sealed = setting._replace(roster=roster_hash(terms, invitation, [post.payload for post in posts]))
    return Booth(spans_of(asked.questions, terms.sizes), total, keys, sealed)


def check_endorsements(terms: Terms, asked: Invitation, roster: bytes, message: bytes) -> None:
    """Raise `RoundAborted` unless there is an endorsement of `roster` by every user."""
    for one in _signed_by_all(terms, asked, Step.ENDORSEMENT, message):
        if one.payload != roster:
            reason = f"{one.user} was shown another roster: the miner tells users different things."
            raise aborted(reason, "miner")


_FAULTS = {
    Step.KEYS: (
        "This is not the roster of this round.",
        "The roster is not that of the users who were invited, once each and in order.",
        "The roster has keys for {0} that {0} did not sign.",
    ),
    Step.ENDORSEMENT: (
        "These are not the endorsements of this round.",
        "Not every user has endorsed the roster, once each and in order.",
        "The endorsement of {0} was not signed by {0}.",
    ),
}


def _signed_by_all(terms: Terms, asked: Invitation, step: Step, message: bytes) -> list[Signed]:
    """Return what the users who were invited signed; where it is not that, the miner is to blame."""
    other_round, other_users, forged = _FAULTS[step]
    gathered = Gathered.decode(message)
    if (gathered.step, gathered.number) != (step, asked.number):
        raise DecodingError(other_round)
    signed = [Signed.decode(part) for part in gathered.parts]
    due = [(user, step, asked.number) for user in asked.users]
    if [(one.user, one.step, one.number) for one in signed] != due:
        raise aborted(other_users, "miner")
    for one in signed:
        try:
            one.check(terms)
        except SealBroken:
            raise aborted(forged.format(one.user), "miner") from None
    return signed
