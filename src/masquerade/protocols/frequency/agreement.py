"""What everybody agrees on before anything is counted, and what it guarantees."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar

from masquerade.channels.policy import Policy
from masquerade.channels.privacy import ASSUMPTIONS, guarantee_of
from masquerade.core.errors import InputError
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.codec import U32, Many, Message, Text
from masquerade.protocols.people.history import tolerated
from masquerade.protocols.people.questions import Question
from masquerade.protocols.people.roster import Members, Roster

MOST_PROOFS = 50_000  # users times counts: every user checks that many pairs of keys
FEWEST = 3  # with two, each learns the other's answer from the count
MINER = "miner"


@dataclass(frozen=True, slots=True)
class Enrolment(Message):
    """What a person keeps of the terms agreed to, the policy by its id."""

    TAG: ClassVar[bytes] = b"masquerade frequency terms 1"
    epoch: Annotated[str, Text(4096)]
    policy: Annotated[str, Text(255)]
    minimum: U32
    members: Annotated[Members, Many(MOST_PROOFS)]


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of one epoch: who is enrolled, how records are disguised, how few may be counted together.

    `members` are the names of all people enrolled with their Ed25519 identities; that each is one person is
    an assumption of everything that follows. Within an epoch a record does not change and no question is
    voted on twice. A person who is given new terms, with a new `epoch`, agrees to be counted anew; not that
    clear counts of the two epochs differ by few people, which takes a word of its own (`User`).

    The miner chooses who is counted, at least `minimum` people: so that two honest ones are among any of
    them, at most `colluders` = minimum − 2 may collude with it.
    """

    epoch: str
    policy: Policy
    members: Mapping[str, bytes]
    minimum: int = 10
    roster: Roster = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.members) > MOST_PROOFS:
            raise InputError(
                f"At most {MOST_PROOFS:,} members can be counted in this mode. Got {len(self.members):,}."
            )
        if not self.epoch or self.minimum < FEWEST:
            raise InputError(f"Terms need an epoch and a minimum roster of at least {FEWEST}.")
        roster = Roster(dict(sorted(self.members.items())))
        object.__setattr__(self, "roster", roster)
        object.__setattr__(self, "members", roster)

    @cached_property
    def id(self) -> bytes:
        """Return 32 bytes that stand for all of the terms; every signature and proof is bound to them."""
        return hashlib.sha256(self.encoded).digest()

    @cached_property
    def encoded(self) -> bytes:
        """Return all of the terms as bytes, the policy by its id."""
        return Enrolment(self.epoch, self.policy.id, self.minimum, self.members).encode()

    @property
    def colluders(self) -> int:
        """Return how many users may collude with the miner."""
        return tolerated(self.minimum)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return how many reports each variable has."""
        observed = self.policy.observed
        return dict(zip(observed, observed.shape(observed), strict=True))

    @cached_property
    def bounded(self) -> frozenset[str]:
        """Return the variables whose reports tell a bounded amount, even if seen as they are."""
        seen = guarantee_of(self.policy).disclosures
        return frozenset(name for item in seen if item.gamma is not None for name in item.variables)

    def asks_clear(self, questions: Sequence[Question]) -> bool:
        """Tell whether any question is about a variable that is not disguised."""
        return any(name not in self.bounded for question in questions for name in question.names)


def frequency_guarantee(
    terms: Terms, users: int, *, shared_checks: bool, agreed: Sequence[str] = ()
) -> Guarantee:
    """Return who learns what when `users` people are counted.

    The miner learns every count it asks for, exactly, and nothing else while two users of every roster are
    honest. It chooses the roster, of no fewer than the minimum: so what matters is how many collude, not how
    many are counted. What left between two rosters has the minimum too, so the same number holds for that.
    `agreed` are earlier epochs that users agreed this one may differ from by few people.

    What a disguise adds: its γ bounds what anybody can learn about one person even if all others tell the
    miner their votes, since the count itself is of disguised values.
    """
    behind = guarantee_of(terms.policy)
    disclosures = tuple(
        Disclosure(MINER, f"counts over {users:,} users of {item.kind}", item.variables, item.gamma)
        for item in behind.disclosures
    )
    assumptions = [
        f"of any {terms.minimum} users, as many as the miner may choose to count, at least two are honest",
        f"enrolment gave each of the {len(terms.members):,} members one identity, and users know them all",
        "the decisional Diffie–Hellman problem is hard on secp256k1 (hashes as random oracles)",
        "the miner learns every count asked for, not only the model learnt from them",
        f"no count is over fewer than {terms.minimum} users",
    ]
    if len(terms.bounded) < len(terms.sizes):
        assumptions += differences(terms, agreed)
    if shared_checks:
        assumptions.append(
            "this is a simulation: keys and endorsements are checked once for all users of the process"
        )
    else:
        assumptions.append(
            f"every user checks the keys of all others (at most {MOST_PROOFS:,} pairs) before voting"
        )
    if behind.assumptions:
        assumptions += [*ASSUMPTIONS, "γ of a disguised variable holds even if all other users collude"]
    return Guarantee(
        disclosures,
        tuple(assumptions),
        adversaries={MINER: "malicious", "user": "malicious"},
        colluders=terms.colluders,
        excluded_coalitions=((MINER, f"{terms.colluders + 1:,} users"),),
        dropouts=0,
        integrity="identifies",
    )


def differences(terms: Terms, agreed: Sequence[str]) -> list[str]:
    """Return what the differences of clear counts may show."""
    said = (
        f"no difference of two clear counts is over fewer than {terms.minimum} users, be they of one epoch "
        "or of two, while honest users keep their ledgers and agree to no exception"
    )
    changed = "what changes in a record from one epoch to another shows in the difference of clear counts"
    if not agreed:
        return [said, changed]
    exception = (
        f"users agreed to an exception: clear counts of this epoch and of {', '.join(agreed)} may differ by "
        "few users; a miner that says falsely that the earlier ones never came out has what those answered"
    )
    return [said, exception, changed]
