"""Source of counts of people with noise that no party knows, counted in rounds of secure aggregation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

from masquerade.channels.noise.disjoint_queries import group_disjoint
from masquerade.channels.noise.terms import NoiseStage, NoiseTerms
from masquerade.channels.policy import Policy, check_policy
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.core.tally import Selected, raise_refusals
from masquerade.core.util.formatting import counted, printable
from masquerade.protocols.people.questions import Question
from masquerade.protocols.secure_aggregation.agreement import MOST_COUNTS, AggregationTerms, QuestionBatch
from masquerade.protocols.secure_aggregation.guarantee import aggregation_guarantee
from masquerade.protocols.secure_aggregation.server import Rounds
from masquerade.sources.noise.noisy import NoisyTally
from masquerade.sources.noise.spent_tables import Cells
from masquerade.sources.noise.table_cost import canonical_query, is_small, tables_to_ask
from masquerade.sources.people.count_rounds import CountedRound


class NoisyRounds(Protocol):
    """Rounds whose sums have noise: in this process, or over a network."""

    def refusals(self, questions: Sequence[Question], /) -> list[Refusal]:
        """Return the reasons why a round with these questions would not be answered. No side effects."""

    def earlier(self) -> list[CountedRound]:
        """Return the rounds that were counted before."""

    def lost_tables(self) -> int:
        """Return the number of tables that people spent in earlier rounds that ended without counts."""

    def hold(self, questions: Sequence[Question]) -> CountedRound:
        """Count the questions in one round."""


class PeopleWithNoise(ABC):
    """A `Tally` over people whose sums have noise that nobody knows, counted in rounds.

    Subclasses set the guarantee, and state what queries cost and how the tables of the same people are made
    consistent.
    """

    guarantee: Guarantee

    def __init__(
        self, rounds: NoisyRounds, policy: Policy, terms: NoiseTerms, sizes: Mapping[str, int], n: int
    ) -> None:
        self._rounds = rounds
        self.policy, self.schema, self.terms, self.sizes, self.n = policy, policy.schema, terms, sizes, n
        self._groups: dict[tuple[int, ...], SamePeople] = {}
        self._spent, self._held = rounds.lost_tables(), 0
        for one in rounds.earlier():
            self._add(one)

    @abstractmethod
    def tables_to_count(self, queries: Sequence[Query], latest: SamePeople | None) -> list[list[Query]]:
        """Return the tables to count for queries: for each, its queries."""

    @abstractmethod
    def count_tables(self, queries: Sequence[Query]) -> int:
        """Return the number of tables that a round with these queries spends."""

    @abstractmethod
    def size_refusals(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of a round because of the sizes of its tables."""

    @abstractmethod
    def same_people(self, n: int) -> SamePeople:
        """Return an empty collection for the tables of the same `n` people."""

    @printable
    def __repr__(self) -> str:
        """Return the number of people, the variables and the privacy guarantee as text."""
        return f"{type(self).__name__}({self.n:,} people, {self.schema!r}, ε = {self.terms.epsilon:g})"

    @property
    def tables_spent(self) -> int:
        """Return the number of tables that are spent."""
        return self._spent

    @property
    def tables_left(self) -> int:
        """Return the number of tables that are left."""
        return self.terms.number - self._spent

    @property
    def rounds_held(self) -> int:
        """Return the number of rounds so far."""
        return self._held

    def select(self, names: Iterable[str]) -> Selected:
        """Return a source with only the named variables."""
        return Selected(self, names)

    def cost(self, queries: Sequence[Query]) -> int:
        """Return the number of tables that queries would spend now, beyond the tables that were answered."""
        return len(self._new_tables(queries))

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries: because of their size, the budget, or the rules of the people."""
        groups = self._new_tables(queries)
        return self.refusals([query for group in groups for query in group]) if groups else []

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch from the tables of earlier rounds, and the rest in one round."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        groups = self._new_tables(queries)
        if groups:
            self.hold_round([query for group in groups for query in group])
        return [self._covering(query).table(query) for query in queries]

    def hold_round(self, queries: Sequence[Query]) -> CountedRound:
        """Count queries in one round, even if their answers are known; the tables are spent."""
        raise_refusals(self.refusals(queries))
        try:
            counted_round = self._rounds.hold([self.question(query) for query in queries])
        except RoundAborted as error:
            if error.spent:  # votes may have been sent: people do not draw these tables again
                self._spent += self.count_tables(queries)
            raise
        self._add(counted_round)
        return counted_round

    def refusals(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of a round with these queries, none of which was answered. No side effects."""
        questions = [self.question(query) for query in queries]
        found = self.size_refusals(queries)
        if found:
            return [*found, *self._rounds.refusals(questions)]
        needed = self.count_tables(queries)
        if needed > self.tables_left:
            reason = (
                f"These queries take {counted(needed, 'table')}, and {self.tables_left} of "
                f"{self.terms.number} are left. Tables that were answered stay free of charge."
            )
            return [Refusal("budget_spent", reason)]
        return self._rounds.refusals(questions)

    def question(self, query: Query) -> Question:
        """Return the question of a query."""
        conditions = {name: self.schema[name].code(label) for name, label in query.where}
        return Question.about(query.by, conditions, self.policy.observed)

    def query(self, question: Question) -> Query:
        """Return the query of a question."""
        where = {name: self.schema[name].categories[code] for name, code in question.conditions}
        return canonical_query(Query(by=question.columns, where=where), self.schema)

    def _new_tables(self, queries: Sequence[Query]) -> list[list[Query]]:
        for query in queries:
            query.check(self.schema)
        new = [query for query in queries if query.names and not any(g.covers(query) for g in self._latest())]
        return self.tables_to_count(new, next(iter(self._latest()), None))

    def _latest(self) -> list[SamePeople]:
        return list(reversed(self._groups.values()))

    def _covering(self, query: Query) -> SamePeople:
        groups = self._latest() or [self.same_people(self.n)]
        return next(group for group in groups if not query.names or group.covers(query))

    def _add(self, counted_round: CountedRound) -> None:
        """Add the tables of a round to those of the same people."""
        queries = [self.query(question) for question in counted_round.tables]
        group = self._groups.pop(counted_round.people, None) or self.same_people(len(counted_round.people))
        self._groups[counted_round.people] = group  # the latest is last
        tables = self.count_tables(queries)
        group.add(queries, tables, [cells.reshape(-1) for cells in counted_round.tables.values()])
        self._spent, self._held, self.n = self._spent + tables, self._held + 1, len(counted_round.people)


class NoisyPeople(PeopleWithNoise):
    """A `Tally` over people whose votes carry shares of noise: nobody knows the noise of a sum.

    A batch of queries is one round. Tables of the same people are made consistent, and what follows from them
    is free of charge. If people leave between two rounds, tables of later rounds are kept apart. `n` of a
    table is the number of people counted in its round.

    Parameters
    ----------
    rounds : Rounds
        Session of users whose terms state noise.
    policy : Policy
        Policy that the users agreed to; nothing is disguised.

    Examples
    --------
    >>> from masquerade.simulation import Aggregation, synthetic_people
    >>> people = synthetic_people(60)
    >>> noise = mq.people.SumNoise(epsilon=3, tables=5)
    >>> population = Aggregation(people.codes, people.policy, mq.people.Parameters.of(60, noise=noise))
    >>> source = mq.people.NoisyPeople(population, people.policy)
    >>> [table] = source.answer([mq.Query(by="sex")])
    >>> round(table.total), source.tables_spent, source.tables_left
    (60, 1, 4)
    """

    def __init__(self, rounds: Rounds | NoisySums, policy: Policy) -> None:
        terms = rounds.terms
        if terms.noise is None:
            raise InputError("The users did not agree to any noise: use AggregationTally.")
        if terms.policy.id != check_policy(policy).id:
            raise InputError("The users agreed to a different policy.")
        self.guarantee = aggregation_guarantee(terms)
        held = cast(NoisySums, rounds) if hasattr(rounds, "hold") else _LocalRounds(rounds)
        super().__init__(held, policy, terms.noise, terms.sizes, terms.parameters.users)

    def tables_to_count(self, queries: Sequence[Query], latest: SamePeople | None) -> list[list[Query]]:
        """Return the tables to count; queries about disjoint sets of people share a table.

        Parameters
        ----------
        queries : sequence of Query
            New queries.
        latest : SamePeople or None
            Tables of the people who were counted last.

        Returns
        -------
        list of list of Query
            For each table, its queries.
        """
        covered = [] if latest is None else latest.covered_variables
        answered = [] if latest is None else latest.answered_queries
        return tables_to_ask(queries, covered, answered, self.schema)

    def count_tables(self, queries: Sequence[Query]) -> int:
        """Return the number of tables; queries about disjoint sets of people share a table."""
        return len(group_disjoint([query for query in queries if query.names]))

    def size_refusals(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of a round because of the sizes of its tables and of a vote."""
        for query in queries:
            if not is_small(query, self.schema):
                return [Refusal("too_many_cells", "The table of a query has too many cells.", query)]
        cells = sum(self.question(query).cells(self.sizes) for query in queries)
        if cells > MOST_COUNTS:
            reason = f"the batch has {cells:,} cells, more than the {MOST_COUNTS:,} that one vote may have"
            return [Refusal("too_many_cells", reason)]
        return []

    def same_people(self, n: int) -> SamePeople:
        """Return an empty collection for the tables of the same `n` people."""
        return SamePeople(self, n)


class NoisySums(NoisyRounds, Protocol):
    """Rounds of secure aggregation whose sums have noise."""

    @property
    def terms(self) -> AggregationTerms:
        """The terms that all users agreed to."""


class SamePeople(NoisyTally):
    """Tables of the same people, made consistent. They are drawn elsewhere."""

    def __init__(self, source: PeopleWithNoise, n: int) -> None:
        super().__init__(source.schema, n, source.terms, None, present=n)
        self.guarantee = source.guarantee

    @property
    def covered_variables(self) -> list[frozenset[str]]:
        """Return the variables of each table that is known without conditions."""
        return [frozenset(query.by) for query in self._budget.answers if not query.where]

    @property
    def answered_queries(self) -> list[Query]:
        """Return the known queries with conditions."""
        return [query for query in self._budget.answers if query.where]

    def covers(self, query: Query) -> bool:
        """Return True if these tables answer a query."""
        known = canonical_query(query, self.schema) in self._budget.answers
        return known or any(names.issuperset(query.names) for names in self.covered_variables)

    def add(self, queries: Sequence[Query], tables: int, cells: Sequence[Cells]) -> None:
        """Store the tables of a round."""
        self._budget.store(self._budget.spend(queries, tables, 0), cells)
        self._budget.refresh()

    def table(self, query: Query) -> CountTable:
        """Return the consistent table of a query that is covered."""
        return self._table(query)

    def _prepare(self, queries: Sequence[Query]) -> Any:
        del queries
        raise InputError("Tables of people can be counted in rounds only.")

    def _open_cells(self, prepared: Any, queries: Sequence[Query], stage: NoiseStage) -> list[Cells]:
        del prepared, queries, stage
        raise InputError("Tables of people can be counted in rounds only.")


class _LocalRounds:
    """Rounds of secure aggregation in this process."""

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds

    @property
    def terms(self) -> AggregationTerms:
        return self._rounds.terms

    def refusals(self, questions: Sequence[Question]) -> list[Refusal]:
        del questions
        return self._rounds.refusals()

    def earlier(self) -> list[CountedRound]:
        return []

    def lost_tables(self) -> int:
        return 0

    def hold(self, questions: Sequence[Question]) -> CountedRound:
        batch = QuestionBatch(tuple(questions), self.terms.sizes)
        outcome = self._rounds.ask(batch)
        return CountedRound(batch.tables(outcome.counts), outcome.survivors)
