"""The text of a session: its members, its protocol, and the model to learn.

All members have the same text, and a node participates only if its own file consents to exactly that text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from masquerade.channels.noise.terms import NoiseTerms
from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, PolicyMismatch, QueryRefused, Refusal, did_you_mean
from masquerade.core.schema import Category, Schema
from masquerade.core.tally import Tally
from masquerade.learn import catalogue
from masquerade.learn.learner_types import Learner, Rehearsal
from masquerade.learn.option_types import plain_number
from masquerade.protocols.linkage.derived_keys import check_keys
from masquerade.services.common.settings import Name, Strict
from masquerade.services.parties import kinds
from masquerade.sources.link_error import LinkCorrected, LinkError


def one_of(names: Callable[[], Sequence[str]]) -> AfterValidator:
    """Return a validator of names; `names` is called at each validation, since plug-ins may add names."""

    def check(name: str) -> str:
        allowed = [repr(it) for it in names()]
        if repr(name) not in allowed:
            raise ValueError(f"must be {', '.join(allowed[:-1])} or {allowed[-1]}")
        return name

    return AfterValidator(check)


KindName = Annotated[str, one_of(kinds.names)]
LearnerName = Annotated[str, one_of(catalogue.names)]
Linking = Literal["intersection", "keyed"]
# messages for learners that lack a required option
NEEDS = {
    ("structure", "order"): "a network needs either a structure or an order",
    ("target",): "a classifier needs a target",
    ("tables",): "which tables? list their variables, as [[a], [a, b]]",
}
# Options that the first version always wrote, with their defaults. Digests still include them, so that a
# text keeps its digest and consents to it stay valid.
FIRST_VERSION: Mapping[str, Any] = {
    "structure": None,
    "order": None,
    "max_parents": 3,
    "target": None,
    "min_support": 0.1,
    "min_confidence": 0.6,
    "tables": [],
}
MOST_PARENTS = 10
# Fields that later versions added, with their defaults: digests omit a field that has its default, so that
# earlier texts keep their digests.
ADDED: Mapping[str, Any] = {
    "hide_order": False,
    "open_counts": [],
    "clusters": None,
    "noise": None,
    "link_by": [],
    "link_error": None,
}


class LearningGoal(Strict):
    """The model to learn and the options of its learner, named as for `masquerade learn`."""

    model_config = ConfigDict(extra="allow")

    model: LearnerName
    """The learner."""

    @model_validator(mode="before")
    @classmethod
    def _normalize(cls, values: Any) -> Any:
        """Normalize options; raise one ValueError that lists all problems."""
        if not isinstance(values, Mapping) or values.get("model") not in catalogue.names():
            return values
        learner = catalogue.learner(values["model"])
        options = {option.name: option for option in learner.options if not option.for_summary}
        given, faults = {"model": values["model"]}, []
        for name, value in values.items():
            if name == "model" or value is None or _is_first_version_default(name, value):
                continue
            if name not in options:
                faults.append(f"{learner.name!r} has no option {name!r}.{did_you_mean(name, options)}")
                continue
            try:
                given[name] = options[name].kind.to_file_value(value, name)
            except InputError as error:
                faults.append(str(error))
        faults += _missing_options(learner, given, values)
        if faults:
            raise ValueError(
                " ".join(fault if fault.endswith((".", "?")) else f"{fault}." for fault in faults)
            )
        return given

    @property
    def learner(self) -> Learner:
        """Return the learner."""
        return catalogue.learner(self.model)

    @property
    def options(self) -> dict[str, Any]:
        """Return the options as written, with the defaults of the first version."""
        names = {option.name for option in self.learner.options}
        defaults = {name: it for name, it in FIRST_VERSION.items() if name in names and it not in (None, [])}
        return {**defaults, **(self.model_extra or {})}

    def read(self, schema: Schema) -> dict[str, Any]:
        """Return the options parsed for a schema; raise one InputError that lists all problems."""
        return self.learner.read(self.options, schema)

    def needed_variables(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the given variables that the model needs."""
        return self.learner.needed_variables(self.options, names)

    def allows(self, names: Collection[str]) -> bool:
        """Return True if learning the model needs a table of exactly these variables."""
        return self.learner.asks(self.options, names) and len(self.needed_variables(names)) == len(names)

    def text(self) -> dict[str, Any]:
        """Return all options as the first version wrote them, for the digest."""
        return {**FIRST_VERSION, **self.model_dump(mode="json")}

    def faults(self, schema: Schema) -> list[str]:
        """Return the problems of the goal for a schema: unknown variables or values, and failed checks."""
        unknown = [name for name in self.learner.variables(self.options) if name not in schema]
        if unknown:
            return [
                f"The model names {name!r}, which no party brings.{did_you_mean(name, schema)} A variable "
                "needs categories in the policy of its party: a continuous column is grouped into bins there."
                for name in unknown
            ]
        try:
            self.learner.rehearse(schema, self.read(schema))
        except InputError as error:
            return [str(error)]
        return []


def _is_first_version_default(name: str, value: Any) -> bool:
    """Return True if a value is the default that the first version wrote for an omitted option."""
    plain = list(value) if isinstance(value, tuple) else plain_number(value)
    return name in FIRST_VERSION and type(plain) is type(FIRST_VERSION[name]) and plain == FIRST_VERSION[name]


def _missing_options(learner: Learner, given: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Return messages about options that are missing, that exclude each other, or that exceed a limit."""
    faults = []
    for names in learner.needs:
        present = [name for name in names if name in given or values.get(name) not in (None, (), [])]
        if len(present) != 1:
            faults.append(NEEDS.get(names, f"{learner.name} needs {' or '.join(names)}"))
    if given.get("max_parents", 0) > MOST_PARENTS:
        faults.append(f"max_parents must be at most {MOST_PARENTS} in a session")
    structure = given.get("structure", {})
    return faults + [
        f"the structure gives {node!r} the parent {parent!r}, which is not one of its nodes"
        for node, parents in structure.items()
        for parent in parents
        if parent not in structure
    ]


class ClusterTerms(Strict):
    """Results that k-means on secret shares opens, and when."""

    hide_steps: bool = False
    """Open centres and sizes once, after all `steps`; else after each step, until no centre moves."""
    steps: int = Field(30, ge=1, le=1000)
    """The largest number of steps; with `hide_steps`, the exact number."""
    least_size: int = Field(10, ge=1)
    """A cluster of fewer records opens nothing: its centre keeps its previous value."""
    draw_start: bool = False
    """Start with records drawn in secret, unknown to all parties, instead of the `start` in `learn`."""


class NoiseSettings(Strict):
    """Noise that every party adds to its counts before they are masked: only noisy sums are opened."""

    epsilon: float = Field(gt=0, le=20)
    """ε of all tables together, for each record."""
    delta: float = 1e-6
    """δ of all tables together: at least 1e-10, or 0."""
    tables: int = Field(ge=1, le=100_000)
    """The number of tables of the session, over all of its runs."""
    colluders: int = Field(1, ge=0)
    """The most parties that may reveal their noise; the others are honest and present to the end."""

    def terms(self, parties: int) -> NoiseTerms:
        """Return the terms for the parties of a session."""
        return NoiseTerms(self.epsilon, self.tables, self.delta, parties, self.colluders)


class MarginSettings(Strict):
    """Shares of categories among all records of the other party that could have been linked."""

    of: tuple[str, ...] = Field(min_length=1)
    """Variables of the other party."""
    shares: tuple[float, ...]
    """A share for each combination of their categories, the last variable's categories varying fastest."""


class LinkErrorSettings(Strict):
    """Rates of wrong and missing links, for which every table of the session is corrected."""

    other: Name | tuple[Name, ...]
    """The party whose values a wrong link replaces; a list for parties that show the same wrong person."""
    right: float | tuple[float, ...]
    """Share of links that pair the records of one person; with `by`, for each of its categories."""
    found: float | tuple[float, ...] = 1.0
    """Share of people at both parties whose records are linked rightly; with `by`, for each category."""
    by: str | None = None
    """The variable on which the rates depend; every table must contain it."""
    checked: int | tuple[int, ...] | None = None
    """The number of links that `right` was estimated from; without it, `right` is taken as known."""
    planted: int | tuple[int, ...] | None = None
    """The number of pairs that `found` was estimated from; without it, `found` is taken as known."""
    margins: tuple[MarginSettings, ...] = Field(min_length=1)
    """The margin of each set of variables of the other party that occurs in a table."""

    @property
    def others(self) -> tuple[str, ...]:
        """Return the parties whose values a wrong link replaces."""
        return (self.other,) if isinstance(self.other, str) else self.other

    def correct(self, source: Tally, joint: JointSchema) -> LinkCorrected:
        """Return the source with corrected tables; raise InputError if rates or margins are not valid."""
        schema, owners = source.schema, joint.owners
        replaced = [name for party in self.others for name in owners.get(party, ())]
        parties = " and ".join(repr(party) for party in self.others)
        labels = None if self.by is None else schema[self.by].categories
        rates = {name: self._by_category(name, labels) for name in ("right", "found", "checked", "planted")}
        margins: dict[tuple[str, ...], dict[Any, float]] = {}
        for margin in self.margins:
            cells = [*product(*(schema[name].categories for name in margin.of))]
            if len(cells) != len(margin.shares):
                raise InputError(
                    f"link_error: the margin of {', '.join(margin.of)} needs {len(cells)} shares."
                )
            if not set(margin.of) <= set(replaced) - {self.by}:
                raise InputError(f"link_error: {', '.join(margin.of)} must be variables of {parties}.")
            if min(margin.shares) < 0 or abs(sum(margin.shares) - 1) > 1e-6:
                raise InputError("link_error: the shares of a margin must be at least 0 and have sum 1.")
            keys = cells if len(margin.of) > 1 else [cell[0] for cell in cells]
            margins[margin.of] = dict(zip(keys, margin.shares, strict=True))
        return LinkCorrected(source, LinkError(by=self.by, **rates), replaced, margins)

    def _by_category(self, name: str, labels: Sequence[Category] | None) -> Any:
        """Return a field that has one value, or one value per category; the latter as a dict by category."""
        stated = getattr(self, name)
        if not isinstance(stated, tuple):
            return stated
        if labels is None or len(labels) != len(stated):
            raise InputError(
                f"link_error: a list in {name!r} needs one value for each category of the variable in 'by'."
            )
        return dict(zip(labels, stated, strict=True))


class SessionText(Strict):
    """Members and protocol of a session: fields of its text that a consent repeats."""

    session: Name
    """The name of the session, by which nodes consent to it."""
    protocol: KindName
    """The session type."""
    parties: tuple[Name, ...]
    """The nodes that hold records; a consent may list them in a different order."""
    convener: Name
    """The node that runs the session and receives the model; it is the miner or receiver of the protocol."""
    helper: Name | None = None
    """For exact or hidden counts: a node that deals randomness, neither a party nor the convener."""
    linking: Linking | None = None
    """How records are linked: by private set intersection or a shared secret. Not for `pooled-counts`."""
    link_by: tuple[tuple[str, ...], ...] = ()
    """Keys derived from `data.link_fields`, the strictest first: one round of linking for each."""
    link_error: LinkErrorSettings | tuple[LinkErrorSettings, ...] | None = None
    """Rates of wrong and missing links, for which tables are corrected; a list with several parties."""
    hide_order: bool = False
    """Only for `hidden-structure`: open parents at the end, not the winner of each step; takes longer."""
    clusters: ClusterTerms | None = None
    """Only for `hidden-k-means`: which results are opened, and when. The defaults are below."""
    noise: NoiseSettings | None = None
    """Only for `pooled-counts` of clear records: noise that nobody knows. Two parties are then enough."""
    open_counts: tuple[str, ...] = ()
    """Only for `hidden-structure`: variables whose counts with their parents are opened at the end."""


class SessionSpec(SessionText):
    """The text of a session, the same for all members."""

    masquerade: Literal[1] = 1
    """The version of the format, 1."""
    learn: LearningGoal
    """The model to learn."""
    policies: dict[Name, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = Field(default_factory=dict)
    """By party, the required id of its policy of the variables it brings (`masquerade policy id`)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Raise one ValueError that lists all problems of the text."""
        if len(set(self.parties)) < len(self.parties):
            raise ValueError("a party is named twice")
        problems = [*self.kind.problems(self)]
        if self.link_by:
            problems += self._problems_of_keys()
        if self.link_error is not None:
            problems += self._problems_of_link_errors()
        if self.helper in {*self.parties, self.convener}:
            problems.append("the helper must be neither a party nor the convener: it could unmask columns")
        if not set(self.policies) <= set(self.parties):
            problems.append("policies are pinned for parties only")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _problems_of_keys(self) -> Iterator[str]:
        """Yield problems with derived linking keys."""
        if self.linking != "intersection" or not self.kind.same_records:
            yield "link_by links the records that all parties have: it needs linking: intersection"
        try:
            check_keys(self.link_by)
        except InputError as error:
            yield f"link_by: {error}"

    def _problems_of_link_errors(self) -> Iterator[str]:
        """Yield problems with the correction of wrong and missing links."""
        kind, named = self.kind, [error.others for error in self.link_errors]
        if self.linking is None or not kind.same_records:
            yield "link_error corrects links between parties that have different columns"
        unknown = sorted({party for parties in named for party in parties} - {*self.parties})
        for party in unknown:
            yield f"link_error: {party!r} is not a party"
        if not named or not all(named) or any(len(set(parties)) < len(parties) for parties in named):
            yield "link_error: in each entry, 'other' must name a party, or several different parties"
        if len({frozenset(parties) for parties in named}) < len(named):
            yield "link_error: two entries have the same parties"
        if {*self.parties} <= {party for parties in named for party in parties}:
            yield "link_error: one party must have right values, but 'other' names all parties"
        if kind.opens is not None or not self.learn.learner.at_once:
            yield f"link_error needs tables known in advance, but {self.learn.model} also needs others"

    @property
    def link_errors(self) -> tuple[LinkErrorSettings, ...]:
        """Return the errors of links, in the order in which tables are corrected for them.

        If the record of the party whose values are right has another person's key, it is linked to that
        person's records at all other parties. Errors in the keys of those parties are additional, and are
        corrected first.
        """
        stated = self.link_error
        listed = () if stated is None else stated if isinstance(stated, tuple) else (stated,)
        return tuple(sorted(listed, key=lambda error: len(error.others)))

    def correct_links(self, source: Tally, joint: JointSchema) -> Tally:
        """Return the source with tables corrected for the stated errors of links."""
        wrong = {party for error in self.link_errors for party in error.others}
        for error in self.link_errors:
            for party in sorted(wrong):
                if error.by in joint.owners.get(party, ()):
                    raise InputError(
                        f"link_error: {error.by!r} belongs to {party!r}, whose values may be wrong."
                    )
            source = error.correct(source, joint)
        return source

    @property
    def linking_rounds(self) -> int:
        """Return the number of rounds of private set intersection."""
        return max(1, len(self.link_by))

    @property
    def noise_terms(self) -> NoiseTerms | None:
        """Return the terms of the noise that all parties add, None without noise."""
        return None if self.noise is None else self.noise.terms(len(self.parties))

    @property
    def kind(self) -> kinds.SessionKind:
        """Return the session type."""
        return kinds.find(self.protocol)

    @property
    def members(self) -> tuple[str, ...]:
        """Return the nodes that receive messages: the parties, and the helper if there is one."""
        return self.parties if self.helper is None else (*self.parties, self.helper)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the canonical text; consents refer to the session by this digest."""
        values = {**self.model_dump(mode="json"), "learn": self.learn.text()}
        values = {name: value for name, value in values.items() if name not in ADDED or value != ADDED[name]}
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def __copy__(self) -> Self:
        """Return a copy without the cached digest, since `model_copy` changes fields of the copy."""
        copied = super().__copy__()
        copied.__dict__.pop("digest", None)
        return copied

    def needed_variables(self, variables: Collection[str]) -> tuple[str, ...] | None:
        """Return the consented variables that a party brings into the session, None for all of them.

        Without linking all parties must have the same policy, so each brings all of its variables.
        """
        return self.learn.needed_variables(variables) if self.kind.linked else None

    def check(self, joint: JointSchema) -> None:
        """Check that the session can run with the policies of the parties.

        The convener checks before any data leaves a party, and each party before its columns leave.

        Raises
        ------
        InputError
            If the session cannot run; the message lists all problems.
        PolicyMismatch
            If a policy is not the one that the session pins; the message lists all problems.
        """
        faults = [
            f"Party {party!r} disguises under policy {joint.policies[party].id[:12]}…, but "
            f"{pinned[:12]}… was agreed."
            for party, pinned in self.policies.items()
            if party in joint.policies and joint.policies[party].id != pinned
        ]
        wrong = PolicyMismatch if faults else InputError
        try:
            schema = self.kind.schema(self, joint)
        except InputError as error:
            faults.append(str(error))
        else:
            faults += self.learn.faults(schema)
            faults += self.kind.faults(self, joint)
            if not faults and self.link_error is not None:
                faults += self._faults_of_link_errors(schema, joint)
        if faults:
            raise wrong(" ".join(faults))

    def _faults_of_link_errors(self, schema: Schema, joint: JointSchema) -> Iterator[str]:
        """Yield the problem if the correction of links does not fit the variables of the parties."""
        try:
            source = self.correct_links(Rehearsal(schema), joint)
            source.check(self.learn.learner.rehearse(schema, self.learn.read(schema)))
        except InputError as problem:
            yield str(problem)

    def refusal(self, why: str) -> QueryRefused:
        """Return the error with which a node refuses this session or one of its messages."""
        reason = f"Session {self.session!r} is not consented to: {why}."
        return QueryRefused([Refusal("not_consented", reason)])


@dataclass(frozen=True, slots=True)
class JointSchema:
    """The policy of each party, in the order of the session.

    A party that brings none of the needed variables is omitted.
    """

    policies: Mapping[str, Policy]

    @classmethod
    def from_dict(cls, values: Any, read: Mapping[str, Policy] = MappingProxyType({})) -> JointSchema:
        """Return the policies by party; policies in `read`, already built from the same text, are reused."""
        if not isinstance(values, dict):
            raise InputError("An arrangement must be a mapping from parties to policies.")
        texts = {str(party): policy for party, policy in values.items() if policy}
        return cls({party: read.get(party) or Policy.from_dict(policy) for party, policy in texts.items()})

    @property
    def owners(self) -> dict[str, tuple[str, ...]]:
        """Return the variables of each party."""
        return {party: policy.schema.names for party, policy in self.policies.items()}

    @property
    def schema(self) -> Schema:
        """Return all variables, in the order of parties; raise InputError if two parties share a variable."""
        listed = [variable for policy in self.policies.values() for variable in policy.schema.variables]
        names = [variable.name for variable in listed]
        for name in names:
            if names.count(name) > 1:
                raise InputError(
                    f"Two parties hold variable {name!r}; in this protocol only one may hold it."
                )
        return Schema(listed)
