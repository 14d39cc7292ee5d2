"""Tables that parties count for themselves, each over its own columns in clear and others' reports.

There is no miner (Model I): every table is counted by the party that holds most of its variables, which needs
of others only what the policies of their owners let it see. Whoever learns gets counts, no records, and
undoes what the policies did. One disguise of a column serves everybody who needs it.

Where any cell may be at any party, several hold some of a variable's cells. Whoever counts has its own of
them as they are and others' as reports, so it counts every `Stratum` of people apart: those of whom it holds
the same shared variables. Their estimates add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, Refusal, RoundAborted
from masquerade.core.guarantee import Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import Merged, Tally, raise_refusals
from masquerade.protocols.people.questions import Counts, Question
from masquerade.protocols.vertical.disguised_cells import combined, restricted
from masquerade.sources.people.count_rounds import JointCounts
from masquerade.sources.records import Records

MOST_CELLS = 2**20  # of all tables that are asked for at once
Tables = Sequence[tuple[str, ...]]
Asked = Callable[[str, Tables], Sequence[Sequence[int]]]


class Stratum(NamedTuple):
    """People of whom a party holds the same of the shared variables, and how many there are."""

    clear: tuple[str, ...]
    people: int


Strata = Callable[[str], Sequence[Stratum]]
AskedByStratum = Callable[[str, Tables], Sequence[Sequence[Sequence[int]]]]


def who_counts(names: Sequence[str], owners: Mapping[str, Sequence[str]]) -> str:
    """Return the party that holds most of some variables; of several that with the last one.

    Of a class and a feature that is the feature's owner: what crosses is the class.
    """

    def places(party: str) -> tuple[int, int]:
        own = [place for place, name in enumerate(names) if name in owners[party]]
        return len(own), max(own, default=-1)

    return max(owners, key=places)


def foreign(
    tables: Iterable[Sequence[str]], owners: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return what must cross for some tables: variables by their owner and by who counts with them.

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
    """Return the variables of a party that others hold as well, of other people."""
    others = {name for other, policy in policies.items() if other != party for name in policy.schema}
    return tuple(name for name in policies[party].schema if name in others)


def view_of(
    party: str,
    policies: Mapping[str, Policy],
    crossing: Mapping[tuple[str, str], Sequence[str]],
    clear: Sequence[str] = (),
) -> Policy:
    """Return what a party sees: its own variables as they are, others' as their policies let them be seen.

    Of the variables that it shares with others, those are seen as they are that are `clear`, and none that
    does not cross: nobody's view has a variable of some people only.
    """
    own, shared = policies[party], shared_by(party, policies)
    crossed = {giver: names for (giver, to), names in crossing.items() if to == party}
    whole = {name for names in crossed.values() for name in names}
    disguised = [name for name in shared if name not in clear and name in whole]
    plain = [name for name in own.schema if name not in shared or name in clear]
    seen = [
        restricted(policies[giver], [name for name in names if name not in clear])
        for giver, names in crossed.items()
    ]
    order = [*own.schema, *(name for names in crossing.values() for name in names)]
    return combined([restricted(own, plain).undisguised(), restricted(own, disguised), *seen], order)


def counted(records: Records, tables: Tables) -> list[list[int]]:
    """Return how many records have each combination of reports, table by table, one after the other."""
    observed = records.policy.observed
    for names in tables:
        for name in names:
            observed[name]
    if sum(prod(observed.shape(names)) for names in tables) > MOST_CELLS:
        raise InputError(f"At most {MOST_CELLS:,} cells are counted at once.")
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
        """Return tables; what meets conditions is picked from joint tables, and none is asked for twice."""
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
        return [one.picked(self._known[one], wanted) for one, wanted in zip(joint, questions, strict=True)]

    def _wrong(self) -> RoundAborted:
        reason = f"Party {self._party!r} sent a table that is none, or of other records."
        return RoundAborted(reason, spent=True, culprits=(self._party,))


class OwnTables:
    """A `Tally` whose every table is counted by the party that holds most of its variables.

    `policies` are those of all parties, `crossing` what each of them sees of others', `n` the records that
    take part; `ask` has a party count tables of its view, cell by cell.
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
        """Return why queries would be refused by whoever counts them; asks nobody."""
        for query in queries:
            query.check(self.schema)
        return [
            refusal
            for party, some in self._shared_out(queries).items()
            for refusal in self._checked[party].check(some)
        ]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a batch, with one question to every party that counts some of it."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals(self.check(queries))
        found: dict[Query, CountTable] = {}
        for party, some in self._shared_out(queries).items():
            found.update(zip(some, self._view(party).answer(some), strict=True))
        return [found[query] for query in queries]

    def _view(self, party: str) -> Tally:
        return self._checked[party]

    def _shared_out(self, queries: Sequence[Query]) -> dict[str, list[Query]]:
        found: dict[str, list[Query]] = {}
        for query in dict.fromkeys(queries):
            found.setdefault(who_counts(query.names, self._owners), []).append(query)
        return found


class OwnTablesOfStrata(OwnTables):
    """The same where any cell may be at any party: whoever counts does so stratum by stratum.

    `strata` has a party say of whom it holds what; `ask` has it count tables, every stratum of each.
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
        """Return what a party counts: the strata it speaks of are looked at before anything is counted."""
        if party not in self._views:
            told, shared = self._strata(party), set(shared_by(party, self._policies))
            n = sum(stratum.people for stratum in told)
            distinct = len({stratum.clear for stratum in told}) == len(told) > 0
            if not distinct or not all(set(s.clear) <= shared and s.people > 0 for s in told):
                reason = f"Party {party!r} spoke of strata that are none."
                raise RoundAborted(reason, spent=True, culprits=(party,))
            if self.n and n != self.n:
                reason = f"Party {party!r} counts {n:,} people where another one counts {self.n:,}."
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
    """Asks a party for tables once, where every stratum of it wants its own part of the reply."""

    def __init__(self, ask: AskedByStratum) -> None:
        self._ask = ask
        self._replies: dict[tuple[tuple[str, ...], ...], Sequence[Sequence[Sequence[int]]]] = {}

    def of(self, place: int, strata: int) -> Asked:
        """Return who asks for a stratum."""

        def asked(party: str, tables: Tables) -> Sequence[Sequence[int]]:
            wanted = tuple(map(tuple, tables))
            if wanted not in self._replies:
                self._replies[wanted] = self._ask(party, tables)
            told = self._replies[wanted]
            if len(told) != len(tables) or any(len(parts) != strata for parts in told):
                return []  # what is no table of every stratum is refused by whoever reads it
            return [parts[place] for parts in told]

        return asked
