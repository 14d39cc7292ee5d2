"""Opening the classes that reached k, a million reports at a time: rows, and a verdict on every report.

Reports with one tag belong to one class; those with one x repeat each other. They are sorted by both; secrets
are recovered and polynomials recomputed in compiled code; Python touches each class a few times and each
report once, to open its sealed part.
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
from masquerade.protocols.k_anonymity.threshold.messages import LENGTH, Layout, Rows, Terms

Bools = NDArray[np.bool_]
Readable = Callable[[Rows], Bools]


class Verdict(IntEnum):
    """What became of a report, and why. From `MALFORMED` on, something is wrong with the report itself."""

    reason: str

    def __new__(cls, value: int, reason: str = "") -> Self:
        """Return a verdict by its number, with the reason beside it."""
        verdict = int.__new__(cls, value)
        verdict._value_, verdict.reason = value, reason
        return verdict

    OPENED = 0, "the row is open: its class has at least k good reports"
    BELOW_K = 1, "the class has fewer than k good reports"
    UNDECIDED = 2, "the class has k reports, but too few good ones to tell them from the bad"
    WITHHELD = 3, "the class had k good shares, but fewer than k rows that could be read"
    MALFORMED = 4, "it is not a report: a number out of range, or a row that nobody could have filled in"
    OTHER_EPOCH = 5, "it belongs to another epoch"
    OTHER_K = 6, "it was made for another k"
    OTHER_NOTICE = 7, "it was made under another notice: its server may give people different keys"
    REPEATED = 8, "it repeats the share of another report"
    BAD_SHARE = 9, "its share does not lie on the polynomial of its class"
    BAD_SEAL = 10, "its sealed part does not open with the key of its class"
    OTHER_QUASI = 11, "its quasi-identifier is not the one that its class follows from"


class Fault(NamedTuple):
    """A report that is wrong: its place among those kept, and what is wrong with it."""

    report: int
    verdict: Verdict


@dataclass(frozen=True, eq=False)
class Opening:
    """The open classes: each has at least k rows, in an order that tells nothing about who sent them.

    `quasi` and `sensitive` are padded bytes, one line a class or a row, with their lengths beside them;
    `class_of` says which class a row is in. `verdicts` has one entry for each report in the order given;
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
        """Return the reports that are wrong, in the order given."""
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
        return "\n".join([first, *(f"  {n:,} not: {verdict.reason}" for verdict, n in others if n)])


@dataclass(frozen=True, eq=False)
class Classes:
    """Reports in the order of their tags and x: where each class and each distinct x begins."""

    places: class_secrets.Ints  # of the reports among all given
    starts: class_secrets.Ints  # of classes, and the end
    point: class_secrets.Ints  # which distinct (tag, x) a report has
    points: class_secrets.Ints  # distinct x of each class
    tags: NDArray[np.uint64]  # of each class, (classes, 2)
    secrets: Elements  # of each class, once known

    @classmethod
    def sorted(cls, records: NDArray[Any], places: class_secrets.Ints) -> Classes:
        """Sort the reports at some places by tag and x; equal ones stay in the order given."""
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
        """The class of each report."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def tag_bytes(self) -> list[bytes]:
        """Return the tag of each class."""
        run = self.tags.tobytes()
        return [run[at : at + class_secrets.TAG_SIZE] for at in range(0, len(run), class_secrets.TAG_SIZE)]

    def picked(self, classes: Bools) -> Classes:
        """Return some classes alone."""
        chosen = np.repeat(classes, np.diff(self.starts))
        starts = np.concatenate(([0], np.cumsum(np.diff(self.starts)[classes])))
        _, point = np.unique(self.point[chosen], return_inverse=True)
        of_classes = (self.points[classes], self.tags[classes], self.secrets[classes])
        return Classes(self.places[chosen], starts, point, *of_classes)

    def first_of_points(self, among: Bools) -> Bools:
        """Tell which reports are the first of their x among some."""
        chosen = np.flatnonzero(among)
        _, first = np.unique(self.point[chosen], return_index=True)
        marked = np.zeros(among.size, dtype=np.bool_)
        marked[chosen[first]] = True
        return marked

    def count(self, among: Bools) -> class_secrets.Ints:
        """Return how many of some reports each class has."""
        return np.bincount(self.which[among], minlength=len(self.starts) - 1)


def open_reports(layout: Layout, reports: bytes, readable: Readable | None = None) -> Opening:
    """Return the rows of all classes with at least k good reports, and a verdict on every report.

    `readable` tells which opened rows mean something, if the collector knows; others are malformed.

    Cost: a million reports take a few seconds, most of it for opening sealed parts.
    """
    k = layout.terms.k
    records = layout.read(reports)
    verdicts = _by_header(records, layout)
    everything = Classes.sorted(records, np.flatnonzero(verdicts == Verdict.BELOW_K))
    large = everything.points >= k
    candidates = everything.picked(large)
    xs = records["x"][candidates.places].astype(np.uint64)
    ys = records["y"][candidates.places].astype(np.uint64)
    shares = class_secrets.Shares(xs, ys, candidates.point, candidates.starts, candidates.tag_bytes())
    secrets, found = class_secrets.recover_secrets(shares, k)
    verdicts[candidates.places[~found[candidates.which]]] = Verdict.UNDECIDED
    known = replace(candidates, secrets=secrets).picked(found)
    good = _on_polynomials(records, known, k)
    verdicts[known.places[~good]] = Verdict.BAD_SHARE
    enough = known.count(known.first_of_points(good)) >= k
    good = good[enough[known.which]]
    known = known.picked(enough)
    rows, judged = _judged(layout, records, known, good, readable)
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


def _by_header(records: NDArray[Any], layout: Layout) -> NDArray[np.uint8]:
    """Return a verdict on each report by what stands in its clear fields."""
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
    """Tell which reports have the share that their class says they have."""
    xs = records["x"][known.places].astype(np.uint64)
    good: Bools = (
        class_secrets.shares_at(known.secrets, k, xs, known.which) == records["y"][known.places]
    ).all(axis=1)
    return good


def _judged(
    layout: Layout, records: NDArray[Any], known: Classes, good: Bools, readable: Readable | None
) -> tuple[Rows, NDArray[np.uint8]]:
    """Open the sealed parts of reports with good shares; return them with a verdict on each report."""
    plain, unsealed = _unsealed(layout, records, known, good)
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


def _unsealed(layout: Layout, records: NDArray[Any], known: Classes, good: Bools) -> tuple[bytes, Bools]:
    """Return the opened sealed parts as one run, zeros where there is none, and which did open."""
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


def _same_origin(layout: Layout, rows: Rows, known: Classes, among: Bools) -> Bools:
    """Tell which rows name the quasi-identifier that the secret of their class follows from."""
    own, width = known.which, rows.origin.shape[1]
    usual = rows.origin[known.starts[:-1]]
    run = usual.tobytes()
    outputs = [_output(layout, run[at : at + width]) for at in range(0, len(run), width)]
    follows = (class_secrets.secrets_of(outputs) == known.secrets).all(axis=1)
    like_first: Bools = (rows.origin == usual[own]).all(axis=1)
    same: Bools = like_first & follows[own]
    judged: dict[tuple[int, bytes], bool] = {}
    for i in np.flatnonzero(among & ~like_first).tolist():  # somebody in the class lies
        c, claim = int(own[i]), rows.origin[i].tobytes()
        if (c, claim) not in judged:
            judged[c, claim] = bool(
                (class_secrets.secrets_of([_output(layout, claim)])[0] == known.secrets[c]).all()
            )
        same[i] = judged[c, claim]
    return same & among


def _output(layout: Layout, origin: bytes) -> bytes:
    """Return what the oblivious function gives for the quasi-identifier and the element that a row claims."""
    length = int.from_bytes(origin[POINT_SIZE : POINT_SIZE + LENGTH], "little")
    quasi = origin[POINT_SIZE + LENGTH : POINT_SIZE + LENGTH + length]
    return output_of(layout.terms.input_of(quasi), origin[:POINT_SIZE])


def _keep_k(classes: Classes, judged: NDArray[np.uint8], k: int) -> None:
    """Count every x once, and withhold what is open in classes with fewer than k rows after all."""
    kept = classes.first_of_points(judged == Verdict.OPENED)
    judged[(judged == Verdict.OPENED) & ~kept] = Verdict.REPEATED
    whole = classes.count(kept) >= k
    judged[kept & ~whole[classes.which]] = Verdict.WITHHELD


def _in_no_order(
    classes: Classes, judged: NDArray[np.uint8]
) -> tuple[class_secrets.Ints, class_secrets.Ints]:
    """Return where the open rows are, each class in an order that tells nothing, and the classes' sizes."""
    kept = np.flatnonzero(judged == Verdict.OPENED)
    sizes = classes.count(judged == Verdict.OPENED)
    sizes = sizes[sizes > 0]
    ends = np.cumsum(sizes)
    return kept[class_secrets.shuffled(ends - sizes, ends)], sizes
