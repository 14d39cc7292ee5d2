"""PRAM matrices of sdcMicro (post-randomisation): read as a policy, or written from a policy.

A matrix has the truths as rows and the reports as columns, both named, as `pram()` of R's sdcMicro uses it:
as CSV from ``write.csv(matrix)``, or as the text of ``dput(matrix)``. R writes decimals of 15 digits, so a
row whose sum is within 1e-6 of one is rescaled to sum to exactly one. A singular matrix, from whose reports
nothing can be estimated, raises `SingularChannel`.

Reference: Gouweleeuw, Kooiman, Willenborg & de Wolf (1998); Templ, Kowarik & Meindl (2015).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final

from masquerade.channels.basic import matrix
from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.channels.rationals import rational
from masquerade.core.errors import InputError, MasqueradeError, SingularChannel
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.util.json_text import read_text
from masquerade.learn.networks.files.network_parts import relabel

MOST_CHARACTERS: Final = 1 << 24
MOST_CATEGORIES: Final = 512
LARGEST_ROW_ERROR: Final = Fraction(1, 10**6)
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[A-Za-z.][\w.]*|[-+]?[0-9.][0-9.eE+-]*L?|[(),=])')
_ESCAPED = {"n": "\n", "t": "\t", '"': '"', "'": "'", "\\": "\\"}


def from_pram(texts: Mapping[str, str], schema: Schema | None = None) -> Policy:
    """Return the policy whose variables are disguised by PRAM matrices.

    Parameters
    ----------
    texts : mapping of str to str
        Text of the matrix by variable. Categories are the names of the rows.
    schema : Schema, optional
        Variables, needed if labels of categories are not text (1 and not "1").

    Returns
    -------
    Policy
        The policy.

    Raises
    ------
    InputError
        If a text is not a valid matrix.
    SingularChannel
        If a matrix is singular.

    Examples
    --------
    >>> rows = ['"","f","m"', '"f",0.9,0.1', '"m",0.2,0.8']
    >>> policy = mq.interop.from_pram({"sex": chr(10).join(rows)})
    >>> policy.schema["sex"].categories, policy.group("sex").channel.gamma
    (('f', 'm'), Fraction(8, 1))
    """
    if not texts:
        raise InputError("There is no matrix.")
    found: dict[str, tuple[list[Category], Channel]] = {}
    for name, text in texts.items():
        try:
            found[name] = _read(name, text, schema)
        except SingularChannel as error:
            raise SingularChannel(f"{name}: {error}") from None
        except MasqueradeError as error:
            raise InputError(f"{name}: {error}") from None
    return Policy.build(
        {name: labels for name, (labels, _) in found.items()},
        {name: channel for name, (_, channel) in found.items()},
    )


def read_pram(paths: Mapping[str, str | Path], schema: Schema | None = None) -> Policy:
    """Read PRAM matrices from files as a policy.

    Parameters
    ----------
    paths : mapping of str to str or Path
        File of the matrix by variable.
    schema : Schema, optional
        Variables, as in `from_pram`.

    Returns
    -------
    Policy
        The policy.

    Raises
    ------
    InputError
        If a file is not a valid matrix.
    SingularChannel
        If a matrix is singular.

    Examples
    --------
    >>> import pathlib
    >>> _ = pathlib.Path("pills.csv").write_text(mq.interop.to_pram(mq.data.students_policy(), "pills"))
    >>> mq.interop.read_pram({"pills": "pills.csv"}).group("pills").channel.gamma
    Fraction(3, 1)
    """
    texts = {name: read_text(Path(path), most=MOST_CHARACTERS) for name, path in paths.items()}
    return from_pram(texts, schema)


def to_pram(policy: Policy, name: str) -> str:
    """Return the PRAM matrix of one variable as CSV.

    In R, ``as.matrix(read.csv(file, row.names = 1))`` reads it.

    Parameters
    ----------
    policy : Policy
        Policy that disguises the variable by a square matrix.
    name : str
        The variable.

    Returns
    -------
    str
        CSV text.

    Raises
    ------
    InputError
        If the variable is not disguised by one square matrix of its own.

    Examples
    --------
    >>> print(mq.interop.to_pram(mq.data.students_policy(), "pills"), end="")
    "","yes","no"
    "yes",0.75,0.25
    "no",0.25,0.75
    """
    groups = [group for group in policy.groups if name in group.names]
    policy.schema[name]
    if not groups or not groups[0].disguised:
        raise InputError(f"{name!r} is not disguised: there is no matrix.")
    [group] = groups
    if len(group.names) > 1 or group.response is not None or policy.stratum_variable is not None:
        raise InputError(f"{name!r} is not disguised by one matrix of its own.")
    channel = group.matrix_channel
    if channel.truths != channel.reports or channel.labels is not None:
        raise InputError(f"The reports of {name!r} are not its categories: PRAM has square matrices.")
    labels = [str(label) for label in policy.schema[name].categories]
    buffer = io.StringIO()
    writer = csv.writer(buffer, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(["", *labels])
    for label, row in zip(labels, channel.rows, strict=True):
        writer.writerow([label, *(float(chance) for chance in row)])
    return buffer.getvalue()


def _read(name: str, text: str, schema: Schema | None) -> tuple[list[Category], Channel]:
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"too long: at most {MOST_CHARACTERS:,} characters are read.")
    read = _dput if text.lstrip().startswith("structure(") else _table
    truths, reports, rows = read(text)
    if not 2 <= len(truths) <= MOST_CATEGORIES:
        raise InputError(f"a matrix must have 2 to {MOST_CATEGORIES} categories. Got {len(truths)} instead.")
    if len(set(truths)) < len(truths) or sorted(truths) != sorted(reports):
        raise InputError("the names of rows and columns must be the same categories, each once.")
    order = [reports.index(label) for label in truths]
    exact = [_row(place, [row[at] for at in order]) for place, row in enumerate(rows, start=1)]
    channel = matrix(exact)
    if channel.is_singular:
        raise SingularChannel("nothing can be estimated from its reports: the matrix is singular.")
    return list(relabel(Variable(name, tuple(truths)), schema).categories), channel


def _row(place: int, words: Sequence[str]) -> list[Fraction]:
    chances = [rational(word, f"row {place}") for word in words]
    total = sum(chances, Fraction(0))
    if min(chances) < 0 or abs(total - 1) > LARGEST_ROW_ERROR:
        raise InputError(f"row {place} must contain probabilities that sum to 1.")
    return [chance / total for chance in chances]


def _table(text: str) -> tuple[list[str], list[str], list[list[str]]]:
    """Read CSV with column names in the first line and row names in the first column."""
    try:
        lines = [line for line in csv.reader(io.StringIO(text), strict=True) if line]
    except csv.Error:
        raise InputError("not a table of comma-separated values.") from None
    if not lines or any(len(line) != len(lines[0]) for line in lines):
        raise InputError("not a table: all lines must have as many values as the first.")
    head, *body = lines
    if len(body) != len(head) - 1:
        raise InputError("a matrix must be square, with column names above it and row names to its left.")
    return [line[0] for line in body], head[1:], [line[1:] for line in body]


def _dput(text: str) -> tuple[list[str], list[str], list[list[str]]]:
    """Read ``structure(c(…), dim = c(k, k), dimnames = list(c(…), c(…)))``, in column-major order."""
    words = list(_tokens(text))
    reader = _Words(words)
    reader.take("structure", "(")
    numbers = reader.values()
    parts: dict[str, list[list[str]]] = {}
    while reader.next == ",":
        reader.take(",")
        key = reader.word().lstrip(".").lower()
        reader.take("=")
        parts[key] = reader.lists()
    reader.take(")")
    if reader.next:
        raise InputError("there is text after the matrix.")
    sizes, names = parts.get("dim", []), parts.get("dimnames", [])
    if len(sizes) != 1 or len(names) != 2:
        raise InputError("a matrix needs its `dim` and `dimnames` of rows and columns.")
    rows, columns = ([_text(word) for word in part] for part in names)
    size = len(rows)
    whole = [word.rstrip("L") for word in sizes[0]]
    if whole != [str(size), str(len(columns))] or len(numbers) != size * len(columns) or size != len(columns):
        raise InputError("a matrix must be square, with as many numbers and names as `dim` states.")
    return rows, columns, [[numbers[at + size * column] for column in range(size)] for at in range(size)]


def _tokens(text: str) -> Iterator[str]:
    place, text = 0, text.strip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise InputError("not the text of a matrix as dput() of R writes it.")
        yield match.group(1)
        place = match.end()


def _text(word: str) -> str:
    if not word.startswith('"'):
        raise InputError("names must be texts in quotes.")
    return re.sub(r"\\(.)", lambda match: _unescape(match.group(1)), word[1:-1], flags=re.DOTALL)


def _unescape(sign: str) -> str:
    if sign not in _ESCAPED:
        raise InputError("a name has an escape that is not read here: write it as UTF-8.")
    return _ESCAPED[sign]


class _Words:
    """A sequence of R tokens."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.place = words, 0

    @property
    def next(self) -> str:
        return self.words[self.place] if self.place < len(self.words) else ""

    def word(self) -> str:
        found = self.next
        self.place += 1
        return found

    def take(self, *wanted: str) -> None:
        for one in wanted:
            if self.word() != one:
                raise InputError("not the text of a matrix as dput() of R writes it.")

    def values(self) -> list[str]:
        """Read ``c(a, b, …)``."""
        self.take("c", "(")
        found = [self.word()]
        while self.next == ",":
            self.take(",")
            found.append(self.word())
        self.take(")")
        return found

    def lists(self) -> list[list[str]]:
        """Read ``c(…)``, or ``list(c(…), c(…))`` for the names of rows and columns."""
        if self.next != "list":
            return [self.values()]
        self.take("list", "(")
        found = [self.values()]
        while self.next == ",":
            self.take(",")
            found.append(self.values())
        self.take(")")
        return found
