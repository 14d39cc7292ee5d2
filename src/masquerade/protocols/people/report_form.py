"""Report form: a policy for a person's device, with exact channels as whole numbers, and its draws.

A device has neither the policy's file nor NumPy. It receives the probabilities of every report as whole
numbers and computes from them which variables are protected. It draws the same reports as the library
(`kernels.draw`): both use the same pseudorandom 64-bit words, derived from the same secret
(`disguising.memo`), in the same order.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit
from masquerade.core.errors import InputError, PolicyError
from masquerade.core.record_gamma import Gamma, RecordPart, largest_record_gamma, names_within
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import expand
from masquerade.crypto.symmetric import BlockFunction
from masquerade.protocols.people.channel_rows import (
    MOST_LABELS,
    MOST_VARIABLES,
    Row,
    VariableName,
    gamma_of_rows,
    join_codes,
)
from masquerade.protocols.people.dealt_blocks import DealtForm
from masquerade.protocols.wire.codec import U32, Many, Message, Reader, Struct, Text, decode_any

if TYPE_CHECKING:
    from masquerade.channels.policy import Group, Policy

MOST_ROWS, MOST_STRATA, MOST_DEALT = 1 << 12, 256, 16
TAG_BYTES, MOST_TRIES = 10, 256


@dataclass(frozen=True)
class VariableForm(Struct):
    """A variable of the record: its name, and its labels as JSON, in the order of their codes."""

    name: VariableName
    labels: Annotated[tuple[Annotated[str, Text(4096)], ...], Many(MOST_LABELS)]


@dataclass(frozen=True)
class GroupForm(Struct):
    """Variables with one channel: for each combination of values, a row of reports with weights.

    Without rows, the variables are reported unchanged.
    """

    names: Annotated[tuple[VariableName, ...], Many(MOST_VARIABLES)]
    sizes: Annotated[tuple[U32, ...], Many(MOST_VARIABLES)]
    reports: Annotated[tuple[VariableName, ...], Many(MOST_VARIABLES)]
    report_sizes: Annotated[tuple[U32, ...], Many(MOST_VARIABLES)]
    rows: Annotated[tuple[Row, ...], Many(MOST_ROWS)] = ()

    @property
    def part(self) -> RecordPart:
        """Return these variables as a part of the record, with its γ."""
        clear = all([one for one, weight in row if weight] == [code] for code, row in enumerate(self.rows))
        return RecordPart(
            self.names, self.sizes, math.inf if clear else gamma_of_rows(self.rows), clear=clear
        )

    def check(self) -> None:
        """Raise DecodingError if rows are not a channel between these values and reports."""
        if len(self.names) != len(self.sizes) or len(self.reports) != len(self.report_sizes):
            raise DecodingError("A channel needs a size for every variable and every report.")
        if not self.rows:
            if (self.names, self.sizes) != (self.reports, self.report_sizes):
                raise DecodingError("Variables without a channel are reported unchanged.")
            return
        most = prod(self.report_sizes)
        totals = [sum(weight for _, weight in row) for row in self.rows]
        if (
            len(self.rows) != prod(self.sizes)
            or not all(1 <= total <= 1 << 62 for total in totals)
            or any(report >= most for row in self.rows for report, _ in row)
        ):
            raise DecodingError("The probabilities of a channel do not match the reports of its variables.")


@dataclass(frozen=True)
class StratumForm(Struct):
    """The channels of one stratum, or of all people."""

    groups: Annotated[tuple[GroupForm, ...], Many(MOST_VARIABLES)]


class ReportForm(Message, tag=b"masquerade report form 1"):
    """A policy in the form for devices.

    `id` is the id of the policy, `observed` its reports with their sizes. With `strata`, the code of the
    variable `by` selects the channels of a record.
    """

    id: Annotated[str, Text(255)]
    variables: Annotated[tuple[VariableForm, ...], Many(MOST_VARIABLES)]
    observed: Annotated[tuple[tuple[VariableName, U32], ...], Many(MOST_VARIABLES)]
    by: Annotated[str, Text(1024)]
    strata: Annotated[tuple[StratumForm, ...], Many(MOST_STRATA)]

    @classmethod
    def of(cls, policy: Policy) -> ReportForm:
        """Return the form of a policy; with blocks it is a `DealtReportForm`."""
        variables = [
            VariableForm(variable.name, tuple(json.dumps(label) for label in variable.categories))
            for variable in policy.schema.variables
        ]
        sizes = policy.observed.shape(policy.observed)
        strata = [
            StratumForm(tuple(_group_form(group) for group in policy.groups_of(label)))
            for label in policy.strata or (None,)
        ]
        observed = tuple(zip(policy.observed, sizes, strict=True))
        fields = (policy.id, tuple(variables), observed, policy.stratum_variable or "", tuple(strata))
        dealt = tuple(DealtForm.of(group) for group in policy.groups if group.response is not None)
        return DealtReportForm(*fields, dealt) if dealt else cls(*fields)

    @staticmethod
    def parse(data: bytes) -> ReportForm:
        """Return the form in a message: a `DealtReportForm` if it has blocks."""
        return decode_any(data, (ReportForm, DealtReportForm))

    @cached_property
    def by_names(self) -> dict[tuple[str, ...], DealtForm]:
        """Return the blocks of the groups that are dealt in blocks, by the names of their variables."""
        return {}

    @classmethod
    def read(cls, reader: Reader) -> ReportForm:
        """Read a form; raise DecodingError if its parts are inconsistent."""
        form = super().read(reader)
        sizes = {variable.name: len(variable.labels) for variable in form.variables}
        observed = dict(form.observed)
        if len(sizes) < len(form.variables) or len(observed) < len(form.observed) or 0 in sizes.values():
            raise DecodingError("A form lists its variables once, each with labels.")
        if len(form.strata) != (sizes.get(form.by, 0) if form.by else 1):
            raise DecodingError("A form must have the channels of every stratum.")
        for groups in (stratum.groups for stratum in form.strata):
            given = [pair for group in groups for pair in zip(group.names, group.sizes, strict=False)]
            told = [pair for group in groups for pair in zip(group.reports, group.report_sizes, strict=False)]
            if sorted(given) != sorted(sizes.items()) or sorted(told) != sorted(observed.items()):
                raise DecodingError("The channels of a form do not match its variables.")
            for group in groups:
                if group.names in form.by_names:
                    form.by_names[group.names].check(group.names, group.sizes, group.report_sizes)
                else:
                    group.check()
            if not set(form.by_names) <= {group.names for group in groups if not group.rows}:
                raise DecodingError("Only groups without rows can be dealt in blocks.")
        return form

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return the number of possible reports of each variable."""
        return dict(self.observed)

    @cached_property
    def disguised(self) -> tuple[str, ...]:
        """Return the variables that some channel disguises."""
        groups = [
            group
            for stratum in self.strata
            for group in stratum.groups
            if group.rows or group.names in self.by_names
        ]
        return tuple(dict.fromkeys(name for group in groups for name in group.names))

    @cached_property
    def parts(self) -> dict[int, list[RecordPart]]:
        """Return the groups of variables that are reported in a stratum."""
        return {
            code: [self.by_names.get(group.names, group).part for group in stratum.groups]
            for code, stratum in enumerate(self.strata)
        }

    @cached_property
    def record_gamma(self) -> Gamma:
        """Return γ of all reports of a record together, given its clear variables."""
        return largest_record_gamma(self.parts, self.by or None)

    @cached_property
    def clear_variables(self) -> tuple[str, ...]:
        """Return the variables that are reported in clear in some stratum."""
        clear = [part.names for parts in self.parts.values() for part in parts if part.clear]
        return tuple(dict.fromkeys(name for names in clear for name in names))

    def codes(self, record: Mapping[str, Any]) -> dict[str, int]:
        """Return a record of labels as codes; an unknown label raises InputError, which does not show it."""
        names = [variable.name for variable in self.variables]
        missing = [name for name in names if name not in record]
        unknown = [str(name) for name in record if name not in names]
        found: dict[str, int] = {}
        wrong: list[str] = []
        for variable in self.variables:
            if variable.name in record:
                label = json.dumps(record[variable.name])
                if label in variable.labels:
                    found[variable.name] = variable.labels.index(label)
                else:
                    allowed = ", ".join(variable.labels[:8])
                    wrong.append(f"{variable.name!r} must be one of {allowed}")
        wrong += [f"{name!r} is missing" for name in missing]
        wrong += [f"{name!r} is not a variable of the form" for name in unknown]
        if wrong:
            raise InputError(f"The record does not fit: {'; '.join(wrong)}.")
        return found

    def reports(self, record: Mapping[str, int], name: str, secret: bytes) -> dict[str, int]:
        """Return the reports of a record of codes, as the memo of this secret draws them for this person."""
        keys = expand(secret, b"masquerade memo\0" + self.id.encode(), 64)
        tag = hashlib.blake2b(name.encode(), key=keys[32:], digest_size=TAG_BYTES).digest()
        function, found = BlockFunction(keys[:32]), dict[str, int]()
        stratum = record[self.by] if self.by else 0
        groups = self.strata[stratum].groups
        for place, group in enumerate(groups, start=stratum * len(groups)):
            dealt = self.by_names.get(group.names)
            if dealt is not None:
                reports = dealt.draw(
                    [record[one] for one in group.names], place, partial(_draw, function, tag)
                )
                found |= dict(zip(group.reports, reports, strict=True))
                continue
            code = join_codes([record[one] for one in group.names], group.sizes)
            if not group.rows:
                found |= {one: record[one] for one in group.names}
                continue
            report = _draw(function, tag, group.rows[code], code, place)
            found |= dict(zip(group.reports, _split(report, group.report_sizes), strict=True))
        return found


class DealtReportForm(ReportForm, tag=b"masquerade report form 2"):
    """A form with groups of variables that are dealt in blocks; their rows are in `dealt`."""

    dealt: Annotated[tuple[DealtForm, ...], Many(MOST_DEALT)]

    @cached_property
    def by_names(self) -> dict[tuple[str, ...], DealtForm]:
        """Return the blocks of the groups that are dealt in blocks, by the names of their variables."""
        return {one.names: one for one in self.dealt}


def _group_form(group: Group) -> GroupForm:
    rows: tuple[tuple[tuple[int, int], ...], ...] = ()
    if group.response is None and (group.disguised or group.own_report):
        channel = group.matrix_channel
        pairs = zip(channel.outcomes.tolist(), channel.weights.tolist(), strict=True)
        rows = tuple(tuple(one for one in zip(*pair, strict=True) if one[1]) for pair in pairs)
        if len(rows) > MOST_ROWS or max(map(len, rows)) > MOST_LABELS:
            raise PolicyError(
                f"{', '.join(group.names)}: a device draws from at most {MOST_ROWS:,} rows of "
                f"{MOST_LABELS:,} reports; use a channel for each variable."
            )
    return GroupForm(group.names, group.sizes, group.reports, group.report_sizes, rows)


def _split(whole: int, sizes: Sequence[int]) -> list[int]:
    parts: list[int] = []
    for size in reversed(sizes):
        whole, part = divmod(whole, size)
        parts.append(part)
    return parts[::-1]


def _draw(function: BlockFunction, tag: bytes, row: Sequence[tuple[int, int]], code: int, place: int) -> int:
    """Draw a report from pseudorandom words, with probability exactly proportional to its weight.

    Formula: rejection sampling. With D the sum of weights, words below D·⌊2⁶⁴/D⌋ are divided among the
    reports in proportion to their weights. Other words are rejected, and the next attempt is used.
    """
    ends = list(accumulate(weight for _, weight in row))
    share = (1 << 64) // ends[-1]
    for attempt in range(MOST_TRIES):
        block = tag + place.to_bytes(2, "big") + code.to_bytes(3, "little") + bytes([attempt])
        word = int.from_bytes(function(block)[:8], "little")
        report = next(
            (report for (report, _), end in zip(row, ends, strict=True) if word < end * share), None
        )
        if report is not None:
            return report
    raise InputError("None of the words drawn from the secret determines a report.")  # a chance below 2**-256


AnyPolicy: TypeAlias = "Policy | ReportForm"


def sizes_of(policy: AnyPolicy) -> dict[str, int]:
    """Return the number of possible reports of each variable of a policy."""
    if isinstance(policy, ReportForm):
        return policy.sizes
    return dict(zip(policy.observed, policy.observed.shape(policy.observed), strict=True))


def bounded_in(policy: AnyPolicy, limit: PrivacyLimit = DEFAULT_LIMIT) -> frozenset[str]:
    """Return the variables, and their reports, that stay within a limit together if all of them are seen.

    All others count as clear, and need the same protection as clear records.
    """
    if isinstance(policy, ReportForm):
        within = names_within(policy.parts, policy.by or None, limit.gamma)
        return within | _reports_within(policy.strata[0].groups, within)
    from masquerade.channels.policy.record import record_parts  # noqa: PLC0415  (devices have no policies)

    within = names_within(record_parts(policy), policy.stratum_variable, limit.gamma)
    return within | _reports_within(policy.groups, within)


def _reports_within(groups: Iterable[GroupForm | Group], within: frozenset[str]) -> frozenset[str]:
    """Return the reports of variables within a limit; reports of blocks have their own names."""
    return frozenset(name for group in groups if within.issuperset(group.names) for name in group.reports)


def exceeds_limit(policy: AnyPolicy, limit: PrivacyLimit = DEFAULT_LIMIT) -> bool:
    """Return True if anything that a policy reports counts as clear under a limit."""
    names = [one.name for one in policy.variables] if isinstance(policy, ReportForm) else list(policy.schema)
    return not bounded_in(policy, limit).issuperset(names)
