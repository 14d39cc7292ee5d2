"""Cells from several parties, joined row by row on pseudonyms that are destroyed in the joining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.channels.privacy import guarantee_of
from masquerade.core.errors import InputError
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.schema import Schema
from masquerade.disguising.frames import permutation
from masquerade.disguising.reports import Codes
from masquerade.protocols.linking.messages import PSEUDONYM_SIZE
from masquerade.protocols.transport import Transport, ask
from masquerade.protocols.vertical.messages import Cells, Request, check_policy_id
from masquerade.protocols.vertical.site import Tags, width_of


class Arrived(NamedTuple):
    """Some rows of some columns."""

    codes: Mapping[str, Codes]
    tags: Tags


@dataclass(frozen=True, slots=True)
class Gathered:
    """All that one party sent: the policy it went through, and its cells."""

    policy: Policy
    blocks: tuple[Arrived, ...]


def gather(transport: Transport, party: str, request: Request, agreed: str) -> Gathered:
    """Fetch all parts of a party's cells and check them: session, name, policy, codes.

    `agreed` is the id of the policy expected, of the named variables where only some are asked for.
    """
    blocks: list[Arrived] = []
    policy: Policy | None = None
    part, parts = 0, 1
    while part < parts:
        asked = Request(request.session, request.recipient, request.names, part)
        cells = ask(transport, party, asked, Cells, spent=True)
        if (cells.session, cells.party, cells.part) != (request.session, party, part):
            raise InputError(f"Party {party!r} sent cells of another session, party or part.")
        check_policy_id(party, cells.policy, agreed)
        policy, parts = cells.policy, cells.parts if part == 0 else parts
        if cells.parts != parts:
            raise InputError(f"Party {party!r} changed the number of its parts.")
        blocks.append(arrived(cells))
        part += 1
    if policy is None:
        raise InputError(f"Party {party!r} sent nothing.")
    return Gathered(policy, tuple(blocks))


def arrived(cells: Cells) -> Arrived:
    """Return the cells of a message; columns of another length and codes that are no report are refused."""
    if len(cells.pseudonyms) % PSEUDONYM_SIZE:
        raise InputError(f"Party {cells.party!r} sent a broken pseudonym.")
    tags = np.frombuffer(cells.pseudonyms, dtype=np.uint8).reshape(-1, PSEUDONYM_SIZE)
    codes: dict[str, Codes] = {}
    for column in cells.columns:
        size = len(cells.policy.observed[column.name])
        kind = width_of(size)
        if column.name in codes or len(column.codes) != kind.itemsize * len(tags):
            raise InputError(f"Party {cells.party!r}: column {column.name!r} has another number of rows.")
        values = np.frombuffer(column.codes, dtype=kind)
        if len(values) and int(values.max()) >= size:
            raise InputError(f"Party {cells.party!r}: column {column.name!r} has a code that is no report.")
        codes[column.name] = values
    return Arrived(codes, tags)


def joined(schema: Schema, blocks: Sequence[Arrived]) -> dict[str, Codes]:
    """Return one column of codes for every variable, rows in a fresh random order.

    A cell that two blocks hold, and a record that lacks a cell, is refused: nobody guesses which is right.
    """
    reference: NDArray[np.uint64] | None = None
    orders: dict[tuple[int, ...], NDArray[np.intp]] = {}
    columns: dict[str, Codes] = {}
    for name in schema:
        holders = tuple(i for i, block in enumerate(blocks) if name in block.codes)
        if not holders:
            raise InputError(f"No party sent {name!r}.")
        if holders not in orders:
            words = np.concatenate([tag_words(blocks[i].tags) for i in holders])
            order = np.lexsort((words[:, 1], words[:, 0]))
            ordered = words[order]
            if np.any(np.all(ordered[1:] == ordered[:-1], axis=1)):
                raise InputError(f"Cells of {name!r} came twice for one record.")
            if reference is None:
                reference = ordered
            if not np.array_equal(ordered, reference):
                raise InputError(
                    f"The cells of {name!r} are for {len(ordered):,} records, others for {len(reference):,} "
                    "or for other ones: every record needs every cell."
                )
            orders[holders] = order
        columns[name] = np.concatenate([blocks[i].codes[name] for i in holders])[orders[holders]]
    mixed = permutation(0 if reference is None else len(reference))
    return {name: native(column[mixed]) for name, column in columns.items()}


def tag_words(tags: Tags) -> NDArray[np.uint64]:
    """Return pseudonyms as two words each, to be sorted."""
    return np.ascontiguousarray(tags).view(">u8").astype(np.uint64)


def native(codes: Codes) -> Codes:
    """Return codes in the machine's own byte order."""
    return np.ascontiguousarray(codes.astype(codes.dtype.newbyteorder("="), copy=False))


def seen_by(role: str, policy: Policy, own: Sequence[str] = ()) -> Guarantee:
    """Return who learns what: one role sees the reports of all variables but its own."""
    reports = guarantee_of(policy)
    disclosures = []
    for item in reports.disclosures:
        names = tuple(name for name in item.variables if name not in own)
        if names:
            disclosures.append(Disclosure(role, item.kind, names, item.gamma))
    return Guarantee(
        tuple(disclosures),
        (*reports.assumptions, f"{role} destroys the pseudonyms once records are joined, and keeps no order"),
        {role: "malicious"},
        None,
        (),
        0,
    )
