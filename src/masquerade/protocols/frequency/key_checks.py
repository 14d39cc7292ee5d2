"""Checking everybody's keys: what each user does before masking anything with them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

from masquerade.core.errors import RoundAborted
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
from masquerade.protocols.frequency.messages import (
    ROUND,
    Gathered,
    Invitation,
    Signed,
    Step,
    roster_hash,
)


def setting_of(terms: Terms, number: int, invitation: bytes) -> Setting:
    """Return what the proofs of a round's keys are bound to."""
    return Setting(terms.id + number.to_bytes(ROUND, "big"), hashlib.sha256(invitation).digest())


class RosterChecks:
    """Checks rosters and endorsements, and remembers the last of each.

    Every user has one of their own: the miner is the adversary, so nobody relies on its checks or on another
    user's. A simulation may hand one object to all users of a process: the roster is then checked once, which
    proves the same to a process that holds all users anyway, and the guarantee says so.
    """

    def __init__(self) -> None:
        self._rosters: dict[bytes, Booth] = {}
        self._endorsed: set[bytes] = set()

    def booth(self, terms: Terms, invitation: bytes, roster: bytes, *, workers: int = 1) -> Booth:
        """Return where votes are cast, or raise `RoundAborted` with the culprits named."""
        digest = hashlib.sha256(len(invitation).to_bytes(8, "big") + invitation + roster + terms.id).digest()
        if digest not in self._rosters:
            self._rosters = {digest: opened_booth(terms, invitation, roster, workers=workers)}
        return self._rosters[digest]

    def endorsed(
        self, terms: Terms, users: Sequence[str], number: int, roster: bytes, message: bytes
    ) -> None:
        """Raise `RoundAborted` unless every user signed this very roster."""
        digest = hashlib.sha256(terms.id + roster + number.to_bytes(ROUND, "big") + message).digest()
        if digest not in self._endorsed:
            check_endorsements(terms, users, number, roster, message)
            self._endorsed = {digest}


def opened_booth(terms: Terms, invitation: bytes, roster: bytes, *, workers: int) -> Booth:
    """Check all keys of a roster and add them up.

    Cost: two Schnorr proofs for every user and count, checked as one batch.
    """
    asked = Invitation.decode(invitation, terms)
    counts = asked.counts(terms)
    posts = _posts(terms, asked, Gathered.decode(roster))
    setting = setting_of(terms, asked.number, invitation)
    claim = partial(keys_claim, counts=counts, setting=setting)
    sent = [(post.user, post.payload) for post in posts]
    bad = [posts[place].user for place in rejected(sent, claim, workers=workers, each=counts)]
    if bad:
        raise RoundAborted(
            f"The keys of {', '.join(bad[:5])} come without proof that they are known.",
            spent=False,
            culprits=bad,
        )
    keys = {post.user: read_keys(post.payload, counts)[0] for post in posts}
    total = sum_of_keys(list(keys.values()))
    if any(point.is_identity for point in (*total.X, *total.Y)):
        raise RoundAborted("The keys of all users cancel out.", spent=False)
    sealed = setting._replace(roster=roster_hash(terms, invitation, [post.payload for post in posts]))
    return Booth(spans_of(asked.questions, terms.sizes), total, keys, sealed)


def _posts(terms: Terms, asked: Invitation, gathered: Gathered) -> list[Signed]:
    if gathered.step != Step.KEYS or gathered.number != asked.number:
        raise DecodingError("This is not the roster of this round.")
    posts = [Signed.decode(part) for part in gathered.parts]
    said = [(post.user, post.step, post.number) for post in posts]
    if said != [(user, Step.KEYS, asked.number) for user in asked.users]:
        raise RoundAborted(
            "The roster is not that of the users who were invited, once each and in order.",
            spent=False,
            culprits=("miner",),
        )
    for post in posts:
        try:
            post.check(terms)
        except SealBroken:
            raise RoundAborted(
                f"The roster has keys for {post.user} that {post.user} did not sign.",
                spent=False,
                culprits=("miner",),
            ) from None
    return posts


def check_endorsements(
    terms: Terms, users: Sequence[str], number: int, roster: bytes, message: bytes
) -> None:
    """Raise `RoundAborted` unless there is an endorsement of `roster` by every user."""
    gathered = Gathered.decode(message)
    if gathered.step != Step.ENDORSEMENT or gathered.number != number:
        raise DecodingError("These are not the endorsements of this round.")
    signed = [Signed.decode(part) for part in gathered.parts]
    if [(item.user, item.step, item.number) for item in signed] != [
        (user, Step.ENDORSEMENT, number) for user in users
    ]:
        raise RoundAborted(
            "Not every user has endorsed the roster, once each and in order.",
            spent=False,
            culprits=("miner",),
        )
    for item in signed:
        try:
            item.check(terms)
        except SealBroken:
            raise RoundAborted(
                f"The endorsement of {item.user} was not signed by {item.user}.",
                spent=False,
                culprits=("miner",),
            ) from None
        if item.payload != roster:
            raise RoundAborted(
                f"{item.user} was shown another roster: the miner tells users different things.",
                spent=False,
                culprits=("miner",),
            )
