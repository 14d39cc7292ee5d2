"""What a person's device knows of a policy: exact channels as numbers, and how reports are drawn from them.

A device has neither the policy's file nor NumPy. It is given the chances of every report as whole numbers,
works out itself which variables they bound, and draws with them what the library would draw: the same words
of the same secret decide (`disguising.memo`), as `kernels.draw` lays them out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from masquerade.core.errors import InputError, PolicyError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import expand
from masquerade.crypto.symmetric import BlockFunction
from masquerade.protocols.wire.codec import U32, Many, Message, Number, Reader, Struct, Text

if TYPE_CHECKING:
    from masquerade.channels.policy import Group, Policy

MOST_VARIABLES, MOST_LABELS, MOST_ROWS, MOST_STRATA = 255, 1 << 12, 1 << 12, 256
TAG_BYTES, MOST_TRIES = 10, 256
VariableName = Annotated[str, Text(1024)]
Weight = Annotated[int, Number(8)]
Row = Annotated[tuple[tuple[U32, Weight], ...], Many(MOST_LABELS)]


@dataclass(frozen=True)
class VariableForm(Struct):
    """A variable of the record: its name, and its labels as JSON, in the order of their codes."""

    name: VariableName
    labels: Annotated[tuple[Annotated[str, Text(4096)], ...], Many(MOST_LABELS)]


@dataclass(frozen=True)
class GroupForm(Struct):
    """Variables that go through one channel: a row for each combination of values, of reports with weights.

    Without rows they are reported as they are.
    """

    names: Annotated[tuple[VariableName, ...], Many(MOST_VARIABLES)]
    sizes: Annotated[tuple[U32, ...], Many(MOST_VARIABLES)]
    reports: Annotated[tuple[VariableName, ...], Many(MOST_VARIABLES)]
    report_sizes: Annotated[tuple[U32, ...], Many(MOST_VARIABLES)]
    rows: Annotated[tuple[Row, ...], Many(MOST_ROWS)] = ()

    @property
    def bounded(self) -> bool:
        """Tell whether γ is finite: what one value can be reported as, every value can."""
        possible = [{report for report, weight in row if weight} for row in self.rows]
        return bool(possible) and all(reports == possible[0] for reports in possible)

    def check(self) -> None:
        """Refuse rows that are no channel between these values and reports."""
        if len(self.names) != len(self.sizes) or len(self.reports) != len(self.report_sizes):
            raise DecodingError("A channel has a size for every variable and every report.")
        if not self.rows:
            if (self.names, self.sizes) != (self.reports, self.report_sizes):
                raise DecodingError("What goes through no channel is reported as it is.")
            return
        most = prod(self.report_sizes)
        totals = [sum(weight for _, weight in row) for row in self.rows]
        if (
            len(self.rows) != prod(self.sizes)
            or not all(1 <= total <= 1 << 62 for total in totals)
            or any(report >= most for row in self.rows for report, _ in row)
        ):
            raise DecodingError("The chances of a channel are not those of reports of its variables.")


@dataclass(frozen=True)
class StratumForm(Struct):
    """The channels of one stratum, or of everybody."""

    groups: Annotated[tuple[GroupForm, ...], Many(MOST_VARIABLES)]


class ReportForm(Message, tag=b"masquerade report form 1"):
    """A policy as a device has it: `id` is the policy's own, `observed` its reports with their sizes.

    With `strata`, the code of the variable `by` decides which channels a record goes through.
    """

    id: Annotated[str, Text(255)]
    variables: Annotated[tuple[VariableForm, ...], Many(MOST_VARIABLES)]
    observed: Annotated[tuple[tuple[VariableName, U32], ...], Many(MOST_VARIABLES)]
    by: Annotated[str, Text(1024)]
    strata: Annotated[tuple[StratumForm, ...], Many(MOST_STRATA)]

    @classmethod
    def of(cls, policy: Policy) -> ReportForm:
        """Return the form of a policy; one whose variables are dealt in blocks has none."""
        if any(group.response is not None for group in policy.groups):
            raise PolicyError("Devices do not draw from channels that deal variables in blocks: use others.")
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
        return cls(policy.id, tuple(variables), observed, policy.stratum_variable or "", tuple(strata))

    @classmethod
    def read(cls, reader: Reader) -> ReportForm:
        """Read a form; one whose parts do not fit together is refused."""
        form = super().read(reader)
        sizes = {variable.name: len(variable.labels) for variable in form.variables}
        observed = dict(form.observed)
        if len(sizes) < len(form.variables) or len(observed) < len(form.observed) or 0 in sizes.values():
            raise DecodingError("A form lists its variables once, each with labels.")
        if len(form.strata) != (sizes.get(form.by, 0) if form.by else 1):
            raise DecodingError("A form has the channels of every stratum.")
        for groups in (stratum.groups for stratum in form.strata):
            given = [pair for group in groups for pair in zip(group.names, group.sizes, strict=False)]
            told = [pair for group in groups for pair in zip(group.reports, group.report_sizes, strict=False)]
            if sorted(given) != sorted(sizes.items()) or sorted(told) != sorted(observed.items()):
                raise DecodingError("The channels of a form are not those of its variables.")
            for group in groups:
                group.check()
        return form

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Return how many reports each variable has."""
        return dict(self.observed)

    @cached_property
    def disguised(self) -> tuple[str, ...]:
        """Return the variables that some channel disguises."""
        groups = [group for stratum in self.strata for group in stratum.groups if group.rows]
        return tuple(dict.fromkeys(name for group in groups for name in group.names))

    @cached_property
    def bounded(self) -> frozenset[str]:
        """Return the variables whose reports tell a bounded amount, in every stratum."""
        groups = [group for stratum in self.strata for group in stratum.groups]
        unbounded = {name for group in groups if not group.bounded for name in group.names}
        return frozenset(variable.name for variable in self.variables) - unbounded

    def codes(self, record: Mapping[str, Any]) -> dict[str, int]:
        """Return a record of labels as codes; a label that is none is refused and not shown."""
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
        wrong += [f"{name!r} is no variable of the form" for name in unknown]
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
            code = _combined([record[one] for one in group.names], group.sizes)
            if not group.rows:
                found |= {one: record[one] for one in group.names}
                continue
            report = _drawn(function, tag, group.rows[code], code, place)
            found |= dict(zip(group.reports, _apart(report, group.report_sizes), strict=True))
        return found


def _group_form(group: Group) -> GroupForm:
    rows: tuple[tuple[tuple[int, int], ...], ...] = ()
    if group.disguised or group.own_report:
        channel = group.matrix_channel
        pairs = zip(channel.outcomes.tolist(), channel.weights.tolist(), strict=True)
        rows = tuple(tuple(one for one in zip(*pair, strict=True) if one[1]) for pair in pairs)
        if len(rows) > MOST_ROWS or max(map(len, rows)) > MOST_LABELS:
            raise PolicyError(
                f"{', '.join(group.names)}: a device draws from at most {MOST_ROWS:,} rows of "
                f"{MOST_LABELS:,} reports; use a channel for each variable."
            )
    return GroupForm(group.names, group.sizes, group.reports, group.report_sizes, rows)


def _combined(codes: Sequence[int], sizes: Sequence[int]) -> int:
    whole = 0
    for code, size in zip(codes, sizes, strict=True):
        whole = whole * size + code
    return whole


def _apart(whole: int, sizes: Sequence[int]) -> list[int]:
    parts: list[int] = []
    for size in reversed(sizes):
        whole, part = divmod(whole, size)
        parts.append(part)
    return parts[::-1]


def _drawn(function: BlockFunction, tag: bytes, row: Sequence[tuple[int, int]], code: int, place: int) -> int:
    """Return the report that the words of a block decide: exactly as likely as its weight says.

    Formula: of words below D·⌊2⁶⁴/D⌋, D the sum of weights, each report owns its weight's share; others are
    rejected and the next attempt's word decides.
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
    raise InputError("No word of the secret decides a report.")  # a chance below 2**-256


AnyPolicy: TypeAlias = "Policy | ReportForm"


def sizes_of(policy: AnyPolicy) -> dict[str, int]:
    """Return how many reports each variable of a policy has."""
    if isinstance(policy, ReportForm):
        return policy.sizes
    return dict(zip(policy.observed, policy.observed.shape(policy.observed), strict=True))


def bounded_in(policy: AnyPolicy) -> frozenset[str]:
    """Return the variables whose reports tell a bounded amount, even if seen as they are."""
    if isinstance(policy, ReportForm):
        return policy.bounded
    from masquerade.channels.policy.privacy import guarantee_of  # noqa: PLC0415  (devices have no policies)

    seen = guarantee_of(policy).disclosures
    return frozenset(name for item in seen if item.gamma is not None for name in item.variables)


def tells_without_bound(policy: AnyPolicy) -> bool:
    """Tell whether reports of a policy tell anything without a bound."""
    names = [one.name for one in policy.variables] if isinstance(policy, ReportForm) else list(policy.schema)
    return not bounded_in(policy).issuperset(names)
