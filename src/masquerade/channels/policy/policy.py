"""A policy: which variables go through which channel, alone or jointly; the public contract of a disguise."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from masquerade.channels.basic import identity
from masquerade.channels.channel import MOST_ENTRIES, Channel
from masquerade.channels.class_response import ClassResponse
from masquerade.channels.policy import text as policy_text
from masquerade.channels.policy.channel_models import ChannelSpec
from masquerade.channels.policy.fields import (
    Columns,
    category_named,
    field_of,
    known_variable,
    matrix_spec,
    one_or_all,
    plain_columns,
    recodes_in_file,
    without_none,
)
from masquerade.channels.policy.models import (
    FORMAT,
    BlocksSpec,
    PolicySpec,
    StrataSpec,
    explain,
    refuse_draft,
)
from masquerade.core.errors import ChannelError, InputError, PolicyError, SchemaError
from masquerade.core.schema import Category, Field, Schema, Variable
from masquerade.core.util.atomic import write_whole

MOST_JUDGED = 512  # combinations of a joint channel that is judged when a policy is read
MOST_POLICY_ENTRIES = 4 * MOST_ENTRIES  # of all channels together


@dataclass(frozen=True, slots=True)
class Group:
    """Variables that go through one channel together; alone in most policies.

    Reports stand in the columns `reports`, one for every variable and of its name unless the group has a
    report of its own; `report_sizes` are their numbers of labels.
    """

    names: tuple[str, ...]
    channel: Channel | ClassResponse
    sizes: tuple[int, ...]
    report_sizes: tuple[int, ...]
    reports: tuple[str, ...]

    @property
    def disguised(self) -> bool:
        """Tell whether the channel hides anything."""
        return not self.channel.is_identity

    @property
    def response(self) -> ClassResponse | None:
        """The blocks that the variables are dealt in, None where all go through one channel."""
        return self.channel if isinstance(self.channel, ClassResponse) else None

    @property
    def own_report(self) -> bool:
        """Tell whether reports stand in columns that no variable has."""
        return self.reports != self.names

    @property
    def matrix_channel(self) -> Channel:
        """The channel over all combinations; there is none for variables that are dealt in blocks."""
        if isinstance(self.channel, ClassResponse):
            raise PolicyError(f"{', '.join(self.names)} are dealt in blocks: they have no channel in common.")
        return self.channel


class Policy:
    """Schema, channels and their sha256 id.

    >>> policy = mq.Policy.from_dict({"masquerade": 1, "variables": {
    ...     "smoker": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}}}})
    >>> policy.group("smoker").channel.gamma
    Fraction(3, 1)
    >>> policy.save("policy.yaml")
    >>> mq.Policy.load("policy.yaml").id == policy.id
    True
    """

    def __init__(
        self,
        fields: Sequence[Field],
        channels: Mapping[tuple[str, ...], Channel | ClassResponse],
        strata: tuple[str, Mapping[Category, Mapping[str, Channel]]] | None = None,
        source: Mapping[str, Any] | None = None,
        reports: Mapping[tuple[str, ...], Columns] | None = None,
    ) -> None:
        self.fields = tuple(fields)
        self.schema = Schema(field.variable for field in fields)
        self.report_names = dict(reports or {})
        self.groups = self._arrange(channels)
        self.observed = self._observed()
        self.stratum_variable: str | None = None
        self._strata: dict[Category, tuple[Group, ...]] = {}
        if strata:
            self._stratify(*strata)
        self._source = None if source is None else policy_text.plain_values(source)

    @classmethod
    def build(
        cls,
        variables: Schema | Mapping[str, Sequence[Category]],
        channels: Mapping[str | tuple[str, ...], Channel | ClassResponse],
        reports: Mapping[tuple[str, ...], Columns] | None = None,
    ) -> Policy:
        """Return a policy from categories and channels; variables not named in `channels` are undisguised.

        Variables that report one value of its own, or are dealt in blocks, have a name for it in `reports`;
        where that takes several columns it begins their names, or all are named.
        """
        schema = variables if isinstance(variables, Schema) else Schema(variables)
        keyed = {
            (names,) if isinstance(names, str) else names: channel for names, channel in channels.items()
        }
        return cls([Field(variable) for variable in schema.variables], keyed, reports=reports)

    @classmethod
    def clear(cls, schema: Schema) -> Policy:
        """Return the policy that disguises nothing."""
        return cls.build(schema, {})

    def undisguised(self) -> Policy:
        """Return the policy that reads the same clear columns and disguises nothing."""
        return Policy(self.fields, {})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Policy:
        """Return the policy that plain values describe (the content of a policy file)."""
        if not isinstance(values, Mapping) or "masquerade" not in values:
            raise PolicyError("not a policy: it must start with 'masquerade: 1' and list 'variables'.")
        if values["masquerade"] != FORMAT:
            raise PolicyError(
                f"policy format {values['masquerade']!r} is not known; this version reads {FORMAT}."
            )
        try:
            spec = PolicySpec.model_validate(values)
        except ValidationError as error:
            raise PolicyError(explain(error, values)) from None
        refuse_draft(spec)
        return _resolve(spec, values)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Return the policy in a YAML or JSON file."""
        values = policy_text.read(Path(path))
        try:
            return cls.from_dict(values)
        except InputError as error:
            raise PolicyError(f"{path}: {error}") from None

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Return the JSON Schema of policy files."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **PolicySpec.model_json_schema(),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that `from_dict` reads back to the same policy."""
        if self._source is not None:
            plain: dict[str, Any] = policy_text.plain_values(self._source)
            return plain
        if self.stratum_variable is not None:
            raise PolicyError("a policy with strata is written as a file, not from code.")
        variables: dict[str, Any] = {}
        for field in self.fields:
            edges = None if field.edges is None else list(field.edges)
            entry: dict[str, Any] = (
                {"categories": list(field.variable.categories)} if edges is None else {"bins": edges}
            )
            if field.missing is not None:
                entry["missing"] = field.missing
            entry |= recodes_in_file(field)
            group = self.group(field.variable.name)
            alone = len(group.names) == 1 and group.names not in self.report_names and not group.response
            if alone and (group.disguised or group.channel.labels):
                entry["channel"] = matrix_spec(group.matrix_channel)
            variables[field.variable.name] = entry
        joint = [
            {"variables": list(group.names)}
            | ({"report": one_or_all(group.reports)} if group.own_report else {})
            | {"channel": matrix_spec(group.channel)}
            for group in self.groups
            if (len(group.names) > 1 or group.names in self.report_names)
            and isinstance(group.channel, Channel)
        ]
        blocks = [
            {
                "variables": list(group.names),
                "report": plain_columns(self.report_names.get(group.names)),
                "k": group.response.k,
                "cells": str(group.response.cells),
                "gamma": str(group.response.gamma),
            }
            for group in self.groups
            if group.response is not None
        ]
        return (
            {"masquerade": FORMAT, "variables": variables}
            | ({"joint": joint} if joint else {})
            | ({"blocks": [without_none(entry) for entry in blocks]} if blocks else {})
        )

    def select(self, names: Iterable[str]) -> Policy:
        """Return the policy of some variables: those disguised together stay together, strata keep theirs."""
        chosen = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
        wanted = {self.schema[name].name for name in chosen}
        by = self.stratum_variable
        for group in self.groups:
            beside = [name for name in group.names if name not in wanted]
            if beside and len(beside) < len(group.names):
                raise PolicyError(
                    f"{', '.join(group.names)} are disguised together: select all or none of them."
                )
        if by is not None and by not in wanted:
            raise PolicyError(f"{by!r} tells which channels hold: select it too.")
        own = {
            label: {
                group.names[0]: group.matrix_channel
                for group, usual in zip(groups, self.groups, strict=True)
                if group.names[0] in wanted and group != usual
            }
            for label, groups in self._strata.items()
        }
        return Policy(
            [field for field in self.fields if field.variable.name in wanted],
            {group.names: group.channel for group in self.groups if group.names[0] in wanted},
            None if by is None else (by, own),
            None,
            {names: report for names, report in self.report_names.items() if names[0] in wanted},
        )

    def public_text(self) -> str | None:
        """Return what disguised records carry along, as JSON: without notes, and without odd clear values.

        None for a policy that cannot be written.
        """
        try:
            values = self.to_dict()
        except PolicyError:
            return None
        values.pop("title", None)
        for entry in values["variables"].values():
            for key in ("na", "recode", "note"):
                entry.pop(key, None)
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_public_text(cls, text: str, expected: str) -> Policy:
        """Return the policy that records carry along; one whose id is not the expected one is refused."""
        policy = cls.from_dict(policy_text.parse(text, "json"))
        if policy.id != expected:
            raise PolicyError("the policy that the records carry is not the one they were disguised under.")
        return policy

    def save(self, path: str | Path) -> None:
        """Write the policy as YAML or JSON, by the file's ending."""
        target = Path(path)
        form = policy_text.SUFFIXES.get(target.suffix.lower())
        if form is None:
            raise PolicyError(f"{target}: a policy file ends in .yaml, .yml or .json.")
        write_whole(target, policy_text.write(self.to_dict(), form))

    @cached_property
    def id(self) -> str:
        """Return the sha256 of the normalised policy: the same for every spelling of the same mechanism.

        Which other values are read as a category is no part of it: reports mean the same.
        """

        def groups(listed: Iterable[Group]) -> list[Any]:
            # reports of their own are named; a group without one has the id that it always had
            return [
                [group.names, group.channel.fingerprint, *([group.reports] if group.own_report else [])]
                for group in listed
            ]

        alone = {name for group in self.groups if group.own_report for name in group.names}
        seen = [
            [variable.name, variable.categories]
            for variable in self.observed.variables
            if variable.name not in self.schema
        ]

        normal = {
            "masquerade": FORMAT,
            "variables": [
                [
                    field.variable.name,
                    field.variable.categories,
                    field.missing,
                    field.edges,
                    None if field.variable.name in alone else self.observed[field.variable.name].categories,
                ]
                for field in self.fields
            ],
            "groups": groups(self.groups),
        }
        if seen:
            normal["reports"] = seen
        if self.stratum_variable is not None:
            strata = [[label, groups(listed)] for label, listed in self._strata.items()]
            normal["strata"] = [self.stratum_variable, strata]
        canonical = json.dumps(normal, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def group(self, name: str) -> Group:
        """Return the group that a variable belongs to."""
        return self._owners[self.schema[name].name]

    def groups_of(self, stratum: Category | None) -> tuple[Group, ...]:
        """Return the groups that hold in a stratum."""
        return self.groups if stratum is None else self._strata[stratum]

    @property
    def strata(self) -> tuple[Category, ...]:
        """Return the categories of the stratum variable, if the policy has strata."""
        return tuple(self._strata)

    @cached_property
    def _owners(self) -> dict[str, Group]:
        return {name: group for group in self.groups for name in group.names}

    @cached_property
    def disguised(self) -> tuple[str, ...]:
        """Return the variables that some channel hides."""
        hidden = {
            name
            for groups in (self.groups, *self._strata.values())
            for group in groups
            if group.disguised
            for name in group.names
        }
        return tuple(name for name in self.schema if name in hidden)

    def __eq__(self, other: object) -> bool:
        """Two policies are equal if they are the same mechanism."""
        return isinstance(other, Policy) and self.id == other.id

    def __hash__(self) -> int:
        """Hash by the id."""
        return hash(self.id)

    def __repr__(self) -> str:
        """Show the variables, which are disguised, and the id."""
        return f"Policy({len(self.schema)} variables, {len(self.disguised)} disguised, id {self.id[:12]})"

    def _arrange(self, channels: Mapping[tuple[str, ...], Channel | ClassResponse]) -> tuple[Group, ...]:
        owner: dict[str, tuple[str, ...]] = {}
        for names in channels:
            for name in names:
                self.schema[name]
                if name in owner or names.count(name) > 1:
                    raise PolicyError(f"{name!r} goes through two channels; a variable has one.")
                owner[name] = names
        ordered = dict.fromkeys(owner.get(name, (name,)) for name in self.schema)
        groups = tuple(self._group(names, channels.get(names)) for names in ordered)
        columns = [name for group in groups if group.own_report for name in group.reports]
        twice = next((name for name in columns if columns.count(name) > 1), None)
        if twice is not None:
            raise PolicyError(f"two reports are called {twice!r}: give each a 'report' name of its own.")
        return groups

    def _group(self, names: tuple[str, ...], channel: Channel | ClassResponse | None) -> Group:
        sizes = self.schema.shape(names)
        if isinstance(channel, ClassResponse):
            return self._dealt(names, channel, sizes)
        used = identity(prod(sizes)) if channel is None else channel
        if used.truths != prod(sizes):
            raise PolicyError(
                f"the channel of {', '.join(names)} is for {used.truths} categories, there are {prod(sizes)}."
            )
        if used.columns:  # a design: where no table follows, a model of it may
            parts = tuple(len(column) for column in used.columns)
            begins = names[0] if len(names) == 1 else None
            columns = self._report_columns(names, [column.name for column in used.columns], begins)
            return Group(names, used, sizes, parts, columns)
        if names in self.report_names:
            _check_telling(names, used, sizes)
            return Group(names, used, sizes, (used.reports,), self._report_columns(names, [""], None))
        if len(names) == 1:
            return Group(names, used, sizes, (used.reports,), names)
        if used.reports != used.truths:
            raise PolicyError(
                f"{', '.join(names)}: variables disguised together need as many reports as combinations, or "
                "a 'report' of their own that names the column of the joint report."
            )
        return Group(names, used, sizes, sizes, names)

    def _dealt(self, names: tuple[str, ...], response: ClassResponse, sizes: tuple[int, ...]) -> Group:
        if response.sizes != sizes:
            raise PolicyError(f"the blocks of {', '.join(names)} are of variables with other categories.")
        columns = self._report_columns(names, ["block", "class"], None)
        return Group(names, response, sizes, response.report_sizes, columns)

    def _report_columns(
        self, names: tuple[str, ...], parts: Sequence[str], begins: str | None
    ) -> tuple[str, ...]:
        """Return the columns of a group's own reports: named, or by what their names begin with."""
        named = self.report_names.get(names, begins)
        if named is None or isinstance(named, str):
            columns = tuple("_".join(filter(None, (named, part))) for part in parts)
        else:
            columns = tuple(named)
        if len(columns) != len(parts):
            raise PolicyError(
                f"{', '.join(names)}: a report of {len(parts)} columns ({', '.join(parts)}) needs as many "
                f"names in 'report'. Got {len(columns)}."
            )
        for column in columns:
            if column in self.schema:
                raise PolicyError(
                    f"{column!r} names a report and a variable: give the 'report' another name."
                )
        return columns

    def _observed(self) -> Schema:
        """Return the columns of disguised records; a group's own stand where its first variable stood."""
        columns: list[Variable] = []
        for field in self.fields:
            group = self.group(field.variable.name)
            if not group.own_report:
                columns.append(Variable(field.variable.name, _labels(group, field.variable)))
            elif all(column.name != group.reports[0] for column in columns):
                own = group.channel.columns if isinstance(group.channel, Channel) else ()
                labels = [column.categories for column in own] or [
                    group.channel.labels or tuple(range(1, size + 1)) for size in group.report_sizes
                ]
                columns += [Variable(name, found) for name, found in zip(group.reports, labels, strict=True)]
        return Schema(columns)

    def _stratify(self, by: str, channels: Mapping[Category, Mapping[str, Channel]]) -> None:
        variable = self.schema[by]
        if self.group(by).disguised or len(self.group(by).names) > 1:
            raise PolicyError(f"strata are told apart by {by!r}, so it cannot be disguised.")
        for label in channels:
            variable.code(label)
        for label in variable.categories:
            own = channels.get(label, {})
            for name, channel in own.items():
                group = self.group(name)
                if name == by or len(group.names) > 1 or group.response is not None:
                    raise PolicyError(f"strata.channels.{label}: {name!r} cannot have a channel per stratum.")
                same = group.matrix_channel
                if (channel.reports, channel.labels, channel.columns) != (
                    same.reports,
                    same.labels,
                    same.columns,
                ):
                    raise PolicyError(
                        f"strata.channels.{label}.{name}: the reports must be the same in all strata."
                    )
            self._strata[label] = tuple(
                self._group(group.names, own[group.names[0]]) if group.names[0] in own else group
                for group in self.groups
            )
        self.stratum_variable = by


def _resolve(spec: PolicySpec, source: Mapping[str, Any]) -> Policy:
    fields = [field_of(name, entry) for name, entry in spec.variables.items()]
    schema = Schema(field.variable for field in fields)
    channels: dict[tuple[str, ...], Channel | ClassResponse] = {}
    reports: dict[tuple[str, ...], Columns] = {}
    entries = 0
    for name, entry in spec.variables.items():
        if entry.channel is not None:
            where = f"variables.{name}.channel"
            channels[name,] = built = _built(entry.channel, [schema[name]], entry.bins, where)
            entries = _within_bounds(entries, built.weights.size, where)
    for i, joint in enumerate(spec.joint):
        where = f"joint[{i}]"
        variables = [known_variable(schema, name, where) for name in joint.variables]
        names = tuple(joint.variables)
        if any((name,) in channels for name in names):
            raise PolicyError(f"{where}: a variable disguised jointly cannot have a channel of its own too.")
        channels[names] = built = _built(joint.channel, variables, None, where)
        entries = _within_bounds(entries, built.weights.size, where)
        if joint.report is not None:
            reports[names] = joint.report
    for i, dealt in enumerate(spec.blocks):
        names = tuple(dealt.variables)
        channels[names] = response = _dealt_in(dealt, schema, channels, f"blocks[{i}]", entries)
        entries += response.reports
        if dealt.report is not None:
            reports[names] = dealt.report
    strata = None if spec.strata is None else _strata_of(spec, spec.strata, schema, entries)
    return Policy(fields, channels, strata, source, reports)


def _strata_of(
    spec: PolicySpec, strata: StrataSpec, schema: Schema, entries: int
) -> tuple[str, dict[Category, dict[str, Channel]]]:
    by = known_variable(schema, strata.by, "strata.by")
    own: dict[Category, dict[str, Channel]] = {}
    for label, specs in strata.channels.items():
        chosen = own.setdefault(category_named(by, label, "strata.channels"), {})
        for name, channel in specs.items():
            where = f"strata.channels.{label}"
            variable = known_variable(schema, name, where)
            chosen[name] = _built(channel, [variable], spec.variables[name].bins, f"{where}.{name}")
            entries = _within_bounds(entries, chosen[name].weights.size, where)
    return by.name, own


def _dealt_in(
    spec: BlocksSpec, schema: Schema, channels: Mapping[tuple[str, ...], object], where: str, entries: int
) -> ClassResponse:
    variables = [known_variable(schema, name, where) for name in spec.variables]
    if any(name in names for names in channels for name in spec.variables):
        raise PolicyError(f"{where}: a variable that is dealt in blocks cannot have another channel too.")
    try:
        response = spec.build(variables)
    except ChannelError as error:
        raise PolicyError(f"{where}: {error}") from None
    _within_bounds(entries, response.reports, where)  # before anything is listed
    if spec.order is not None and response.order < spec.order:
        raise PolicyError(
            f"{where}: tables of {spec.order} variables do not follow from these blocks, only those of "
            f"{response.order}: let 'k' be {spec.order}, or 'order' {response.order}."
        )
    return response


def _labels(group: Group, variable: Variable) -> tuple[Category, ...]:
    """Return the labels of the reports of a variable that reports stand for itself."""
    own = group.channel.labels if len(group.names) == 1 else None
    if own is not None:
        return own
    same = len(group.names) > 1 or group.channel.reports == len(variable)
    return variable.categories if same else tuple(range(1, group.channel.reports + 1))


def _check_telling(names: tuple[str, ...], channel: Channel, sizes: tuple[int, ...]) -> None:
    """Refuse a joint channel from whose reports no table at all can be estimated."""
    if channel.truths > MOST_JUDGED:
        if channel.gamma == 1:
            raise PolicyError(f"{', '.join(names)}: every truth gives the same reports: they tell nothing.")
        return
    if not any(channel.tells(sizes, (place,)) for place in range(len(names))):
        raise PolicyError(
            f"{', '.join(names)}: no table of any of them follows from their joint report, not even of one. "
            "Change the channel's probabilities."
        )


def _built(
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
    """Return the entries of all channels so far; refuse a policy whose channels together are too large."""
    if entries + more > MOST_POLICY_ENTRIES:
        raise PolicyError(f"{where}: the channels of this policy are too large together; use smaller groups.")
    return entries + more


def policy_of(given: Policy | Mapping[str, Any] | str | Path) -> Policy:
    """Return a policy given as such, as a path or as plain values."""
    if isinstance(given, (str, Path)):
        return Policy.load(given)
    return Policy.from_dict(given) if isinstance(given, Mapping) else check_policy(given)


def check_policy(policy: object) -> Policy:
    """Return a policy; a path, a dict or what a device has of one is refused."""
    if not isinstance(policy, Policy):
        raise PolicyError(
            f"A Policy is needed, got a {type(policy).__name__}: read one with Policy.load(path) or "
            "Policy.from_dict(values)."
        )
    return policy
