"""A policy assigns channels to variables, alone or jointly; it is the public contract of a disguise."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from masquerade.channels.basic import identity
from masquerade.channels.channel import Channel
from masquerade.channels.class_response import ClassResponse
from masquerade.channels.policy import text as policy_text
from masquerade.channels.policy.fields import (
    Columns,
    blocks_in_file,
    channel_in_file,
    matrix_spec,
    missing_in_file,
    one_or_all,
    plain_columns,
    recodes_in_file,
    without_none,
)
from masquerade.channels.policy.group import Group, check_telling, report_labels
from masquerade.channels.policy.missing_reports import (
    check_clear_missing,
    clear_missing_in,
    report_field,
)
from masquerade.channels.policy.models import (
    FORMAT,
    PolicySpec,
    explain,
    refuse_draft,
)
from masquerade.channels.policy.overview import PolicyOverview
from masquerade.channels.policy.record import record_gamma
from masquerade.channels.policy.resolution import resolve
from masquerade.channels.policy.strata_reports import check_same_reports, unite_labels
from masquerade.channels.privacy_level import PrivacyLimit
from masquerade.core.errors import InputError, PolicyError
from masquerade.core.schema import Category, Field, Schema, Variable
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.formatting import gamma_words


class Policy(PolicyOverview):
    """Schema and channels of a data set, identified by a SHA-256 id.

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
        *,
        limit: PrivacyLimit | None = None,
        clear_accepted: bool = False,
    ) -> None:
        self.fields = tuple(fields)
        self.schema = Schema(field.variable for field in fields)
        self.report_names = dict(reports or {})
        if strata:
            channels, strata = unite_labels(self.schema, channels, strata)
        self.groups = self._arrange(channels)
        self.observed = self._report_schema()
        self.stratum_variable: str | None = None
        self._strata: dict[Category, tuple[Group, ...]] = {}
        if strata:
            self._stratify(*strata)
        self._source = None if source is None else policy_text.plain_values(source)
        self.limit, self.clear_accepted = limit, clear_accepted
        check_clear_missing(self._all_groups, {one.variable.name: one for one in self.fields}, self.schema)
        if limit is not None:
            self._check_limit(limit)

    @classmethod
    def build(
        cls,
        variables: Schema | Mapping[str, Sequence[Category]],
        channels: Mapping[str | tuple[str, ...], Channel | ClassResponse],
        reports: Mapping[tuple[str, ...], Columns] | None = None,
        limit: PrivacyLimit | Mapping[str, Any] | None = None,
        *,
        clear_accepted: bool = False,
        clear_missing: Iterable[str] = (),
    ) -> Policy:
        """Return a policy from categories and channels.

        Parameters
        ----------
        variables : Schema or mapping of str to sequence
            The variables and their categories.
        channels : mapping
            A channel for each variable, or for each tuple of variables that are disguised together.
            Variables without one are released in clear.
        reports : mapping, optional
            Column names of joint reports, for joint channels that do not have one report column per variable
            and for variables in blocks. A single name is the prefix of all columns.
        limit : PrivacyLimit or mapping, optional
            The most that a whole record may reveal, such as {"breach": "5%:50%"} or {"gamma": 19}.
        clear_accepted : bool, optional
            Whether the clear variables may be released. Needed if there are any and a limit is given.
        clear_missing : iterable of str, optional
            Disguised variables whose reports may show in clear whether the answer is missing.

        Returns
        -------
        Policy

        Raises
        ------
        PolicyError
            If the record's γ is above the limit, or clear variables were not accepted.

        Examples
        --------
        >>> masks = {"smoker": mq.channels.binary("0.25")}
        >>> mq.Policy.build({"smoker": ["yes", "no"]}, masks, limit={"gamma": 3}).limit.gamma
        Fraction(3, 1)
        """
        schema = variables if isinstance(variables, Schema) else Schema(variables)
        keyed = {
            (names,) if isinstance(names, str) else names: channel for names, channel in channels.items()
        }
        bound = limit if limit is None or isinstance(limit, PrivacyLimit) else PrivacyLimit.parse(limit)
        clear_names = set(clear_missing)
        fields = [
            replace(report_field(variable), clear_missing=variable.name in clear_names)
            for variable in schema.variables
        ]
        return cls(fields, keyed, reports=reports, limit=bound, clear_accepted=clear_accepted)

    @classmethod
    def clear(cls, schema: Schema) -> Policy:
        """Return the policy that disguises nothing."""
        return cls.build(schema, {})

    def without_channels(self) -> Policy:
        """Return a policy that reads the same clear columns and disguises none of them."""
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
        parts = resolve(spec)
        return cls(
            parts.fields,
            parts.channels,
            parts.strata,
            values,
            parts.reports,
            limit=None if spec.limit is None else spec.limit.build(),
            clear_accepted=spec.clear is not None,
        )

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
            raise PolicyError("a policy with strata built in code cannot be saved: write the file by hand.")
        variables: dict[str, Any] = {}
        for field in self.fields:
            edges = None if field.edges is None else list(field.edges)
            entry: dict[str, Any] = (
                {"categories": list(field.variable.categories)} if edges is None else {"bins": edges}
            )
            if field.missing is not None:
                entry["missing"] = missing_in_file(field.variable) or field.missing
            entry |= recodes_in_file(field)
            group = self.group(field.variable.name)
            alone = len(group.names) == 1 and group.names not in self.report_names and not group.response
            if alone and (group.disguised or group.channel.labels):
                entry |= channel_in_file(
                    field.variable, group.matrix_channel, clear_missing=group.names[0] in self.clear_missing
                )
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
            blocks_in_file(group.names, group.response)
            | without_none({"report": plain_columns(self.report_names.get(group.names))})
            for group in self.groups
            if group.response is not None
        ]
        return (
            {"masquerade": FORMAT}
            | ({} if self.limit is None else {"limit": self.limit.to_dict()})
            | ({"clear": "accepted"} if self.clear_accepted else {})
            | {"variables": variables}
            | ({"joint": joint} if joint else {})
            | ({"blocks": blocks} if blocks else {})
        )

    def select(self, names: Iterable[str]) -> Policy:
        """Return the policy of the given variables, which must include all variables disguised with them."""
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
            raise PolicyError(f"{by!r} determines the channels: select it too.")
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
            limit=self.limit,
            clear_accepted=self.clear_accepted,
        )

    def public_text(self) -> str | None:
        """Return the policy text that disguised records include, as JSON.

        It omits title, notes and recoded clear values. It is None if the policy has no text.
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
        """Return the policy included in records. Raise PolicyError if its id is not the expected one."""
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
        """Return the SHA-256 of the normalised policy, the same for all files of one mechanism.

        It does not depend on recoded values, which do not change the meaning of reports.
        """

        def groups(listed: Iterable[Group]) -> list[Any]:
            # only groups with their own report columns are named, so that ids of earlier policies stay valid
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
        """Return the group of a variable."""
        return self._owners[self.schema[name].name]

    def groups_of(self, stratum: Category | None) -> tuple[Group, ...]:
        """Return the groups of a stratum."""
        return self.groups if stratum is None else self._strata[stratum]

    @property
    def strata(self) -> tuple[Category, ...]:
        """Return the categories of the stratum variable, if the policy has strata."""
        return tuple(self._strata)

    @property
    def _all_groups(self) -> tuple[Group, ...]:
        """Return the groups of all strata."""
        return tuple(group for groups in (self.groups, *self._strata.values()) for group in groups)

    @cached_property
    def _owners(self) -> dict[str, Group]:
        return {name: group for group in self.groups for name in group.names}

    @cached_property
    def disguised(self) -> tuple[str, ...]:
        """Return the variables that some channel hides."""
        hidden = {name for group in self._all_groups if group.disguised for name in group.names}
        return tuple(name for name in self.schema if name in hidden)

    @property
    def clear_variables(self) -> tuple[str, ...]:
        """Return the variables that every record discloses in clear."""
        hidden = set(self.disguised)
        return tuple(name for name in self.schema if name not in hidden)

    @cached_property
    def clear_missing(self) -> tuple[str, ...]:
        """Return the disguised variables whose reports show in clear whether the answer is missing."""
        names = {name for group in self._all_groups for name in clear_missing_in(group, self.schema)}
        return tuple(name for name in self.schema if name in names)

    @property
    def report_fields(self) -> tuple[Field, ...]:
        """Return the fields that read the columns of disguised records."""
        return tuple(report_field(variable) for variable in self.observed.variables)

    @cached_property
    def record_gamma(self) -> Fraction | float:
        """Return γ over all disguised variables of a record, given the clear variables; inf if unbounded."""
        return record_gamma(self)

    def with_limit(self, limit: PrivacyLimit | None, *, clear_accepted: bool | None = None) -> Policy:
        """Return the same mechanism with a different limit.

        Parameters
        ----------
        limit : PrivacyLimit or None
            None removes the limit.
        clear_accepted : bool, optional
            Whether clear variables may be released. Unchanged if not given.

        Returns
        -------
        Policy
            Its id is unchanged: a limit is not part of the mechanism.

        Raises
        ------
        PolicyError
            If the record's γ is above the limit.
        """
        accepted = self.clear_accepted if clear_accepted is None else clear_accepted
        values = self._source or self.to_dict()
        head: dict[str, Any] = {} if limit is None else {"limit": limit.to_dict()}
        head |= {"clear": "accepted"} if accepted else {}
        rest = {key: value for key, value in values.items() if key not in {"masquerade", "limit", "clear"}}
        return Policy.from_dict({"masquerade": FORMAT} | head | rest)

    def _check_limit(self, limit: PrivacyLimit) -> None:
        clear = self.clear_variables
        if clear and not self.clear_accepted:
            raise PolicyError(
                f"every record would disclose in clear: {', '.join(clear)}. Give them a channel, leave them "
                "out, or state 'clear: accepted'."
            )
        if self.disguised and self.record_gamma > limit.gamma:
            raise PolicyError(
                f"a whole record has {gamma_words(self.record_gamma)}, above the policy's limit ({limit}). "
                f"{self._advice()}"
            )

    def _advice(self) -> str:
        """Return advice on how to lower the γ of a record."""
        if self.record_gamma == math.inf:
            unbounded = [
                name
                for label in self.strata or (None,)
                for group in self.groups_of(label)
                if not (group.disguised and isinstance(group.channel.gamma, Fraction))
                for name in group.names
                if name in self.disguised
            ]
            return (
                f"Some report reveals the truth of {', '.join(dict.fromkeys(unbounded))}: change the channel."
            )
        return (
            f"γ multiplies over its {len(self.disguised)} disguised variables: 'masquerade policy init' and "
            "'masquerade plan' spend one limit on all of them."
        )

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
        """Return groups in the order of their first variables; raise PolicyError if a variable is in two."""
        owner: dict[str, tuple[str, ...]] = {}
        for names in channels:
            for name in names:
                self.schema[name]  # raises an error for an unknown variable
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
        """Return the group of some variables; raise PolicyError if the channel does not match them."""
        sizes = self.schema.shape(names)
        if isinstance(channel, ClassResponse):
            return self._block_group(names, channel, sizes)
        used = identity(prod(sizes)) if channel is None else channel
        if used.truths != prod(sizes):
            raise PolicyError(
                f"the channel of {', '.join(names)} is for {used.truths} categories, but there are "
                f"{prod(sizes)}."
            )
        if used.columns:  # a survey design: a model may be estimable even if no table is
            parts = tuple(len(column) for column in used.columns)
            begins = names[0] if len(names) == 1 else None
            columns = self._report_columns(names, [column.name for column in used.columns], begins)
            return Group(names, used, sizes, parts, columns)
        if names in self.report_names:
            check_telling(names, used, sizes)
            return Group(names, used, sizes, (used.reports,), self._report_columns(names, [""], None))
        if len(names) == 1:
            return Group(names, used, sizes, (used.reports,), names)
        if used.reports != used.truths:
            raise PolicyError(
                f"{', '.join(names)}: variables disguised together need as many reports as combinations, or "
                "a 'report' of their own that names the column of the joint report."
            )
        return Group(names, used, sizes, sizes, names)

    def _block_group(self, names: tuple[str, ...], response: ClassResponse, sizes: tuple[int, ...]) -> Group:
        if response.sizes != sizes:
            raise PolicyError(f"the blocks of {', '.join(names)} are for variables with other categories.")
        columns = self._report_columns(names, ["block", "class"], None)
        return Group(names, response, sizes, response.report_sizes, columns)

    def _report_columns(
        self, names: tuple[str, ...], parts: Sequence[str], begins: str | None
    ) -> tuple[str, ...]:
        """Return the columns of a group's own reports, from their names or from a common prefix."""
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

    def _report_schema(self) -> Schema:
        """Return the columns of disguised records; a joint report takes its first variable's position."""
        columns: list[Variable] = []
        for field in self.fields:
            group = self.group(field.variable.name)
            if not group.own_report:
                labels = report_labels(group, field.variable)
                absent = tuple(label for label in field.variable.missing if label in labels)
                columns.append(Variable(field.variable.name, labels, absent))
            elif all(column.name != group.reports[0] for column in columns):
                own = group.channel.columns if isinstance(group.channel, Channel) else ()
                parts = [column.categories for column in own] or [
                    group.channel.labels or tuple(range(1, size + 1)) for size in group.report_sizes
                ]
                columns += [Variable(name, found) for name, found in zip(group.reports, parts, strict=True)]
        return Schema(columns)

    def _stratify(self, by: str, channels: Mapping[Category, Mapping[str, Channel]]) -> None:
        """Set the groups of every stratum, in which some variables have a channel of their own."""
        variable = self.schema[by]
        if self.group(by).disguised or len(self.group(by).names) > 1:
            raise PolicyError(f"{by!r} defines the strata, so it cannot be disguised.")
        for label in channels:
            variable.code(label)  # raises an error for an unknown category
        for label in variable.categories:
            own = channels.get(label, {})
            for name, channel in own.items():
                group = self.group(name)
                if name == by or len(group.names) > 1 or group.response is not None:
                    raise PolicyError(f"strata.channels.{label}: {name!r} cannot have a channel per stratum.")
                check_same_reports(channel, group.matrix_channel, f"strata.channels.{label}.{name}")
            self._strata[label] = tuple(
                self._group(group.names, own[group.names[0]]) if group.names[0] in own else group
                for group in self.groups
            )
        self.stratum_variable = by


def policy_of(given: Policy | Mapping[str, Any] | str | Path) -> Policy:
    """Return a policy given as a Policy, a path or plain values."""
    if isinstance(given, (str, Path)):
        return Policy.load(given)
    return Policy.from_dict(given) if isinstance(given, Mapping) else check_policy(given)


def check_policy(policy: object) -> Policy:
    """Return the argument if it is a Policy; raise PolicyError otherwise."""
    if not isinstance(policy, Policy):
        raise PolicyError(
            f"A Policy is needed, got a {type(policy).__name__}: read one with Policy.load(path) or "
            "Policy.from_dict(values)."
        )
    return policy
