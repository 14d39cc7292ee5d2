"""Pydantic models of the policy file, and validation errors in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field as Item
from pydantic import ValidationError, field_validator, model_validator

from masquerade.channels.class_response import ClassResponse
from masquerade.channels.designs import for_epsilon
from masquerade.channels.policy.channel_models import (
    KINDS,
    ChannelSpec,
    Label,
    Number,
    PolicyPart,
    Undecided,
    model_of,
)
from masquerade.channels.privacy_level import PrivacyLimit
from masquerade.core.errors import ChannelError, PolicyError, did_you_mean, in_one_line
from masquerade.core.schema import DateReading, DateUnit, Variable
from masquerade.core.util import validation
from masquerade.core.util.plugins import plugins

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

FORMAT = 1
Name = Annotated[str, Item(min_length=1)]
ReportColumns = Name | Annotated[list[Name], Item(min_length=1)]


class DateSpec(PolicyPart):
    """How dates are read: as ages on a given day, as years, as quarters or as months."""

    as_: DateUnit = Item(alias="as")
    on: date | None = Item(default=None, description="the day of an age, as 2026-01-31")

    @model_validator(mode="after")
    def day_of_an_age(self) -> DateSpec:
        """Raise ValueError unless the day `on` is given for ages, and only for ages."""
        if (self.as_ == "age") != (self.on is not None):
            raise ValueError("'as: age' needs the day 'on', as 2026-01-31; the others have none.")
        return self

    @property
    def reading(self) -> DateReading:
        """Return the rule by which dates are read."""
        return DateReading(self.as_, self.on)


class VariableSpec(PolicyPart):
    """One column: its categories (or bins of a number), its channel, and the meaning of a missing value."""

    categories: list[Label] | None = None
    bins: list[Number] | None = Item(default=None, description="rising cut points of a number")
    channel: ChannelSpec | None = Item(default=None, description="if omitted: released undisguised")
    missing: Label | Annotated[list[Label], Item(min_length=1)] | None = Item(
        default=None,
        description="the missing category, or a list of them, the first for an empty cell; without it, "
        "missing values are refused",
    )
    clear_missing: Literal["accepted"] | None = Item(
        default=None,
        description="'accepted': the channel is for the answers alone, and reports show in clear whether the "
        "answer is missing",
    )
    na: list[Label] = Item(default_factory=list, description="values that are read as missing")
    recode: dict[Label, list[Label]] = Item(
        default_factory=dict, description="by category, or by a number in a bin: values that it replaces"
    )
    date: DateSpec | None = Item(
        default=None, description="conversion of the column's dates, before categories or bins apply"
    )
    note: str | None = None

    @property
    def missing_labels(self) -> tuple[bool | int | str, ...]:
        """Return the missing categories."""
        if self.missing is None:
            return ()
        return tuple(self.missing) if isinstance(self.missing, list) else (self.missing,)

    @field_validator("channel", mode="before")
    @classmethod
    def not_empty(cls, channel: Any) -> Any:
        """Raise ValueError for an empty 'channel:', which would release the variable undisguised."""
        if channel is None:
            raise ValueError("is empty: give a channel, or leave 'channel' out to release it undisguised.")
        return channel


class JointSpec(PolicyPart):
    """Several variables through one channel over their combinations, the first varying slowest."""

    variables: list[str] = Item(min_length=1)
    report: ReportColumns | None = Item(
        default=None, description="the column of one joint report, or several"
    )
    channel: ChannelSpec


class DesignBlock(PolicyPart):
    """One block of a design: the variables that it asks for, and how often it is dealt."""

    variables: list[Name] = Item(min_length=1)
    weight: int = Item(default=1, ge=1)


class BlocksSpec(PolicyPart):
    """Class response: each person is dealt a few variables at random, and reports these with the full γ."""

    variables: list[Name | Annotated[list[Name], Item(min_length=1)]] = Item(
        min_length=1,
        description="variables; an inner list is dealt together, such as a question and its follow-up",
    )
    k: int | None = Item(
        default=None,
        ge=1,
        description="variables in a cells block, one less than in a difference block; or give a design",
    )
    design: list[DesignBlock] = Item(default_factory=list, description="the blocks, instead of all of k")
    gamma: Number | None = None
    epsilon: Number | None = None
    cells: Number = Item(default=Fraction(1), description="share of cells blocks; the rest are differences")
    order: int | None = Item(default=None, ge=1, description="tables of this many variables are estimable")
    report: ReportColumns | None = Item(
        default=None, description="prefix of the names of the report columns, or all names"
    )

    @property
    def units(self) -> list[list[str]]:
        """Return the variables that are dealt together, a list per unit."""
        return [[unit] if isinstance(unit, str) else unit for unit in self.variables]

    @property
    def names(self) -> tuple[str, ...]:
        """Return all variables in order."""
        return tuple(name for unit in self.units for name in unit)

    def build(self, variables: Sequence[Variable]) -> ClassResponse:
        """Return the mechanism."""
        if (self.gamma is None) == (self.epsilon is None):
            raise ChannelError("give either 'gamma' or 'epsilon'.")
        bound = self.gamma if self.epsilon is None else for_epsilon(2, self.epsilon).gamma
        assert isinstance(bound, Fraction)  # noqa: S101  (for the type checker: one of the two is given)
        places = iter(range(len(variables)))
        units = tuple(tuple(next(places) for _ in unit) for unit in self.units)
        design = self._design()
        if (self.k is None) == (not design):
            raise ChannelError("give either 'k' or a 'design'.")
        k = max(len(block) for block, _ in design) if self.k is None else self.k
        return ClassResponse(tuple(map(len, variables)), k, bound, self.cells, units, design)

    def _design(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """Return the blocks by the indices of their units; a block must name all variables of a unit."""
        unit_of = {name: index for index, unit in enumerate(self.units) for name in unit}
        design = []
        for block in self.design:
            unknown = [name for name in block.variables if name not in unit_of]
            if unknown:
                raise ChannelError(f"a block of the design names {unknown[0]!r}, which is not dealt here.")
            chosen = sorted({unit_of[name] for name in block.variables})
            if sorted(name for index in chosen for name in self.units[index]) != sorted(block.variables):
                raise ChannelError("a block of the design names all variables of a unit, each once, or none.")
            design.append((tuple(chosen), block.weight))
        return tuple(design)


class StrataSpec(PolicyPart):
    """Other channels for the records of some strata; the stratum itself is released undisguised."""

    by: str
    channels: dict[Label, dict[str, ChannelSpec]]


class LimitSpec(PolicyPart):
    """The most that a whole record may reveal: one of a breach, γ and ε."""

    breach: str | None = Item(
        default=None, description="two beliefs, such as 5%:50%: a belief of 5% may rise to 50% at most"
    )
    gamma: Number | None = None
    epsilon: Number | None = None
    delta: Number = Item(
        default=Fraction(0),
        description="probability with which sums with noise may reveal more: 0, or from 1e-10 to 0.01",
    )

    @model_validator(mode="after")
    def check(self) -> LimitSpec:
        """Raise ValueError if the limit is not valid."""
        self.build()
        return self

    def build(self) -> PrivacyLimit:
        """Return the limit."""
        return PrivacyLimit.parse(self.model_dump())


class PolicySpec(PolicyPart):
    """A masquerade policy."""

    masquerade: int = Item(description="format version, 1")
    title: str | None = None
    limit: LimitSpec | None = Item(default=None, description="the most that a whole record may reveal")
    clear: Literal["accepted"] | None = Item(
        default=None, description="'accepted': variables without a channel are released in clear"
    )
    variables: dict[str, VariableSpec] = Item(min_length=1)
    joint: list[JointSpec] = Item(default_factory=list)
    blocks: list[BlocksSpec] = Item(default_factory=list)
    strata: StrataSpec | None = None


MOST_NAMED = 30  # variables of a draft
LABELS = {"bool", "int", "str"}
SENTENCES = {
    **validation.SENTENCES,
    "union_tag_not_found": "needs a 'kind'.",
    "model_attributes_type": "must be keys with values, such as {{kind: binary, p: 0.25}}.",
}


def refuse_draft(spec: PolicySpec) -> None:
    """Raise PolicyError with the names of all variables that are still to be decided."""
    names = [name for name, entry in spec.variables.items() if isinstance(entry.channel, Undecided)]
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        raise PolicyError(
            f"still to be decided: {', '.join(names[:MOST_NAMED])}{more}. For each, choose a channel such as "
            "{kind: for_gamma, gamma: 19}, or remove 'channel' to release it undisguised."
        )


def explain(error: ValidationError, values: object) -> str:
    """Return the problems of a policy in one line: the first few, and the number of any others."""

    def describe(problem: ErrorDetails) -> tuple[validation.KeyPath, str]:
        path, model, tags = place(problem["loc"], values)
        return tuple(path), _describe(problem, path[-1], model, tags)

    problems = validation.describe_errors(error, describe)
    return in_one_line([f"{'.'.join(path)}: {sentence}" for path, sentence in problems.items()])


def _describe(problem: ErrorDetails, key: str, model: type[PolicyPart], tags: Sequence[object]) -> str:
    """Describe the problem of one entry in plain words."""
    if problem["type"] == "union_tag_invalid":
        kind = problem["ctx"]["tag"]
        return f"unknown kind {kind!r}.{did_you_mean(kind, [*KINDS, *plugins('channels')])}"
    if problem["type"] != "extra_forbidden" and LABELS.intersection(map(str, tags)):
        return "must be text, a whole number or true/false; quote it."
    return validation.describe_error(problem, key, model.model_fields, SENTENCES)


def place(location: Sequence[object], values: object) -> tuple[list[str], type[PolicyPart], list[object]]:
    """Split pydantic's location into the path in the file, the model it ends in, and pydantic's own names.

    If the file does not contain a part at that point, pydantic has added it: a channel's kind, or a type that
    it tried. Only the last part may be a missing key.
    """
    path: list[str] = []
    tags: list[object] = []
    model: type[PolicyPart] = PolicySpec
    here, tagged = values, False
    for i, part in enumerate(location):
        if isinstance(here, Mapping) and not tagged and here.get("kind") == part and part in KINDS:
            model, tagged = KINDS[str(part)], True
            continue
        inside = isinstance(here, Mapping) and part in here
        listed = isinstance(here, (list, tuple)) and isinstance(part, int)
        missing = isinstance(here, Mapping) and i == len(location) - 1 and part in model.model_fields
        if not (inside or listed or missing):
            tags.append(part)
            continue
        here, tagged = here[part] if inside or listed else None, False  # type: ignore[index]
        path.append(str(part))
        model = PARTS.get(path[0], model) if len(path) == PART_DEPTH.get(path[0]) else model
        kind = here.get("kind") if isinstance(here, Mapping) else None
        if isinstance(kind, str) and kind not in KINDS and kind in plugins("channels"):
            model = model_of(kind)  # pydantic does not name the kinds of other packages
    return path or ["policy"], model, tags


PARTS: dict[str, type[PolicyPart]] = {
    "variables": VariableSpec,
    "joint": JointSpec,
    "blocks": BlocksSpec,
    "strata": StrataSpec,
    "limit": LimitSpec,
}
PART_DEPTH = {"variables": 2, "joint": 2, "blocks": 2, "strata": 1, "limit": 1}
