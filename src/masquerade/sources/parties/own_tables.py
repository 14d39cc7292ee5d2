"""Tables counted by the parties themselves, each over its own clear columns and others' reports.

There is no miner (Model I). Every table is counted by the party that holds most of its variables. That party
receives from the others only the reports that their policies allow. The learner receives counts, not records,
and inverts the channels. One disguise of a column serves all parties that need it.

In an arbitrary partition a variable is split: several parties hold it, each for some of the people. The
counting party has its own values in clear and those of others as reports. So it counts every `Stratum`
separately: the people for whom it holds the same shared variables. The estimates of the strata are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import Guarantee
from masquerade.core.likelihood_rows import LikelihoodRows, NoLikelihood
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import Merged, Tally, raise_refusals
from masquerade.protocols.people.questions import Counts, Question
from masquerade.protocols.vertical.disguised_cells import combine_policies, restrict_to_variables
from masquerade.sources.likelihood_rows import likelihood_rows_of_joint
from masquerade.sources.people.count_rounds import JointCounts
from masquerade.sources.records import Records

MOST_CELLS = 2**20  # most cells of all tables in one request
Tables = Sequence[tuple[str, ...]]
Asked = Callable[[str, Tables], Sequence[Sequence[int]]]


class Stratum(NamedTuple):
    """People for whom a party holds the same shared variables, and their number."""

    clear: tuple[str, ...]
    people: int


Strata = Callable[[str], Sequence[Stratum]]
AskedByStratum = Callable[[str, Tables], Sequence[Sequence[Sequence[int]]]]


def who_counts(names: Sequence[str], owners: Mapping[str, Sequence[str]]) -> str:
    """Return the party that holds most of the variables. Ties go to the party with the last variable.

    For a class and a feature this is the owner of the feature, so the class is sent.
    """

    def places(party: str) -> tuple[int, int]:
        own = [place for place, name in enumerate(names) if name in owners[party]]
        return len(own), max(own, default=-1)

    return max(owners, key=places)


def foreign(
    tables: Iterable[Sequence[str]], owners: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the variables that must be sent to count the tables, by owner and counting party.

    >>> foreign([("a", "b", "c")], {"x": ["a"], "y": ["b", "c"]})
    {('x', 'y'): ('a',)}
    """
    found: dict[tuple[str, str], dict[str, None]] = {}
    for names in tables:
        receiver = who_counts(names, owners)
        for giver, own in owners.items():
            if giver != receiver and not set(own).isdisjoint(names):
                found.setdefault((giver, receiver), {}).update(dict.fromkeys(n for n in own if n in names))
    return {pair: tuple(names) for pair, names in found.items()}


def shared_by(party: str, policies: Mapping[str, Policy]) -> tuple[str, ...]:
    """Return the variables of a party that other parties hold too, for other people."""
    others = {name for other, policy in policies.items() if other != party for name in policy.schema}
    return tuple(name for name in policies[party].schema if name in others)


def view_of(
    party: str,
    policies: Mapping[str, Policy],
    crossing: Mapping[tuple[str, str], Sequence[str]],
    clear: Sequence[str] = (),
) -> Policy:
    """Return the policy of a party's view: its own variables in clear, others' as their policies allow.

    Of the variables that it shares with others, the `clear` ones are in clear, and those that are not sent
    are omitted, since every variable of a view must cover all people.
    """
    own, shared = policies[party], shared_by(party, policies)
    crossed = {giver: names for (giver, to), names in crossing.items() if to == party}
    whole = {name for names in crossed.values() for name in names}
    disguised = [name for name in shared if name not in clear and name in whole]
    plain = [name for name in own.schema if name not in shared or name in clear]
    seen = [
        restrict_to_variables(policies[giver], [name for name in names if name not in clear])
        for giver, names in crossed.items()
    ]
    order = [*own.schema, *(name for names in crossing.values() for name in names)]
    return combine_policies(
        [restrict_to_variables(own, plain).without_channels(), restrict_to_variables(own, disguised), *seen],
        order,
    )


def count_reports(records: Records, tables: Tables) -> list[list[int]]:
    """Return the number of records with each combination of reports, one list per table."""
    observed = records.policy.observed
    for names in tables:
        for name in names:
            observed[name]
    if sum(prod(observed.shape(names)) for names in tables) > MOST_CELLS:
        raise InputError(f"At most {MOST_CELLS:,} cells are counted in one request.")
    seen = Records(records.codes, Policy.clear(observed))
    found = seen.answer([Query(by=names) for names in tables])
    return [
        np.rint(np.moveaxis(table.values, [table.names.index(n) for n in names], range(len(names))))
        .astype(np.int64)
        .ravel()
        .tolist()
        for table, names in zip(found, tables, strict=True)
    ]


class _CountedByParty(JointCounts):
    """The tables that one party counts."""

    most_cells = MOST_CELLS

    def __init__(self, party: str, policy: Policy, n: int, ask: Asked) -> None:
        super().__init__(policy)
        self.n, self._party, self._ask = n, party, ask
        self._known: dict[Question, Counts] = {}

    def count(self, questions: Sequence[Question]) -> list[Counts]:
        """Return tables. Conditional tables are slices of joint tables, and no table is requested twice."""
        joint = [self.joint(question) for question in questions]
        fresh = [question for question in dict.fromkeys(joint) if question not in self._known]
        if fresh:
            told = self._ask(self._party, [question.columns for question in fresh])
            if len(told) != len(fresh):
                raise self._wrong()
            for question, cells in zip(fresh, told, strict=True):
                shape = question.shape(self.sizes)
                if len(cells) != prod(shape) or min(cells) < 0 or sum(cells) != self.n:
                    raise self._wrong()
                self._known[question] = np.array(cells, dtype=np.int64).reshape(shape)
        return [
            one.pick_table(self._known[one], wanted) for one, wanted in zip(joint, questions, strict=True)
        ]

    def _wrong(self) -> RoundAborted:
        reason = f"Party {self._party!r} sent an invalid table, or a table of other records."
        return RoundAborted(reason, spent=True, culprits=(self._party,))


class OwnTables:
    """A `Tally` whose tables are each counted by the party that holds most of their variables.

    `policies` are the policies of all parties, `crossing` the variables that each receives from others, and
    `n` the number of records. `ask` requests tables of a party's view.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        crossing: Mapping[tuple[str, str], Sequence[str]],
        n: int,
        ask: Asked,
        guarantee: Guarantee,
    ) -> None:
        self.guarantee, self.n = guarantee, n
        self._policies, self._crossing, self._ask = policies, crossing, ask
        self._owners = {party: policy.schema.names for party, policy in policies.items()}
        self.schema = Schema(
            list({item.name: item for it in policies.values() for item in it.schema.variables}.values())
        )
        self._checked = {
            party: _CountedByParty(party, view_of(party, policies, crossing), n, ask) for party in policies
        }

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries by the counting parties, without contacting them."""
        for query in queries:
            query.check(self.schema)
        return [
            refusal
            for party, some in self._shared_out(queries).items()
            for refusal in self._checked[party].check(some)
        ]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch, with one request per counting party."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        found: dict[Query, CountTable] = {}
        for party, some in self._shared_out(queries).items():
            found.update(zip(some, self._view(party).answer(some), strict=True))
        return [found[query] for query in queries]

    def likelihood_rows(self, over: Sequence[str]) -> LikelihoodRows:
        """Return P(report | truth) of every record, from the table that one party counts."""
        (party,) = self._shared_out([Query(by=tuple(over))])
        view = self._view(party)
        if not isinstance(view, JointCounts):
            raise NoLikelihood("the records are counted in strata of parties that hold different cells.")
        return likelihood_rows_of_joint(view, over)

    def _view(self, party: str) -> Tally:
        return self._checked[party]

    def _shared_out(self, queries: Sequence[Query]) -> dict[str, list[Query]]:
        found: dict[str, list[Query]] = {}
        for query in dict.fromkeys(queries):
            found.setdefault(who_counts(query.names, self._owners), []).append(query)
        return found


class OwnTablesOfStrata(OwnTables):
    """`OwnTables` for arbitrary partitions: parties count stratum by stratum.

    `strata` requests a party's strata; `ask` requests tables, for every stratum.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        crossing: Mapping[tuple[str, str], Sequence[str]],
        strata: Strata,
        ask: AskedByStratum,
        guarantee: Guarantee,
    ) -> None:
        super().__init__(policies, crossing, 0, lambda _party, _tables: [], guarantee)
        self._strata, self._told = strata, ask
        self._views: dict[str, Merged] = {}

    def _view(self, party: str) -> Tally:
        """Return the tables of a party. Its strata are validated before anything is counted."""
        if party not in self._views:
            told, shared = self._strata(party), set(shared_by(party, self._policies))
            n = sum(stratum.people for stratum in told)
            distinct = len({stratum.clear for stratum in told}) == len(told) > 0
            if not distinct or not all(set(s.clear) <= shared and s.people > 0 for s in told):
                reason = f"Party {party!r} sent invalid strata."
                raise RoundAborted(reason, spent=True, culprits=(party,))
            if self.n and n != self.n:
                reason = f"Party {party!r} counts {n:,} people, but another party counts {self.n:,}."
                raise RoundAborted(reason, spent=True, culprits=(party,))
            self.n, answers = n, _OnceAsked(self._told)
            self._views[party] = Merged(
                [
                    _CountedByParty(
                        party,
                        view_of(party, self._policies, self._crossing, stratum.clear),
                        stratum.people,
                        answers.of(place, len(told)),
                    )
                    for place, stratum in enumerate(told)
                ],
                of="records",
            )
        return self._views[party]


class _OnceAsked:
    """Requests tables from a party once, and splits the reply by stratum."""

    def __init__(self, ask: AskedByStratum) -> None:
        self._ask = ask
        self._replies: dict[tuple[tuple[str, ...], ...], Sequence[Sequence[Sequence[int]]]] = {}

    def of(self, place: int, strata: int) -> Asked:
        """Return the request function of a stratum."""

        def asked(party: str, tables: Tables) -> Sequence[Sequence[int]]:
            wanted = tuple(map(tuple, tables))
            if wanted not in self._replies:
                self._replies[wanted] = self._ask(party, tables)
            told = self._replies[wanted]
            if len(told) != len(tables) or any(len(parts) != strata for parts in told):
                return []  # an incomplete reply is refused by its reader
            return [parts[place] for parts in told]

        return asked
