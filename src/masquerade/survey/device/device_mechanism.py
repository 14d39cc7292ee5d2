"""A policy as a device applies it: rows of integer weights, sampled with the operating system's randomness.

These are the values that `survey.page.mechanism` writes for pages, read without NumPy. The device computes
their privacy guarantee from the weights themselves: it does not trust a stated guarantee.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, Final

from masquerade.core.errors import InputError
from masquerade.core.record_gamma import FollowUp, RecordPart, largest_record_gamma

Row = Sequence[tuple[int, int]]  # reports with their weights
Below = Callable[[int], int]  # draws a uniform integer from 0 to its argument - 1
UNBOUNDED: Final = math.inf
MOST_WEIGHT: Final = 1 << 62
MOST_BLOCKS: Final = 5_000
_BAD: Final = "The terms contain a mechanism that is not valid: {}. Nothing was drawn."


@dataclass(frozen=True)
class DeviceChannel:
    """A channel: one row per code, or the two weights of a symmetric channel."""

    size: int
    rows: tuple[Row, ...] = ()
    symmetric: tuple[int, int] | None = None

    @classmethod
    def of(cls, values: Any, size: int, reports: int) -> DeviceChannel:
        """Parse a channel from `size` codes to `reports` reports."""
        if not isinstance(values, list) or not values:
            raise _bad("a channel is not a list")
        if not isinstance(values[0], list):
            if len(values) != 3 or values[0] != size or reports != size or size < 2:
                raise _bad("the size of a symmetric channel does not match its variables")
            same, other = _weight(values[1]), _weight(values[2])
            _check_total(same + (size - 1) * other)
            return cls(size, (), (same, other))
        if len(values) != size:
            raise _bad("a channel does not have one row for each code")
        return cls(size, tuple(_row(row, reports) for row in values))

    def row(self, code: int) -> Row:
        """Return the reports of a code, with their weights."""
        if self.symmetric is None:
            return self.rows[code]
        same, other = self.symmetric
        return [(report, same if report == code else other) for report in range(self.size)]

    def chances(self, code: int) -> dict[int, Fraction]:
        """Return the probabilities of the reports of a code."""
        row = self.row(code)
        total = sum(weight for _, weight in row)
        return {report: Fraction(weight, total) for report, weight in row if weight}

    @property
    def is_identity(self) -> bool:
        """Return True if every code is reported as itself."""
        if self.symmetric is not None:
            return self.symmetric[1] == 0
        return all([report for report, _ in row] == [code] for code, row in enumerate(self.rows))

    @property
    def gamma(self) -> Fraction | float:
        """Return γ, the largest factor by which a report shifts the odds of two codes; may be infinite.

        Formula: max over reports y and codes u, v of P(y|u) / P(y|v). Reference: Evfimievski, Gehrke,
        Srikant, PODS 2003.
        """
        if self.symmetric is not None:
            least, most = sorted(self.symmetric)
            return UNBOUNDED if least == 0 else Fraction(most, least)
        chances: dict[int, list[Fraction]] = {}
        for row in self.rows:
            total = sum(weight for _, weight in row)
            for report, weight in row:
                chances.setdefault(report, []).append(Fraction(weight, total))
        if any(len(column) < self.size for column in chances.values()):
            return UNBOUNDED
        return max(max(column) / min(column) for column in chances.values())


@dataclass(frozen=True)
class Block:
    """A block that may be dealt to a person.

    It contains variables or, with `differences`, the differences of its other variables from its first.
    """

    members: tuple[int, ...]
    weight: int
    differences: bool = False


@dataclass(frozen=True)
class DeviceGroup:
    """Variables that are drawn together: sent unchanged, through a channel, or dealt in blocks."""

    names: tuple[str, ...]
    columns: tuple[int, ...]
    sizes: tuple[int, ...]
    report_sizes: tuple[int, ...]
    channel: DeviceChannel | None
    blocks: tuple[Block, ...] = ()
    block_channels: Mapping[int, DeviceChannel] | None = None

    @property
    def gamma(self) -> Fraction | float:
        """Return γ of the report about these variables: the largest factor by which it shifts odds."""
        if self.block_channels is not None:
            return max(channel.gamma for channel in self.block_channels.values())
        return UNBOUNDED if self.channel is None else self.channel.gamma

    @property
    def part(self) -> RecordPart:
        """Return the part of a record with these variables, and the probabilities that determine its γ."""
        if self.block_channels is not None:
            return RecordPart(self.names, self.sizes, self.gamma)
        if self.channel is None or self.channel.is_identity:
            return RecordPart(self.names, self.sizes, UNBOUNDED, clear=True)
        reports = math.prod(self.report_sizes)
        return RecordPart(self.names, self.sizes, self.gamma, chances=self.channel.chances, reports=reports)

    def draw(self, codes: Sequence[int], below: Below) -> tuple[int, ...]:
        """Draw the reports of codes, one for each column."""
        if self.block_channels is not None:
            index = draw_outcome([(i, block.weight) for i, block in enumerate(self.blocks)], below)
            code, size = self._block_code(self.blocks[index], codes)
            return index, draw_outcome(self.block_channels[size].row(code), below)
        if self.channel is None:
            return tuple(codes)
        report = draw_outcome(self.channel.row(_joint(codes, self.sizes)), below)
        reports = []
        for size in reversed(self.report_sizes):
            report, column = divmod(report, size)
            reports.append(column)
        return tuple(reversed(reports))

    def _block_code(self, block: Block, codes: Sequence[int]) -> tuple[int, int]:
        """Return the joint code of a block's variables, and the number of joint codes."""
        dealt = [codes[i] for i in block.members]
        if block.differences:
            size = len(dealt) - 1
            return _joint([code ^ dealt[0] for code in dealt[1:]], [2] * size), 2**size
        sizes = [self.sizes[i] for i in block.members]
        return _joint(dealt, sizes), math.prod(sizes)


@dataclass(frozen=True)
class Mechanism:
    """All groups of variables by stratum; `by` is the variable that determines the stratum."""

    by: str | None
    strata: tuple[tuple[DeviceGroup, ...], ...]
    columns: int

    @classmethod
    def of(cls, values: Any, sizes: Mapping[str, int], report_sizes: Sequence[int]) -> Mechanism:
        """Parse a mechanism from JSON values.

        Parameters
        ----------
        values : object
            Parsed JSON.
        sizes : mapping of str to int
            Number of categories of each variable.
        report_sizes : sequence of int
            Number of categories of each column of the reports.

        Returns
        -------
        Mechanism
            The mechanism, after checking every part of it.

        Raises
        ------
        InputError
            If a part is missing, unknown or inconsistent.
        """
        if not isinstance(values, dict) or set(values) != {"by", "groups"}:
            raise _bad("its keys must be 'by' and 'groups'")
        by, strata = values["by"], values["groups"]
        if by is not None and not _is_variable(by, sizes):
            raise _bad("it depends on an unknown variable")
        if not isinstance(strata, list) or len(strata) != (1 if by is None else sizes[by]):
            raise _bad("it does not have one list of groups for each stratum")
        return cls(by, tuple(_groups(groups, sizes, report_sizes) for groups in strata), len(report_sizes))

    def gammas(self) -> dict[str, Fraction | float]:
        """Return γ of the report about each variable."""
        gammas: dict[str, Fraction | float] = {}
        for groups in self.strata:
            for group in groups:
                for name in group.names:
                    gammas[name] = max(group.gamma, gammas.get(name, Fraction(1)))
        if self.by is not None:
            gammas[self.by] = UNBOUNDED  # the choice of channel for the other variables may reveal it
        return gammas

    def record_gamma(self, follow_ups: Iterable[FollowUp] = ()) -> Fraction | float:
        """Return γ of all that is sent about a record, given its clear variables."""
        strata = {code: [group.part for group in groups] for code, groups in enumerate(self.strata)}
        return largest_record_gamma(strata, self.by, follow_ups)

    def clear_variables(self) -> tuple[str, ...]:
        """Return the variables that are sent in clear in some stratum."""
        groups = [group for stratum in self.strata for group in stratum if group.part.clear]
        return tuple(dict.fromkeys(name for group in groups for name in group.names))

    def draw(self, codes: Mapping[str, int], below: Below = secrets.randbelow) -> tuple[int, ...]:
        """Draw a report, one code per column; each outcome has exactly the probability of its weight."""
        groups = self.strata[0 if self.by is None else codes[self.by]]
        reports = [0] * self.columns
        for group in groups:
            report_codes = group.draw([codes[name] for name in group.names], below)
            for column, report in zip(group.columns, report_codes, strict=True):
                reports[column] = report
        return tuple(reports)


def draw_outcome(row: Row, below: Below) -> int:
    """Draw one of a row's reports; its probability is exactly its weight over the sum of weights."""
    left = below(sum(weight for _, weight in row))
    for report, weight in row:
        left -= weight
        if left < 0:
            return report
    raise AssertionError("a number was drawn beyond its bound")


def _joint(codes: Sequence[int], sizes: Sequence[int]) -> int:
    """Return the joint code of several codes, the last varying fastest."""
    joint = 0
    for code, size in zip(codes, sizes, strict=True):
        joint = joint * size + code
    return joint


def _groups(values: Any, sizes: Mapping[str, int], report_sizes: Sequence[int]) -> tuple[DeviceGroup, ...]:
    if not isinstance(values, list):
        raise _bad("the groups of a stratum are not a list")
    groups = tuple(_group(one, sizes, report_sizes) for one in values)
    names = [name for group in groups for name in group.names]
    columns = [column for group in groups for column in group.columns]
    if sorted(names) != sorted(sizes) or sorted(columns) != list(range(len(report_sizes))):
        raise _bad("not every variable and every column occurs exactly once")
    return groups


def _group(values: Any, sizes: Mapping[str, int], report_sizes: Sequence[int]) -> DeviceGroup:
    if not isinstance(values, dict):
        raise _bad("a group is not an object")
    names, columns = values.get("names"), values.get("columns")
    if not isinstance(names, list) or not names or not all(_is_variable(name, sizes) for name in names):
        raise _bad("a group names an unknown variable")
    if not isinstance(columns, list) or not all(
        type(column) is int and 0 <= column < len(report_sizes) for column in columns
    ):
        raise _bad("a group names an unknown column")
    truths, reports = [sizes[name] for name in names], [report_sizes[column] for column in columns]
    if values.get("sizes") != truths:
        raise _bad("the sizes of a group do not match its variables")
    head = tuple(names), tuple(columns), tuple(truths), tuple(reports)
    keys = {"names", "columns", "sizes"}
    if "deal" in values or "blocks" in values:
        _check_keys(
            values, keys | {"channels"} | ({"k", "deal"} if "deal" in values else {"blocks", "weights"})
        )
        blocks, channels = _dealing(values, truths)
        if len(reports) != 2 or reports[0] != len(blocks) or reports[1] < max(channels):
            raise _bad("the blocks do not match their columns")
        return DeviceGroup(*head, None, blocks, channels)
    if "channel" not in values:
        _check_keys(values, keys)
        if truths != reports:
            raise _bad("a variable without a channel has different categories in its column")
        return DeviceGroup(*head, None)
    _check_keys(values, keys | {"reportSizes", "channel"})
    if values.get("reportSizes") != reports:
        raise _bad("the reports of a channel do not match its columns")
    return DeviceGroup(*head, DeviceChannel.of(values["channel"], math.prod(truths), math.prod(reports)))


def _is_variable(name: object, sizes: Mapping[str, int]) -> bool:
    return isinstance(name, str) and name in sizes


def _dealing(
    values: Mapping[str, Any], sizes: Sequence[int]
) -> tuple[tuple[Block, ...], dict[int, DeviceChannel]]:
    """Return the blocks in their order, and the channel for each number of classes."""
    channels = values.get("channels")
    if not isinstance(channels, dict):
        raise _bad("blocks have no channels")
    blocks = _all_blocks(values, sizes) if "deal" in values else _listed_blocks(values, sizes)
    _check_total(sum(block.weight for block in blocks))
    needed = {
        2 ** (len(one.members) - 1) if one.differences else math.prod(sizes[i] for i in one.members)
        for one in blocks
    }
    if set(channels) != {str(size) for size in needed}:
        raise _bad("the channels do not match the blocks")
    return tuple(blocks), {size: DeviceChannel.of(channels[str(size)], size, size) for size in sorted(needed)}


def _all_blocks(values: Mapping[str, Any], sizes: Sequence[int]) -> list[Block]:
    """Return all blocks of k variables, then all difference blocks of k + 1 variables if they are dealt."""
    k, weights = values.get("k"), values["deal"]
    if type(k) is not int or not 1 <= k <= len(sizes):
        raise _bad("blocks have no valid size")
    if not isinstance(weights, list) or len(weights) != 2:
        raise _bad("'deal' must be two weights")
    cells, other = _weight(weights[0]), _weight(weights[1])
    number = math.comb(len(sizes), k) + (math.comb(len(sizes), k + 1) if other else 0)
    if number > MOST_BLOCKS:
        raise _bad(f"there are {number:,} blocks")
    if other and set(sizes) != {2}:
        raise _bad("differences need variables with two categories")
    blocks = [Block(members, cells) for members in combinations(range(len(sizes)), k)]
    if other:
        blocks += [
            Block(members, other, differences=True) for members in combinations(range(len(sizes)), k + 1)
        ]
    return blocks


def _listed_blocks(values: Mapping[str, Any], sizes: Sequence[int]) -> list[Block]:
    """Return blocks that are listed: the indices of their variables in order, and a weight for each."""
    listed, weights = values["blocks"], values["weights"]
    if not isinstance(listed, list) or not isinstance(weights, list) or len(listed) != len(weights):
        raise _bad("not every block has a weight")
    if len(listed) > MOST_BLOCKS:
        raise _bad(f"there are {len(listed):,} blocks")
    for members in listed:
        if (
            not isinstance(members, list)
            or not members
            or not all(type(one) is int and 0 <= one < len(sizes) for one in members)
            or members != sorted(set(members))
        ):
            raise _bad("a block does not list variables of its group, in order")
    return [Block(tuple(members), _weight(weight)) for members, weight in zip(listed, weights, strict=True)]


def _row(values: Any, reports: int) -> Row:
    if not isinstance(values, list) or not all(
        isinstance(entry, list) and len(entry) == 2 for entry in values
    ):
        raise _bad("a row is not a list of reports with weights")
    row = tuple((report, _weight(weight)) for report, weight in values)
    if not all(type(report) is int and 0 <= report < reports for report, _ in row):
        raise _bad("a row contains an unknown report")
    if len({report for report, _ in row}) < len(row):
        raise _bad("a row contains a report twice")
    _check_total(sum(weight for _, weight in row))
    return tuple(entry for entry in row if entry[1])


def _weight(value: Any) -> int:
    if not isinstance(value, str) or not value.isascii() or not value.isdecimal() or len(value) > 19:
        raise _bad("a weight is not an integer in text")
    return int(value)


def _check_total(total: int) -> None:
    if not 1 <= total <= MOST_WEIGHT:
        raise _bad("the weights of a row must add up to a number from 1 to 2^62")


def _check_keys(values: Mapping[str, Any], expected: set[str]) -> None:
    if set(values) != expected:
        raise _bad("a group has missing or unknown keys")


def _bad(why: str) -> InputError:
    return InputError(_BAD.format(why))
