"""Counts of people who redraw their votes for each table, by frequency mining, as a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from masquerade.channels.noise.redraws import RedrawTerms
from masquerade.channels.policy import Policy, check_policy
from masquerade.core.errors import InputError, Refusal
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.util.formatting import counted
from masquerade.protocols.frequency_mining.messages import FrequencyTerms
from masquerade.sources.noise.contrasts import TableFusion
from masquerade.sources.noise.redrawn_tables import RedrawnTables
from masquerade.sources.noise.table_cost import MOST_AXES, tables_to_ask
from masquerade.sources.people.frequency import FrequencyTally
from masquerade.sources.people.noisy_people import NoisyRounds, PeopleWithNoise, SamePeople

MOST_CELLS = 1 << 10  # cells of one table: its covariance is a matrix


class RedrawnRounds(NoisyRounds, Protocol):
    """Rounds of frequency mining whose votes are redrawn."""

    @property
    def terms(self) -> FrequencyTerms:
        """The terms that all users agreed to."""

    @property
    def guarantee(self) -> Guarantee:
        """The disclosures of all rounds together."""


class NoisyVotes(PeopleWithNoise):
    """A `Tally` over people who redraw their votes for each table; no party knows which votes were redrawn.

    A batch of queries is one round of frequency mining, in which votes are proved valid. Queries with
    conditions are answered from the table of all their variables. Tables of the same people are made
    consistent, and what follows from them is free of charge. If people leave between two rounds, tables of
    later rounds are kept apart.

    Parameters
    ----------
    rounds : FrequencyTally
        Frequency mining of users who agreed to terms with noise.
    policy : Policy
        Policy that the users agreed to; nothing is disguised.

    Examples
    --------
    >>> from masquerade.simulation import FrequencyMining, synthetic_people
    >>> people = synthetic_people(12)
    >>> noise = mq.people.VoteNoise(epsilon=3, tables=3, colluders=2)
    >>> source = mq.people.NoisyVotes(FrequencyMining(people, noise=noise).tally(), people.policy)
    >>> [table] = source.answer([mq.Query(by="sex")])
    >>> round(table.total), source.tables_spent, source.tables_left
    (12, 1, 2)
    """

    terms: RedrawTerms

    def __init__(self, rounds: FrequencyTally | RedrawnRounds, policy: Policy) -> None:
        terms = rounds.terms
        redraws = terms.redraws
        if redraws is None:
            raise InputError("The users did not agree to any noise: use FrequencyTally.")
        if terms.policy.id != check_policy(policy).id:
            raise InputError("The users agreed to a different policy.")
        self.guarantee = rounds.guarantee
        super().__init__(rounds, policy, redraws, terms.sizes, len(terms.members))

    def tables_to_count(self, queries: Sequence[Query], latest: SamePeople | None) -> list[list[Query]]:
        """Return the tables to count: complete tables, each of which spends one table of the budget.

        Parameters
        ----------
        queries : sequence of Query
            New queries.
        latest : SamePeople or None
            Tables of the people who were counted last.

        Returns
        -------
        list of list of Query
            One query per table.
        """
        covered = [] if latest is None else latest.covered_variables
        return tables_to_ask([Query(by=query.names) for query in queries], covered, [], self.schema)

    def count_tables(self, queries: Sequence[Query]) -> int:
        """Return the number of tables: one for each query with variables."""
        return len([query for query in queries if query.names])

    def size_refusals(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of tables so large that answers would be random, or errors not computable."""
        most = min(self.terms.most_cells, MOST_CELLS)
        for query in queries:
            cells = self.question(query).cells(self.sizes)
            if cells > most or len(query.names) > MOST_AXES:
                reason = (
                    f"A table of redrawn votes has at most {most:,} cells and {MOST_AXES} "
                    "variables, conditions included. This table has "
                    f"{cells:,} cells and {counted(len(query.names), 'variable')}."
                )
                return [Refusal("too_many_cells", reason, query)]
        return []

    def same_people(self, n: int) -> SamePeople:
        """Return an empty collection for the tables of the same `n` people."""
        return _SameVoters(self, n)


class _SameVoters(SamePeople):
    """Tables of the same people, whose votes were redrawn for each of them."""

    def __init__(self, source: NoisyVotes, n: int) -> None:
        super().__init__(source, n)
        self._redraws = source.terms

    def covers(self, query: Query) -> bool:
        """Return True if one of the tables contains all variables of a query."""
        return any(names.issuperset(query.names) for names in self.covered_variables)

    def _fuse_answers(self) -> TableFusion:
        answers = self._budget.answers
        if self._fusion is None or self._fusion[0] != len(answers):
            counts = {query: cells for query, (cells, _) in answers.items()}
            self._fusion = (len(answers), RedrawnTables(self.schema, self.n, counts, self._redraws))
            self._tables.clear()
        return self._fusion[1]
