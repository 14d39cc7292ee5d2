"""Frequent itemsets by Apriori, from any source of counts, with errors of their supports."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from masquerade.core.answered_tally import MissingAnswers
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, MasqueradeWarning, QueryRefused, did_you_mean
from masquerade.core.intervals import Flags
from masquerade.core.missing_shares import MissingShare
from masquerade.core.plots.drawing import Dots, dot_plot
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.supports import Item, Sets, Supports, query_supports
from masquerade.core.tally import Tally, check_source
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable
from masquerade.learn.model_file import (
    array_of,
    check_header,
    entry,
    header,
    missing_lines,
    missing_of,
    missing_values,
    part_of,
    part_values,
    plain,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Items = Iterable[str | Item] | Mapping[str, Iterable[Category]]
Rows = NDArray[np.int64]
KIND = "frequent_itemsets"
NUMBERS = ("values", "stderr", "lower", "upper")
# category pairs (item in the basket, item not in it); the texts occur in untyped files
PRESENT = (
    (True, False),
    ("in", "out"),
    (1, 0),
    ("1", "0"),
    ("true", "false"),
    ("True", "False"),
    ("TRUE", "FALSE"),
)
NOT_ESTIMABLE = "not_estimable"  # code of a refusal: the table does not follow from the reports
ROUNDING = 1e-9
MOST_CANDIDATES = 10_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Itemsets of one size whose support may reach the threshold: counts, errors, intervals.

    `sets` are in lexicographic order. `facets` are the row indices, in the level below, of the subsets that
    lack one item, or −1 if a subset is absent (only with ``candidates="join"``). `ends` are the smallest and
    largest contribution of one record to a set's count, if the source provides them.
    """

    sets: Sets
    values: Floats
    stderr: Floats
    lower: Floats
    upper: Floats
    facets: Rows
    ends: tuple[Floats, Floats] | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Itemsets(Printed):
    """Frequent itemsets, by their estimated supports.

    A set is undecided if the threshold is within its interval. Counts divided by `total` are supports.

    Attributes
    ----------
    items : tuple of (str, category)
        Items as (variable, category).
    labels : tuple of str
        Labels of the items.
    levels : tuple of Level
        Every itemset that may be frequent, by size.
    chosen : tuple of ndarray of bool
        Marks the itemsets reported, by size.
    n : int
        Number of records.
    total : float
        Total weight of the records.
    min_support : float
        Threshold of the support.
    level : float
        Confidence level of the intervals.
    missing : MissingAnswers or None
        Shares of missing answers, and how they were treated.

    Examples
    --------
    >>> found = mq.learn.frequent_itemsets(mq.tally(mq.data.students()), min_support=0.5)
    >>> [sorted(itemset) for itemset in found.maximal_sets()]
    [['exams=few'], ['exams=many'], ['pills=no', 'sleep=good']]
    """

    items: tuple[Item, ...]
    labels: tuple[str, ...]
    levels: tuple[Level, ...]
    chosen: tuple[Flags, ...]
    n: int
    total: float
    min_support: float
    level: float
    missing: MissingAnswers | None = None

    def __len__(self) -> int:
        """Return the number of itemsets reported."""
        return int(sum(mask.sum() for mask in self.chosen))

    def __iter__(self) -> Iterator[frozenset[str]]:
        """Iterate over the itemsets reported, as frozensets of labels, small sets first."""
        for held, mask in zip(self.levels, self.chosen, strict=True):
            for row in held.sets[mask].tolist():
                yield frozenset(self.labels[place] for place in row)

    def column(self, name: str) -> Floats:
        """Return `values`, `stderr`, `lower` or `upper` of the reported itemsets, as shares of records."""
        parts = [
            getattr(held, name)[mask] / self.total
            for held, mask in zip(self.levels, self.chosen, strict=True)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    @property
    def is_undecided(self) -> Flags:
        """Return True for reported itemsets that may not be frequent."""
        return self.column("lower") < self.min_support - ROUNDING

    def maximal_sets(self) -> Itemsets:
        """Return the reported itemsets that have no reported superset."""
        return self._without(lambda _, best: best > -np.inf)

    def closed_sets(self, tolerance: float = 0.0) -> Itemsets:
        """Return the reported itemsets without a superset of the same support, up to `tolerance`.

        Estimates of equal supports differ by noise. For disguised records use a tolerance of a few standard
        errors, or nearly every set is closed.
        """
        slack = tolerance * self.total + ROUNDING * self.n
        return self._without(lambda own, best: best >= own - slack)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame like mlxtend's: support, itemsets; and stderr, lower, upper, undecided."""
        import pandas as pd  # noqa: PLC0415  (learners load pandas only if a frame is requested)

        return pd.DataFrame(
            {
                "support": self.column("values"),
                "itemsets": pd.Series(list(self), dtype=object),
                "stderr": self.column("stderr"),
                "lower": self.column("lower"),
                "upper": self.column("upper"),
                "undecided": self.is_undecided,
            }
        )

    @printable
    def summary(self, max_rows: int = 20) -> str:
        """Return the most frequent sets as text."""
        support, error = self.column("values"), self.column("stderr")
        names = [braces(sorted(names)) for names in self]
        order = np.argsort(-support, kind="stable")[:max_rows]
        undecided = self.is_undecided
        title = (
            f"{len(self):,} frequent itemsets of {len(self.items):,} items, support ≥ {self.min_support:g}, "
            f"n = {self.n:,}; {int(undecided.sum()):,} undecided (?)"
        )
        width = max((len(names[i]) for i in order), default=5)
        lines = [f"     {'items':<{width}}  support  stderr"]
        lines += [
            f"[{place}]".ljust(5)
            + f"{names[i]:<{width}}  {support[i]:7.4f}  {error[i]:6.4f}{' ?' if undecided[i] else ''}"
            for place, i in enumerate(order.tolist(), start=1)
        ]
        return "\n".join([title, *lines, *more(len(names), len(order)), *missing_lines(self.missing)])

    def plot(self, ax: Axes | None = None, max_rows: int = 20) -> Axes:
        """Draw the supports of the most frequent itemsets with their intervals; undecided sets are hollow.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default a new figure.
        max_rows : int, default 20
            Maximum number of itemsets to draw.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        order = np.argsort(-self.column("values"), kind="stable")[:max_rows]
        names = [braces(sorted(names)) for names in self]
        values, lower, upper = (self.column(name)[order] for name in NUMBERS if name != "stderr")
        return dot_plot(
            [names[i] for i in order],
            {"support": Dots(values, lower, upper, self.is_undecided[order])},
            ax,
            xlabel=f"support, {self.level:.0%} intervals; hollow: may miss the threshold",
            title=f"{len(order):,} of {len(self):,} frequent itemsets, n = {self.n:,}",
            mark=self.min_support,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the sets as plain JSON values."""
        return {
            **header(KIND),
            **part_values(self, "n", "total", "min_support", "level"),
            "items": [
                [name, label, text] for (name, label), text in zip(self.items, self.labels, strict=True)
            ],
            "levels": [
                {"sets": plain(held.sets), "chosen": plain(mask), **part_values(held, "facets", *NUMBERS)}
                for held, mask in zip(self.levels, self.chosen, strict=True)
            ],
            **missing_values(self.missing),
        }

    @classmethod
    def from_dict(cls, values: Any) -> Itemsets:
        """Return the itemsets that `to_dict` described; raise InputError if the values are not valid."""
        check_header(values, KIND)
        listed = entry(values, "items", list)
        if not all(isinstance(i, list) and len(i) == 3 and isinstance(i[0], str) for i in listed):
            raise InputError("'items' must be lists of variable, category and label.")
        levels, masks = [], []
        below = 1
        for size, held in enumerate(entry(values, "levels", list), start=1):
            mask = array_of(entry(held, "chosen", list), (len(held["chosen"]),), "chosen", flags=True)
            shape = (len(mask), size)
            sets = whole_numbers(entry(held, "sets", list), shape, "sets", len(listed)).astype(np.int32)
            facets = whole_numbers(entry(held, "facets", list), shape, "facets", below, least=-1)
            shapes = dict.fromkeys(NUMBERS, mask.shape)
            levels.append(part_of(Level, held, shapes, sets=sets, facets=facets, ends=None))
            masks.append(mask)
            below = len(mask)
        return part_of(
            cls,
            values,
            {},
            items=tuple((name, label) for name, label, _ in listed),
            labels=tuple(str(text) for _, _, text in listed),
            missing=missing_of(values),
            levels=tuple(levels),
            chosen=tuple(masks),
        )

    def _without(self, drop: Callable[[Floats, Floats], Flags]) -> Itemsets:
        """Drop sets, given their count and the largest count of any reported superset."""
        best = [np.full(len(mask), -np.inf) for mask in self.chosen]
        for i in range(len(self.levels) - 1, 0, -1):
            held = self.levels[i]
            above = np.maximum(np.where(self.chosen[i], held.values, -np.inf), best[i])
            for facet in held.facets.T:
                np.maximum.at(best[i - 1], facet[facet >= 0], above[facet >= 0])
        left = [
            mask & ~drop(held.values, most)
            for mask, held, most in zip(self.chosen, self.levels, best, strict=True)
        ]
        return replace(self, chosen=tuple(left))


def frequent_itemsets(
    source: Tally,
    min_support: float = 0.05,
    *,
    max_len: int | None = None,
    items: Items | None = None,
    level: float = 0.95,
    candidates: Literal["prune", "join"] = "prune",
) -> Itemsets:
    """Find the itemsets whose estimated support reaches a threshold.

    An item is a category of a variable. For a variable that records presence (true/false, "in"/"out" or 1/0,
    as typed values or as text), only presence is an item. A missing answer is not an item unless it is listed
    in `items`: supports are shares of all records.

    Parameters
    ----------
    source : Tally
        Source of counts.
    min_support : float, default 0.05
        Minimum share of records that contain all items of the set.
    max_len : int, optional
        Maximum number of items in a set.
    items : iterable or mapping, optional
        Items to use: names of variables, (variable, category) pairs, or categories by variable. Without it,
        all.
    level : float, default 0.95
        Confidence level of the intervals.
    candidates : {"prune", "join"}
        Sets to try. A facet is a subset that lacks one item. "prune" requires that all facets may be
        frequent; "join", Apriori-Gen as printed in Ma (2006), requires only two. Both find the same
        sets in clear records. From noisy estimates, "join" finds sets without true support, and may not
        terminate.

    Returns
    -------
    Itemsets
        The frequent itemsets.

    Raises
    ------
    InputError
        If an option is not valid, or there are too many candidates.
    QueryRefused
        If the source refuses a query.

    Notes
    -----
    Formula: a set is extended if the *upper* end of its interval reaches the threshold, so that one low
    estimate does not exclude all supersets. A set is reported if its estimate reaches the threshold.
    Reference: Agrawal & Srikant (1994); Ma (2006) §7.1.2.
    Cost: one batch of supports per size of set.
    Error: estimates are unbiased; intervals are for one set by itself. Of sets selected by their estimates,
    fewer intervals contain the truth: near the threshold 81% of 95% Wald intervals in simulations.

    Examples
    --------
    >>> print(mq.learn.frequent_itemsets(mq.tally(mq.data.students()), min_support=0.5).summary())
    5 frequent itemsets of 9 items, support ≥ 0.5, n = 600; 2 undecided (?)
         items                  support  stderr
    [1]  {pills=no}              0.7900  0.0166
    [2]  {sleep=good}            0.6633  0.0193
    [3]  {pills=no,sleep=good}   0.5933  0.0201
    [4]  {exams=few}             0.5000  0.0204 ?
    [5]  {exams=many}            0.5000  0.0204 ?
    """
    check_source(source)
    check_share(min_support, "min_support")
    if max_len is not None and (isinstance(max_len, bool) or max_len != int(max_len) or max_len < 1):
        raise InputError(f"'max_len' must be a whole number, at least 1. Got {max_len!r} instead.")
    if candidates not in CANDIDATES:
        raise InputError(f"'candidates' must be one of {', '.join(CANDIDATES)}. Got {candidates!r} instead.")
    chosen, labels = items_of(source.schema, items)
    owners = Supports(chosen, np.zeros((0, 1), dtype=np.int32)).owners()
    sets = np.arange(len(chosen), dtype=np.int32)[:, None]
    facets = np.zeros((len(chosen), 1), dtype=np.int64)
    levels: list[Level] = []
    n, total = 0, 0.0
    while len(sets):
        try:
            answer = query_supports(source, Supports(chosen, sets))
        except QueryRefused as refused:
            codes = {one.code for one in refused.refusals}
            if not levels or max_len is not None or codes != {NOT_ESTIMABLE}:
                raise
            warnings.warn(
                f"Supports of sets of more than {counted(len(levels), 'item')} cannot be estimated from "
                "these reports: the search stops there.",
                MasqueradeWarning,
                stacklevel=2,
            )
            break
        n, total = answer.n, answer.total
        if not total > 0:
            raise InputError("There are no records to learn from.")
        lower, upper = answer.interval(level)
        may = upper >= min_support * total - ROUNDING * n
        ends = None if answer.ends is None else (answer.ends[0][may], answer.ends[1][may])
        levels.append(
            Level(
                sets[may], answer.values[may], answer.errors[may], lower[may], upper[may], facets[may], ends
            )
        )
        if len(levels) == max_len:
            break
        sets, facets = CANDIDATES[candidates](levels[-1], owners)
    levels = [held for held in levels if len(held.sets)]
    masks = tuple(held.values >= min_support * total - ROUNDING * n for held in levels)
    absent = _missing_items(source, chosen)
    return Itemsets(chosen, labels, tuple(levels), masks, n, total, min_support, level, absent)


def _missing_items(source: Tally, items: Sequence[Item]) -> MissingAnswers | None:
    """Return the shares of missing answers to the variables of the items; None if there are none."""
    names = [name for name in source.schema if any(name == own for own, _ in items)]
    absent = [
        (name, label) for name in names for label in source.schema[name].missing if (name, label) not in items
    ]
    if not absent:
        return None
    answer = query_supports(source, Supports(tuple(absent), np.arange(len(absent), dtype=np.int32)[:, None]))
    shares = []
    for name in dict.fromkeys(name for name, _ in absent):
        own = [place for place, (owner, _) in enumerate(absent) if owner == name]
        error = float(np.sqrt(np.sum(answer.errors[own] ** 2))) / answer.total
        labels = tuple(absent[place][1] for place in own)
        shares.append(MissingShare(name, labels, float(answer.values[own].sum()) / answer.total, error))
    return MissingAnswers(tuple(shares), "not items")


def prune_candidates(below: Level, owners: Rows) -> tuple[Sets, Rows]:
    """Return the sets with one more item all of whose facets are present, and the rows of these facets.

    Cost: one search per facet; sets with two categories of one variable are never formed.
    """
    sets, facets = below.sets, below.facets
    rows, size = sets.shape
    if not rows:
        return np.zeros((0, size + 1), dtype=np.int32), np.zeros((0, size + 1), dtype=np.int64)
    prefix = facets[:, -1] if size > 1 else np.zeros(rows, dtype=np.int64)
    ends = np.searchsorted(prefix, prefix, side="right")
    partners = ends - np.arange(rows) - 1
    left, right = _pairs(partners, size + 1)
    other = owners[sets[left, -1]] != owners[sets[right, -1]]
    left, right = left[other], right[other]
    keys = prefix * len(owners) + sets[:, -1]
    rows_below = np.empty((len(left), size + 1), dtype=np.int64)
    rows_below[:, -1], rows_below[:, -2] = left, right
    for place in range(size - 1):
        keys_wanted = facets[left, place] * len(owners) + sets[right, -1]
        at = np.minimum(np.searchsorted(keys, keys_wanted), rows - 1)
        there = keys[at] == keys_wanted
        rows_below[:, place] = at
        left, right, rows_below = left[there], right[there], rows_below[there]
    return np.concatenate([sets[left], sets[right, -1:]], axis=1), rows_below


def join_candidates(below: Level, owners: Rows) -> tuple[Sets, Rows]:
    """Return the unions of two sets that share all items but one, and their facets that are present.

    Reference: Ma (2006) §7.1.1, Apriori-Gen as printed: only two facets need to be present.
    Cost: one search per facet, and every pair of sets with a common facet.
    """
    sets = below.sets
    rows, size = sets.shape
    if not rows:
        return np.zeros((0, size + 1), dtype=np.int32), np.zeros((0, size + 1), dtype=np.int64)
    rest = np.concatenate([np.delete(sets, place, axis=1) for place in range(size)])
    added = sets.T.ravel()  # the item removed from each set
    order = np.lexsort((added, *rest.T[::-1]))
    rest, added = rest[order], added[order]
    new = np.ones(len(rest), dtype=bool)
    new[1:] = (rest[1:] != rest[:-1]).any(axis=1)
    last = np.append(np.flatnonzero(new)[1:], len(rest))[np.cumsum(new) - 1]
    left, right = _pairs(last - np.arange(len(rest)) - 1, size + 1)
    other = owners[added[left]] != owners[added[right]]
    left, right = left[other], right[other]
    union = np.column_stack([rest[left], added[left], added[right]])
    unions = np.unique(np.sort(union, axis=1), axis=0).astype(np.int32)
    facets = [_places(np.delete(unions, place, axis=1), sets) for place in range(size + 1)]
    return unions, np.column_stack(facets)


CANDIDATES: Mapping[str, Callable[[Level, Rows], tuple[Sets, Rows]]] = {
    "prune": prune_candidates,
    "join": join_candidates,
}


def _pairs(partners: Rows, size: int) -> tuple[Rows, Rows]:
    """Return pairs of indices: each index with its `partners` successors."""
    total = int(partners.sum())
    if total > MOST_CANDIDATES:
        raise InputError(
            f"There are {total:,} candidates with {size} items (at most {MOST_CANDIDATES:,}): raise "
            "'min_support', set 'max_len', or collect more records."
        )
    left = np.repeat(np.arange(len(partners)), partners)
    first = np.cumsum(partners) - partners
    return left, left + 1 + np.arange(len(left)) - np.repeat(first, partners)


def _places(wanted: Sets, sets: Sets) -> Rows:
    """Return the index of each wanted set among sets in lexicographic order, or −1."""
    both, number = np.unique(np.concatenate([sets, wanted]), axis=0, return_inverse=True)
    at = np.full(len(both), -1, dtype=np.int64)
    at[number[: len(sets)]] = np.arange(len(sets))
    return at[number[len(sets) :]]


def check_share(value: float, name: str) -> None:
    """Raise InputError if a threshold is not above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < value <= 1:
        raise InputError(f"{name!r} must be above 0 and at most 1. Got {value!r} instead.")


def whole_numbers(values: Any, shape: Sequence[int], name: str, limit: int, *, least: int = 0) -> Rows:
    """Return a table of whole numbers from `least` to below `limit` from plain JSON values."""
    table = array_of(values, shape, name) if shape[0] else np.zeros(tuple(shape))
    if np.any((table < least) | (table >= limit) | (table != np.floor(table))):
        raise InputError(f"{name!r} must be whole numbers from {least} to {limit - 1}.")
    return table.astype(np.int64)


def items_of(schema: Schema, wanted: Items | None) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """Return the items to use, in the order of the schema, and their labels."""
    pairs: dict[tuple[str, type, Category], None] = {}
    if wanted is None:
        wanted = schema.names
    if isinstance(wanted, str):
        raise InputError("'items' must be a list of variables or (variable, category) pairs, not one text.")
    if isinstance(wanted, Mapping):
        wanted = [(name, label) for name, listed in wanted.items() for label in listed]
    for item in wanted:
        named: list[Item] = [item] if not isinstance(item, str) else []
        if isinstance(item, str):  # only "in" for an in/out variable, else every category
            present = present_in(schema[item])
            named = [(item, c) for c in schema[item].answers if present is None or c == present]
        for name, label in named:
            plain = schema[name].categories[schema[name].code(label)]
            pairs[name, type(plain), plain] = None
    places = {name: i for i, name in enumerate(schema)}
    found = sorted(
        ((name, label) for name, _, label in pairs), key=lambda i: (places[i[0]], schema[i[0]].code(i[1]))
    )
    if not found:
        raise InputError("There are no items.")
    # the label of an in/out variable is its name
    labels = (name if label == present_in(schema[name]) else f"{name}={label}" for name, label in found)
    return tuple(found), tuple(labels)


def present_in(variable: Variable) -> Category | None:
    """Return the category for "in the basket" of an in/out variable, else None."""
    typed = {(type(c), c) for c in variable.answers}
    for yes, no in PRESENT:
        if typed <= {(type(yes), yes), (type(no), no)} and (len(typed) == 2 or type(yes) is bool):
            return yes
    return None


def allowed_items(
    given: Iterable[str | Item] | None, items: Sequence[Item], labels: Sequence[str], name: str
) -> Flags:
    """Return True for items that a filter allows: by label, by variable or as (variable, category) pairs."""
    if given is None:
        return np.ones(len(items), dtype=bool)
    if isinstance(given, str):
        given = [given]
    mask = np.zeros(len(items), dtype=bool)
    for wanted in given:
        hits = [
            i
            for i, (item, text) in enumerate(zip(items, labels, strict=True))
            if (wanted in (text, item[0]) if isinstance(wanted, str) else tuple(wanted) == item)
        ]
        if not hits:
            raise InputError(
                f"{name!r} names {wanted!r}, which is not an item.{did_you_mean(wanted, labels)}"
            )
        mask[hits] = True
    return mask


def braces(names: Iterable[str]) -> str:
    """Return names in braces: {a,b}."""
    return "{" + ",".join(names) + "}"


def more(all_of: int, shown: int) -> list[str]:
    """Return a line with the number of rows that are not shown, or nothing."""
    return [f"… and {all_of - shown:,} more"] if all_of > shown else []
