"""What a collector ends up with: the rows of large enough classes, and a verdict on every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from masquerade.core.words import counted
from masquerade.protocols.threshold.agreement import Terms


class Verdict(IntEnum):
    """What became of a report. From `MALFORMED` on, something is wrong with the report itself."""

    OPENED = 0
    BELOW_K = 1
    UNDECIDED = 2
    WITHHELD = 3
    MALFORMED = 4
    OTHER_EPOCH = 5
    OTHER_K = 6
    OTHER_NOTICE = 7
    REPEATED = 8
    BAD_SHARE = 9
    BAD_SEAL = 10
    OTHER_QUASI = 11


REASONS: Final[Mapping[Verdict, str]] = {
    Verdict.OPENED: "the row is open: its class has at least k good reports",
    Verdict.BELOW_K: "the class has fewer than k good reports",
    Verdict.UNDECIDED: "the class has k reports, but too few good ones to tell them from the bad",
    Verdict.WITHHELD: "the class had k good shares, but fewer than k rows that could be read",
    Verdict.MALFORMED: "it is not a report: a number out of range, or a row that nobody could have filled in",
    Verdict.OTHER_EPOCH: "it belongs to another epoch",
    Verdict.OTHER_K: "it was made for another k",
    Verdict.OTHER_NOTICE: "it was made under another notice: its server may give people different keys",
    Verdict.REPEATED: "it repeats the share of another report",
    Verdict.BAD_SHARE: "its share does not lie on the polynomial of its class",
    Verdict.BAD_SEAL: "its sealed part does not open with the key of its class",
    Verdict.OTHER_QUASI: "its quasi-identifier is not the one that its class follows from",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A report that is wrong: its place among those received, and what is wrong with it."""

    report: int
    verdict: Verdict

    @property
    def reason(self) -> str:
        """Return what is wrong, for people."""
        return REASONS[self.verdict]


@dataclass(frozen=True, eq=False)
class Opening:
    """The open classes: each has at least k rows, in an order that tells nothing about who sent them.

    `quasi` and `sensitive` are padded bytes, one line a class or a row, with their lengths beside them;
    `class_of` says which class a row is in. `verdicts` has one entry for each report in the order received;
    `small` says how many classes of each size did not open, which the collector learns too.
    """

    terms: Terms
    quasi: NDArray[np.uint8]
    quasi_length: NDArray[np.int64]
    sensitive: NDArray[np.uint8]
    sensitive_length: NDArray[np.int64]
    class_of: NDArray[np.int64]
    verdicts: NDArray[np.uint8]
    small: Mapping[int, int]

    @property
    def received(self) -> int:
        """Return the number of reports."""
        return len(self.verdicts)

    @property
    def opened(self) -> int:
        """Return the number of rows that are open."""
        return len(self.class_of)

    def count(self, verdict: Verdict) -> int:
        """Return the number of reports with this verdict."""
        return int(np.count_nonzero(self.verdicts == verdict))

    def faults(self) -> list[Fault]:
        """Return the reports that are wrong, in the order received."""
        places = np.flatnonzero(self.verdicts >= Verdict.MALFORMED)
        return [Fault(int(place), Verdict(int(self.verdicts[place]))) for place in places]

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over (quasi-identifier, sensitive part) of all open rows, class by class."""
        quasis = [line[:n].tobytes() for line, n in zip(self.quasi, self.quasi_length, strict=True)]
        for c, line, n in zip(self.class_of, self.sensitive, self.sensitive_length, strict=True):
            yield quasis[c], line[:n].tobytes()

    def summary(self) -> str:
        """Return how many reports came to what, a line each."""
        classes = counted(len(self.quasi), "class", "classes")
        opened = f"{counted(self.opened, 'row')} of {classes} open"
        first = f"{counted(self.received, 'report')}, k = {self.terms.k}: {opened}"
        others = [(verdict, self.count(verdict)) for verdict in Verdict if verdict is not Verdict.OPENED]
        return "\n".join([first, *(f"  {n:,} not: {REASONS[verdict]}" for verdict, n in others if n)])
