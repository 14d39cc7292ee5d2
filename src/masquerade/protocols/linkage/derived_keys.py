"""Keys derived from several fields, and a cascade of linkages that tolerates errors in some fields.

Each party derives the keys locally and offers only keys that are unique among its remaining records. Records
that are linked in a round are left out of later rounds. Every round reveals the numbers of offered keys and
of matches to the roles that learn them in the linking protocol.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

from masquerade.core.errors import InputError

MOST_ROUNDS = 8  # keys of one cascade
Link = Callable[[Sequence[str], Sequence[str]], Sequence[tuple[int, int]]]
Fields = Mapping[str, Sequence[Any]]
PART = re.compile(r"(?:(sound|year)\()?([^()]+?)\)?")
DATES = (
    re.compile(r"(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?:[T ].*)?"),
    re.compile(r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})"),
)
SOUNDS = {
    letter: str(code)
    for code, letters in enumerate(("bfpv", "cgjkqsxz", "dt", "l", "mn", "r"), start=1)
    for letter in letters
}


def normal_text(value: Any) -> str:
    """Return a text without accents, case, spaces and punctuation (NFKD, then letters and digits).

    >>> normal_text("Ana-María  MÜLLER") == normal_text("anamaria muller")
    True
    """
    letters = unicodedata.normalize("NFKD", str(value))
    return "".join(letter for letter in letters.casefold() if letter.isalnum())


def normal_date(value: Any) -> str:
    """Return a date as ISO text; raise InputError if it is not a date of a known form.

    >>> normal_date("3.2.1970"), normal_date("1970-02-03T00:00")
    ('1970-02-03', '1970-02-03')
    """
    if isinstance(value, (date, datetime)):
        return value.strftime("%Y-%m-%d")
    for form in DATES:
        matches = form.fullmatch(str(value).strip())
        if matches is not None:
            try:
                return date(int(matches["y"]), int(matches["m"]), int(matches["d"])).isoformat()
            except ValueError:
                break
    raise InputError("A date of a linking key must be written as 1970-02-03 or 3.2.1970.")


def sound(value: Any) -> str:
    """Return the Soundex code of a name: the first letter and three digits of the following consonants.

    >>> sound("Robert"), sound("Rupert"), sound("Tymczak")
    ('r163', 'r163', 't522')
    """
    name = normal_text(value)
    if not name:
        return ""
    digits, last = "", SOUNDS.get(name[0], "")
    for letter in name[1:]:
        code = SOUNDS.get(letter, "")
        if code and code != last:
            digits += code
        if letter not in "hw":
            last = code
    return (name[0] + digits + "000")[:4]


class Round(NamedTuple):
    """A round of a cascade: its key's parts, the number of keys offered by each known side, the matches."""

    parts: tuple[str, ...]
    offered: tuple[int, ...]
    matched: int

    def disclosure(self) -> str:
        """Return the text of a ledger line about the round."""
        offered = " and ".join(map(str, self.offered))
        return f"linked by {' + '.join(self.parts)}: {offered} keys, {self.matched} match"


class Cascade(NamedTuple):
    """Result of a cascade: pairs of record indices, and its rounds in order."""

    pairs: list[tuple[int, int]]
    rounds: list[Round]


def check_keys(keys: Sequence[Sequence[str]], fields: Collection[str] | None = None) -> None:
    """Raise InputError unless keys of a cascade are valid, and name only `fields` if these are given."""
    if not 1 <= len(keys) <= MOST_ROUNDS:
        raise InputError(f"A cascade has from 1 to {MOST_ROUNDS} linking keys. Got {len(keys)} instead.")
    for part in (part for parts in keys for part in parts):
        matches = PART.fullmatch(part)
        if matches is None or (fields is not None and matches[2] not in fields):
            raise InputError(f"A linking key names {part!r}, which is not a field.")
    if not all(keys) or len({frozenset(parts) for parts in keys}) < len(keys):
        raise InputError(
            "Every linking key of a cascade names one field or more, and differs from the others."
        )


def keys_left(
    fields: Fields, parts: Sequence[str], taken: Collection[int], dates: Sequence[str] = ()
) -> list[tuple[str, int]]:
    """Return the keys that are unique among records that are not `taken`, each with its record's index."""
    derived = derive_keys(fields, parts, dates)
    waiting = [(key, at) for at, key in enumerate(derived) if key is not None and at not in taken]
    often = Counter(key for key, _ in waiting)
    return [(key, at) for key, at in waiting if often[key] == 1]


def derive_keys(fields: Fields, parts: Sequence[str], dates: Sequence[str] = ()) -> list[str | None]:
    """Return one key per record, None if a field of it is missing.

    Parameters
    ----------
    fields : mapping
        Columns by name.
    parts : sequence of str
        Fields of the key, each as ``name``, ``sound(name)`` or ``year(name)``.
    dates : sequence of str, optional
        Fields with dates.

    Returns
    -------
    list of str or None
    """
    columns = []
    for part in parts:
        matches = PART.fullmatch(part)
        if matches is None or matches[2] not in fields:
            raise InputError(f"A linking key names {part!r}, which is not a field.")
        columns.append(
            [_part(value, matches[1], is_date=matches[2] in dates) for value in fields[matches[2]]]
        )
    return [None if None in row else "\x1f".join(map(str, row)) for row in zip(*columns, strict=True)]


def _part(value: Any, function: str | None, *, is_date: bool) -> str | None:
    if value is None or value != value or not str(value).strip():  # noqa: PLR0124  (NaN)
        return None
    if function == "sound":
        return sound(value) or None
    if function == "year":
        return normal_date(value)[:4]
    return normal_date(value) if is_date else normal_text(value) or None


def cascade(
    left: Fields, right: Fields, keys: Sequence[Sequence[str]], link: Link, dates: Sequence[str] = ()
) -> Cascade:
    """Link records in rounds, by one derived key after another.

    Parameters
    ----------
    left, right : mapping
        Fields of the two parties.
    keys : sequence of sequences of str
        Parts of the key of each round, the strictest first.
    link : callable
        The linking protocol: returns the index pairs of equal keys among two lists of distinct keys.
    dates : sequence of str, optional
        Fields with dates.

    Returns
    -------
    Cascade
        The links, and what each round shows.
    """
    check_keys(keys)
    pairs: list[tuple[int, int]] = []
    rounds = []
    used: tuple[set[int], set[int]] = (set(), set())
    for parts in keys:
        sides = [
            keys_left(fields, parts, taken, dates) for fields, taken in zip((left, right), used, strict=True)
        ]
        matches = [
            (sides[0][first][1], sides[1][second][1])
            for first, second in link([key for key, _ in sides[0]], [key for key, _ in sides[1]])
        ]
        for first, second in matches:
            used[0].add(first)
            used[1].add(second)
        pairs += matches
        rounds.append(Round(tuple(parts), (len(sides[0]), len(sides[1])), len(matches)))
    return Cascade(pairs, rounds)
