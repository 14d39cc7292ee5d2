"""Common order of records by pseudonym, where any owner may have any cell.

The coordinator (convener) learns which cells each owner has, and for which pseudonyms. It sorts all people by
pseudonym, and sends each owner the positions of its own records. An owner learns the number of people, and
nothing about the others' people. Owners do not trust the order: before anything is computed they check
together that every cell has exactly one owner, and that no record has cells of two pseudonyms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.util.formatting import counted
from masquerade.protocols.linkage.pseudonyms import PSEUDONYM_SIZE, words_of
from masquerade.protocols.mpc.dealer import expand_key
from masquerade.protocols.mpc.engine import SecretEngine, Steps, common_seed
from masquerade.protocols.wire import codec
from masquerade.protocols.wire.session import Responder, Transport, ask

MOST_BLOCKS, MOST_RECORDS = 1000, 2**28
CHECKS = 3  # sums that are zero for a true order; for a false one, all are zero with probability < 2^-100
AT_ONCE = 1 << 16  # records
Places = NDArray[np.unsignedinteger[Any]]
Tags = NDArray[np.uint8]


class HolderRequest(codec.SessionMessage, tag=b"masquerade hidden whose 1"):
    """Ask an owner which cells it holds, by pseudonym."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldBlock(codec.Struct):
    """Variables that an owner holds, and the pseudonyms of the people whose values it has."""

    names: Annotated[tuple[codec.Name, ...], codec.Many(10_000)]
    tags: Annotated[bytes, codec.Blob(PSEUDONYM_SIZE * MOST_RECORDS)]

    @property
    def people(self) -> Tags:
        """Return the pseudonyms, one row per person."""
        if len(self.tags) % PSEUDONYM_SIZE:
            raise InputError("The last pseudonym is incomplete.")
        return np.frombuffer(self.tags, dtype=np.uint8).reshape(-1, PSEUDONYM_SIZE)


class HeldCells(codec.SessionMessage, tag=b"masquerade hidden held 1", eq=False):
    """The cells of an owner, by block."""

    blocks: Annotated[tuple[HeldBlock, ...], codec.Many(MOST_BLOCKS)]


class PlaceOffer(codec.SessionMessage, tag=b"masquerade hidden places 1", eq=False):
    """The number of records, and the position of each of an owner's records, by block."""

    records: codec.U64
    places: Annotated[
        tuple[Annotated[Places, codec.Array("<u4", MOST_RECORDS)], ...], codec.Many(MOST_BLOCKS)
    ]


class PlacesTaken(codec.SessionMessage, tag=b"masquerade hidden placed 1"):
    """The owner has received its positions."""


class PlacedOwner(Responder):
    """An owner that receives the positions of its records; `blocks` are its variables and pseudonyms.

    `most` limits the number of records of all owners, since checking their order takes time for each record.
    """

    def __init__(
        self, session: bytes, blocks: Sequence[tuple[Sequence[str], Tags]], *, most: int = MOST_RECORDS
    ) -> None:
        self.session, self._blocks, self._most = session, blocks, min(most, MOST_RECORDS)
        self._offer: PlaceOffer | None = None
        self.handlers = {HolderRequest: self._describe_cells, PlaceOffer: self._take_places}

    @property
    def offer(self) -> PlaceOffer:
        """Return the number of records and the positions of this owner's records, once known."""
        if self._offer is None:
            raise RoundAborted("The records of this session have no common order yet.", spent=False)
        return self._offer

    @property
    def placed_blocks(self) -> list[tuple[Sequence[str], Tags, Places]]:
        """Return the variables, pseudonyms and positions of every block."""
        pairs = zip(self._blocks, self.offer.places, strict=True)
        return [(names, tags, places) for (names, tags), places in pairs]

    def _describe_cells(self, request: HolderRequest) -> HeldCells:
        blocks = [
            HeldBlock(tuple(names), np.ascontiguousarray(tags).tobytes()) for names, tags in self._blocks
        ]
        return HeldCells(request.session, tuple(blocks))

    def _take_places(self, offer: PlaceOffer) -> PlacesTaken:
        """Store the positions: one for every record of every block, without duplicates."""
        if self._offer is not None:
            raise InputError("The positions of the records are fixed already.")
        rows = [len(tags) for _, tags in self._blocks]
        if offer.records > self._most:
            raise InputError(
                f"The offer states {offer.records:,} records; this party accepts at most {self._most:,} "
                "(setting 'rows' under 'limits' in its file)."
            )
        if [len(places) for places in offer.places] != rows:
            raise InputError("Every record of every block needs a position.")
        for places in offer.places:
            taken = np.zeros(offer.records, dtype=bool)
            if len(places) and int(places.max()) >= offer.records:
                raise InputError("A position is out of range.")
            taken[places] = True
            if int(taken.sum()) < len(places):
                raise InputError("Two records have the same position.")
        self._offer = offer
        return PlacesTaken(offer.session)


def assign_places(owners: Sequence[str], names: Sequence[str], transport: Transport, session: bytes) -> int:
    """Send every owner the positions of its records, and return the number of records.

    Every cell of `names` of every person must have exactly one owner.
    """
    held = {
        owner: ask(transport, owner, HolderRequest(session), HeldCells, spent=False).blocks
        for owner in owners
    }
    blocks = [(owner, block) for owner in owners for block in held[owner]]
    places, n = _places([block.people for _, block in blocks])
    _check_cells([(block.names, where) for (_, block), where in zip(blocks, places, strict=True)], names, n)
    of: Mapping[str, list[Places]] = {owner: [] for owner in owners}
    for (owner, _), where in zip(blocks, places, strict=True):
        of[owner].append(where)
    for owner in owners:
        ask(transport, owner, PlaceOffer(session, n, tuple(of[owner])), PlacesTaken, spent=True)
    return n


def _places(blocks: Sequence[Tags]) -> tuple[list[Places], int]:
    """Return the position of each pseudonym in the order of all pseudonyms, and their number."""
    tags = np.concatenate([np.empty((0, PSEUDONYM_SIZE), dtype=np.uint8), *blocks])
    if not len(tags):
        return [np.empty(0, dtype=np.uint32) for _ in blocks], 0
    first, second = words_of(tags)
    order = np.lexsort((second, first))
    high, low = first[order], second[order]
    new = np.concatenate([[True], (high[1:] != high[:-1]) | (low[1:] != low[:-1])])
    at = np.empty(len(tags), dtype=np.uint32)
    at[order] = np.cumsum(new) - 1
    return np.split(at, np.cumsum([len(block) for block in blocks])[:-1]), int(new.sum())


def _check_cells(blocks: Sequence[tuple[Sequence[str], Places]], names: Sequence[str], n: int) -> None:
    """Raise an error if a cell has no owner or two owners."""
    faults = []
    for name in names:
        times = np.zeros(n, dtype=np.int64)
        for own, where in blocks:
            if name in own:
                np.add.at(times, where, 1)
        for what, count in (
            ("No owner", int((times == 0).sum())),
            ("More than one owner", int((times > 1).sum())),
        ):
            if count:
                faults.append(f"{what} has {name!r} of {counted(count, 'person', 'people')}.")
    if faults:
        told = "Every cell must have exactly one owner."
        raise RoundAborted(" ".join([told, *faults]), spent=True)


def check_order(
    engine: SecretEngine[Any],
    blocks: Sequence[tuple[Sequence[str], Tags, Places]],
    names: Sequence[str],
    n: int,
) -> Steps[None]:
    """Raise an error unless, in an order of `n` records, every cell has one owner and each record one person.

    `blocks` are this owner's variables, pseudonyms and positions. All parties draw weights together, after
    positions were sent: u and w for every cell, where the w of a record's cells sum to zero.
    Formula: Σ (u + w·p) over the owners' cells, less Σ u over all cells, must be zero. p is a number derived
    from the pseudonym under which the owner has the cell.
    """
    seed = yield from common_seed()
    factors = expand_key(hashlib.sha256(seed + b"pseudonyms").digest(), 2 * CHECKS).reshape(2, CHECKS, 1)
    held = []
    for own, tags, places in blocks:
        order = np.argsort(places, kind="stable")
        first, second = (words[order] for words in words_of(tags))
        held.append((own, places[order], factors[0] * first + factors[1] * second))
    mine, due = np.zeros(CHECKS, dtype=np.uint64), np.zeros(CHECKS, dtype=np.uint64)
    for begin in range(0, n, AT_ONCE):
        count = min(AT_ONCE, n - begin)
        key = hashlib.sha256(seed + begin.to_bytes(8, "big")).digest()
        shape = (2, CHECKS, len(names), count)
        u, w = expand_key(key, 2 * CHECKS * len(names) * count).reshape(shape)
        w = np.concatenate([w[:, 1:], np.zeros_like(w[:, :1]) - w[:, 1:].sum(axis=1, keepdims=True)], axis=1)
        due += u.sum(axis=(1, 2), dtype=np.uint64)
        for own, places, numbers in held:
            some = slice(*np.searchsorted(places, [begin, begin + count]))
            at = places[some].astype(np.int64) - begin
            for column, name in enumerate(names):
                if name in own:
                    cells = u[:, column, at] + w[:, column, at] * numbers[:, some]
                    mine += cells.sum(axis=1, dtype=np.uint64)
    total: Any = engine.constant((np.zeros_like(due) - due).view(np.int64))
    for owner in engine.parties:
        part = yield from engine.share(
            owner, mine.view(np.int64) if owner == engine.name else None, (CHECKS,)
        )
        total = total + part
    if np.any((yield from engine.open((yield from refresh_shares(engine, total))))):
        raise RoundAborted(
            "The order of the records is false: a cell has no owner or two, or a record has cells of two "
            "people.",
            spent=True,
        )


def refresh_shares(engine: SecretEngine[Any], secret: Any) -> Steps[Any]:
    """Return fresh, unpredictable shares of a secret, by multiplying it by one.

    If a computing owner shares a number, its share is the number itself. When a sum of three owners opens,
    the third owner, who knows how its own number was split, could read that number.
    """
    return (yield from engine.product(secret, engine.constant(np.ones(len(secret), dtype=np.int64))))
