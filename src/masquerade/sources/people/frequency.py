"""Frequency mining as a source of counts: every learner runs on people who keep their own records."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count

import numpy as np

from masquerade.channels.policy import check_policy
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.query import Query
from masquerade.core.util.formatting import printable
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.protocols.frequency_mining.guarantee import frequency_guarantee
from masquerade.protocols.frequency_mining.history import roster_refusals
from masquerade.protocols.frequency_mining.messages import Exchange, FrequencyTerms
from masquerade.protocols.frequency_mining.roles import MiningRound
from masquerade.protocols.people.questions import Counts, Question
from masquerade.sources.people.count_rounds import CountedRound, CountRounds, KnownCounts


class FrequencyTally(CountRounds):
    """Counts over people, mined in rounds: a `Tally` on which every learner runs unchanged.

    The caller is the miner, and learns only the queried counts. A batch of queries is one round. Counts that
    follow from known counts are not queried again.

    A failed round raises `RoundAborted`. Users who were missing or cheated are excluded from then on. If
    votes had been sent (`spent`), the questions of that round are closed until the next epoch.

    Parameters
    ----------
    terms : FrequencyTerms
        Terms that the users agreed to.
    exchange : callable
        Delivers a message to a user and returns the answer.
    users : iterable of str, optional
        Users who participate. Without it, all members.
    shared_checks : bool, optional
        Check each key only once for the users of one process. For simulations only.
    agreed : iterable of str, optional
        Earlier epochs from which this one may differ by few people, with the users' agreement. The guarantee
        lists them.
    workers : int, optional
        Number of threads.

    Examples
    --------
    >>> from masquerade.simulation import FrequencyMining, synthetic_people
    >>> source = FrequencyMining(synthetic_people(10)).tally()
    >>> isinstance(source, mq.people.FrequencyTally)
    True
    >>> source.answer([mq.Query(by="sex")])[0].total, source.rounds
    (10.0, 1)
    """

    def __init__(
        self,
        terms: FrequencyTerms,
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
        # random, so that two miners of one epoch do not use the same round number, which users would detect
        self._numbers = count(secrets.randbelow(2**30))
        self._renew()

    @printable
    def __repr__(self) -> str:
        """Return the number of users and the variables as text."""
        return f"{type(self).__name__}({self.n:,} users, {self.schema!r})"

    @property
    def rounds(self) -> int:
        """Number of rounds in which votes were sent."""
        return len(self._rosters)

    def refusals(self, questions: Sequence[Question]) -> list[Refusal]:
        """Return the refusals of a round, without contacting anyone.

        Reasons are too few users, too many keys to check, spent votes, and too few or too many departed
        users. Only users know their votes under other terms; they refuse when they receive the round.
        """
        mined = [question for question in questions if question.names]
        spent = [
            Refusal(
                "already_spent",
                f"votes on {' × '.join(question.names)} were already sent in this epoch: wait for the next "
                "epoch",
            )
            for question in mined
            if question in self._spent
        ]
        if not mined:
            return []
        return spent + roster_refusals(self.terms, frozenset(self.users), self._rosters, mined)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries; raise InputError if the counts of a round have noise."""
        self._check_exact()
        return super().check(queries)

    def count(self, questions: Sequence[Question]) -> list[Counts]:
        """Return the tables of questions; raise InputError if the counts of a round have noise."""
        self._check_exact()
        return super().count(questions)

    def _check_exact(self) -> None:
        if self.terms.noise is not None:
            raise InputError("The users redraw their answers, so that counts are not exact: use NoisyVotes.")

    def hold_round(self, questions: Sequence[Question]) -> KnownCounts:
        """Mine the counts of a round. The number of people is known without a round."""
        mined = [question for question in questions if question.names]
        people = {question: np.array(self.n) for question in questions if not question.names}
        if not mined:
            return KnownCounts(self.policy, people, self.n)
        current = MiningRound(self.terms, next(self._numbers), self.users, mined, workers=self._workers)
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
                self.record_spent(current)
        return KnownCounts(self.policy, people | current.tables, len(current.invitation.users))

    def earlier(self) -> list[CountedRound]:
        """Return the rounds with noise that were counted before: none in this process."""
        return []

    def lost_tables(self) -> int:
        """Return the number of tables of earlier rounds whose votes were sent but not counted: none here."""
        return 0

    def hold(self, questions: Sequence[Question]) -> CountedRound:
        """Mine the counts of redrawn votes in one round, for `NoisyVotes`.

        Parameters
        ----------
        questions : sequence of Question
            Whole tables.

        Returns
        -------
        CountedRound
            Counts of the answers as they were drawn.
        """
        people = tuple(self.terms.roster.places[user] for user in self.users)
        counts = FrequencyTally.hold_round(self, questions)
        return CountedRound({question: counts.count([question])[0] for question in questions}, people)

    def hand_out(self, current: MiningRound) -> None:
        """Send every user the next message, and process their answers. Silent users count as missing."""
        for user in current.invitation.users:
            reply = self._exchange(user, current.message)
            if reply is not None:
                self.take(current, reply)

    def take(self, current: MiningRound, reply: bytes) -> None:
        """Process a user's answer. An answer without a valid signature is ignored.

        Parameters
        ----------
        current : MiningRound
            The round.
        reply : bytes
            The user's message.
        """
        with suppress(DecodingError, SealBroken):
            current.receive(reply)

    def record_spent(self, current: MiningRound) -> None:
        """Record a round in which votes were or may have been sent.

        Its questions are closed if the round ends without counts.
        """
        self._rosters.append(frozenset(current.invitation.users))
        if current.phase != "done":
            self._spent.update(current.invitation.questions)

    def _renew(self) -> None:
        self.n = len(self.users)
        self.guarantee = frequency_guarantee(
            self.terms, self.n, shared_checks=self._shared_checks, agreed=self._agreed
        )
