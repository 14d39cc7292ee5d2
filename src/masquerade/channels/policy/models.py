"""The policy file as pydantic validates it, and its errors in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field as Item
from pydantic import ValidationError, field_validator

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
from masquerade.core.errors import ChannelError, PolicyError, did_you_mean, in_one_line
from masquerade.core.schema import Variable
from masquerade.core.util.plugins import plugins

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

FORMAT = 1
Name = Annotated[str, Item(min_length=1)]
ReportColumns = Name | Annotated[list[Name], Item(min_length=1)]


class VariableSpec(PolicyPart):
    """One column: its categories (or bins of a number), its channel, what a missing value stands for."""

    categories: list[Label] | None = None
    bins: list[Number] | None = Item(default=None, description="rising cut points of a number")
    channel: ChannelSpec | None = Item(default=None, description="left out: released undisguised")
    missing: Label | None = Item(default=None, description="the category of a missing value; none: refused")
    na: list[Label] = Item(default_factory=list, description="values that are read as missing")
    recode: dict[Label, list[Label]] = Item(
        default_factory=dict, description="of a category, or of a number in bins, other values read as it"
    )
    note: str | None = None

    @field_validator("channel", mode="before")
    @classmethod
    def not_empty(cls, channel: Any) -> Any:
        """Refuse 'channel:' with nothing behind it, which would release the variable undisguised."""
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


class BlocksSpec(PolicyPart):
    """Variables of which everybody is dealt a random few, and reports these at the full γ."""

    variables: list[str] = Item(min_length=1)
    k: int = Item(ge=1, description="variables in a cells block, one less than in a difference block")
    gamma: Number | None = None
    epsilon: Number | None = None
    cells: Number = Item(default=Fraction(1), description="share of cells blocks; the rest are differences")
    order: int | None = Item(default=None, ge=1, description="tables of so many variables must be estimable")
    report: ReportColumns | None = Item(
        default=None, description="begins the names of the report columns, or all of them"
    )

    def build(self, variables: Sequence[Variable]) -> ClassResponse:
        """Return the mechanism."""
        if (self.gamma is None) == (self.epsilon is None):
            raise ChannelError("give either 'gamma' or 'epsilon'.")
        bound = self.gamma if self.epsilon is None else for_epsilon(2, self.epsilon).gamma
        assert isinstance(bound, Fraction)  # noqa: S101  (for the type checker: one of both is given)
        return ClassResponse(tuple(map(len, variables)), self.k, bound, self.cells)


class StrataSpec(PolicyPart):
    """Other channels for the records of some strata; the stratum itself is released undisguised."""

    by: str
    channels: dict[Label, dict[str, ChannelSpec]]


class PolicySpec(PolicyPart):
    """A masquerade policy."""

    masquerade: int = Item(description="format version, 1")
    title: str | None = None
    variables: dict[str, VariableSpec] = Item(min_length=1)
    joint: list[JointSpec] = Item(default_factory=list)
    blocks: list[BlocksSpec] = Item(default_factory=list)
    strata: StrataSpec | None = None


MOST_NAMED = 30  # variables of a draft
LABELS = {"bool", "int", "str"}
WORDS = {
    "union_tag_not_found": "needs a 'kind'.",
    "missing": "is missing.",
    "string_type": "must be text; quote it.",
    "list_type": "must be a list, such as [a, b].",
    "dict_type": "must be keys with values.",
    "model_type": "must be keys with values.",
    "model_attributes_type": "must be keys with values, such as {{kind: binary, p: 0.25}}.",
    "int_type": "must be a whole number.",
    "int_parsing": "must be a whole number.",
    "int_from_float": "must be a whole number.",
    "too_short": "must not be empty.",
    "greater_than_equal": "must be at least {ge}.",
    "less_than_equal": "must be at most {le}.",
    "literal_error": "must be {expected}.",
}


def refuse_draft(spec: PolicySpec) -> None:
    """Refuse a policy in which something is still to be decided, and name all of it."""
    names = [name for name, entry in spec.variables.items() if isinstance(entry.channel, Undecided)]
    if names:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        raise PolicyError(
            f"still to be decided: {', '.join(names[:MOST_NAMED])}{more}. For each, choose a channel such as "
            "{kind: for_gamma, gamma: 19}, or remove 'channel' to release it undisguised."
        )


def explain(error: ValidationError, values: object) -> str:
    """Return the problems of a policy in one line; of many, the first and how many other places are wrong."""
    problems: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_input=False):
        path, model, tags = place(problem["loc"], values)
        # an entry tried against several types reports each: the first says where, all say the same
        problems.setdefault(".".join(path), _words(problem, path[-1], model, tags))
    # of a value tried both as a number and as a list, the entry of the list says more
    deepest = [path for path in problems if not any(other.startswith(f"{path}.") for other in problems)]
    return in_one_line([f"{path}: {problems[path]}" for path in deepest])


def _words(problem: ErrorDetails, key: str, model: type[PolicyPart], tags: Sequence[object]) -> str:
    """Return what is wrong with one entry in plain words."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "union_tag_invalid":
        known = [*KINDS, *plugins("channels")]
        return f"unknown kind {context['tag']!r}.{did_you_mean(context['tag'], known)}"
    if kind == "extra_forbidden":
        return f"is not a known key.{did_you_mean(key, model.model_fields)}"
    if LABELS.intersection(map(str, tags)):
        return "must be text, a whole number or true/false; quote it."
    told = problem["msg"].removeprefix("Value error, ").removeprefix("'value' ")
    return WORDS[kind].format(**context) if kind in WORDS else told


def place(location: Sequence[object], values: object) -> tuple[list[str], type[PolicyPart], list[object]]:
    """Split pydantic's location into the path in the file, the model it ends in, and names of its own.

    A part that the file does not hold at that point is pydantic's: a channel's kind or a type it tried.
    The last part may be a missing key.
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
}
PART_DEPTH = {"variables": 2, "joint": 2, "blocks": 2, "strata": 1}
