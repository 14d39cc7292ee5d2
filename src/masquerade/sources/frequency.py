"""Frequency mining as a source of counts: every learner runs on people who each keep their own record."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.core.tally import raise_refusals
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.protocols.frequency.agreement import Counts, Question, Terms, implied, implied_counts, ordered
from masquerade.protocols.frequency.guarantee import frequency_guarantee
from masquerade.protocols.frequency.messages import Exchange
from masquerade.protocols.frequency.miner import Round
from masquerade.protocols.frequency.rules import Roster, roster_refusals, spent_refusals
from masquerade.sources.query_plan import Factor, Layout, QueryPlan
from masquerade.sources.record_store import Observed
from masquerade.sources.report_tally import ReportTally


@dataclass(frozen=True, slots=True)
class Answered:
    """The counts of a question, and over how many people."""

    table: Counts
    people: int


class FrequencyTally(ReportTally):
    """Counts over people, mined in rounds; a `Tally` on which every learner runs unchanged.

    The caller is the miner, and learns the counts that it asks for and nothing else. A batch of questions is
    one round; what follows from counts already known is never asked again. `exchange` hands a user a message
    and returns the answer. `users` are those who take part, all members if not given; `agreed` are earlier
    epochs that they agreed this one may differ from by few people, and the guarantee says so.

    A round that fails raises `RoundAborted`: users who were missing or cheated are left out from then on, and
    if votes had left (`spent`), the questions of that round are closed until the next epoch.
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
        super().__init__(terms.policy)
        self.terms, self._exchange, self._workers = terms, exchange, workers
        self.users: tuple[str, ...] = tuple(terms.names if users is None else users)
        unknown = [user for user in self.users if user not in terms.members]
        if unknown or len(set(self.users)) < len(self.users):
            raise InputError("Users to be counted must be members, each once.")
        self._shared_checks, self._agreed = shared_checks, tuple(agreed)
        self._answers: dict[Question, Answered] = {}
        self._spent: set[Question] = set()
        self._rosters: list[Roster] = []
        # two miners of one epoch hardly ever give a round the same number, and users would notice
        self._numbers = count(secrets.randbelow(2**30))
        self._parts = [
            _Counted(self, Layout(terms.policy.groups_of(label), self.schema), code)
            for code, label in enumerate(terms.policy.strata or (None,))
        ]
        self._renew()

    def __repr__(self) -> str:
        """Show how many people answer about which variables."""
        return f"{type(self).__name__}({self.n:,} users, {self.schema!r})"

    @property
    def rounds(self) -> int:
        """Return how many rounds votes have left in."""
        return len(self._rosters)

    def parts(self, questions: int) -> Sequence[_Counted]:  # noqa: ARG002  (records are never compressed here)
        """Return the strata of the policy, which are counted apart."""
        return self._parts

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return why queries would be refused; asks nobody.

        Beside what any source refuses: too few users, too many keys to check, votes spent, too few departed
        or too many. What users voted in under other terms only they know, and refuse when they are asked.
        """
        found = super().check(queries)
        if found:
            return found
        asked = self._open(self._questions(queries))
        if not asked:
            return []
        refusals = spent_refusals(asked, self._spent)
        return refusals + roster_refusals(self.terms, frozenset(self.users), self._rosters, asked)

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch in one round, or in none if all follows from what is known."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        self.fetch(self._questions(queries))
        return super().answer(queries)

    def fetch(self, questions: Sequence[Question]) -> list[Answered]:
        """Return the counts of questions, mining what is not known yet."""
        asked = self._open(questions)
        if asked:
            self._mine(asked)
        return [self._known(question) for question in questions]

    def _questions(self, queries: Sequence[Query]) -> list[Question]:
        return [
            question_of(part.layout.plan(query), self.terms)[0] for query in queries for part in self._parts
        ]

    def _open(self, questions: Sequence[Question]) -> list[Question]:
        """Return the questions to ask: none that follows from an answer, or from another one asked."""
        wanted = sorted(
            {
                question
                for question in questions
                if question.names and not self._follows(question, self._answers)
            },
            key=lambda question: (-len(question.names), question.names, question.conditions),
        )
        asked: list[Question] = []
        for question in wanted:
            if not self._follows(question, asked):
                asked.append(question)
        return asked

    @staticmethod
    def _follows(question: Question, known: Iterable[Question]) -> bool:
        return any(implied(question, other) for other in known)

    def _known(self, question: Question) -> Answered:
        if not question.names:
            return Answered(np.array(self.n, dtype=np.int64), self.n)
        if question not in self._answers:
            larger = next(other for other in self._answers if implied(question, other))
            found = self._answers[larger]
            table = implied_counts(question, larger, found.table)
            self._answers[question] = Answered(table, found.people)
        return self._answers[question]

    def _mine(self, asked: Sequence[Question]) -> None:
        current = Round(self.terms, next(self._numbers), self.users, asked, workers=self._workers)
        try:
            while current.phase != "done":
                for user in current.invitation.users:
                    self._hand(current, user)
                current.advance()
        except RoundAborted as error:
            self._leave_out(error.culprits)
            raise
        finally:
            if current.votes_may_have_left:
                self._rosters.append(frozenset(current.invitation.users))
                if current.phase != "done":
                    self._spent.update(asked)
        people = len(current.invitation.users)
        self._answers |= {
            question: Answered(table, people) for question, table in zip(asked, current.tables, strict=True)
        }

    def _hand(self, current: Round, user: str) -> None:
        reply = self._exchange(user, current.message)
        if reply is None:
            return
        try:
            current.receive(reply)
        except (DecodingError, SealBroken):
            return  # not signed by anybody: as good as no answer

    def _leave_out(self, culprits: Sequence[str]) -> None:
        self.users = tuple(user for user in self.users if user not in set(culprits))
        self._renew()

    def _renew(self) -> None:
        self.n = len(self.users)
        self.guarantee = frequency_guarantee(
            self.terms, self.n, shared_checks=self._shared_checks, agreed=self._agreed
        )

    def records_behind(self, query: Query) -> int:
        """Return how many people were counted for an answer, though some may have left since."""
        question, _ = question_of(self._parts[0].layout.plan(query), self.terms)
        return self._known(question).people


class _Counted:
    """The people of one stratum, or all: sums that plans want, from counts mined together."""

    def __init__(self, tally: FrequencyTally, layout: Layout, stratum: int) -> None:
        self.layout, self._tally, self._stratum = layout, tally, stratum

    def observe(self, plans: Sequence[QueryPlan]) -> list[Observed]:
        """Return the sums that plans want."""
        terms = self._tally.terms
        questions = [question_of(plan, terms) for plan in plans]
        answers = self._tally.fetch([question for question, _ in questions])
        return [
            weighed(self._own(question, found.table), question, plan, spread, terms)
            for plan, (question, spread), found in zip(plans, questions, answers, strict=True)
        ]

    def _own(self, question: Question, table: Counts) -> Counts:
        """Return the counts of this stratum alone, all others zero."""
        by = self._tally.policy.stratum_variable
        if by is None:
            return table
        if by not in question.columns:
            return table if dict(question.conditions)[by] == self._stratum else np.zeros_like(table)
        index = [slice(None)] * table.ndim
        index[question.columns.index(by)] = slice(self._stratum, self._stratum + 1)
        kept = np.zeros_like(table)
        kept[tuple(index)] = table[tuple(index)]
        return kept


def question_of(plan: QueryPlan, terms: Terms) -> tuple[Question, tuple[Factor, ...]]:
    """Return what has to be counted for a plan, and the factors that become axes of it.

    A factor on clear columns is a condition: those who do not have it are not counted. Any other factor
    weighs all reports, so these are counted, and weighed afterwards. Strata are counted apart.
    """
    conditions: dict[str, int] = {}
    spread = plan.weighing
    for factor in plan.factors:
        if factor.code is not None:
            codes = np.unravel_index(factor.code, factor.sizes)
            conditions |= {name: int(code) for name, code in zip(factor.columns, codes, strict=True)}
    by = terms.policy.stratum_variable
    own = [] if by is None or by in conditions else [by]
    columns = ordered([*plan.columns, *[name for factor in spread for name in factor.columns], *own], terms)
    pairs = tuple((name, conditions[name]) for name in ordered(list(conditions), terms))
    return Question(columns, pairs), spread


def weighed(
    table: Counts, question: Question, plan: QueryPlan, spread: Sequence[Factor], terms: Terms
) -> Observed:
    """Return the sums of weights and of their squares over the observed cells of a plan."""
    order = [*plan.columns, *[name for factor in spread for name in factor.columns]]
    rest = [name for name in question.columns if name not in order]
    axes = [question.columns.index(name) for name in (*order, *rest)]
    sizes = [len(factor.vector) for factor in spread] + [terms.sizes[name] for name in rest]
    cells = table.transpose(axes).reshape((*plan.observed_shape, *sizes))
    counted: Floats = cells.sum(axis=tuple(range(cells.ndim - len(rest), cells.ndim))).astype(np.float64)
    return Observed.of(plan, counted)
