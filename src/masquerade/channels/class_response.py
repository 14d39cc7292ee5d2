"""Class response: each person is dealt a random block of a few variables and reports the class of its values.

A block is dealt before the answer is known, and published: it reveals nothing. A *cells* block asks for the
combination of k variables, a *difference* block asks which of k + 1 binary variables differ from the first.
The class is reported through a symmetric channel over all classes of the block, so that every record has the
same γ, however many variables there are. Variables that belong together, such as a question and its
follow-up, are dealt as one *unit*. If variables have different numbers of categories, a *design* can list the
blocks, instead of all blocks of one size.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations
from math import comb, gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.channel import MOST_ENTRIES, Channel
from masquerade.channels.designs import for_gamma
from masquerade.channels.rationals import rational
from masquerade.channels.sampled_channel import SampledChannel
from masquerade.core.errors import ChannelError
from masquerade.core.util.formatting import log_gamma

if TYPE_CHECKING:
    from collections.abc import Sequence

    from masquerade.core.schema import Category

Codes = NDArray[np.integer[Any]]
MOST_BLOCKS = 2**20
MOST_SAMPLED = 4096
MOST_WEIGHT = 1 << 20  # largest weight of a block in a design


@dataclass(frozen=True)
class ClassResponse:
    """Blocks of k variables, or of differences among k + 1 variables; one block per person is reported.

    Reports are (block, class), counted from zero: first the cells blocks, by their variables in order, then
    the difference blocks. The class of a cells block is the combination of its variables, the first varying
    slowest; the class of a difference block states for all variables but the first whether they differ
    from it.

    Parameters
    ----------
    sizes : tuple of int
        Number of categories of each variable.
    k : int
        Number of variables (or units) in a cells block. A difference block has one more.
    gamma : Fraction
        γ of every report, and so of the whole record.
    cells : Fraction, optional
        Share of people with a cells block. The others have difference blocks, which need variables with two
        categories.
    units : tuple of tuples of int, optional
        Variables that are dealt together, by index, such as a question and its follow-up. Every variable is
        in one unit. By default each variable is a unit.
    design : tuple of (units, weight), optional
        The cells blocks: the indices of the units of each block, and its weight in the random choice. By
        default all blocks of k units, equally likely. `k` must be the size of the largest block.

    Examples
    --------
    >>> blocks = mq.channels.ClassResponse(sizes=(2, 2, 2), k=2, gamma=3)
    >>> blocks.gamma, blocks.cells
    (Fraction(3, 1), Fraction(1, 1))
    >>> mq.channels.ClassResponse(sizes=(2, 2, 3), k=2, gamma=3, units=((0, 1), (2,))).classes
    12
    """

    sizes: tuple[int, ...]
    k: int
    gamma: Fraction
    cells: Fraction = Fraction(1)
    units: tuple[tuple[int, ...], ...] = ()
    design: tuple[tuple[tuple[int, ...], int], ...] = ()

    def __post_init__(self) -> None:
        for name in ("gamma", "cells"):  # numbers and texts are taken exactly
            object.__setattr__(self, name, rational(getattr(self, name), name))
        self._check_units()
        if not 0 <= self.cells <= 1:
            raise ChannelError(f"'cells' must be a share from 0 to 1. Got {float(self.cells):g} instead.")
        if self.gamma <= 1:
            raise ChannelError(
                f"'gamma' must be above 1: reports with γ = {float(self.gamma):g} would tell nothing."
            )
        if self.cells == 0:
            raise ChannelError(
                "difference blocks alone answer no table: each needs the counts of its single variables. "
                "Set 'cells' above 0."
            )
        if self.cells < 1:
            if any(size != 2 for size in self.sizes) or len(self.units) < len(self.sizes):
                raise ChannelError(
                    "differences are of single variables with two categories: set 'cells' to 1."
                )
            if self.k + 1 > len(self.sizes):
                raise ChannelError(
                    f"difference blocks need {self.k + 1} variables, but there are {len(self.sizes)}: lower "
                    "'k', or set 'cells' to 1."
                )
        if self.blocks > MOST_BLOCKS or self.classes**2 > MOST_ENTRIES:
            raise ChannelError(
                f"{self.blocks:,} blocks of up to {self.classes:,} classes are too many "
                f"(at most {MOST_BLOCKS:,} of {int(MOST_ENTRIES**0.5):,}): choose another 'k'."
            )

    def _check_units(self) -> None:
        single = tuple((place,) for place in range(len(self.sizes)))
        object.__setattr__(self, "units", tuple(map(tuple, self.units)) or single)
        if sorted(place for unit in self.units for place in unit) != list(range(len(self.sizes))):
            raise ChannelError("every variable must be in exactly one unit of the blocks.")
        if not 1 <= self.k <= len(self.units):
            what = "variables" if len(self.units) == len(self.sizes) else "units"
            raise ChannelError(f"'k' must be from 1 to {len(self.units)}, the {what}. Got {self.k} instead.")
        if self.design:
            self._check_design()

    def _check_design(self) -> None:
        """Normalize the blocks of a design; raise ChannelError if they are not valid."""
        design = tuple((tuple(sorted(block)), int(weight)) for block, weight in self.design)
        object.__setattr__(self, "design", design)
        known = set(range(len(self.units)))
        if any(not block or len(set(block)) < len(block) or not set(block) <= known for block, _ in design):
            raise ChannelError("a block of a design must list known units, at least one, and each only once.")
        if len({block for block, _ in design}) < len(design):
            raise ChannelError("a design lists a block twice: add up their weights.")
        if any(not 1 <= weight <= MOST_WEIGHT for _, weight in design):
            raise ChannelError(f"the weight of a block must be from 1 to {MOST_WEIGHT:,}.")
        if max(len(block) for block, _ in design) != self.k:
            raise ChannelError("'k' must be the size of the largest block of the design.")
        if self.cells < 1:
            raise ChannelError("a design has no difference blocks: set 'cells' to 1.")

    @property
    def is_identity(self) -> bool:
        """Return False: values are always hidden, with one γ for every record."""
        return False

    @property
    def labels(self) -> tuple[Category, ...] | None:
        """Return no labels: blocks and classes are numbered."""
        return None

    @property
    def truths(self) -> int:
        """Return the number of combinations of all variables. They are never listed."""
        return prod(self.sizes)

    @cached_property
    def by_cells(self) -> NDArray[np.int32]:
        """The variables of every cells block, in order; the index len(sizes) fills rows of smaller blocks."""
        if self.design:
            return self._by_design()
        chosen = _subsets(len(self.units), self.k)
        widest = max(map(len, self.units))
        if widest == 1:
            members = np.array([place for (place,) in self.units], dtype=np.int32)[chosen]
            return np.sort(members, axis=1)
        absent = len(self.sizes)
        padded = np.array([[*unit, *[absent] * (widest - len(unit))] for unit in self.units], dtype=np.int32)
        return np.sort(padded[chosen].reshape(len(chosen), -1), axis=1)

    def _by_design(self) -> NDArray[np.int32]:
        members = [sorted(place for unit in block for place in self.units[unit]) for block, _ in self.design]
        rows = np.full((len(members), max(map(len, members))), len(self.sizes), dtype=np.int32)
        for row, own in zip(rows, members, strict=True):
            row[: len(own)] = own
        return rows

    @cached_property
    def padded_sizes(self) -> NDArray[np.int64]:
        """The numbers of categories, and one category for the index that fills rows."""
        return np.array([*self.sizes, 1], dtype=np.int64)

    @cached_property
    def by_difference(self) -> NDArray[np.int32]:
        """The variables of every difference block."""
        width = self.k + 1
        return _subsets(len(self.sizes), width) if self.cells < 1 else np.zeros((0, width), dtype=np.int32)

    @property
    def blocks(self) -> int:
        """Return the number of blocks."""
        if self.design:
            return len(self.design)
        d = len(self.units)
        return comb(d, self.k) + (comb(d, self.k + 1) if self.cells < 1 else 0)

    @property
    def classes(self) -> int:
        """Return the number of classes of the largest block."""
        units = [prod(self.sizes[place] for place in unit) for unit in self.units]
        if self.design:
            return max(prod(units[unit] for unit in block) for block, _ in self.design)
        return prod(sorted(units)[-self.k :])

    @property
    def report_sizes(self) -> tuple[int, int]:
        """Return the numbers of blocks and of classes."""
        return self.blocks, self.classes

    @property
    def reports(self) -> int:
        """Return the number of joint codes of block and class."""
        return self.blocks * self.classes

    @property
    def epsilon(self) -> float:
        """Return ln γ, which holds for every record and for every variable in its block."""
        return log_gamma(self.gamma)

    @cached_property
    def dealing(self) -> Channel:
        """The distribution of the blocks: one row, independent of the truth."""
        if self.design:
            listed = np.array([[weight for _, weight in self.design]], dtype=np.int64)
            return Channel(np.arange(self.blocks, dtype=np.int32)[None, :], listed, self.blocks)
        cells, differences = len(self.by_cells), len(self.by_difference)
        own = self.cells.numerator * max(differences, 1)
        other = (self.cells.denominator - self.cells.numerator) * cells
        common = gcd(own, other)
        weights = np.repeat(np.array([own // common, other // common], dtype=np.int64), [cells, differences])
        return Channel(np.arange(self.blocks, dtype=np.int32)[None, :], weights[None, :], self.blocks)

    @cached_property
    def block_classes(self) -> NDArray[np.int64]:
        """The number of classes of every block."""
        return np.concatenate(
            [self.padded_sizes[self.by_cells].prod(axis=1), np.full(len(self.by_difference), 2**self.k)]
        )

    def channel_of(self, classes: int) -> Channel:
        """Return the channel of a block with `classes` classes."""
        return _class_channel(classes, self.gamma)

    @cached_property
    def fingerprint(self) -> str:
        """Return a SHA-256 hash of the mechanism."""
        text = f"class response;{self.sizes};{self.k};{self.gamma};{self.cells}"
        if max(map(len, self.units)) > 1:  # otherwise the text is unchanged: earlier fingerprints stay valid
            text += f";{self.units}"
        if self.design:
            text += f";design;{self.design}"
        return hashlib.sha256(text.encode()).hexdigest()

    def classes_of(self, columns: Sequence[Codes], blocks: Codes) -> NDArray[np.int64]:
        """Return the class of every record in its block.

        Parameters
        ----------
        columns : sequence of arrays of int
            Codes of every variable, one entry per record.
        blocks : array of int
            The block of each record.

        Returns
        -------
        array of int
            The class of each record, from 0.
        """
        known = [np.asarray(column, dtype=np.int64) for column in columns]
        table = np.stack([*known, np.zeros(len(blocks), dtype=np.int64)], axis=1)
        result = np.empty(len(blocks), dtype=np.int64)
        cells = len(self.by_cells)
        inside = np.flatnonzero(blocks < cells)
        members = self.by_cells[blocks[inside]]
        result[inside] = np.sum(table[inside[:, None], members] * self.strides[blocks[inside]], axis=1)
        apart = np.flatnonzero(blocks >= cells)
        values = table[apart[:, None], self.by_difference[np.asarray(blocks[apart], dtype=np.int64) - cells]]
        result[apart] = (values[:, 1:] ^ values[:, :1]) @ (1 << np.arange(self.k)[::-1])
        return result

    @cached_property
    def strides(self) -> NDArray[np.int64]:
        """The factor by which each variable's code is multiplied in the class of its cells block."""
        sizes = self.padded_sizes[self.by_cells]
        after = np.ones_like(sizes)
        after[:, :-1] = np.cumprod(sizes[:, :0:-1], axis=1)[:, ::-1]
        return after

    def sampled_channel(self, places: tuple[int, ...]) -> SampledChannel:
        """Return the channel from the variables at the given indices to the reports, by sample.

        Formula: a symmetric channel over J classes stays symmetric if they are lumped into J_T classes of
        equal size: P(y | x) = ((γ − 1)[x = y] + J/J_T)/(γ + J − 1). The classes of cells blocks are lumped to
        the combinations of the requested variables, and the classes of difference blocks to the differences
        among the requested variables.
        Reference: Ma (2006), Proposition 7.2, for lumpable channels.
        Cost: O(blocks that contain one of the variables · classes · k).
        """
        return _sampled_channel(self, places)

    def estimable(self, places: Sequence[int]) -> bool:
        """Return True if the table of the variables at these indices can be estimated."""
        return not places or self.sampled_channel(tuple(sorted(places))).estimable

    @property
    def order(self) -> int:
        """The largest n such that every table of n variables can be estimated.

        Formula: the parities of a table (its contrasts, for more than two categories) determine it. Cells
        blocks determine the parities of up to k variables, but no parity of more variables. Difference blocks
        of k + 1 variables determine the parities of an even number of variables, which are products of
        differences. If k is odd, this includes the parity of all k + 1 variables.
        """
        if self.design:
            return self._design_order
        return self.k + 1 if self.cells < 1 and self.k % 2 else self.k

    @cached_property
    def _design_order(self) -> int:
        """The largest n up to 3 such that any n variables are together in some block."""
        held = {
            width: {
                chosen
                for row in self.by_cells.tolist()
                for chosen in combinations([place for place in row if place < len(self.sizes)], width)
            }
            for width in (1, 2, 3)
        }
        return next(
            (width - 1 for width in (1, 2, 3) if len(held[width]) < comb(len(self.sizes), width)),
            min(3, len(self.sizes)),
        )


@lru_cache(maxsize=64)
def _subsets(variables: int, size: int) -> NDArray[np.int32]:
    return np.array(list(combinations(range(variables), size)), dtype=np.int32).reshape(-1, size)


@lru_cache(maxsize=256)
def _class_channel(classes: int, gamma: Fraction) -> Channel:
    return for_gamma(classes, gamma)


@lru_cache(maxsize=MOST_SAMPLED)
def _sampled_channel(response: ClassResponse, places: tuple[int, ...]) -> SampledChannel:
    """Return the channel of `ClassResponse.sampled_channel`, cached. `places` are in order."""
    sizes = tuple(response.sizes[place] for place in places)
    truths = np.stack(np.unravel_index(np.arange(prod(sizes)), sizes), axis=1)  # truths × asked
    where = np.full(len(response.sizes) + 1, -1, dtype=np.int64)
    where[list(places)] = np.arange(len(places))
    cells = len(response.by_cells)
    widest = response.classes
    lump = np.full((response.blocks, widest), -1, dtype=np.int32)
    dealt = np.zeros(response.blocks, dtype=np.int32)
    chances, sample = [np.ones((len(truths), 1))], [0]  # sample 0: blocks without information about these
    lump[np.arange(widest)[None, :] < response.block_classes[:, None]] = 0
    for kind, members, first in (
        ("cells", response.by_cells, 0),
        ("differences", response.by_difference, cells),
    ):
        least = 1 if kind == "cells" else 2
        asked = where[members]  # blocks × members: index among the requested, −1 if not requested
        held = asked >= 0
        telling = np.flatnonzero(held.sum(axis=1) >= least)
        bits = np.where(held[telling], 1 << np.maximum(asked[telling], 0), 0).sum(axis=1)
        keys = np.stack([bits, response.block_classes[first + telling]], axis=1)
        for mask, classes in np.unique(keys, axis=0).tolist():
            alike = telling[(keys[:, 0] == mask) & (keys[:, 1] == classes)]
            own = [i for i in range(len(places)) if mask >> i & 1]
            number, start = int(dealt.max(initial=0)) + 1, sum(part.shape[1] for part in chances)
            codes = _lump_classes(response, kind, alike, held[alike], [sizes[i] for i in own])
            classes_of_truths, lumps = _truth_classes(truths[:, own], [sizes[i] for i in own], kind)
            lump[first + alike, :classes] = start + codes
            dealt[first + alike] = number
            gamma = float(response.gamma)
            table = np.full((len(truths), lumps), classes / lumps)
            table[np.arange(len(truths)), classes_of_truths] += gamma - 1
            chances.append(table / (gamma + classes - 1))
            sample += [number] * lumps
    possible = np.hstack(chances)
    if (lump < 0).any():  # classes that smaller blocks do not have
        lump[lump < 0] = possible.shape[1]
        possible = np.hstack([possible, np.zeros((len(truths), 1))])
        sample.append(-1)
    weights = response.dealing.weights[0].astype(np.float64)
    shares = np.zeros(int(dealt.max(initial=0)) + 1)
    np.add.at(shares, dealt, weights / weights.sum())
    return SampledChannel(lump.ravel(), np.array(sample, dtype=np.int32), possible, dealt, shares)


def _truth_classes(
    truths: NDArray[np.int64], sizes: Sequence[int], kind: str
) -> tuple[NDArray[np.int64], int]:
    """Return the class of every truth (a sample distinguishes only classes) and the number of classes."""
    if kind == "cells":
        return np.asarray(np.ravel_multi_index(tuple(truths.T), tuple(sizes))), prod(sizes)
    width = truths.shape[1] - 1
    return (truths[:, 1:] ^ truths[:, :1]) @ (1 << np.arange(width)[::-1]), 2**width


def _lump_classes(
    response: ClassResponse,
    kind: str,
    blocks: NDArray[np.int64],
    held: NDArray[np.bool_],
    sizes: Sequence[int],
) -> NDArray[np.int64]:
    """Return, for every class of blocks of equal size, the class among the requested variables."""
    classes = int(response.block_classes[blocks[0]]) if kind == "cells" else 2**response.k
    codes = np.arange(classes)
    if kind == "cells":
        strides = response.strides[blocks]
        own = response.padded_sizes[response.by_cells[blocks]]
        digits = codes[None, :, None] // strides[:, None, :] % own[:, None, :]
        after = np.append(np.cumprod(np.array(sizes[:0:-1], dtype=np.int64))[::-1], 1)
        rank = np.cumsum(held, axis=1) - 1
        weights = np.where(held, after[np.maximum(rank, 0)], 0)
        return np.asarray(np.sum(digits * weights[:, None, :], axis=2))
    bits = codes[:, None] >> np.arange(response.k)[::-1] & 1
    values = np.concatenate([np.zeros((classes, 1), dtype=np.int64), bits], axis=1)  # the first has code 0
    count = len(sizes)
    columns = np.argsort(~held, axis=1, kind="stable")[:, :count]  # the asked members, in order
    asked = values[:, columns].transpose(1, 0, 2)  # blocks × classes × asked
    return np.asarray((asked[:, :, 1:] ^ asked[:, :, :1]) @ (1 << np.arange(count - 1)[::-1]))
