"""Levels of generalisation: ranges of numbers, prefixes, dates and named trees, read from a file.

Every level is coarser than the previous one. Suppression (a star) follows the last level and is not listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from masquerade.channels.policy import text as policy_text
from masquerade.core.errors import FileError, InputError, PolicyError, SchemaError
from masquerade.core.util.json_text import read_text

VERSION = 1
DATES: Mapping[str, Callable[[date], str]] = {
    "month": lambda day: f"{day.year:04}-{day.month:02}",
    "quarter": lambda day: f"{day.year:04}-Q{(day.month + 2) // 3}",
    "year": lambda day: f"{day.year:04}",
    "decade": lambda day: f"{day.year // 10 * 10:04}s",
}

Level = Callable[[Hashable], str | None]  # None: the value does not belong to this level


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Levels of generalisation of one column.

    Attributes
    ----------
    levels : tuple of callable
        Functions from a value to its generalised text, from fine to coarse. They return None for a value that
        does not belong to the hierarchy.
    expects : str
        Description of a valid value, for error messages.

    Examples
    --------
    >>> levels = mq.anonymity.as_hierarchies({"hierarchies": 1, "columns": {"zip": {"prefixes": [3]}}})
    >>> len(levels["zip"].levels)
    1
    """

    levels: tuple[Level, ...]
    expects: str

    def generalise(
        self, name: str, values: Sequence[Hashable], rows: Callable[[int], int]
    ) -> list[list[str | None]]:
        """Generalise values at every level. A missing value stays missing.

        Parameters
        ----------
        name : str
            Column, for the error message.
        values : sequence
            Values to generalise.
        rows : callable
            Returns, for an index in `values`, the first row of the table with that value, for the error
            message.

        Returns
        -------
        list of list of str or None
            One list of generalised values per level, in the order of `values`.

        Raises
        ------
        SchemaError
            If a value does not belong to the hierarchy. The message names the column and the row.
        """
        found: list[list[str | None]] = []
        for level in self.levels:
            words = [None if value is None else level(value) for value in values]
            for place, (value, word) in enumerate(zip(values, words, strict=True)):
                if value is not None and word is None:
                    raise SchemaError(f"column {name!r}, row {rows(place)}: the value is not {self.expects}.")
            found.append(words)
        return found


def load_hierarchies(path: str | Path) -> dict[str, Hierarchy]:
    """Read the hierarchies of columns from a YAML or JSON file.

    Parameters
    ----------
    path : str or Path
        File that ends in .yaml, .yml or .json.

    Returns
    -------
    dict of str to Hierarchy
        Hierarchies by column.

    Raises
    ------
    FileError
        If the file cannot be read or has another ending.
    InputError
        If the contents are not valid.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("levels.json").write_text('{"hierarchies": 1, "columns": {"zip": {"prefixes": [3]}}}')
    >>> list(mq.anonymity.load_hierarchies("levels.json"))
    ['zip']
    """
    form = policy_text.SUFFIXES.get(Path(path).suffix.lower())
    if form is None:
        raise FileError(f"{path}: hierarchies are read from .yaml, .yml or .json.")
    text = read_text(Path(path))
    try:
        values = policy_text.parse(text, form)
    except PolicyError as error:
        raise InputError(f"{path}: {error}") from None
    return as_hierarchies(values, where=f"{path}: ")


def as_hierarchies(values: Any, where: str = "") -> dict[str, Hierarchy]:
    """Return hierarchies from plain values: ``{"hierarchies": 1, "columns": {...}}``.

    Parameters
    ----------
    values : mapping
        Contents of a hierarchies file.
    where : str, optional
        Prefix of error messages, such as the path of the file.

    Returns
    -------
    dict of str to Hierarchy
        Hierarchies by column.

    Raises
    ------
    InputError
        If the values are not valid.

    Examples
    --------
    >>> levels = mq.anonymity.as_hierarchies({"hierarchies": 1, "columns": {"zip": {"prefixes": [3]}}})
    >>> levels["zip"].generalise("zip", ["07030", "07029"], rows=lambda place: place + 1)
    [['070**', '070**']]
    """
    if not isinstance(values, Mapping) or set(values) != {"hierarchies", "columns"}:
        raise InputError(
            f"{where}hierarchies must have exactly the keys 'hierarchies: {VERSION}' and 'columns:'."
        )
    if values["hierarchies"] != VERSION or isinstance(values["hierarchies"], bool):
        raise InputError(f"{where}'hierarchies' is the version of the format; this software reads {VERSION}.")
    if not isinstance(values["columns"], Mapping):
        raise InputError(f"{where}'columns' must map the names of columns to their levels.")
    return {
        str(name): _hierarchy(f"{where}column {name!r}: ", own) for name, own in values["columns"].items()
    }


def _hierarchy(where: str, given: Any) -> Hierarchy:
    kinds = {"ranges": _ranges, "prefixes": _prefixes, "dates": _dates, "tree": _tree}
    if not isinstance(given, Mapping) or len([kind for kind in kinds if kind in given]) != 1:
        raise InputError(f"{where}give exactly one of {', '.join(kinds)}.")
    kind = next(kind for kind in kinds if kind in given)
    others = set(given) - {kind} - ({"start"} if kind == "ranges" else set())
    if others:
        raise InputError(f"{where}{min(map(str, others))!r} does not belong next to '{kind}'.")
    return kinds[kind](where, given)


def _ranges(where: str, given: Mapping[str, Any]) -> Hierarchy:
    """Return levels of ranges [start + i·width, start + (i + 1)·width); each width divides the next."""
    widths, start = given["ranges"], given.get("start", 0)
    numbers = [*(widths if isinstance(widths, list) and widths else [None]), start]
    known = all(isinstance(n, (int, float, Decimal)) and math.isfinite(n) for n in numbers)
    if not known or any(isinstance(n, bool) for n in numbers) or min(numbers[:-1]) <= 0:
        raise InputError(f"{where}'ranges' lists widths above 0, such as [5, 10]; 'start' is a number.")
    for narrow, wide in pairwise(widths):
        if wide <= narrow or _exact(wide) % _exact(narrow):
            raise InputError(f"{where}each of the 'ranges' must be a multiple of the previous one.")

    def level(width: float | Decimal) -> Level:
        step, origin = _exact(width), _exact(start)

        def word(value: Hashable) -> str | None:
            number = _number(value)
            if number is None:
                return None
            low = origin + (number - origin) // step * step
            return f"[{_format_number(low)}, {_format_number(low + step)})"

        return word

    return Hierarchy(tuple(map(level, widths)), "a number")


def _prefixes(where: str, given: Mapping[str, Any]) -> Hierarchy:
    """Return levels that show the first characters of a text, and a star for each other character."""
    lengths = given["prefixes"]
    whole = isinstance(lengths, list) and lengths and all(type(n) is int and n > 0 for n in lengths)
    if not whole or any(longer <= shorter for longer, shorter in pairwise(lengths)):
        raise InputError(
            f"{where}'prefixes' lists numbers of characters to keep, decreasing, such as [4, 3]."
        )

    def level(length: int) -> Level:
        return lambda value: str(value)[:length] + "*" * max(len(str(value)) - length, 0)

    return Hierarchy(tuple(map(level, lengths)), "a text")


def _dates(where: str, given: Mapping[str, Any]) -> Hierarchy:
    """Return levels that show parts of a date, such as the month or the year."""
    names = given["dates"]
    known = isinstance(names, list) and names and all(isinstance(n, str) and n in DATES for n in names)
    order = [list(DATES).index(name) for name in names] if known else []
    if not known or any(later <= earlier for earlier, later in pairwise(order)):
        raise InputError(f"{where}'dates' lists some of {', '.join(DATES)}, in this order.")

    def level(part: Callable[[date], str]) -> Level:
        def word(value: Hashable) -> str | None:
            day = _date(value)
            return None if day is None else part(day)

        return word

    return Hierarchy(tuple(level(DATES[name]) for name in names), "a date (YYYY-MM-DD)")


def _tree(where: str, given: Mapping[str, Any]) -> Hierarchy:
    """Return levels that show the names above a value in a tree.

    On a branch that is shorter than others, the lowest levels show the value itself.
    """
    above: dict[str, tuple[str, ...]] = {}
    for leaf, path in _leaves(where, given["tree"], ()):
        if leaf in above:
            raise InputError(f"{where}{leaf!r} occurs in the 'tree' twice.")
        above[leaf] = path
    depth = max((len(path) for path in above.values()), default=0)
    if not depth:
        raise InputError(f"{where}'tree' maps names to lists of values, or to further names.")
    names = {name for path in above.values() for name in path}
    if "*" in names:
        raise InputError(f"{where}'*' is the top of every tree already; use another name.")
    if both := names & set(above):
        raise InputError(f"{where}{min(both)!r} is a value and a name in the 'tree'; rename one.")

    def level(height: int) -> Level:
        def word(value: Hashable) -> str | None:
            path = above.get(str(value))
            if path is None:
                return None
            at = depth - height
            return path[at] if at < len(path) else str(value)

        return word

    return Hierarchy(tuple(level(height) for height in range(1, depth + 1)), "in the tree of its hierarchy")


def _leaves(where: str, node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(node, Mapping):
        for name, below in node.items():
            if str(name) in path:
                raise InputError(f"{where}{name!r} is its own ancestor in the 'tree'.")
            yield from _leaves(where, below, (*path, str(name)))
        return
    for leaf in node if isinstance(node, list) else [node]:
        if isinstance(leaf, bool) or not isinstance(leaf, (str, int, float, Decimal, date)):
            raise InputError(
                f"{where}a value in the 'tree' must be a text or a number; write yes and no in quotes."
            )
        yield str(leaf), path


def _exact(number: float | Decimal) -> Fraction:
    """Return a number exactly as written: 0.1 is one tenth, so that ranges of different widths nest."""
    return Fraction(str(number))


def _format_number(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else f"{float(number):.12g}"


def _number(value: Hashable) -> Fraction | None:
    if isinstance(value, bool) or "/" in str(value):
        return None
    try:
        return Fraction(str(value).strip())
    except ValueError:
        return None


def _date(value: Hashable) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
