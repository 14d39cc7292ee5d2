"""What a session is: who takes part, by which protocol, and what is to be learnt.

Everybody has the same text, and a node takes part only if its own file consents to exactly that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, PolicyMismatch, QueryRefused, Refusal, did_you_mean
from masquerade.core.schema import Schema
from masquerade.learn import catalogue
from masquerade.learn.option_types import plain_number
from masquerade.services.common.settings import Name, Strict
from masquerade.services.parties import kinds


def one_of(names: Callable[[], Sequence[str]]) -> AfterValidator:
    """Return a check that a text is one of some names, which other packages may add to."""

    def check(name: str) -> str:
        known = [repr(it) for it in names()]
        if repr(name) not in known:
            raise ValueError(f"must be {', '.join(known[:-1])} or {known[-1]}")
        return name

    return AfterValidator(check)


KindName = Annotated[str, one_of(kinds.names)]
LearnerName = Annotated[str, one_of(catalogue.names)]
Linking = Literal["intersection", "keyed"]
# what is said where a learner misses what it needs
NEEDS = {
    ("structure", "order"): "a network needs a structure or an order, one of them",
    ("target",): "a classifier needs a target",
    ("tables",): "which tables? list their variables, as [[a], [a, b]]",
}
# what sessions of the first version say even where it is not written, and what digests are made of
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
# what later versions added: where it is not said, a session has the digest that it always had
ADDED: Mapping[str, Any] = {"hide_order": False, "open_counts": [], "clusters": None}


class Goal(Strict):
    """What is learnt: a model, and what its learner is told, under the names that `masquerade learn` has."""

    model_config = ConfigDict(extra="allow")

    model: LearnerName
    """The kind of model."""

    @model_validator(mode="before")
    @classmethod
    def _written(cls, values: Any) -> Any:
        """Bring options into their one spelling; everything that is wrong with them is said at once."""
        if not isinstance(values, Mapping) or values.get("model") not in catalogue.names():
            return values
        learner = catalogue.learner(values["model"])
        told = {option.name: option for option in learner.options if not option.for_summary}
        given, faults = {"model": values["model"]}, []
        for name, value in values.items():
            if name == "model" or value is None or _unsaid(name, value):
                continue
            if name not in told:
                faults.append(f"{learner.name!r} has no option {name!r}.{did_you_mean(name, told)}")
                continue
            try:
                given[name] = told[name].kind.written(value, name)
            except InputError as error:
                faults.append(str(error))
        faults += _incomplete(learner, given, values)
        if faults:
            raise ValueError(
                " ".join(fault if fault.endswith((".", "?")) else f"{fault}." for fault in faults)
            )
        return given

    @property
    def learner(self) -> catalogue.Learner:
        """Return who learns it."""
        return catalogue.learner(self.model)

    @property
    def options(self) -> dict[str, Any]:
        """Return what the learner is told, as it is written."""
        known = {option.name for option in self.learner.options}
        unsaid = {name: it for name, it in FIRST_VERSION.items() if name in known and it not in (None, [])}
        return {**unsaid, **(self.model_extra or {})}

    def read(self, schema: Schema) -> dict[str, Any]:
        """Return what the learner is told about some variables; all that is wrong is raised at once."""
        return self.learner.read(self.options, schema)

    def needed(self, names: Collection[str]) -> tuple[str, ...]:
        """Return those of some variables that are needed to learn it."""
        return self.learner.needed(self.options, names)

    def allows(self, names: Collection[str]) -> bool:
        """Tell whether a table of these variables is needed to learn it."""
        return self.learner.asks(self.options, names) and len(self.needed(names)) == len(names)

    def text(self) -> dict[str, Any]:
        """Return everything that it says, as the first version wrote it."""
        return {**FIRST_VERSION, **self.model_dump(mode="json")}

    def faults(self, schema: Schema) -> list[str]:
        """Return what is wrong with learning it from some variables: names, values, what learners check."""
        named = [name for name in self.learner.variables(self.options) if name not in schema]
        if named:
            return [
                f"What is to be learnt names {name!r}, which no party brings.{did_you_mean(name, schema)}"
                for name in named
            ]
        try:
            self.learner.rehearse(schema, self.read(schema))
        except InputError as error:
            return [str(error)]
        return []


def _unsaid(name: str, value: Any) -> bool:
    """Tell whether a value is what the first version wrote for one that was not given."""
    plain = list(value) if isinstance(value, tuple) else plain_number(value)
    return name in FIRST_VERSION and type(plain) is type(FIRST_VERSION[name]) and plain == FIRST_VERSION[name]


def _incomplete(learner: catalogue.Learner, given: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Return what a learner misses, or has too much of; what was given and is wrong is said elsewhere."""
    faults = []
    for names in learner.needs:
        said = [name for name in names if name in given or values.get(name) not in (None, (), [])]
        if len(said) != 1:
            faults.append(NEEDS.get(names, f"{learner.name} needs {' or '.join(names)}"))
    if given.get("max_parents", 0) > MOST_PARENTS:
        faults.append(f"max_parents must be at most {MOST_PARENTS} in a session")
    structure = given.get("structure", {})
    return faults + [
        f"the structure gives {node!r} the parent {parent!r}, which is no node of it"
        for node, parents in structure.items()
        for parent in parents
        if parent not in structure
    ]


class ClusterTerms(Strict):
    """What of clusters that are found on shares opens, and when."""

    hide_steps: bool = False
    """Open centres and sizes once, after all `steps` are taken; else after each, until no centre moves."""
    steps: int = Field(30, ge=1, le=1000)
    """How many steps are taken: at most, or with `hide_steps` exactly."""
    least_size: int = Field(10, ge=1)
    """Of a cluster of fewer records nothing opens: its centre stays where it was."""
    draw_start: bool = False
    """Begin with records that nobody knows, drawn on shares, instead of the `start` in `learn`."""


class SessionText(Strict):
    """Who takes part in a session, and how: what its own text says, and what a node consents to."""

    session: Name
    """The name of the session, by which nodes consent to it."""
    protocol: KindName
    """How the parties work together."""
    parties: tuple[Name, ...]
    """The nodes that hold records; a node that consents may list them in another order."""
    convener: Name
    """The node that runs it and receives the model; a miner or receiver, if the protocol has one, is this."""
    helper: Name | None = None
    """For exact or hidden counts of several: a node that deals randomness, no party and not the convener."""
    linking: Linking | None = None
    """How records are linked, by private intersection or a shared secret; not for `pooled-counts`."""
    hide_order: bool = False
    """Only for `hidden-structure`: open parents at the end, not who won each step; scores many more sets."""
    clusters: ClusterTerms | None = None
    """Only for `hidden-k-means`: what of clusters opens, and when; as below where it is not said."""
    open_counts: tuple[str, ...] = ()
    """Only for `hidden-structure`: variables whose counts with the parents found are opened in the end."""


class SessionSpec(SessionText):
    """A session: the same for everybody who takes part."""

    masquerade: Literal[1] = 1
    """The version of the format, 1."""
    learn: Goal
    """What is learnt."""
    policies: dict[Name, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = Field(default_factory=dict)
    """By party, the id that its policy of the variables that take part must have (`masquerade policy id`)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.parties)) < len(self.parties):
            raise ValueError("a party is named twice")
        problems = [*self.kind.problems(self)]
        if self.helper in {*self.parties, self.convener}:
            problems.append("the helper must be neither a party nor the convener: it could unmask columns")
        if not set(self.policies) <= set(self.parties):
            problems.append("policies are pinned for parties only")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def kind(self) -> kinds.SessionKind:
        """Return how the parties work together."""
        return kinds.find(self.protocol)

    @property
    def members(self) -> tuple[str, ...]:
        """Return everybody who receives messages."""
        return self.parties if self.helper is None else (*self.parties, self.helper)

    @property
    def digest(self) -> str:
        """Return the sha256 of the canonical text: what consenting to this very session means."""
        said = {**self.model_dump(mode="json"), "learn": self.learn.text()}
        said = {name: value for name, value in said.items() if name not in ADDED or value != ADDED[name]}
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def needed(self, variables: Collection[str]) -> tuple[str, ...] | None:
        """Return which of the variables that a party consents to it brings, None for all.

        Where people are not linked all parties have one policy, and only what is counted differs.
        """
        return self.learn.needed(variables) if self.kind.linked else None

    def check(self, joint: JointSchema) -> None:
        """Refuse a session that cannot be held with what parties bring; all that is wrong is said at once.

        Whoever convenes looks before anything leaves a party, and every party before one of its columns does.
        """
        faults = [
            f"Party {party!r} disguises under policy {joint.policies[party].id[:12]}…, agreed was "
            f"{pinned[:12]}…."
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
        if faults:
            raise wrong(" ".join(faults))

    def refused(self, why: str) -> QueryRefused:
        """Return that a node refuses this session, or a message of it."""
        reason = f"Session {self.session!r} is not consented to: {why}."
        return QueryRefused([Refusal("not_consented", reason)])


@dataclass(frozen=True, slots=True)
class JointSchema:
    """What parties know of each other's variables: the policy of each, in the order of the session.

    A party that brings none of the variables that are needed has no policy here.
    """

    policies: Mapping[str, Policy]

    @classmethod
    def from_dict(cls, values: Any) -> JointSchema:
        """Read policies by party."""
        if not isinstance(values, dict):
            raise InputError("An arrangement is a mapping from parties to policies.")
        return cls({str(party): Policy.from_dict(policy) for party, policy in values.items() if policy})

    @property
    def owners(self) -> dict[str, tuple[str, ...]]:
        """Return who holds which variables."""
        return {party: policy.schema.names for party, policy in self.policies.items()}

    @property
    def schema(self) -> Schema:
        """Return all variables, one party's after the other's; a variable at two parties is refused."""
        listed = [variable for policy in self.policies.values() for variable in policy.schema.variables]
        names = [variable.name for variable in listed]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"Variable {name!r} is at two parties; in this protocol one holds it.")
        return Schema(listed)
