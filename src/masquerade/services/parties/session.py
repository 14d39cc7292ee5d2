"""What a session is: who takes part, by which protocol, and what is to be learnt.

Everybody has the same text, and a node takes part only if its own file consents to exactly that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from masquerade.services.common.settings import Name, Strict

Protocol = Literal[
    "pooled-counts",
    "vertical-with-miner",
    "vertical-without-miner",
    "arbitrary-with-miner",
    "revealed-vertical-counts",
    "revealed-counts-of-two",
    "projection",
]
Linking = Literal["intersection", "keyed"]


class Rules(NamedTuple):
    """What a protocol asks of a session; whoever convenes is none of the parties, or one of exactly two."""

    why: str
    least_parties: int = 2
    linked: bool = True
    helper: bool = False
    outside: bool = False
    one_of_two: bool = False


RULES: dict[Protocol, Rules] = {
    "pooled-counts": Rules(
        "of a sum of two, each subtracts its own counts and has the other's", least_parties=3, linked=False
    ),
    "vertical-with-miner": Rules("the miner sees everybody's disguised columns side by side", outside=True),
    "vertical-without-miner": Rules("one party has nobody to learn from"),
    "arbitrary-with-miner": Rules("the miner sees everybody's disguised cells side by side", outside=True),
    "revealed-vertical-counts": Rules("one party counts alone", helper=True),
    "revealed-counts-of-two": Rules("one of the two counts with the other's ciphertexts", one_of_two=True),
    "projection": Rules("an owner who receives knows the rotation, and undoes it", outside=True),
}


class Goal(Strict):
    """What is learnt: a network, whose structure is given or found, a classifier, rules or tables."""

    model: Literal["network", "naive-bayes", "tree", "rules", "tables"]
    """The kind of model; `vertical-without-miner` learns networks only."""
    structure: dict[str, tuple[str, ...]] | None = None
    """Of a network: the parents of every node, such as `{a: [], b: [a]}`. A network has this or an order."""
    order: tuple[str, ...] | None = None
    """Of a network: its nodes in an order; K2 looks for the parents of each among those before it."""
    max_parents: int = Field(3, ge=0, le=10)
    """With an order: how many parents a node has at most."""
    target: str | None = None
    """Of naive Bayes or a tree, which need it: the variable that is predicted."""
    min_support: float = Field(0.1, gt=0, lt=1)
    """Of rules: the least share of records that have all of a rule's values."""
    min_confidence: float = Field(0.6, gt=0, le=1)
    """Of rules: how often a rule holds at least, where its condition does."""
    tables: tuple[tuple[str, ...], ...] = ()
    """Of tables, at least one: the variables of each, as `[[a], [a, b]]`."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.model == "network" and (self.structure is None) == (self.order is None):
            raise ValueError("a network needs a structure or an order, one of them")
        if self.model in {"naive-bayes", "tree"} and self.target is None:
            raise ValueError("a classifier needs a target")
        if self.model == "tables" and not self.tables:
            raise ValueError("which tables? list their variables, as [[a], [a, b]]")
        for node, parents in (self.structure or {}).items():
            for parent in parents:
                if parent not in (self.structure or {}):
                    raise ValueError(
                        f"the structure gives {node!r} the parent {parent!r}, which is no node of it"
                    )
        return self

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the variables that it names."""
        named = [
            *(self.structure or {}),
            *(self.order or ()),
            *(name for table in self.tables for name in table),
        ]
        return tuple(dict.fromkeys([*named, *([self.target] if self.target is not None else [])]))

    def allows(self, names: Collection[str]) -> bool:
        """Tell whether a table of these variables is needed to learn it."""
        asked = set(names)
        if self.model == "tables":
            return not asked or any(asked <= set(table) for table in self.tables)
        if self.model == "network" and self.structure is not None:
            return not asked or any(asked <= {node, *parents} for node, parents in self.structure.items())
        if self.model == "network":
            return asked <= set(self.order or ()) and len(asked) <= self.max_parents + 1
        if self.model == "naive-bayes":
            return len(asked - {self.target}) <= 1
        return True  # a tree or rules may come to any table


class SessionSpec(Strict):
    """A session: the same for everybody who takes part."""

    masquerade: Literal[1] = 1
    """The version of the format, 1."""
    session: Name
    """The name of the session, by which nodes consent to it."""
    protocol: Protocol
    """How the parties work together."""
    parties: tuple[Name, ...]
    """The nodes that hold records."""
    convener: Name
    """The node that runs it and receives the model; a miner or receiver, if the protocol has one, is this."""
    helper: Name | None = None
    """Only for `revealed-vertical-counts`: a node that deals randomness, neither a party nor the convener."""
    linking: Linking | None = None
    """How records are linked, by private intersection or a shared secret; not for `pooled-counts`."""
    learn: Goal
    """What is learnt."""
    policies: dict[Name, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = Field(default_factory=dict)
    """By party, the id that its policy of the variables that take part must have (`masquerade policy id`)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        rules = RULES[self.protocol]
        outsider = self.convener not in self.parties
        convened_within = len(self.parties) > 2 and not outsider
        need = "needs linking: intersection or keyed" if rules.linked else "links nothing"
        problems = {
            "a party is named twice": len(set(self.parties)) < len(self.parties),
            f"{self.protocol} needs at least {rules.least_parties} parties: {rules.why}": len(self.parties)
            < rules.least_parties,
            f"{self.protocol} {need}": (self.linking is not None) != rules.linked,
            f"{self.protocol} {'needs a' if rules.helper else 'has no'} helper": (self.helper is not None)
            != rules.helper,
            "the helper must be neither a party nor the convener: it could unmask columns": self.helper
            in {*self.parties, self.convener},
            f"the convener of {self.protocol} must be none of the parties: {rules.why}": rules.outside
            and not outsider,
            f"{self.protocol} has exactly two parties, one of which convenes: {rules.why}": rules.one_of_two
            and (len(self.parties) != 2 or outsider),
            "a party that convenes would learn its overlap with each of the others: let a node outside "
            "convene, or use linking: keyed": self.linking == "intersection" and convened_within,
            "policies are pinned for parties only": not set(self.policies) <= set(self.parties),
            "without a miner parties learn a network, each its own nodes": (
                self.protocol == "vertical-without-miner" and self.learn.model != "network"
            ),
        }
        for problem, holds in problems.items():
            if holds:
                raise ValueError(problem)
        return self

    @property
    def members(self) -> tuple[str, ...]:
        """Return everybody who receives messages."""
        return self.parties if self.helper is None else (*self.parties, self.helper)

    @property
    def digest(self) -> str:
        """Return the sha256 of the canonical text: what consenting to this very session means."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
