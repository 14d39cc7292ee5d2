"""Reports sorted into classes: those with one tag belong together, those with one x repeat each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.field61 import Elements
from masquerade.protocols.threshold.key_derivation import TAG_SIZE
from masquerade.protocols.threshold.share_recovery import Ints, Shares

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Classes:
    """Reports in the order of their tags and x: where each class and each distinct x begins."""

    places: Ints  # of the reports among all received
    starts: Ints  # of classes, and the end
    point: Ints  # which distinct (tag, x) a report has
    points: Ints  # distinct x of each class

    @property
    def which(self) -> Ints:
        """Return the class of each report."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def picked(self, classes: Bools) -> Classes:
        """Return some classes alone."""
        chosen = np.repeat(classes, np.diff(self.starts))
        ends = np.cumsum(np.diff(self.starts)[classes])
        _, point = np.unique(self.point[chosen], return_inverse=True)
        return Classes(self.places[chosen], np.concatenate(([0], ends)), point, self.points[classes])

    def first_of_points(self, among: Bools) -> Bools:
        """Tell which reports are the first of their x among some."""
        chosen = np.flatnonzero(among)
        _, first = np.unique(self.point[chosen], return_index=True)
        marked = np.zeros(among.size, dtype=np.bool_)
        marked[chosen[first]] = True
        return marked

    def count(self, among: Bools) -> Ints:
        """Return how many of some reports each class has."""
        return np.bincount(self.which[among], minlength=len(self.starts) - 1)


@dataclass(frozen=True, eq=False)
class Known:
    """Classes with what is known of each: its tag, and its secret."""

    classes: Classes
    tags: list[bytes]
    secrets: Elements

    def picked(self, classes: Bools) -> Known:
        """Return some classes alone."""
        tags = [tag for tag, chosen in zip(self.tags, classes.tolist(), strict=True) if chosen]
        return Known(self.classes.picked(classes), tags, self.secrets[classes])


def grouped(records: NDArray[Any], places: Ints) -> Classes:
    """Sort the reports at some places by tag and x; equal ones stay in the order received."""
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
    return Classes(places[order], starts, point, np.diff(ends[starts]))


def tags_of(records: NDArray[Any], classes: Classes) -> list[bytes]:
    """Return the tag of each class."""
    run = records["tag"][classes.places[classes.starts[:-1]]].tobytes()
    return [run[at : at + TAG_SIZE] for at in range(0, len(run), TAG_SIZE)]


def shares_of(records: NDArray[Any], classes: Classes, tags: list[bytes]) -> Shares:
    """Return the shares of all reports."""
    xs = records["x"][classes.places].astype(np.uint64)
    ys = records["y"][classes.places].astype(np.uint64)
    return Shares(xs, ys, classes.point, classes.starts, tags)
