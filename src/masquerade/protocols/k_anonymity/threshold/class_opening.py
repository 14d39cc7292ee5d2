"""Opening of the classes that reached k, for a million reports: rows, and a verdict on every report.

Reports with the same tag belong to one class; reports with the same x repeat each other. Reports are sorted
by both. Compiled code recovers secrets and recomputes polynomials; Python code runs a few times per class and
once per report, to open its sealed part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from masquerade.core.util.formatting import counted
from masquerade.crypto import class_secrets
from masquerade.crypto.oprf import POINT_SIZE, output_of
from masquerade.crypto.symmetric import unseal_run
from masquerade.kernels.field61 import PRIME, Elements
from masquerade.protocols.k_anonymity.threshold.messages import LENGTH, ReportLayout, Rows, ThresholdTerms

Bools = NDArray[np.bool_]
Readable = Callable[[Rows], Bools]


class Verdict(IntEnum):
    """The result of checking a report. From `MALFORMED` on, the report itself is invalid."""

    reason: str

    def __new__(cls, value: int, reason: str = "") -> Self:
        """Return a verdict by its number, with its reason."""
        verdict = int.__new__(cls, value)
        verdict._value_, verdict.reason = value, reason
        return verdict

    OPENED = 0, "the row is open: its class has at least k good reports"
    BELOW_K = 1, "the class has fewer than k good reports"
    UNDECIDED = 2, "the class has k reports, but too few good reports to distinguish them from the bad"
    WITHHELD = 3, "the class had k good shares, but fewer than k rows that could be read"
    MALFORMED = 4, "it is not a report: a number is out of range, or no person could have the row"
    OTHER_EPOCH = 5, "it belongs to another epoch"
    OTHER_K = 6, "it was made for another k"
    OTHER_NOTICE = 7, "it was made under another notice: its server may give people different keys"
    REPEATED = 8, "it repeats the share of another report"
    BAD_SHARE = 9, "its share does not lie on the polynomial of its class"
    BAD_SEAL = 10, "its sealed part does not open with the key of its class"
    OTHER_QUASI = 11, "its quasi-identifier does not determine its class"


class Fault(NamedTuple):
    """An invalid report: its index among those stored, and its problem."""

    report: int
    verdict: Verdict


@dataclass(frozen=True, eq=False)
class Opening:
    """The open classes: each has at least k rows, in an order that reveals nothing about the senders.

    `quasi` has the padded bytes of each class and `sensitive` those of each row; `quasi_length` and
    `sensitive_length` are their lengths. `class_of` has the class of each row. `verdicts` has one entry per
    report, in the given order. `small` has the number of classes of each size that did not open, which the
    collector learns too.
    """

    terms: ThresholdTerms
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

    @property
    def contested_classes(self) -> int:
        """Return the number of open classes that share a quasi-identifier with another open class.

        The secret of a class follows from its quasi-identifier, so at most one of them is true. Anyone can
        forge a class: only the randomness server's key, which is destroyed, would show that it is false.
        """
        lines = np.column_stack([self.quasi, self.quasi_length])
        _, sizes = np.unique(lines, axis=0, return_counts=True)
        return int(sizes[sizes > 1].sum())

    def count(self, verdict: Verdict) -> int:
        """Return the number of reports with this verdict."""
        return int(np.count_nonzero(self.verdicts == verdict))

    def faults(self) -> list[Fault]:
        """Return the invalid reports, in the given order."""
        places = np.flatnonzero(self.verdicts >= Verdict.MALFORMED)
        return [Fault(int(place), Verdict(int(self.verdicts[place]))) for place in places]

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over (quasi-identifier, sensitive part) of all open rows, class by class."""
        quasis = [line[:n].tobytes() for line, n in zip(self.quasi, self.quasi_length, strict=True)]
        for c, line, n in zip(self.class_of, self.sensitive, self.sensitive_length, strict=True):
            yield quasis[c], line[:n].tobytes()

    def summary(self) -> str:
        """Return the number of reports by verdict, one line per verdict."""
        classes = counted(len(self.quasi), "class", "classes")
        opened = f"{counted(self.opened, 'row')} of {classes} open"
        first = f"{counted(self.received, 'report')}, k = {self.terms.k}: {opened}"
        others = [(verdict, self.count(verdict)) for verdict in Verdict if verdict is not Verdict.OPENED]
        lines = [first, *(f"  {n:,} not: {verdict.reason}" for verdict, n in others if n)]
        if self.contested_classes:
            number = counted(self.contested_classes, "class", "classes")
            lines.append(f"  {number} with the quasi-identifier of another")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Classes:
    """Reports sorted by tag and x, with the start of each class and of each distinct x."""

    places: class_secrets.Ints  # indices of the reports among all given reports
    starts: class_secrets.Ints  # starts of the classes, and the end
    point: class_secrets.Ints  # index of each report's distinct (tag, x)
    points: class_secrets.Ints  # number of distinct x of each class
    tags: NDArray[np.uint64]  # tags of the classes, (classes, 2)
    secrets: Elements  # secrets of the classes, if known

    @classmethod
    def sort_records(cls, records: NDArray[Any], places: class_secrets.Ints) -> Classes:
        """Sort the reports at some indices by tag and x; equal reports stay in the given order."""
        tags, xs = records["tag"][places], records["x"][places]
        order = np.lexsort((xs, tags[:, 1], tags[:, 0]))
        tags, xs = tags[order], xs[order]
        new_class = np.ones(len(order), dtype=np.bool_)
        new_class[1:] = (tags[1:] != tags[:-1]).any(axis=1)
        new_point = new_class.copy()
        new_point[1:] |= xs[1:] != xs[:-1]
        starts = np.append(np.flatnonzero(new_class), len(order))
        point = np.cumsum(new_point) - 1
        ends = np.append(point, point[-1] + 1 if len(point) else 0)
        unknown = np.zeros((len(starts) - 1, 0), dtype=np.uint64)
        return cls(places[order], starts, point, np.diff(ends[starts]), tags[new_class], unknown)

    @property
    def which(self) -> class_secrets.Ints:
        """Return the class of each report."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def tag_bytes(self) -> list[bytes]:
        """Return the tag of each class."""
        run = self.tags.tobytes()
        return [run[at : at + class_secrets.TAG_SIZE] for at in range(0, len(run), class_secrets.TAG_SIZE)]

    def select(self, classes: Bools) -> Classes:
        """Return some of the classes."""
        chosen = np.repeat(classes, np.diff(self.starts))
        starts = np.concatenate(([0], np.cumsum(np.diff(self.starts)[classes])))
        _, point = np.unique(self.point[chosen], return_inverse=True)
        of_classes = (self.points[classes], self.tags[classes], self.secrets[classes])
        return Classes(self.places[chosen], starts, point, *of_classes)

    def first_of_points(self, among: Bools) -> Bools:
        """Return True for reports that are the first of their x among the given reports."""
        chosen = np.flatnonzero(among)
        _, first = np.unique(self.point[chosen], return_index=True)
        marked = np.zeros(among.size, dtype=np.bool_)
        marked[chosen[first]] = True
        return marked

    def count(self, among: Bools) -> class_secrets.Ints:
        """Return the number of the given reports in each class."""
        return np.bincount(self.which[among], minlength=len(self.starts) - 1)


def open_reports(layout: ReportLayout, reports: bytes, readable: Readable | None = None) -> Opening:
    """Return the rows of all classes with at least k good reports, and a verdict on every report.

    `readable` returns True for valid opened rows, if the collector can check them; other rows are malformed.

    Cost: a million reports take a few seconds, most of it for opening sealed parts.
    """
    k = layout.terms.k
    records = layout.read(reports)
    verdicts = _by_header(records, layout)
    everything = Classes.sort_records(records, np.flatnonzero(verdicts == Verdict.BELOW_K))
    large = everything.points >= k
    candidates = everything.select(large)
    xs = records["x"][candidates.places].astype(np.uint64)
    ys = records["y"][candidates.places].astype(np.uint64)
    shares = class_secrets.ClassShares(xs, ys, candidates.point, candidates.starts, candidates.tag_bytes())
    secrets, found = class_secrets.recover_secrets(shares, k)
    verdicts[candidates.places[~found[candidates.which]]] = Verdict.UNDECIDED
    known = replace(candidates, secrets=secrets).select(found)
    good = _on_polynomials(records, known, k)
    verdicts[known.places[~good]] = Verdict.BAD_SHARE
    enough = known.count(known.first_of_points(good)) >= k
    good = good[enough[known.which]]
    known = known.select(enough)
    rows, judged = _judge(layout, records, known, good, readable)
    _keep_k(known, judged, k)
    verdicts[known.places] = judged
    kept, sizes = _in_no_order(known, judged)
    first = kept[np.cumsum(sizes) - sizes]
    small, times = np.unique(everything.points[~large], return_counts=True)
    return Opening(
        layout.terms,
        rows.quasi[first],
        rows.quasi_length[first],
        rows.sensitive[kept],
        rows.sensitive_length[kept],
        np.repeat(np.arange(len(sizes)), sizes),
        verdicts,
        dict(zip(small.tolist(), times.tolist(), strict=True)),
    )


def _by_header(records: NDArray[Any], layout: ReportLayout) -> NDArray[np.uint8]:
    """Return a verdict on each report, from its clear fields."""
    magic, epoch, k, notice = layout.header
    prime = np.uint64(PRIME)
    verdicts = np.full(len(records), Verdict.BELOW_K, dtype=np.uint8)
    verdicts[records["notice"] != notice] = Verdict.OTHER_NOTICE
    verdicts[records["k"] != k] = Verdict.OTHER_K
    verdicts[records["epoch"] != epoch] = Verdict.OTHER_EPOCH
    out_of_range = (records["x"] == 0) | (records["x"] >= prime) | (records["y"] >= prime).any(axis=1)
    verdicts[(records["magic"] != magic) | out_of_range] = Verdict.MALFORMED
    return verdicts


def _on_polynomials(records: NDArray[Any], known: Classes, k: int) -> Bools:
    """Return True for reports whose share is on the polynomial of their class."""
    xs = records["x"][known.places].astype(np.uint64)
    good: Bools = (
        class_secrets.shares_at(known.secrets, k, xs, known.which) == records["y"][known.places]
    ).all(axis=1)
    return good


def _judge(
    layout: ReportLayout, records: NDArray[Any], known: Classes, good: Bools, readable: Readable | None
) -> tuple[Rows, NDArray[np.uint8]]:
    """Open the sealed parts of reports with valid shares; return them and a verdict on each report."""
    plain, unsealed = _unseal(layout, records, known, good)
    rows = Rows.of(layout, plain)
    fits = rows.well_formed()
    if readable is not None:
        fits &= readable(rows)
    same = _same_origin(layout, rows, known, unsealed & fits)
    if layout.terms.shown:
        same &= (records["quasi"][known.places] == rows.origin[:, POINT_SIZE:]).all(axis=1)
    judged = np.full(len(good), Verdict.OPENED, dtype=np.uint8)
    judged[~same] = Verdict.OTHER_QUASI
    judged[~fits] = Verdict.MALFORMED
    judged[~unsealed] = Verdict.BAD_SEAL
    judged[~good] = Verdict.BAD_SHARE
    return rows, judged


def _unseal(layout: ReportLayout, records: NDArray[Any], known: Classes, good: Bools) -> tuple[bytes, Bools]:
    """Return the concatenated opened sealed parts, zeros if not opened, and flags of those that opened."""
    starts, bound_to = known.starts.tolist(), layout.bound_to(b"")
    groups = zip(
        map(class_secrets.key_of, class_secrets.as_bytes(known.secrets)),
        [bound_to + tag for tag in known.tag_bytes()],
        starts,
        starts[1:],
        strict=False,
    )
    run = records["sealed"][known.places].tobytes()
    plain, unsealed = unseal_run(run, records.dtype["sealed"].itemsize, groups, good.tolist())
    return plain, np.array(unsealed, dtype=np.bool_)


def _same_origin(layout: ReportLayout, rows: Rows, known: Classes, among: Bools) -> Bools:
    """Return True for rows with the quasi-identifier that determines the secret of their class."""
    own, width = known.which, rows.origin.shape[1]
    usual = rows.origin[known.starts[:-1]]
    run = usual.tobytes()
    outputs = [_output(layout, run[at : at + width]) for at in range(0, len(run), width)]
    follows = (class_secrets.secrets_of(outputs) == known.secrets).all(axis=1)
    like_first: Bools = (rows.origin == usual[own]).all(axis=1)
    same: Bools = like_first & follows[own]
    judged: dict[tuple[int, bytes], bool] = {}
    for i in np.flatnonzero(among & ~like_first).tolist():  # a member of the class sent a false row
        c, claim = int(own[i]), rows.origin[i].tobytes()
        if (c, claim) not in judged:
            judged[c, claim] = bool(
                (class_secrets.secrets_of([_output(layout, claim)])[0] == known.secrets[c]).all()
            )
        same[i] = judged[c, claim]
    return same & among


def _output(layout: ReportLayout, origin: bytes) -> bytes:
    """Return the output of the oblivious PRF for the quasi-identifier and element of a row."""
    length = int.from_bytes(origin[POINT_SIZE : POINT_SIZE + LENGTH], "little")
    quasi = origin[POINT_SIZE + LENGTH : POINT_SIZE + LENGTH + length]
    return output_of(layout.terms.input_of(quasi), origin[:POINT_SIZE])


def _keep_k(classes: Classes, judged: NDArray[np.uint8], k: int) -> None:
    """Count every x once, and withhold the rows of classes that then have fewer than k."""
    kept = classes.first_of_points(judged == Verdict.OPENED)
    judged[(judged == Verdict.OPENED) & ~kept] = Verdict.REPEATED
    whole = classes.count(kept) >= k
    judged[kept & ~whole[classes.which]] = Verdict.WITHHELD


def _in_no_order(
    classes: Classes, judged: NDArray[np.uint8]
) -> tuple[class_secrets.Ints, class_secrets.Ints]:
    """Return the indices of the open rows, shuffled within each class, and the classes' sizes."""
    kept = np.flatnonzero(judged == Verdict.OPENED)
    sizes = classes.count(judged == Verdict.OPENED)
    sizes = sizes[sizes > 0]
    ends = np.cumsum(sizes)
    return kept[class_secrets.shuffle_within(ends - sizes, ends)], sizes
