"""Cells from several parties, joined row by row on pseudonyms that are destroyed in the joining."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy
from masquerade.channels.privacy import guarantee_of
from masquerade.core.errors import InputError
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.schema import Schema
from masquerade.disguising.frames import permutation
from masquerade.disguising.report_draws import Codes
from masquerade.protocols.vertical.fetch import Arrived
from masquerade.protocols.vertical.messages import Shape
from masquerade.protocols.vertical.pseudonym_ranges import Tags, increasing, words_of


def rows_of(schema: Schema, shapes: Iterable[Shape]) -> int:
    """Return how many records were announced; every variable must have a cell for each of them."""
    found = dict.fromkeys(schema, 0)
    announced: set[str] = set()
    for shape in shapes:
        for name in shape.names:
            found[name] += shape.rows
            announced.add(name)
    for name in schema:
        if name not in announced:
            raise InputError(f"No party sent {name!r}.")
    rows = found[schema.names[0]]
    for name, count in found.items():
        if count != rows:
            raise InputError(
                f"There are {count:,} cells of {name!r}, and {rows:,} of {schema.names[0]!r}: every record "
                "needs every cell, once."
            )
    return rows


def joined(schema: Schema, blocks: Sequence[Arrived]) -> dict[str, Codes]:
    """Return one column of codes for every variable, rows in a fresh random order.

    A cell that two blocks hold, and a record that lacks a cell, is refused: nobody guesses which is right.
    """
    reference: Tags | None = None
    orders: dict[tuple[int, ...], NDArray[np.intp] | None] = {}
    columns: dict[str, Codes] = {}
    for name in schema:
        holders = tuple(i for i, block in enumerate(blocks) if name in block.codes)
        if holders not in orders:
            tags, orders[holders] = merged([blocks[i].tags for i in holders], name)
            reference = tags if reference is None else reference
            if not np.array_equal(tags, reference):
                raise InputError(
                    f"The cells of {name!r} are for {len(tags):,} records, others for {len(reference):,} "
                    "or for other ones: every record needs every cell."
                )
        order = orders[holders]
        column = np.concatenate([blocks[i].codes[name] for i in holders])
        columns[name] = column if order is None else column[order]
    mixed = permutation(0 if reference is None else len(reference))
    return {name: np.ascontiguousarray(column[mixed]) for name, column in columns.items()}


def merged(tags: Sequence[Tags], name: str) -> tuple[Tags, NDArray[np.intp] | None]:
    """Return sorted pseudonyms of several blocks as one sorted list, and the order that sorts them."""
    if len(tags) == 1:
        return tags[0], None
    together = np.concatenate(tags)
    first, second = words_of(together)
    order = np.lexsort((second, first))
    if not increasing(first[order], second[order]):
        raise InputError(f"Cells of {name!r} came twice for one record.")
    return together[order], order


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
        (*reports.assumptions, f"{role} destroys pseudonyms as it joins, and keeps no order within a part"),
        {role: "malicious"},
        None,
        (),
        0,
    )
