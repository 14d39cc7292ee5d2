"""Frequency mining as a source of counts: every learner runs on people who each keep their own record."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count

import numpy as np

from masquerade.channels.policy import check_policy
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.util.formatting import printable
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.protocols.frequency_mining.guarantee import frequency_guarantee
from masquerade.protocols.frequency_mining.history import roster_refusals
from masquerade.protocols.frequency_mining.messages import Exchange, Terms
from masquerade.protocols.frequency_mining.roles import Round
from masquerade.protocols.people.questions import Question
from masquerade.sources.people.count_rounds import CountRounds, KnownCounts


class FrequencyTally(CountRounds):
    """Counts over people, mined in rounds; a `Tally` on which every learner runs unchanged.

    The caller is the miner, and learns the counts that it asks for and nothing else. A batch of questions is
    one round; what follows from counts already known is never asked again. `exchange` hands a user a message
    and returns the answer. `users` are those who take part, all members if not given; `agreed` are earlier
    epochs that they agreed this one may differ from by few people, and the guarantee says so.

    A round that fails raises `RoundAborted`: users who were missing or cheated are left out from then on, and
    if votes had left (`spent`), the questions of that round are closed until the next epoch.

    >>> from masquerade.simulation import FrequencyMining, made_up_people
    >>> source = FrequencyMining(made_up_people(10)).tally()
    >>> isinstance(source, mq.people.FrequencyTally)
    True
    >>> source.answer([mq.Query(by="sex")])[0].total, source.rounds
    (10.0, 1)
    """

    def __init__(
        self,
        terms: Terms,
        exchange: Exchange,
        users: Iterable[str] | None = None,
        *,
        shared_checks: bool = False,
        agreed: Iterable[str] = (),
        workers: int = 2,
    ) -> None:
        super().__init__(check_policy(terms.policy))
        self.terms, self._exchange, self._workers = terms, exchange, workers
        self.users: tuple[str, ...] = tuple(terms.roster.names if users is None else users)
        unknown = [user for user in self.users if user not in terms.members]
        if unknown or len(set(self.users)) < len(self.users):
            raise InputError("Users to be counted must be members, each once.")
        self._shared_checks, self._agreed = shared_checks, tuple(agreed)
        self._spent: set[Question] = set()
        self._rosters: list[frozenset[str]] = []
        # two miners of one epoch hardly ever give a round the same number, and users would notice
        self._numbers = count(secrets.randbelow(2**30))
        self._renew()

    @printable
    def __repr__(self) -> str:
        """Show how many people answer about which variables."""
        return f"{type(self).__name__}({self.n:,} users, {self.schema!r})"

    @property
    def rounds(self) -> int:
        """Return how many rounds votes have left in."""
        return len(self._rosters)

    def refusals(self, questions: Sequence[Question]) -> list[Refusal]:
        """Return why a round would be refused; asks nobody.

        Too few users, too many keys to check, votes spent, too few departed or too many. What users voted in
        under other terms only they know, and refuse when they are asked.
        """
        mined = [question for question in questions if question.names]
        spent = [
            Refusal(
                "already_spent",
                f"votes on {' × '.join(question.names)} have left in this epoch: wait for the next one",
            )
            for question in mined
            if question in self._spent
        ]
        if not mined:
            return []
        return spent + roster_refusals(self.terms, frozenset(self.users), self._rosters, mined)

    def hold_round(self, questions: Sequence[Question]) -> KnownCounts:
        """Mine the counts of a round; how many people there are is known without one."""
        mined = [question for question in questions if question.names]
        people = {question: np.array(self.n) for question in questions if not question.names}
        if not mined:
            return KnownCounts(self.policy, people, self.n)
        current = Round(self.terms, next(self._numbers), self.users, mined, workers=self._workers)
        try:
            while current.phase != "done":
                self.hand_out(current)
                current.advance()
        except RoundAborted as error:
            self.users = tuple(user for user in self.users if user not in set(error.culprits))
            self._renew()
            raise
        finally:
            if current.votes_may_have_left:
                self.spent(current)
        return KnownCounts(self.policy, people | current.tables, len(current.invitation.users))

    def hand_out(self, current: Round) -> None:
        """Hand every user the message that is due, and take their answers; whoever is silent is missing."""
        for user in current.invitation.users:
            reply = self._exchange(user, current.message)
            if reply is not None:
                self.take(current, reply)

    def take(self, current: Round, reply: bytes) -> None:
        """Take a user's answer; what nobody signed is as good as none."""
        with suppress(DecodingError, SealBroken):
            current.receive(reply)

    def spent(self, current: Round) -> None:
        """Remember a round in which votes have left, or may have: without counts its questions are closed."""
        self._rosters.append(frozenset(current.invitation.users))
        if current.phase != "done":
            self._spent.update(current.invitation.questions)

    def _renew(self) -> None:
        self.n = len(self.users)
        self.guarantee = frequency_guarantee(
            self.terms, self.n, shared_checks=self._shared_checks, agreed=self._agreed
        )
