"""Counting queries by secure aggregation: one round per batch, and no known count is queried again."""

from __future__ import annotations

from collections.abc import Sequence

from masquerade.channels.policy import Policy, check_policy
from masquerade.core.errors import InputError, Refusal
from masquerade.core.util.formatting import printable
from masquerade.protocols.people.questions import Question
from masquerade.protocols.secure_aggregation.agreement import MOST_COUNTS, QuestionBatch
from masquerade.protocols.secure_aggregation.guarantee import aggregation_guarantee
from masquerade.protocols.secure_aggregation.server import Rounds
from masquerade.sources.people.count_rounds import CountRounds, KnownCounts


class AggregationTally(CountRounds):
    """A `Tally` over people who each hold one record: exact sums, and nobody sees a record.

    A batch of queries is one round. Counts of earlier rounds are not queried again, and of overlapping tables
    in one batch, only the largest is queried. With a policy, users report disguised records, and the sums are
    corrected like those of disguised records. `n` of a table is the number of users who completed its round.

    Parameters
    ----------
    rounds : Rounds
        Session of users that holds rounds.
    policy : Policy
        Policy that the users agreed to.
    most_counts : int, optional
        Largest number of cells in one round.

    Examples
    --------
    >>> from masquerade.simulation import Aggregation, synthetic_people
    >>> people = synthetic_people(30)
    >>> population = Aggregation(people.codes, people.policy, mq.people.Parameters.of(30))
    >>> source = mq.people.AggregationTally(population, people.policy)
    >>> source.answer([mq.Query(by="sex")])[0].total
    30.0
    """

    def __init__(self, rounds: Rounds, policy: Policy, *, most_counts: int = MOST_COUNTS) -> None:
        check_policy(policy)
        if rounds.terms.policy.id != policy.id:
            raise InputError("The users agreed to a different policy.")
        if rounds.terms.parameters.noise is not None:
            raise InputError("The users add noise, so that sums are not exact: use NoisyPeople.")
        if not 1 <= most_counts <= MOST_COUNTS:
            raise InputError(
                f"'most_counts' must be between 1 and {MOST_COUNTS:,}. Got {most_counts} instead."
            )
        super().__init__(policy)
        self.rounds, self.most_counts = rounds, most_counts
        self.n = rounds.terms.parameters.users
        self.guarantee = aggregation_guarantee(rounds.terms)

    @printable
    def __repr__(self) -> str:
        """Return the number of users and the variables as text."""
        return f"{type(self).__name__}({self.n:,} users, {self.schema!r}, {len(self.held)} rounds)"

    def refusals(self, questions: Sequence[Question]) -> list[Refusal]:
        """Return the refusals of a round: because of its size or the rules of the users."""
        cells = sum(question.cells(self.sizes) for question in questions)
        if cells <= self.most_counts:
            return self.rounds.refusals()
        reason = f"the batch has {cells:,} cells, more than the {self.most_counts:,} that one vote may have"
        return [Refusal("too_many_cells", reason), *self.rounds.refusals()]

    def hold_round(self, questions: Sequence[Question]) -> KnownCounts:
        """Run a round and return its counts."""
        batch = QuestionBatch(tuple(questions), self.sizes)
        outcome = self.rounds.ask(batch)
        return KnownCounts(self.policy, batch.tables(outcome.counts), len(outcome.survivors))
