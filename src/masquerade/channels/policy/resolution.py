"""Build the channels that a validated policy file describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from masquerade.channels.basic import identity, within_groups
from masquerade.channels.channel import MOST_ENTRIES, Channel
from masquerade.channels.class_response import ClassResponse
from masquerade.channels.policy.channel_models import ChannelSpec
from masquerade.channels.policy.fields import Columns, category_named, field_of, known_variable
from masquerade.channels.policy.models import BlocksSpec, PolicySpec, StrataSpec, VariableSpec
from masquerade.core.errors import ChannelError, PolicyError, SchemaError
from masquerade.core.schema import Category, Field, Schema, Variable

MOST_POLICY_ENTRIES = 4 * MOST_ENTRIES  # largest number of entries of all channels of a policy together


@dataclass(frozen=True)
class PolicyParts:
    """The parts of a policy that a policy file describes, in the order in which `Policy` takes them."""

    fields: list[Field]
    channels: dict[tuple[str, ...], Channel | ClassResponse]
    strata: tuple[str, dict[Category, dict[str, Channel]]] | None
    reports: dict[tuple[str, ...], Columns]


def resolve(spec: PolicySpec) -> PolicyParts:
    """Build the fields and channels of a validated policy file."""
    fields = [field_of(name, entry) for name, entry in spec.variables.items()]
    schema = Schema(field.variable for field in fields)
    channels: dict[tuple[str, ...], Channel | ClassResponse] = {}
    reports: dict[tuple[str, ...], Columns] = {}
    entries = 0
    for name, entry in spec.variables.items():
        if entry.channel is not None:
            where = f"variables.{name}.channel"
            channels[name,] = built = _build_own_channel(entry.channel, schema[name], entry, where)
            entries = _within_bounds(entries, built.weights.size, where)
    for i, joint in enumerate(spec.joint):
        where = f"joint[{i}]"
        variables = [known_variable(schema, name, where) for name in joint.variables]
        names = tuple(joint.variables)
        if any((name,) in channels for name in names):
            raise PolicyError(f"{where}: a variable disguised jointly cannot have a channel of its own too.")
        channels[names] = built = _build_channel(joint.channel, variables, None, where)
        entries = _within_bounds(entries, built.weights.size, where)
        if joint.report is not None:
            reports[names] = joint.report
    for i, dealt in enumerate(spec.blocks):
        names = dealt.names
        channels[names] = response = _dealt_in(dealt, schema, channels, f"blocks[{i}]", entries)
        entries += response.reports
        if dealt.report is not None:
            reports[names] = dealt.report
    strata = None if spec.strata is None else _strata_of(spec, spec.strata, schema, entries)
    return PolicyParts(fields, channels, strata, reports)


def _strata_of(
    spec: PolicySpec, strata: StrataSpec, schema: Schema, entries: int
) -> tuple[str, dict[Category, dict[str, Channel]]]:
    """Return the name of the stratum variable, and the channels of each stratum by variable."""
    by = known_variable(schema, strata.by, "strata.by")
    own: dict[Category, dict[str, Channel]] = {}
    for label, specs in strata.channels.items():
        chosen = own.setdefault(category_named(by, label, "strata.channels"), {})
        for name, channel in specs.items():
            where = f"strata.channels.{label}"
            variable = known_variable(schema, name, where)
            chosen[name] = _build_own_channel(channel, variable, spec.variables[name], f"{where}.{name}")
            entries = _within_bounds(entries, chosen[name].weights.size, where)
    return by.name, own


def _dealt_in(
    spec: BlocksSpec, schema: Schema, channels: Mapping[tuple[str, ...], object], where: str, entries: int
) -> ClassResponse:
    """Return class response for the variables of an entry; raise PolicyError if it does not fit them."""
    variables = [known_variable(schema, name, where) for name in spec.names]
    if any(name in names for names in channels for name in spec.names):
        raise PolicyError(f"{where}: a variable that is dealt in blocks cannot have another channel too.")
    try:
        response = spec.build(variables)
    except ChannelError as error:
        raise PolicyError(f"{where}: {error}") from None
    _within_bounds(entries, response.reports, where)  # check the size before the reports are listed
    if spec.order is not None and response.order < spec.order:
        raise PolicyError(
            f"{where}: tables of {spec.order} variables do not follow from these blocks, only those of "
            f"{response.order}: set 'k' to {spec.order}, or 'order' to {response.order}."
        )
    return response


def _build_own_channel(spec: ChannelSpec, variable: Variable, entry: VariableSpec, where: str) -> Channel:
    """Build the channel of one variable; with `clear_missing`, missing answers bypass the channel."""
    if entry.clear_missing is None:
        return _build_channel(spec, [variable], entry.bins, where)
    answered = variable.answered_codes
    answers = Variable(variable.name, tuple(variable.categories[code] for code in answered))
    absent = [[code] for code in range(len(variable)) if code not in answered]
    masked = _build_channel(spec, [answers], entry.bins, where)
    try:
        return within_groups([answered, *absent], [masked, *(identity(1) for _ in absent)])
    except ChannelError as error:
        raise PolicyError(f"{where}: {error}") from None


def _build_channel(
    spec: ChannelSpec, variables: Sequence[Variable], bins: Sequence[Any] | None, where: str
) -> Channel:
    try:
        if bins is not None and len(variables) == 1 and hasattr(spec, "build_binned"):
            binned: Channel = spec.build_binned(bins, len(variables[0]))
            return binned
        return spec.build(variables)
    except (ChannelError, SchemaError) as error:
        raise PolicyError(f"{where}: {error}") from None


def _within_bounds(entries: int, more: int, where: str) -> int:
    """Return the number of entries with `more` added; raise PolicyError if the total is too large."""
    if entries + more > MOST_POLICY_ENTRIES:
        raise PolicyError(f"{where}: the channels of this policy are too large together; use smaller groups.")
    return entries + more
