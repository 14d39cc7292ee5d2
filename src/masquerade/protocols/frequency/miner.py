"""The miner's side: gathers, checks, passes on, and in the end learns the counts and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from masquerade.core.errors import QueryRefused, Refusal, RoundAborted
from masquerade.crypto.errors import DecodingError, LogOutOfRange
from masquerade.protocols.frequency.agreement import Terms
from masquerade.protocols.frequency.ballots import Booth
from masquerade.protocols.frequency.key_checks import check_endorsements, opened_booth
from masquerade.protocols.frequency.messages import Gathered, Invitation, Objection, Signed, Step, bounded
from masquerade.protocols.people.questions import Counts, Question, tables_of

Phase = Literal["keys", "endorsements", "votes", "done"]
_EXPECTED: dict[Phase, Step] = {"keys": Step.KEYS, "endorsements": Step.ENDORSEMENT, "votes": Step.VOTE}
REFUSED = (
    "roster_too_small",
    "too_many_cells",
    "not_survivors",
    "departed_too_few",
    "departed_too_many",
    "already_spent",
)


class Round:
    """One round of the miner: three times a message to all users and an answer from each.

    `message` is what users are to get next; `receive` takes their answers, in any order and also twice;
    `advance` goes on when all are there. A user who is missing, refuses or cheats aborts the round
    (`RoundAborted`): the masks of all others cancel only together. `tables` holds the counts at the end.
    """

    def __init__(
        self,
        terms: Terms,
        number: int,
        users: Sequence[str],
        questions: Sequence[Question],
        *,
        workers: int = 2,
    ) -> None:
        self.terms, self.workers = terms, workers
        members = tuple(sorted(users, key=terms.roster.places.__getitem__))
        self.invitation = Invitation(terms.id, number, members, tuple(questions))
        self._invited = frozenset(self.invitation.users)
        self.phase: Phase = "keys"
        self.message = self._opening = self.invitation.encode(terms)
        self.tables: dict[Question, Counts] = {}
        self._received: dict[str, bytes] = {}
        self._voted = False
        self._booth: Booth | None = None

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the users whose answer is still to come."""
        return tuple(user for user in self.invitation.users if user not in self._received)

    def receive(self, data: bytes) -> None:
        """Take in a user's answer.

        Bytes that are no user's raise `DecodingError` or `SealBroken` and change nothing: they could be
        anybody's. Answers to earlier messages come late and are ignored.
        """
        signed = Signed.decode(bounded(data))
        signed.check(self.terms)
        if signed.user not in self._invited:
            raise DecodingError(f"{signed.user} was not invited.")
        if signed.step == Step.REFUSAL:
            self._object(signed)
        if signed.number != self.invitation.number or signed.step != _EXPECTED.get(self.phase):
            return
        # from the first vote on, votes have left
        self._voted = self._voted or signed.step == Step.VOTE
        before = self._received.setdefault(signed.user, data)
        if before != data:
            what = signed.step.name.lower()
            raise self._aborted(f"{signed.user} signed two different {what}s.", [signed.user])

    def advance(self) -> None:
        """Check what all users sent and go on to the next message, or to the counts."""
        if self.waiting:
            missing = self.waiting
            raise self._aborted(
                f"{len(missing)} of {len(self.invitation.users)} users did not answer: without "
                f"{', '.join(missing[:5])} the masks of the others do not cancel.",
                missing,
            )
        parts = tuple(self._received[user] for user in self.invitation.users)
        steps = {"keys": self._gather_keys, "endorsements": self._gather_endorsements, "votes": self._count}
        steps[self.phase](parts)
        self._received = {}

    def _gather_keys(self, parts: tuple[bytes, ...]) -> None:
        message = Gathered(Step.KEYS, self.invitation.number, parts).encode()
        self._booth = opened_booth(self.terms, self._opening, message, workers=self.workers)
        self.phase, self.message = "endorsements", message

    def _gather_endorsements(self, parts: tuple[bytes, ...]) -> None:
        message = Gathered(Step.ENDORSEMENT, self.invitation.number, parts).encode()
        booth = self._opened()
        wrong = [
            signed.user for signed in map(Signed.decode, parts) if signed.payload != booth.setting.roster
        ]
        if wrong:
            raise self._aborted(f"{', '.join(wrong[:5])} endorsed another roster.", wrong)
        check_endorsements(self.terms, self.invitation, booth.setting.roster, message)
        self.phase, self.message = "votes", message

    def _count(self, parts: tuple[bytes, ...]) -> None:
        self._voted = True
        booth = self._opened()
        votes = [(signed.user, signed.payload) for signed in map(Signed.decode, parts)]
        cheats = booth.invalid(votes, workers=self.workers)
        if cheats:
            raise self._aborted(f"The votes of {', '.join(cheats[:5])} are not proved valid.", cheats)
        try:
            counts = booth.frequencies([payload for _, payload in votes], workers=self.workers)
        except LogOutOfRange as error:
            raise self._aborted(str(error), []) from None
        questions, spans = self.invitation.questions, [end - start for _, start, end in booth.spans]
        self.tables = tables_of(np.array(counts, dtype=np.int64), questions, spans, self.terms.sizes)
        self.phase, self.message = "done", b""

    def _object(self, signed: Signed) -> None:
        said = Objection.decode(signed.payload)
        if self.phase == "keys" and said.code in REFUSED:
            raise QueryRefused([Refusal(said.code, f"{signed.user}: {said.reason}")])
        # whom an objection blames is a claim like any other: the one who stopped is known, the rest is said
        blamed = f" (blaming {', '.join(said.culprits[:5])})" if said.culprits else ""
        raise self._aborted(f"{signed.user} stopped: {said.reason}{blamed}", [signed.user])

    def _opened(self) -> Booth:
        if self._booth is None:
            raise RuntimeError("keys are gathered first")
        return self._booth

    @property
    def votes_may_have_left(self) -> bool:
        """Tell whether votes have left, or may have: all endorsements have been handed out."""
        return self._voted or self.phase in {"votes", "done"}

    def _aborted(self, reason: str, culprits: Sequence[str]) -> RoundAborted:
        return RoundAborted(reason, spent=self.votes_may_have_left, culprits=culprits)
