"""What a session is: who takes part, by which protocol, and what is to be learnt.

Everybody has the same text, and a node takes part only if its own file consents to exactly that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.core.schema import Schema
from masquerade.learn import catalogue
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
# what a learner needs of a goal, and what is said where it is missing
NEEDS = {
    ("structure", "order"): "a network needs a structure or an order, one of them",
    ("target",): "a classifier needs a target",
    ("tables",): "which tables? list their variables, as [[a], [a, b]]",
}


class Goal(Strict):
    """What is learnt: a network, whose structure is given or found, a classifier, rules or tables."""

    model: LearnerName
    """The kind of model; `vertical-without-miner` learns networks only."""
    structure: dict[str, tuple[str, ...]] | None = None
    """Of a network: the parents of every node, such as `{a: [], b: [a]}`. A network has this or an order."""
    order: tuple[str, ...] | None = None
    """Of a network: its nodes in an order; K2 looks for the parents of each among those before it."""
    max_parents: int = Field(3, ge=0, le=10)
    """With an order: how many parents a node has at most."""
    target: str | None = None
    """Of a classifier, which needs it: the variable that is predicted."""
    min_support: float = Field(0.1, gt=0, lt=1)
    """Of rules: the least share of records that have all of a rule's values."""
    min_confidence: float = Field(0.6, gt=0, le=1)
    """Of rules: how often a rule holds at least, where its condition does."""
    tables: tuple[tuple[str, ...], ...] = ()
    """Of tables, at least one: the variables of each, as `[[a], [a, b]]`."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for names in self.learner.needs:
            if sum(name in self.options for name in names) != 1:
                raise ValueError(NEEDS.get(names, f"{self.model} needs {' or '.join(names)}"))
        for node, parents in (self.structure or {}).items():
            for parent in parents:
                if parent not in (self.structure or {}):
                    raise ValueError(
                        f"the structure gives {node!r} the parent {parent!r}, which is no node of it"
                    )
        return self

    @property
    def learner(self) -> catalogue.Learner:
        """Return who learns it."""
        return catalogue.learner(self.model)

    @property
    def options(self) -> dict[str, Any]:
        """Return what the learner is told."""
        told = {option.name: getattr(self, option.name, None) for option in self.learner.options}
        return {name: value for name, value in told.items() if value not in (None, ())}

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the variables that it names."""
        return self.learner.variables(self.options)

    def allows(self, names: Collection[str]) -> bool:
        """Tell whether a table of these variables is needed to learn it."""
        return self.learner.asks(self.options, names)


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
    """Only for `revealed-vertical-counts`: a node that deals randomness, neither a party nor the convener."""
    linking: Linking | None = None
    """How records are linked, by private intersection or a shared secret; not for `pooled-counts`."""


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
        for problem in self.kind.problems(self):
            raise ValueError(problem)
        if self.helper in {*self.parties, self.convener}:
            raise ValueError("the helper must be neither a party nor the convener: it could unmask columns")
        if not set(self.policies) <= set(self.parties):
            raise ValueError("policies are pinned for parties only")
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
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def refused(self, why: str) -> QueryRefused:
        """Return that a node refuses this session, or a message of it."""
        reason = f"Session {self.session!r} is not consented to: {why}."
        return QueryRefused([Refusal("not_consented", reason)])


@dataclass(frozen=True, slots=True)
class JointSchema:
    """What parties know of each other's variables: the policy of each, in the order of the session."""

    policies: Mapping[str, Policy]

    @classmethod
    def from_dict(cls, values: Any) -> JointSchema:
        """Read policies by party."""
        if not isinstance(values, dict):
            raise InputError("An arrangement is a mapping from parties to policies.")
        return cls({str(party): Policy.from_dict(policy) for party, policy in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {party: policy.to_dict() for party, policy in self.policies.items()}

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
