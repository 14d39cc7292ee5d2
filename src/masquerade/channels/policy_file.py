"""The policy file as pydantic validates it, and its errors in one line."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field as Item
from pydantic import ValidationError

from masquerade.channels.spec import ChannelSpec, Label, Number, Strict
from masquerade.core.errors import did_you_mean

FORMAT = 1


class VariableSpec(Strict):
    """One column: its categories (or bins of a number), its channel, what a missing value stands for."""

    categories: list[Label] | None = None
    bins: list[Number] | None = Item(default=None, description="rising cut points of a number")
    channel: ChannelSpec | None = Item(default=None, description="left out: released undisguised")
    missing: Label | None = Item(default=None, description="the category of a missing value; none: refused")
    note: str | None = None


class JointSpec(Strict):
    """Several variables through one channel over their combinations, the first varying slowest."""

    variables: list[str] = Item(min_length=1)
    channel: ChannelSpec


class StrataSpec(Strict):
    """Other channels for the records of some strata; the stratum itself is released undisguised."""

    by: str
    channels: dict[Label, dict[str, ChannelSpec]]


class PolicySpec(Strict):
    """A masquerade policy."""

    masquerade: int = Item(description="format version, 1")
    title: str | None = None
    variables: dict[str, VariableSpec] = Item(min_length=1)
    joint: list[JointSpec] = Item(default_factory=list)
    strata: StrataSpec | None = None


def explain(error: ValidationError) -> str:
    """Return the first problem of a policy in one line, and how many more there are."""
    problems = error.errors(include_url=False, include_input=False)
    # an entry tried against several types reports each: the deepest one is what the writer meant
    first = max(problems, key=lambda problem: len(problem["loc"]))
    kinds = {"union_tag_not_found": "needs a 'kind'"}
    location = first["loc"]
    path = ".".join(str(part) for i, part in enumerate(location) if not is_tag(i, location))
    if first["type"] == "union_tag_invalid":
        message = f"unknown kind {first['ctx']['tag']!r}.{did_you_mean(first['ctx']['tag'], KINDS)}"
    else:
        message = kinds.get(first["type"], first["msg"].removeprefix("Value error, "))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{path}: {message}{more}"


KINDS = tuple(
    model.model_fields["kind"].annotation.__args__[0]
    for model in ChannelSpec.__origin__.__args__  # type: ignore[attr-defined]
)


def is_tag(place: int, location: Sequence[object]) -> bool:
    """Tell whether a part of pydantic's location is a kind or type name, not a key of the file."""
    part, before = location[place], location[place - 1] if place else None
    if part in {"str", "int", "bool"}:
        return place == len(location) - 1
    return part in KINDS and (isinstance(before, int) or before in {"channel", "base"} or place >= 2)
