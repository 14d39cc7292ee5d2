"""Basket files, one transaction per line, stored as packed bits; policies with one channel for all items."""

from __future__ import annotations

import gzip
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, InputError, UnknownValue
from masquerade.core.schema import Schema
from masquerade.frames.formats import is_compressed, unreadable
from masquerade.kernels.bits import Words, pack, unpack

Codes = NDArray[np.uint8]
MOST_BYTES = 4 << 30
CATEGORIES = (False, True)  # in this order, so that the code of an item is its bit
_AT_ONCE = 64  # groups of items unpacked together
_LONGEST_NUMBER = 300  # digits; a longer number sorts as a word


@dataclass(frozen=True, slots=True, eq=False)
class Baskets:
    """Transactions and their items: one row of packed bits per item.

    Memory: one bit for every item of every transaction. Disguised baskets are dense, so a sparse form would
    save nothing. `policy_id` is the id of the policy, if the baskets are disguised.
    """

    items: tuple[str, ...]
    words: Words
    n: int
    policy_id: str | None = None

    @property
    def schema(self) -> Schema:
        """Return one true/false variable per item."""
        return Schema(dict.fromkeys(self.items, CATEGORIES))

    def codes(self, names: Iterable[str] | None = None) -> dict[str, Codes]:
        """Return columns of codes, 1 if the basket contains the item; each code takes a byte of memory."""
        places = {name: place for place, name in enumerate(self.items)}
        wanted = self.items if names is None else tuple(names)
        unknown = next((name for name in wanted if name not in places), None)
        if unknown is not None:
            raise InputError(f"There is no item {unknown!r} in the baskets.")
        return {name: unpack(self.words[places[name]], self.n) for name in wanted}

    def through(
        self, policy: Policy, disguise: Callable[[Mapping[str, Codes], Policy], Mapping[str, NDArray[Any]]]
    ) -> Baskets:
        """Return disguised baskets; a few groups of items are disguised at a time.

        `disguise` turns columns of codes into columns of reports under a part of the policy. Every item must
        have the categories true and false and two reports, and the policy must have no strata.
        """
        check_baskets(policy, self.items)
        places = {name: place for place, name in enumerate(self.items)}
        words = self.words.copy()
        hidden = [group for group in policy.groups if group.disguised]
        for begin in range(0, len(hidden), _AT_ONCE):
            part = sub_policy(
                policy, [name for group in hidden[begin : begin + _AT_ONCE] for name in group.names]
            )
            reports = disguise(self.codes(part.schema), part)
            for name, column in reports.items():
                words[places[name]] = pack(column, np.array(CATEGORIES))
        return Baskets(self.items, words, self.n, policy.id)


def read_baskets(
    path: str | Path,
    items: Iterable[str] | None = None,
    *,
    separator: str | None = None,
    most_bytes: int = MOST_BYTES,
) -> Baskets:
    r"""Read baskets from a text file (or .gz): one transaction per line, items separated by blanks or commas.

    An empty line is an empty basket, except at the end of the file. If commas separate the items, a
    single comma is an empty basket.

    Parameters
    ----------
    path : str or Path
        File to read.
    items : iterable of str, optional
        All items. Pass it if the records are to be released: a list taken from the data reveals which items
        occur. By default the items that occur, in order.
    separator : str, optional
        By default a comma if the start of the file has one, otherwise white space.
    most_bytes : int, optional
        Limit on the memory for the packed bits.

    Returns
    -------
    Baskets
        The baskets of the file.

    Raises
    ------
    FileError
        If the file cannot be read, or the baskets are too large.

    Notes
    -----
    Cost: one pass; memory for the items, then for the packed bits.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("market.txt").write_text("bread milk\nmilk\nbread butter\n")
    >>> baskets = mq.read_baskets("market.txt")
    >>> mq.tally(baskets).answer([mq.Query(by="milk")])[0].values.tolist()
    [1.0, 2.0]
    """
    listed = None if items is None else tuple(dict.fromkeys(str(item) for item in items))
    known = {} if listed is None else {name: place for place, name in enumerate(listed)}
    places, ends, kept = array("i"), array("q"), 0
    try:
        with _open_text(path) as stream:
            for row, (names, blank) in enumerate(_split_lines(stream, separator), start=1):
                kept = kept if blank else row
                if listed is None:
                    places.extend([known.setdefault(name, len(known)) for name in names])
                else:
                    places.extend([_place_of(known, name, row) for name in names])
                ends.append(len(places))
    except OSError as error:
        raise unreadable(path, error) from None
    except (UnicodeDecodeError, EOFError):
        raise FileError(f"{path}: not a text file in UTF-8 that can be read to its end.") from None
    del ends[kept:]
    if not known or not len(ends):
        raise FileError(f"{path}: there are no items in the file.")
    called = tuple(known) if listed is not None else tuple(sorted(known, key=_natural))
    new = np.empty(len(called), dtype=np.int64)
    new[[known[name] for name in called]] = np.arange(len(called))
    stops = np.frombuffer(ends, dtype=np.int64)
    rows = np.repeat(np.arange(len(stops)), stops - np.concatenate([[0], stops[:-1]]))
    return _pack_items(called, new[np.frombuffer(places, dtype=np.int32)], rows, len(stops), most_bytes)


def _pack_items(
    names: tuple[str, ...], places: NDArray[np.int64], rows: NDArray[np.int64], n: int, most_bytes: int
) -> Baskets:
    width = -(-n // 64)
    needed = len(names) * width * 8
    if needed > most_bytes:
        raise InputError(
            f"{len(names):,} items of {n:,} baskets take {needed / 2**30:,.1f} GiB (at most "
            f"{most_bytes / 2**30:,.1f}): name fewer 'items', or raise 'most_bytes'."
        )
    words = np.zeros((len(names), width), dtype=np.uint64)
    np.bitwise_or.at(words, (places, rows >> 6), np.uint64(1) << (rows & 63).astype(np.uint64))
    return Baskets(names, words, n)


class BasketReader:
    """A basket file as true/false columns of items; a requested item that is in no basket is always false."""

    def __init__(self, path: str, metadata: dict[str, str]) -> None:
        self._baskets = read_baskets(path)
        self.metadata, self.names, self.total_rows = metadata, self._baskets.items, self._baskets.n
        self.schema = pa.schema([(name, pa.bool_()) for name in self.names])

    @property
    def words(self) -> str:
        """Describe the file that was read."""
        return f"read as {self.total_rows:,} baskets of {len(self.names):,} items, one basket per line"

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield at most `rows` baskets at a time."""
        held = self._baskets.codes(name for name in columns if name in self.schema.names)
        nothing = np.zeros(self.total_rows, dtype=np.uint8)
        for start in range(0, self.total_rows, rows):
            part = slice(start, start + rows)
            arrays = [pa.array(held.get(name, nothing)[part].view(bool)) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


class BasketSink:
    """Writes batches of true/false columns as baskets: the names of the true columns, separated by commas."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, name: str) -> None:
        self._stream, self._first = stream, True
        other = next((field.name for field in schema if not pa.types.is_boolean(field.type)), None)
        if other is not None:
            raise FileError(
                f"{name}: baskets hold items that are in or out; {other!r} is not true or false. Reports of "
                "dealt blocks are numbers: write them to a file that ends in .parquet or .csv."
            )
        bad = next((item for item in schema.names if "," in item or item != " ".join(item.split())), None)
        if bad is not None:
            raise FileError(
                f"{name}: names of items have no comma, and no leading, trailing or double blank."
            )

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write a line for each basket; an empty basket is a single comma."""
        held = np.array([column.to_numpy(zero_copy_only=False) for column in batch.columns]).T
        names = np.array(batch.schema.names, dtype=object)
        lines = [",".join(names[row]) for row in held]
        if self._first and lines:  # the comma is then detected, and names with blanks are kept
            lines[0], self._first = f"{lines[0]},", False
        self._stream.write("".join(f"{line or ','}\n" for line in lines).encode())

    def close(self) -> None:
        """Do nothing: the stream belongs to the writer."""


def basket_policy(
    items: Iterable[str],
    channel: Channel,
    together: Sequence[Sequence[str]] = (),
    joint: Callable[[int], Channel] | None = None,
) -> Policy:
    """Return a policy that sends every item through the same channel, some items jointly.

    Parameters
    ----------
    items : iterable of str
        Names of the items.
    channel : Channel
        Channel of a single item, over the codes 0 (not in the basket) and 1 (in the basket).
    together : sequence of sequences of str, optional
        Groups of items that are disguised jointly.
    joint : callable, optional
        Returns the channel for a given number of combinations, such as ``lambda cells: symmetric(cells,
        0.3)``. Required with `together`.

    Returns
    -------
    Policy
        A true/false variable per item.

    Examples
    --------
    >>> policy = mq.basket_policy(["bread", "milk"], mq.channels.binary(0.1))
    >>> policy.group("milk").channel.gamma
    Fraction(9, 1)
    """
    names = tuple(items)
    grouped = {name for group in together for name in group}
    if together and joint is None:
        raise InputError("Items that are disguised together need a 'joint' channel.")
    channels: dict[str | tuple[str, ...], Channel] = {name: channel for name in names if name not in grouped}
    for group in together:
        if joint is not None:
            channels[tuple(group)] = joint(prod([len(CATEGORIES)] * len(group)))
    return Policy.build(dict.fromkeys(names, CATEGORIES), channels)


def sub_policy(policy: Policy, names: Iterable[str]) -> Policy:
    """Return the policy of the given variables and of all variables disguised together with them."""
    wanted = set(names)
    groups = [group for group in policy.groups if wanted & set(group.names)]
    held = {name for group in groups for name in group.names}
    fields = [field for field in policy.fields if field.variable.name in held]
    return Policy(fields, {group.names: group.channel for group in groups})


def check_baskets(policy: Policy, items: Sequence[str]) -> None:
    """Raise an error unless the policy has exactly these items as true/false variables."""
    if set(policy.schema) != set(items):
        raise InputError("The policy and the baskets list different items.")
    if policy.stratum_variable is not None:
        raise InputError("Baskets are disguised by one policy for all records, not by strata.")
    if any(group.own_report for group in policy.groups):
        raise InputError(
            "Baskets hold one report per item: a policy with blocks, or a 'report' of several items, "
            "disguises a frame of true/false columns, or a basket file into .parquet or .csv "
            "(disguise_file, masquerade disguise)."
        )
    for variable in (*policy.schema.variables, *policy.observed.variables):
        if [(type(label), label) for label in variable.categories] != [(bool, False), (bool, True)]:
            raise InputError(
                f"Item {variable.name!r} must have the categories false and true, and so must its reports."
            )


def _open_text(path: str | Path) -> IO[str]:
    if is_compressed(path):
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return Path(path).open(encoding="utf-8-sig")


def _split_lines(stream: IO[str], separator: str | None) -> Iterator[tuple[list[str], bool]]:
    """Yield the items of every line, and whether it is blank."""
    start = stream.readlines(1 << 16)
    comma = "," if separator is None and any("," in line for line in start) else separator
    for lines in (start, stream):
        for line in lines:
            names = line.split(comma) if comma else line.split()
            yield [name.strip() for name in names if name.strip()], not line.strip()


def _place_of(known: Mapping[str, int], name: str, row: int) -> int:
    """Return the index of an item; raise UnknownValue, which states only the line, if it is unknown."""
    place = known.get(name)
    if place is None:
        raise UnknownValue("basket", row, "is not one of the listed items")
    return place


def _natural(name: str) -> tuple[int, int, str]:
    """Return a key that sorts numbers by size and before words."""
    number = name.isascii() and name.isdigit()
    return (0, int(name), name) if number and len(name) <= _LONGEST_NUMBER else (1, 0, name)
