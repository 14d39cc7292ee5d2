"""Counting questions answered by secure aggregation: one round a batch, and never twice what is known."""

from __future__ import annotations

from collections.abc import Sequence

from masquerade.channels.policy import Policy, check_policy
from masquerade.core.errors import InputError, Refusal
from masquerade.core.util.formatting import printable
from masquerade.protocols.people.questions import Question
from masquerade.protocols.secure_aggregation.agreement import MOST_COUNTS, Batch
from masquerade.protocols.secure_aggregation.guarantee import aggregation_guarantee
from masquerade.protocols.secure_aggregation.server import Rounds
from masquerade.sources.people.count_rounds import CountRounds, KnownCounts


class AggregationTally(CountRounds):
    """A `Tally` over people who each hold one record: exact sums, and nobody sees a record.

    A batch of questions is one round. What an earlier round has counted is not asked again; of overlapping
    tables in one batch only the largest is. With a policy, users report disguised records and the sums are
    corrected as those of disguised records are. `n` of a table is the number of users who survived its
    round.

    >>> from masquerade.simulation import Aggregation, made_up_people
    >>> people = made_up_people(30)
    >>> population = Aggregation(people.codes, people.policy, mq.people.Parameters.of(30))
    >>> source = mq.people.AggregationTally(population, people.policy)
    >>> source.answer([mq.Query(by="sex")])[0].total
    30.0
    """

    def __init__(self, rounds: Rounds, policy: Policy, *, most_counts: int = MOST_COUNTS) -> None:
        check_policy(policy)
        if rounds.terms.policy.id != policy.id:
            raise InputError("The users agreed to another policy than this one.")
        if not 1 <= most_counts <= MOST_COUNTS:
            raise InputError(f"A round counts from 1 to {MOST_COUNTS:,} cells. Got {most_counts} instead.")
        super().__init__(policy)
        self.rounds, self.most_counts = rounds, most_counts
        self.n = rounds.terms.parameters.users
        self.guarantee = aggregation_guarantee(rounds.terms)

    @printable
    def __repr__(self) -> str:
        """Show how many users of which variables."""
        return f"{type(self).__name__}({self.n:,} users, {self.schema!r}, {len(self.held)} rounds)"

    def refusals(self, questions: Sequence[Question]) -> list[Refusal]:
        """Return why a round would be refused: by its size, by the rules of the users."""
        cells = sum(question.cells(self.sizes) for question in questions)
        if cells <= self.most_counts:
            return self.rounds.refusals()
        reason = f"the batch has {cells:,} cells, a vote at most {self.most_counts:,}"
        return [Refusal("too_many_cells", reason), *self.rounds.refusals()]

    def hold_round(self, questions: Sequence[Question]) -> KnownCounts:
        """Have the users vote."""
        batch = Batch(tuple(questions), self.sizes)
        outcome = self.rounds.ask(batch)
        return KnownCounts(self.policy, batch.tables(outcome.counts), len(outcome.survivors))
