"""A policy as a device applies it: rows of whole numbers, drawn from by the operating system's randomness.

The same values that `survey.mechanism` writes for pages, read without NumPy. What they promise is worked out
here, from the numbers that are drawn by, and not taken from anybody's word.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, Final

from masquerade.core.errors import InputError

Row = Sequence[tuple[int, int]]  # reports with their weights
Below = Callable[[int], int]  # a whole number from zero to below its argument, all alike
UNBOUNDED: Final = math.inf
MOST_WEIGHT: Final = 1 << 62
MOST_BLOCKS: Final = 5_000
_BAD: Final = "The terms hold a mechanism that cannot be read: {}. Nothing was drawn."


@dataclass(frozen=True)
class Matrix:
    """A channel: the row of each code, or of a symmetric one three numbers."""

    size: int
    rows: tuple[Row, ...] = ()
    symmetric: tuple[int, int] | None = None

    @classmethod
    def of(cls, values: Any, size: int, reports: int) -> Matrix:
        """Return a channel from as many codes to as many reports, checked."""
        if not isinstance(values, list) or not values:
            raise _bad("a channel is no list")
        if not isinstance(values[0], list):
            if len(values) != 3 or values[0] != size or reports != size or size < 2:
                raise _bad("a symmetric channel has another size than its variables")
            same, other = _weight(values[1]), _weight(values[2])
            _check_total(same + (size - 1) * other)
            return cls(size, (), (same, other))
        if len(values) != size:
            raise _bad("a channel has not one row for each code")
        return cls(size, tuple(_row(row, reports) for row in values))

    def row(self, code: int) -> Row:
        """Return the reports of a code, with their weights."""
        if self.symmetric is None:
            return self.rows[code]
        same, other = self.symmetric
        return [(report, same if report == code else other) for report in range(self.size)]

    @property
    def gamma(self) -> Fraction | float:
        """Return how far a report shifts the odds of two codes, at most; infinite if it rules one out.

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
        if any(len(own) < self.size for own in chances.values()):
            return UNBOUNDED
        return max(max(own) / min(own) for own in chances.values())


@dataclass(frozen=True)
class Block:
    """What one person may be dealt of a group: some of its variables, or how they differ from the first."""

    members: tuple[int, ...]
    weight: int
    differences: bool = False


@dataclass(frozen=True)
class Group:
    """Variables that are drawn together: sent as they are, through a channel, or dealt in blocks."""

    names: tuple[str, ...]
    columns: tuple[int, ...]
    sizes: tuple[int, ...]
    report_sizes: tuple[int, ...]
    channel: Matrix | None
    blocks: tuple[Block, ...] = ()
    block_channels: Mapping[int, Matrix] | None = None

    @property
    def gamma(self) -> Fraction | float:
        """Return how far what is sent for these variables shifts odds about them, at most."""
        if self.block_channels is not None:
            return max(channel.gamma for channel in self.block_channels.values())
        return UNBOUNDED if self.channel is None else self.channel.gamma

    def draw(self, codes: Sequence[int], below: Below) -> tuple[int, ...]:
        """Return the reports of codes, one for each column."""
        if self.block_channels is not None:
            place = drawn([(i, block.weight) for i, block in enumerate(self.blocks)], below)
            code, size = self._dealt(self.blocks[place], codes)
            return place, drawn(self.block_channels[size].row(code), below)
        if self.channel is None:
            return tuple(codes)
        report = drawn(self.channel.row(_joint(codes, self.sizes)), below)
        found = []
        for size in reversed(self.report_sizes):
            report, own = divmod(report, size)
            found.append(own)
        return tuple(reversed(found))

    def _dealt(self, block: Block, codes: Sequence[int]) -> tuple[int, int]:
        own = [codes[i] for i in block.members]
        if block.differences:
            return _joint([code ^ own[0] for code in own[1:]], [2] * (len(own) - 1)), 2 ** (len(own) - 1)
        sizes = [self.sizes[i] for i in block.members]
        return _joint(own, sizes), math.prod(sizes)


@dataclass(frozen=True)
class Mechanism:
    """All groups of variables, by stratum; `by` is the variable that decides on the stratum."""

    by: str | None
    strata: tuple[tuple[Group, ...], ...]
    columns: int

    @classmethod
    def of(cls, values: Any, sizes: Mapping[str, int], report_sizes: Sequence[int]) -> Mechanism:
        """Return the mechanism that plain values describe, for variables and columns of these sizes."""
        if not isinstance(values, dict) or set(values) != {"by", "groups"}:
            raise _bad("it has other parts than 'by' and 'groups'")
        by, strata = values["by"], values["groups"]
        if by is not None and by not in sizes:
            raise _bad("it depends on a variable that there is not")
        if not isinstance(strata, list) or len(strata) != (1 if by is None else sizes[by]):
            raise _bad("it has not one list of groups for each stratum")
        return cls(by, tuple(_groups(own, sizes, report_sizes) for own in strata), len(report_sizes))

    def gammas(self) -> dict[str, Fraction | float]:
        """Return for each variable how far what is sent for it shifts odds about it, at most."""
        found: dict[str, Fraction | float] = {}
        for groups in self.strata:
            for group in groups:
                for name in group.names:
                    found[name] = max(group.gamma, found.get(name, Fraction(1)))
        if self.by is not None:
            found[self.by] = UNBOUNDED  # by which channel others are drawn tells it
        return found

    def draw(self, codes: Mapping[str, int], below: Below = secrets.randbelow) -> tuple[int, ...]:
        """Return a fresh report, a code for each column; an outcome has exactly its share of the weights."""
        groups = self.strata[0 if self.by is None else codes[self.by]]
        reports = [0] * self.columns
        for group in groups:
            drawn_codes = group.draw([codes[name] for name in group.names], below)
            for column, report in zip(group.columns, drawn_codes, strict=True):
                reports[column] = report
        return tuple(reports)


def drawn(row: Row, below: Below) -> int:
    """Return one of a row's reports with a chance of exactly its weight over the sum of all."""
    left = below(sum(weight for _, weight in row))
    for report, weight in row:
        left -= weight
        if left < 0:
            return report
    raise AssertionError("a number was drawn beyond its bound")


def _joint(codes: Sequence[int], sizes: Sequence[int]) -> int:
    """Return several codes as one, the last varying fastest."""
    found = 0
    for code, size in zip(codes, sizes, strict=True):
        found = found * size + code
    return found


def _groups(values: Any, sizes: Mapping[str, int], report_sizes: Sequence[int]) -> tuple[Group, ...]:
    if not isinstance(values, list):
        raise _bad("the groups of a stratum are no list")
    groups = tuple(_group(one, sizes, report_sizes) for one in values)
    names = [name for group in groups for name in group.names]
    columns = [column for group in groups for column in group.columns]
    if sorted(names) != sorted(sizes) or sorted(columns) != list(range(len(report_sizes))):
        raise _bad("not every variable and column is there once")
    return groups


def _group(values: Any, sizes: Mapping[str, int], report_sizes: Sequence[int]) -> Group:
    if not isinstance(values, dict):
        raise _bad("a group is no object")
    names, columns = values.get("names"), values.get("columns")
    if not isinstance(names, list) or not names or not all(name in sizes for name in names):
        raise _bad("a group names a variable that there is not")
    if not isinstance(columns, list) or not all(
        type(column) is int and 0 <= column < len(report_sizes) for column in columns
    ):
        raise _bad("a group names a column that there is not")
    own, reported = [sizes[name] for name in names], [report_sizes[column] for column in columns]
    if values.get("sizes") != own:
        raise _bad("a group has other sizes than its variables")
    given = tuple(names), tuple(columns), tuple(own), tuple(reported)
    known = {"names", "columns", "sizes"}
    if "deal" in values:
        _check_keys(values, known | {"k", "deal", "channels"})
        blocks, channels = _dealing(values, own)
        if len(reported) != 2 or reported[0] != len(blocks) or reported[1] < max(channels):
            raise _bad("what is dealt does not fit its columns")
        return Group(*given, None, blocks, channels)
    if "channel" not in values:
        _check_keys(values, known)
        if own != reported:
            raise _bad("what is sent as it is has other categories in its column")
        return Group(*given, None)
    _check_keys(values, known | {"reportSizes", "channel"})
    if values.get("reportSizes") != reported:
        raise _bad("a channel has other reports than its columns")
    return Group(*given, Matrix.of(values["channel"], math.prod(own), math.prod(reported)))


def _dealing(values: Mapping[str, Any], sizes: Sequence[int]) -> tuple[tuple[Block, ...], dict[int, Matrix]]:
    """Return the blocks in their order, all of k variables and then, if dealt, all differences of k + 1."""
    k, weights, channels = values.get("k"), values["deal"], values.get("channels")
    if type(k) is not int or not 1 <= k <= len(sizes) or not isinstance(channels, dict):
        raise _bad("blocks have no size, or no channels")
    if not isinstance(weights, list) or len(weights) != 2:
        raise _bad("blocks are dealt by two weights")
    own, other = _weight(weights[0]), _weight(weights[1])
    number = math.comb(len(sizes), k) + (math.comb(len(sizes), k + 1) if other else 0)
    if number > MOST_BLOCKS:
        raise _bad(f"there are {number:,} blocks")
    if other and set(sizes) != {2}:
        raise _bad("differences are of variables with two categories")
    blocks = [Block(members, own) for members in combinations(range(len(sizes)), k)]
    if other:
        blocks += [
            Block(members, other, differences=True) for members in combinations(range(len(sizes)), k + 1)
        ]
    _check_total(sum(block.weight for block in blocks))
    needed = {2**k if one.differences else math.prod(sizes[i] for i in one.members) for one in blocks}
    if set(channels) != {str(size) for size in needed}:
        raise _bad("not every block has its channel")
    return tuple(blocks), {size: Matrix.of(channels[str(size)], size, size) for size in sorted(needed)}


def _row(values: Any, reports: int) -> Row:
    if not isinstance(values, list) or not all(
        isinstance(entry, list) and len(entry) == 2 for entry in values
    ):
        raise _bad("a row is no list of reports with weights")
    row = tuple((report, _weight(weight)) for report, weight in values)
    if not all(type(report) is int and 0 <= report < reports for report, _ in row):
        raise _bad("a row leads to a report that there is not")
    if len({report for report, _ in row}) < len(row):
        raise _bad("a row leads to a report twice")
    _check_total(sum(weight for _, weight in row))
    return tuple(entry for entry in row if entry[1])


def _weight(value: Any) -> int:
    if not isinstance(value, str) or not value.isascii() or not value.isdecimal() or len(value) > 19:
        raise _bad("a weight is no whole number in text")
    return int(value)


def _check_total(total: int) -> None:
    if not 1 <= total <= MOST_WEIGHT:
        raise _bad("the weights of a row add up to nothing, or to more than 2^62")


def _check_keys(values: Mapping[str, Any], known: set[str]) -> None:
    if set(values) != known:
        raise _bad("a group says more or less than it has to")


def _bad(why: str) -> InputError:
    return InputError(_BAD.format(why))
