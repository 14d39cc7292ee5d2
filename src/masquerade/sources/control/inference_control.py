"""Query auditing (inference control): decide, given all earlier answers, whether a query may be answered.

By default refusals are *simulatable* (Kenthapadi, Mishra and Nissim 2005): they follow from the queries
alone, so that the analyst could have predicted them and learns nothing. Rules that depend on the counts, such
as a minimum set size, are `DataDependentRules`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain, combinations
from math import prod
from typing import Any

from masquerade.core.errors import InputError, Refusal, did_you_mean
from masquerade.core.query import Query
from masquerade.core.schema import Category, Schema
from masquerade.core.table import CountTable
from masquerade.core.tally import Selected, Tally, check_source, raise_refusals
from masquerade.core.util.processes import ForkSafeLock
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.people.ledger import MemoryLedger, PersonLedger
from masquerade.sources.control.answer_history import Answered, AnswerHistory, Knowledge, joint_schema
from masquerade.sources.control.cell_space import CellSpace
from masquerade.sources.control.data_dependent_rules import (
    MOST_SETS,
    CountCheck,
    DataDependentRules,
    describe_query,
)
from masquerade.sources.control.disclosure_profiles import (
    Dominance,
    MostCategories,
    check_share,
    expand_profile,
    most_in,
)
from masquerade.sources.control.record_binding import RecordBinding

SIMULATABLE = "refusals follow from the questions alone, and tell nothing about the records"
TELLING = "refusals depend on the counts: each reveals to the analyst that a rule was broken"
UNLIMITED = 1000  # variables: more than any table has
HISTORY = "everything that was ever answered about these records is in the history of this source"


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of query auditing: the cells that must stay undetermined.

    These rules do not depend on the records, except for `data_dependent`.

    Parameters
    ----------
    protect : sequence of sequences of str, optional
        Sets of variables. No cell that names all variables of a set may follow from the answers by adding and
        subtracting.
    most_variables : int, optional
        Protect all sets of more than this many variables. Without `protect` and `most_variables`, the cells
        of all variables together are protected: the records themselves.
    impossible : sequence of mappings, optional
        Cells that are publicly known never to occur.
    data_dependent : DataDependentRules, optional
        Rules that depend on the counts.
    least_dof : int, optional
        Least degrees of freedom: number of records minus number of parameters. A table counts as the model
        that reproduces it, with one parameter fewer than cells, since smaller models can be computed from it.
    most_parameters : float, optional
        Most parameters, as a share of the number of records.
    most_categories : MostCategories, optional
        Most categories of a counted variable.
    dominance : Dominance, optional
        Rules of sums. A source of counts does not have the contributions, so it refuses such rules;
        `masquerade output check` applies them where the contributions are stated.

    Examples
    --------
    >>> rules = mq.Rules(protect=[["pills", "exams"]])
    >>> source = mq.Controlled(mq.tally(mq.data.students()), rules)
    >>> [refusal.code for refusal in source.check([mq.Query(by=("exams", "pills"))])]
    ['determined']
    """

    protect: Sequence[Sequence[str]] = ()
    most_variables: int | None = None
    impossible: tuple[Mapping[str, Category], ...] = ()
    data_dependent: DataDependentRules | None = None
    least_dof: int | None = None
    most_parameters: float | None = None
    most_categories: MostCategories | None = None
    dominance: Dominance | None = None

    def __post_init__(self) -> None:
        if isinstance(self.protect, str) or any(isinstance(it, str) or not it for it in self.protect):
            raise InputError(
                "'protect' of rules must list sets of variables, such as [[age, sex], [disease]]."
            )
        object.__setattr__(self, "protect", tuple(tuple(dict.fromkeys(names)) for names in self.protect))
        object.__setattr__(self, "impossible", tuple(dict(cell) for cell in self.impossible))
        for name in ("most_variables", "least_dof"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(
                    f"{name!r} of rules must be an integer of at least 1. Got {value!r} instead."
                )
        if self.most_parameters is not None:
            check_share("most_parameters", self.most_parameters)

    @classmethod
    def none(cls) -> Rules:
        """Return rules that refuse nothing. The history of answers is kept all the same.

        Returns
        -------
        Rules
        """
        return cls(most_variables=UNLIMITED)

    @classmethod
    def profile(cls, name: str, *, magnitudes: bool = False, **keys: Any) -> Rules:
        """Return the rules of a profile.

        Parameters
        ----------
        name : {"datashield", "acro", "cms11"}
            Profile: the rules that DataSHIELD and ACRO have by default, or no cell of 1 to 10 people.
        magnitudes : bool, optional
            True where the contributions to sums are held: only there rules of dominance apply.
        **keys
            Keys of rules as in a settings file, which override the profile. None removes a key.

        Returns
        -------
        Rules

        Raises
        ------
        InputError
            If there is no such profile or key.

        Examples
        --------
        >>> mq.Rules.profile("cms11").data_dependent
        DataDependentRules(least_people=11, show_empty=True, most_overlap=None, least_width=0)
        """
        return cls.from_dict({"profile": name, **keys}, magnitudes=magnitudes)

    @classmethod
    def from_dict(cls, keys: Mapping[str, Any], *, magnitudes: bool = False) -> Rules:
        """Return rules from the keys of a file.

        Parameters
        ----------
        keys : mapping
            The names of the parameters and `profile`. Without `protect` and `most_variables`, no set of
            variables is protected.
        magnitudes : bool, optional
            True where the contributions to sums are held.

        Returns
        -------
        Rules

        Raises
        ------
        InputError
            If a key or its value is not valid.

        Examples
        --------
        >>> mq.Rules.from_dict({"profile": "acro", "least_dof": 20}).least_dof
        20
        """
        values = expand_profile(keys, magnitudes=magnitudes)
        names = [field.name for field in fields(cls)]
        for key in values:
            if key not in names:
                raise InputError(f"{key!r} is not a key of rules.{did_you_mean(key, names)}")
        if not values.get("protect") and values.get("most_variables") is None:
            values["most_variables"] = UNLIMITED
        try:
            for key, part_type in PARTS.items():
                if isinstance(values.get(key), Mapping):
                    values[key] = part_type(**values[key])
        except TypeError as error:
            raise InputError(f"Rules: {error}.") from None
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the rules as plain values, written out in full.

        Returns
        -------
        dict
            Keys with a value. `from_dict` reads them.
        """
        values = {key: value for key, value in asdict(self).items() if value is not None and value != ()}
        if self.most_variables == UNLIMITED:
            del values["most_variables"]
        for key in ("protect", "impossible"):
            if key in values:
                values[key] = [list(it) if key == "protect" else dict(it) for it in values[key]]
        for key in PARTS:
            if key in values:
                values[key] = {name: value for name, value in values[key].items() if value is not None}
        return values

    @property
    def limits_models(self) -> bool:
        """True if a rule depends on the number of records."""
        return any(it is not None for it in (self.least_dof, self.most_parameters, self.most_categories))

    def model_problem(self, parameters: int, n: int) -> str | None:
        """Return the rule that a model breaks.

        Parameters
        ----------
        parameters : int
            Number of its parameters.
        n : int
            Number of records.

        Returns
        -------
        str or None
            The rule as text; None if it breaks none.
        """
        if self.least_dof is not None and n - parameters < self.least_dof:
            return f"fewer than {self.least_dof} degrees of freedom"
        if self.most_parameters is not None and parameters > most_in(self.most_parameters, n):
            return f"more parameters than {self.most_parameters:g} of the number of records"
        return None

    def table_refusal(self, query: Query, schema: Schema, n: int) -> Refusal | None:
        """Return the refusal of a table that has too many cells or categories.

        Parameters
        ----------
        query : Query
            The table.
        schema : Schema
            The variables.
        n : int
            Number of records.

        Returns
        -------
        Refusal or None
            None if the table is allowed.
        """
        if self.most_categories is not None:
            most = self.most_categories.limit(n)
            for name in query.by:
                if len(schema[name]) > most:
                    reason = (
                        f"{describe_query(query)} counts {name}, which has more than {most} categories, the "
                        "most for this number of records. Merge categories, or query without it."
                    )
                    return Refusal("too_many_categories", reason[0].upper() + reason[1:], query)
        problem = self.model_problem(prod(schema.shape(query.by)) - 1, n)
        if problem is None:
            return None
        reason = f"{describe_query(query)} has {problem}. Query fewer variables."
        return Refusal("too_many_parameters", reason[0].upper() + reason[1:], query)

    @property
    def simulatable(self) -> bool:
        """True if refusals follow from the queries alone."""
        return self.data_dependent is None

    def check(self, schema: Schema) -> None:
        """Raise InputError if the rules name unknown variables or categories."""
        for name in chain.from_iterable(self.protect):
            if name not in schema:
                hint = did_you_mean(name, schema)
                raise InputError(f"The rules protect {name!r}, which is not a variable.{hint}")
        CellSpace(schema, self.impossible)

    def protects(self, names: Collection[str], schema: Schema) -> tuple[str, ...] | None:
        """Find a protected set among some variables.

        Parameters
        ----------
        names : collection of str
            Variables of a cell.
        schema : Schema
            All variables of the source.

        Returns
        -------
        tuple of str or None
            The protected variables, or None if the cell is not protected.
        """
        sets = self.protect or (() if self.most_variables is not None else (schema.names,))
        for some in sets:
            if set(some) <= set(names):
                return tuple(some)
        if self.most_variables is not None and len(set(names)) > self.most_variables:
            return tuple(name for name in schema if name in names)
        return None


PARTS = {"data_dependent": DataDependentRules, "most_categories": MostCategories, "dominance": Dominance}


class InferenceControl:
    """Decides which queries may be answered under some rules, given all answers in a ledger.

    `counts` is queried for exact counts if rules depend on the data; `n` is the number of records. Cells
    that were determined before these rules applied are no longer protected, but no further cells may be
    determined.
    """

    def __init__(
        self,
        schema: Schema,
        rules: Rules,
        ledger: PersonLedger | None = None,
        counts: Tally | None = None,
        n: int | None = None,
    ) -> None:
        rules.check(schema)
        if rules.dominance is not None:
            raise InputError(
                "Rules of dominance need the contributions to sums, which a source of counts does not have. "
                "Check sums where the contributions are held: masquerade output check."
            )
        if rules.limits_models and n is None:
            raise InputError("Rules about parameters and categories need the number of records.")
        if rules.data_dependent is not None and counts is None:
            raise InputError("Rules that depend on the data need a source of exact counts.")
        self.schema, self.rules, self._counts, self._n = schema, rules, counts, n
        self.history = AnswerHistory(MemoryLedger() if ledger is None else ledger)
        self._turns = ForkSafeLock()  # one thread at a time: each must know the answers to the others
        self._turn, self._known = 0, Knowledge(CellSpace(schema, rules.impossible))
        self._at_risk = False  # True if earlier answers join a protected set of variables

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries, decided in sequence."""
        with self._turns:
            return self._decide(queries)[0]

    def admit(self, queries: Sequence[Query], *, recipient: str = "", purpose: str = "") -> None:
        """Store the queries in the history, or raise `QueryRefused` if one must not be answered."""
        with self._turns:
            self._admit(queries, recipient, purpose)

    def _admit(self, queries: Sequence[Query], recipient: str, purpose: str) -> None:
        while True:
            refusals, turn, new = self._decide(queries)
            raise_refusals(refusals)
            if not new:
                return
            names = dict.fromkeys(name for query in new for name in query.names)
            variables = tuple(self.schema[name] for name in names)
            try:
                self.history.add(turn, Answered(tuple(new), variables, recipient, purpose))
            except KeySpent:  # another process has answered concurrently: its answers count too
                continue
            return

    def _decide(self, queries: Sequence[Query]) -> tuple[list[Refusal], int, list[Query]]:
        """Return the refusals, the length of the history, and the queries that would be new in it."""
        for query in queries:
            query.check(self.schema)
        turn, known = self._knowledge()
        known = known.copy()
        refusals: list[Refusal] = []
        new: list[Query] = []
        for query in dict.fromkeys(queries):
            if query in known.queries:
                continue
            if self._n is not None and (refused := self.rules.table_refusal(query, self.schema, self._n)):
                refusals.append(refused)
                continue
            if self._harmless(query, known):
                known.learn(query)
                new.append(query)
                continue
            more = known.copy()
            more.learn(query)
            refusal = self._refusal(query, known, more)
            if refusal is None:
                known = more
                new.append(query)
            else:
                refusals.append(refusal)
        return refusals, turn, new

    def _harmless(self, query: Query, known: Knowledge) -> bool:
        """Return True if no protected cell could be determined, so that no span is needed."""
        joined = known.space.closure(query.names)
        return not (
            self._at_risk or self.rules.data_dependent or self.rules.protects(joined, self.schema) is not None
        )

    def _knowledge(self) -> tuple[int, Knowledge]:
        """Return the length of the history, and the knowledge from it."""
        new = self.history.entries(self._turn)
        schema = joint_schema(self._known.space.schema, new)
        if schema != self._known.space.schema:  # other sessions added variables: start again with them
            self._turn, new = 0, self.history.entries()
            self._known = Knowledge(CellSpace(schema, self.rules.impossible))
            self._at_risk = False
        for query in (query for entry in new for query in entry.queries):
            self._known.learn(query)
            joined = self._known.space.closure(query.names)
            self._at_risk = self._at_risk or self.rules.protects(joined, self.schema) is not None
        self._turn += len(new)
        return self._turn, self._known

    def _refusal(self, query: Query, before: Knowledge, known: Knowledge) -> Refusal | None:
        if known.span.rank == before.span.rank:  # it follows from earlier answers, and reveals nothing new
            return None
        protected = self.rules.protects(query.names, self.schema)
        if protected is not None:
            shows = f"{describe_query(query)} shows cells of {' × '.join(protected)}"
            return self._determined_refusal(query, protected, shows)
        for names in self._candidates(known):
            cells = known.space.cells(names)
            if any(
                known.span.contains(it) and not before.span.contains(it)
                for it in map(known.space.vector, cells)
            ):
                shows = (
                    f"{describe_query(query)} determines, with earlier answers, a cell of {' × '.join(names)}"
                )
                return self._determined_refusal(query, names, shows)
        if self.rules.data_dependent is None or self._counts is None:
            return None
        return CountCheck(before, known, self.rules.data_dependent, self._counts).refusal(query)

    def _candidates(self, known: Knowledge) -> Iterator[tuple[str, ...]]:
        """Yield the sets of variables with protected cells that the answers could determine.

        Without impossible cells and earlier answers there are none: a query would have to name them all.
        """
        for joined in known.joined:
            if self.rules.protects(joined, self.schema) is None:
                continue
            names = known.sort_names(joined)
            if prod(size + 1 for size in known.space.schema.shape(names)) > MOST_SETS:
                raise InputError(
                    f"Too many cells of {', '.join(names)} could be determined. Name fewer impossible cells."
                )
            for size in range(1, len(names) + 1):
                yield from (
                    some for some in combinations(names, size) if self.rules.protects(some, self.schema)
                )

    def _determined_refusal(self, query: Query, names: Sequence[str], shows: str) -> Refusal:
        options = [name for name in names if name in query.names]
        instead = f" Query without {' or '.join(options)}." if options else " Query other variables."
        reason = f"{shows}, which must stay undetermined whatever the counts.{instead}"
        return Refusal("determined", reason[0].upper() + reason[1:], query)


class Controlled:
    """A `Tally` that answers only what its rules allow, given everything that it has answered before.

    Parameters
    ----------
    source : Tally
        Source of the counts.
    rules : Rules
        Cells that must stay undetermined. `Rules()` protects the cells of all variables together,
        `Rules.profile` has the rules of other systems, and `Rules.none()` refuses nothing.
    history : Ledger, optional
        Ledger of answered queries, written durably before an answer is returned. A `FileLedger` outlives the
        process and may be shared by several. It stores a digest of the records, and refuses other records
        with the code ``other_people``.
    keys : sequence, optional
        Keys of the people, one per record. With keys, a history accepts the same people with other columns.
        Without keys it accepts the same records.
    other_people : bool, optional
        Answer about other records under the same history. Differences of answers then show the values of the
        people in which the sets of records differ.

    Raises
    ------
    InputError
        Without rules, or if the source cannot be checked against them.

    Examples
    --------
    >>> source = mq.Controlled(mq.tally(mq.data.students()[["exams", "pills"]]), mq.Rules())
    >>> source.answer([mq.Query(by="exams")])[0].values.tolist()
    [300.0, 300.0]
    >>> [refusal.code for refusal in source.check([mq.Query(by=("exams", "pills"))])]
    ['determined']
    """

    def __init__(
        self,
        source: Tally,
        rules: Rules | None = None,
        history: PersonLedger | None = None,
        *,
        keys: Iterable[object] | None = None,
        other_people: bool = False,
    ) -> None:
        check_source(source)
        if not isinstance(rules, Rules):
            raise InputError(
                "Controlled(source, rules) needs rules that say what must stay undetermined, such as "
                "Rules(most_variables=2) or Rules.profile('datashield'). Rules.none() refuses nothing."
            )
        self.source, self.schema, self.rules = source, source.schema, rules
        depends = not rules.simulatable or rules.limits_models
        if depends and any(it.noise_epsilon for it in source.guarantee.disclosures):
            raise InputError(
                "Rules that depend on the data read exact counts, and this source has counts with noise. Use "
                "rules without data_dependent and without limits of models."
            )
        ledger = MemoryLedger() if history is None else history
        n = source.answer([Query()])[0].n if rules.limits_models else None
        self.control = InferenceControl(self.schema, self.rules, ledger, source, n)
        self._binding, self._other_people = RecordBinding(ledger, source, keys), other_people
        told = (SIMULATABLE if self.rules.simulatable else TELLING, HISTORY)
        self.guarantee = replace(source.guarantee, assumptions=(*source.guarantee.assumptions, *told))

    def __repr__(self) -> str:
        """Return the controlled source as text."""
        return f"Controlled({self.source!r})"

    @property
    def simulatable(self) -> bool:
        """True if refusals follow from the queries alone."""
        return self.rules.simulatable

    def select(self, names: Iterable[str]) -> Selected:
        """Return some variables as a separate source."""
        return Selected(self, names)

    def check(self, queries: Sequence[Query]) -> list[Refusal]:
        """Return the refusals of queries at this moment. Concurrent answers may add more."""
        return [*self.source.check(queries), *self._other_records(), *self.control.check(queries)]

    def _other_records(self) -> list[Refusal]:
        """Return a refusal if the history is about other records."""
        refusal = None if self._other_people else self._binding.refusal()
        return [] if refusal is None else [refusal]

    def answer(self, queries: Sequence[Query]) -> list[CountTable]:
        """Answer a whole batch once it is in the history, or nothing."""
        if isinstance(queries, Query):
            raise InputError("A source answers a list of queries: write answer([query]).")
        raise_refusals([*self.source.check(queries), *self._other_records()])
        self._binding.bind(other_people=self._other_people)
        raise_refusals(self._other_records())
        self.control.admit(queries)
        return self.source.answer(queries)
