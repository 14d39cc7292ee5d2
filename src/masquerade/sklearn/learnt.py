"""Categories learnt from clear columns, the way an estimator without a policy must: numbers and labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.designs import bin_labels
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Category, Schema, Variable, category
from masquerade.learn.prediction_rows import LARGEST_EXACT_FLOAT, row_codes

MOST_BINS = 16
MOST_CELLS = 2**18  # of a table over all columns and the classes, where a learner needs one

Codes = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """A column of numbers: category k holds those from cuts[k − 1] on and below cuts[k].

    Few distinct numbers are a category each, parted half way between them; so a number never seen falls to
    the nearest one, as it would at a tree's threshold. `means` are the means of the categories.
    """

    variable: Variable
    cuts: Floats
    means: Floats

    def codes(self, column: NDArray[Any]) -> Codes:
        """Return the category of every number."""
        return np.searchsorted(self.cuts, as_numbers(self.variable.name, column), side="right")


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """A column of labels; one never seen is refused by column and row, as by CategoricalNB."""

    variable: Variable

    def codes(self, column: NDArray[Any]) -> Codes:
        """Return the category of every label."""
        name = self.variable.name
        return row_codes({name: list(column)}, Schema([self.variable]), [name])[name]


Column = Numbers | Labels


def learnt_columns(
    columns: Mapping[str, NDArray[Any]], bins: int | None, small: Collection[str], classes: int
) -> tuple[Column, ...]:
    """Return how columns become categories: numbers with more than `bins` distinct values are cut.

    Without `bins` there are at most 16; fewer if the table over the columns named by `small` and the
    classes would have more than 262,144 cells.
    """
    if bins is not None and (isinstance(bins, bool) or int(bins) != bins or bins < 2):
        raise InputError(f"The 'bins' parameter must be a whole number of at least 2. Got {bins!r} instead.")
    numeric = {name for name, column in columns.items() if not is_labels(name, column)}
    most = MOST_BINS if bins is None else int(bins)
    if bins is None and small:
        sizes = {name: len(set(columns[name].tolist())) for name in small if name in columns}
        while most > 2 and table_cells(sizes, numeric, most) * classes > MOST_CELLS:
            most -= 1
    return tuple(
        learnt_numbers(name, as_numbers(name, column), most)
        if name in numeric
        else learnt_labels(name, column)
        for name, column in columns.items()
    )


def table_cells(sizes: Mapping[str, int], numeric: Collection[str], most: int) -> int:
    """Return the configurations of columns whose numbers are cut into `most` categories."""
    return prod(min(size, most) if name in numeric else size for name, size in sizes.items())


def learnt_numbers(name: str, numbers: Floats, most: int) -> Numbers:
    """Return the distinct numbers as categories if there are at most `most`, else equally full bins."""
    points, counts = np.unique(numbers, return_counts=True)
    if len(points) <= most:
        # half way, or the higher of two numbers with none between them
        middle = points[:-1] / 2 + points[1:] / 2
        cuts = np.where(middle > points[:-1], middle, points[1:])
        return Numbers(Variable(name, number_labels(points)), cuts, points)
    shares = counts / len(numbers)
    # the last point of each lower bin, in whole numbers: k/most of the records reach no further
    last = np.searchsorted(np.cumsum(counts)[:-1] * most, np.arange(1, most) * len(numbers))
    cuts = points[np.unique(np.minimum(last + 1, len(points) - 1))]
    place = np.searchsorted(cuts, points, side="right")
    means = np.bincount(place, weights=points * shares) / np.bincount(place, weights=shares)
    labels: tuple[Category, ...] = bin_labels([-np.inf, *cuts, np.inf])
    if len(set(labels)) < len(labels):  # cut points too close for 15 digits
        labels = tuple(range(len(labels)))
    return Numbers(Variable(name, labels), cuts, means)


def learnt_labels(name: str, column: NDArray[Any]) -> Labels:
    """Return the labels that occur, in order."""
    found = {category(label) for label in column}
    return Labels(Variable(name, tuple(sorted(found, key=lambda label: (str(type(label)), label)))))


def number_labels(numbers: Floats) -> tuple[Category, ...]:
    """Return distinct numbers as categories: themselves if they are all whole, else their text."""
    if np.all((np.floor(numbers) == numbers) & (np.abs(numbers) < LARGEST_EXACT_FLOAT)):
        return tuple(int(number) for number in numbers)
    return tuple(repr(float(number)) for number in numbers)


def is_labels(name: str, column: NDArray[Any]) -> bool:
    """Tell a column of labels from one of numbers; refuse what is neither."""
    if column.dtype.kind != "O":
        return column.dtype.kind in "US"
    kinds = {type(value) for value in column}
    for kind in kinds:
        if not issubclass(kind, (str, int, float, np.number, np.bool_)):
            raise TypeError(
                f"Column {name!r}: the argument must be a string or a number, not {kind.__name__!r}."
            )
    return any(issubclass(kind, str) for kind in kinds)


def as_numbers(name: str, column: NDArray[Any]) -> Floats:
    """Return a column as finite floats."""
    if is_labels(name, column):
        raise InputError(f"Column {name!r} held numbers when the estimator was fitted, and holds text now.")
    numbers = column.astype(np.float64)
    if not np.all(np.isfinite(numbers)):
        raise InputError(f"Column {name!r} contains NaN or infinity.")
    return np.asarray(numbers)
