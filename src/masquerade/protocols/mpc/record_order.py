"""Who takes part where any cell may lie with any owner: a common order of records, by pseudonym.

Whoever convenes is told which cells each owner holds, of which pseudonyms, brings everybody into the order of
the pseudonyms, and tells each owner the places of its own. An owner learns how many people there are, and
nothing about whom others have. Owners do not take its word: before anything is computed they check together
that every cell lies with one of them, and that no record has cells of two pseudonyms.
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
from masquerade.protocols.mpc.dealer import expanded
from masquerade.protocols.mpc.engine import SecretEngine, Steps, common_seed
from masquerade.protocols.wire import codec
from masquerade.protocols.wire.session import Responder, Transport, ask

MOST_BLOCKS, MOST_RECORDS = 1000, 2**28
CHECKS = 3  # sums that are zero for a true order; for a false one, all of them with less than 2^-100
AT_ONCE = 1 << 16  # records
Places = NDArray[np.unsignedinteger[Any]]
Tags = NDArray[np.uint8]


class HolderRequest(codec.SessionMessage, tag=b"masquerade hidden whose 1"):
    """Ask an owner of whom it holds which cells."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldBlock(codec.Struct):
    """Variables that an owner holds, and the pseudonyms of the people it holds them of."""

    names: Annotated[tuple[codec.Name, ...], codec.Many(10_000)]
    tags: Annotated[bytes, codec.Blob(PSEUDONYM_SIZE * MOST_RECORDS)]

    @property
    def people(self) -> Tags:
        """Return the pseudonyms, a row each."""
        if len(self.tags) % PSEUDONYM_SIZE:
            raise InputError("Pseudonyms end inside one.")
        return np.frombuffer(self.tags, dtype=np.uint8).reshape(-1, PSEUDONYM_SIZE)


class HeldCells(codec.SessionMessage, tag=b"masquerade hidden held 1", eq=False):
    """What an owner holds, block by block."""

    blocks: Annotated[tuple[HeldBlock, ...], codec.Many(MOST_BLOCKS)]


class PlaceOffer(codec.SessionMessage, tag=b"masquerade hidden places 1", eq=False):
    """How many records there are, and where each of an owner's stands among them, block by block."""

    records: codec.U64
    places: Annotated[
        tuple[Annotated[Places, codec.Array("<u4", MOST_RECORDS)], ...], codec.Many(MOST_BLOCKS)
    ]


class PlacesTaken(codec.SessionMessage, tag=b"masquerade hidden placed 1"):
    """The owner has its places."""


class PlacedOwner(Responder):
    """An owner that is told the places of its records; `blocks` are its variables and pseudonyms.

    `most` is how many records there may be of everybody: checking their order costs work for each.
    """

    def __init__(
        self, session: bytes, blocks: Sequence[tuple[Sequence[str], Tags]], *, most: int = MOST_RECORDS
    ) -> None:
        self.session, self._blocks, self._most = session, blocks, min(most, MOST_RECORDS)
        self._offer: PlaceOffer | None = None
        self.handlers = {HolderRequest: self._held, PlaceOffer: self._placed}

    @property
    def offer(self) -> PlaceOffer:
        """Return how many records there are and where the own ones stand, once that is known."""
        if self._offer is None:
            raise RoundAborted("The records of this session have no common order yet.", spent=False)
        return self._offer

    @property
    def placed_blocks(self) -> list[tuple[Sequence[str], Tags, Places]]:
        """Return the variables, pseudonyms and places of every block."""
        pairs = zip(self._blocks, self.offer.places, strict=True)
        return [(names, tags, places) for (names, tags), places in pairs]

    def _held(self, request: HolderRequest) -> HeldCells:
        blocks = [
            HeldBlock(tuple(names), np.ascontiguousarray(tags).tobytes()) for names, tags in self._blocks
        ]
        return HeldCells(request.session, tuple(blocks))

    def _placed(self, offer: PlaceOffer) -> PlacesTaken:
        """Take places: one for every record of every block, no two the same."""
        if self._offer is not None:
            raise InputError("Records have their places already.")
        rows = [len(tags) for _, tags in self._blocks]
        if offer.records > self._most:
            raise InputError(
                f"There are said to be {offer.records:,} records; this party takes part among at most "
                f"{self._most:,} (rows, under limits in its file)."
            )
        if [len(places) for places in offer.places] != rows:
            raise InputError("Every record of every block gets a place.")
        for places in offer.places:
            taken = np.zeros(offer.records, dtype=bool)
            if len(places) and int(places.max()) >= offer.records:
                raise InputError("A place is none of those there are.")
            taken[places] = True
            if int(taken.sum()) < len(places):
                raise InputError("A place is given to two records.")
        self._offer = offer
        return PlacesTaken(offer.session)


def placed(owners: Sequence[str], names: Sequence[str], transport: Transport, session: bytes) -> int:
    """Give every owner the places of its records, and return how many there are.

    Every cell of `names` of everybody must lie with exactly one owner.
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
    """Return the place of every pseudonym of some blocks in the order of all, and how many these are."""
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
    """Refuse cells that nobody has, or that two have."""
    faults = []
    for name in names:
        times = np.zeros(n, dtype=np.int64)
        for own, where in blocks:
            if name in own:
                np.add.at(times, where, 1)
        for what, count in (("nobody has", int((times == 0).sum())), ("two have", int((times > 1).sum()))):
            if count:
                faults.append(f"Of {counted(count, 'person', 'people')} {what} {name!r}.")
    if faults:
        told = "Every cell has to lie with one party."
        raise RoundAborted(" ".join([told, *faults]), spent=True)


def check_order(
    engine: SecretEngine[Any],
    blocks: Sequence[tuple[Sequence[str], Tags, Places]],
    names: Sequence[str],
    n: int,
) -> Steps[None]:
    """Refuse an order of `n` records, unless every cell lies with one owner and no record is of two people.

    `blocks` are this owner's variables, pseudonyms and places. Weights are drawn together, after places were
    told: u for every cell, and w that sum to zero over the cells of a record.
    Formula: Σ (u + w·p) over the cells that owners hold, p a number made of the pseudonym, less Σ u over all.
    """
    seed = yield from common_seed()
    factors = expanded(hashlib.sha256(seed + b"pseudonyms").digest(), 2 * CHECKS).reshape(2, CHECKS, 1)
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
        u, w = expanded(key, 2 * CHECKS * len(names) * count).reshape(shape)
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
            "Records have a false order: a cell lies with nobody or with two, or a record is of two people.",
            spent=True,
        )


def refresh_shares(engine: SecretEngine[Any], secret: Any) -> Steps[Any]:
    """Return a secret in shares that nobody foresees: times one.

    A number that a computing owner shares is its own share, as it is. Opened as part of a sum of three owners
    it would be there to be read, by the third, who knows how its own was split.
    """
    return (yield from engine.product(secret, engine.constant(np.ones(len(secret), dtype=np.int64))))
