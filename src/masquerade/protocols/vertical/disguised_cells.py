"""Vertical and arbitrary partitions: parties send disguised cells, which a miner or each party joins.

A site is a party whose cells leave it only as reports under its policy, each drawn once. Cells of other
parties are announced, fetched part by part, checked, and joined row by row on their pseudonyms. The
pseudonyms of a part are destroyed as soon as the part is joined.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.class_response import ClassResponse
from masquerade.channels.policy import Group, Policy, check_policy
from masquerade.channels.policy.privacy import guarantee_of
from masquerade.core.errors import InputError, PolicyError, PolicyMismatch, RoundAborted
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.schema import Field, Schema
from masquerade.core.util.json_text import parse_json
from masquerade.crypto.errors import DecodingError
from masquerade.disguising.columns import permutation
from masquerade.disguising.report_draws import Codes, Draws, through
from masquerade.protocols.linkage import pseudonyms
from masquerade.protocols.wire import codec
from masquerade.protocols.wire.arrow_stream import column, pack, unpack
from masquerade.protocols.wire.session import Responder, Transport, ask

_MOST_BLOCKS = 1000

Structure = Mapping[str, Sequence[str]]
Places = NDArray[np.integer[Any]]
T = TypeVar("T")
Variables = Annotated[tuple[codec.Name, ...], codec.Many(10_000)]
PolicyText = Annotated[
    Policy,
    codec.Converted(
        codec.Text(codec.LONGEST_TEXT),
        lambda policy: json.dumps(policy.to_dict(), ensure_ascii=False, separators=(",", ":")),
        lambda text: Policy.from_dict(parse_json(text)),
        "A policy",
    ),
]


class DescriptionRequest(codec.SessionMessage, tag=b"masquerade vertical announce 1"):
    """Ask a site for the policy and number of its cells of some variables, or of all if none is named."""

    recipient: codec.Name
    names: Variables


class CellRequest(codec.SessionMessage, tag=b"masquerade vertical request 2"):
    """Ask a site for one part of the announced disguised cells of some variables."""

    recipient: codec.Name
    names: Variables
    part: codec.U32
    parts: codec.U32


@dataclass(frozen=True, slots=True)
class BlockShape(codec.Struct):
    """A block of cells: its variables and its number of rows."""

    names: Variables
    rows: codec.U64


class CellDescription(codec.SessionMessage, tag=b"masquerade vertical described 1"):
    """Description of a site's cells: their policy, and their blocks."""

    party: codec.Name
    policy: PolicyText
    shapes: Annotated[tuple[BlockShape, ...], codec.Many(_MOST_BLOCKS)]


class DisguisedCells(codec.SessionMessage, tag=b"masquerade vertical cells 2"):
    """Disguised cells of one part: one Arrow stream of pseudonyms and report codes per block."""

    party: codec.Name
    policy_id: codec.Name
    part: codec.U32
    parts: codec.U32
    blocks: Annotated[tuple[Annotated[bytes, codec.Blob(1 << 30)], ...], codec.Many(_MOST_BLOCKS)]


def combine_policies(policies: Sequence[Policy], order: Sequence[str] = ()) -> Policy:
    """Return the policy over all variables; a variable in two policies must have the same channel in both.

    Variables in `order` come first, in that order. Strata are refused: a party's channels would depend on
    another party's column.
    """
    fields: dict[str, Field] = {}
    groups: dict[tuple[str, ...], Group] = {}
    for policy in policies:
        if policy.stratum_variable is not None:
            raise PolicyError("a policy with strata cannot be combined with other parties' policies.")
        for field in policy.fields:
            name = field.variable.name
            group = policy.group(name)
            known = groups.get(group.names, group)
            same = (
                group.names in groups
                and known.channel.fingerprint == group.channel.fingerprint
                and known.reports == group.reports
            )
            if name in fields and not (same and fields[name] == field):
                raise PolicyError(f"two parties have {name!r} with different categories or channels.")
            fields[name] = field
        groups |= {group.names: group for group in policy.groups}
    names = {own: name for policy in policies for own, name in policy.report_names.items()}
    first = {name: fields[name] for name in order if name in fields}
    return Policy(list((first | fields).values()), _channels_of(groups.values()), reports=names)


def restrict_to_variables(policy: Policy, names: Collection[str]) -> Policy:
    """Return the policy of some variables and of the variables disguised together with them."""
    kept = [group for group in policy.groups if any(name in names for name in group.names)]
    inside = {name for group in kept for name in group.names}
    for name in names:
        policy.schema[name]
    fields = [field for field in policy.fields if field.variable.name in inside]
    reports = {own: name for own, name in policy.report_names.items() if inside.issuperset(own)}
    return Policy(fields, _channels_of(kept), reports=reports)


def _channels_of(groups: Collection[Group]) -> dict[tuple[str, ...], Channel | ClassResponse]:
    """Return the channels that disguise, or that have their own labels of reports."""
    return {
        group.names: group.channel
        for group in groups
        if group.disguised or group.channel.labels or group.own_report
    }


def seen_by(role: str, policy: Policy, own: Sequence[str] = ()) -> Guarantee:
    """Return the disclosures to a role that sees the reports of all other parties' variables."""
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


def owner_of(sites: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the owner of each variable; raise an error if a variable has two."""
    owner: dict[str, str] = {}
    for party, names in sites.items():
        for name in names:
            if name in owner:
                raise InputError(
                    f"Variable {name!r} is held by two parties; in a vertical partition one holds it."
                )
            owner[name] = party
    return owner


def cross_parents(
    structure: Structure, sites: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the cross parents by (giver, receiver): variables that one party must send to another.

    Reference: Ma (2006), section 5.2, after Chen, Sivakumar & Kargupta (2004): definitions 1 and 2.

    >>> cross_parents({"a": (), "b": ("a",)}, {"x": ["a"], "y": ["b"]})
    {('x', 'y'): ('a',)}
    """
    owner = owner_of(sites)
    found: dict[tuple[str, str], dict[str, None]] = {}
    for node, parents in structure.items():
        for parent in parents:
            if node not in owner or parent not in owner:
                raise InputError(f"No party holds {node if node not in owner else parent!r}.")
            if owner[parent] != owner[node]:
                found.setdefault((owner[parent], owner[node]), {})[parent] = None
    return {pair: tuple(names) for pair, names in found.items()}


def own_families(structure: Structure, own: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the structure that one party learns: its own nodes with parents, other nodes without."""
    foreign = dict.fromkeys(parent for node in own for parent in structure[node] if parent not in own)
    return {**dict.fromkeys(foreign, ()), **{node: tuple(structure[node]) for node in own}}


def assemble_parts(found: Mapping[str, Mapping[str, T]], sites: Mapping[str, Sequence[str]]) -> dict[str, T]:
    """Return one mapping over all nodes, taking each node from the party that holds it."""
    whole: dict[str, T] = {}
    for party, names in sites.items():
        for name in names:
            if name not in found.get(party, {}):
                raise InputError(f"Party {party!r} returned nothing for its variable {name!r}.")
            whole[name] = found[party][name]
    return whole


class ReceivedCells(NamedTuple):
    """Some rows of some columns, sorted by pseudonym."""

    codes: Mapping[str, Codes]
    tags: pseudonyms.Tags


def schema_of(names: Sequence[str], policy: Policy) -> pa.Schema:
    """Return the columns of a block: the pseudonym, then codes in the smallest integer types."""
    kinds = [pa.from_numpy_dtype(np.min_scalar_type(max(len(policy.observed[n]) - 1, 0))) for n in names]
    return pa.schema(
        [
            column("pseudonym", pa.binary(pseudonyms.PSEUDONYM_SIZE)),
            *(column(name, kind) for name, kind in zip(names, kinds, strict=True)),
        ]
    )


class Room(NamedTuple):
    """Limits of the data accepted from one party: rows in all, and bytes of a decompressed block."""

    rows: int = 1 << 31
    bytes: int = 1 << 30


class CellSupplier:
    """A party that sends cells to a recipient: its announcement, and its parts on request.

    `agreed` is the id of the expected policy, restricted to the named variables if only some are requested.
    """

    def __init__(
        self,
        transport: Transport,
        party: str,
        announce: DescriptionRequest,
        agreed: str,
        room: Room | None = None,
    ) -> None:
        self.party, self._transport, self._announce = party, transport, announce
        self._room = room or Room()
        found = ask(transport, party, announce, CellDescription, spent=True)
        if (found.session, found.party) != (announce.session, party):
            raise InputError(f"Party {party!r} answered for another session or party.")
        _check_policy(party, found.policy.id, agreed)
        self.policy, self.shapes = found.policy, found.shapes
        for shape in self.shapes:
            if not shape.names or len(set(shape.names)) < len(shape.names):
                raise InputError(f"Party {party!r} announced a block without variables, or with one twice.")
            for name in shape.names:
                self.policy.observed[name]
            if shape.rows > self._room.rows:
                raise InputError(
                    f"Party {party!r} announced {shape.rows:,} rows (at most {self._room.rows:,})."
                )

    def fetch(self, part: int, parts: int) -> list[ReceivedCells]:
        """Return a part of the party's cells, after checking session, policy, part and codes."""
        asked = CellRequest(
            self._announce.session, self._announce.recipient, self._announce.names, part, parts
        )
        cells = ask(self._transport, self.party, asked, DisguisedCells, spent=True)
        due = (asked.session, self.party, part, parts)
        if (cells.session, cells.party, cells.part, cells.parts) != due:
            raise InputError(f"Party {self.party!r} sent cells of another session, party or part.")
        _check_policy(self.party, cells.policy_id, self.policy.id)
        if len(cells.blocks) != len(self.shapes):
            raise InputError(f"Party {self.party!r} sent blocks that differ from those that it announced.")
        return [
            self._read_block(block, shape, part, parts)
            for block, shape in zip(cells.blocks, self.shapes, strict=True)
        ]

    def _read_block(self, block: bytes, shape: BlockShape, part: int, parts: int) -> ReceivedCells:
        schema = schema_of(shape.names, self.policy)
        rows = pseudonyms.most_in_part(shape.rows, parts)
        width = sum(field.type.bit_width // 8 for field in schema)
        size = min(rows * width + 64 * len(schema), self._room.bytes)
        try:
            batch = unpack(block, most_bytes=size, most_rows=rows, schema=schema)
        except DecodingError as error:
            reason = f"Party {self.party!r} sent a block that cannot be read: {error}"
            raise RoundAborted(reason, spent=True, culprits=(self.party,)) from None
        tags = np.frombuffer(batch.column(0).buffers()[1], np.uint8, pseudonyms.PSEUDONYM_SIZE * len(batch))
        arrived = ReceivedCells(
            {name: batch.column(place).to_numpy() for place, name in enumerate(shape.names, start=1)},
            tags.reshape(-1, pseudonyms.PSEUDONYM_SIZE),
        )
        self._check(arrived, part, parts)
        return arrived

    def _check(self, arrived: ReceivedCells, part: int, parts: int) -> None:
        first, second = pseudonyms.words_of(arrived.tags)
        if not pseudonyms.increasing(first, second):
            raise InputError(f"Party {self.party!r} sent pseudonyms that are not sorted, or repeated.")
        low, high = pseudonyms.bounds_of(part, parts)
        if len(first) and not low <= first[0] <= first[-1] <= high:
            raise InputError(f"Party {self.party!r} sent a record that belongs to another part.")
        for name, codes in arrived.codes.items():
            if len(codes) and int(codes.max()) >= len(self.policy.observed[name]):
                raise InputError(f"Party {self.party!r}: column {name!r} has a code that is not a report.")


def rows_of(schema: Schema, shapes: Iterable[BlockShape]) -> int:
    """Return the number of announced records; every variable must have a cell for each of them."""
    found: dict[str, int] = {}
    for shape in shapes:
        for name in shape.names:
            found[name] = found.get(name, 0) + shape.rows
    first = schema.names[0]
    for name in schema:
        if name not in found:
            raise InputError(f"No party sent {name!r}.")
        if found[name] != found[first]:
            raise InputError(
                f"There are {found[name]:,} cells of {name!r}, and {found[first]:,} of {first!r}: every "
                "record needs every cell, once."
            )
    return found[first]


def join_blocks(schema: Schema, blocks: Sequence[ReceivedCells]) -> dict[str, Codes]:
    """Return one column of codes per variable, with rows in a fresh random order.

    Raise an error if two blocks contain the same cell, or a record lacks a cell.
    """
    reference: pseudonyms.Tags | None = None
    orders: dict[tuple[int, ...], NDArray[np.intp] | None] = {}
    columns: dict[str, Codes] = {}
    for name in schema:
        holders = tuple(i for i, block in enumerate(blocks) if name in block.codes)
        if holders not in orders:
            tags, orders[holders] = _merge([blocks[i].tags for i in holders], name)
            reference = tags if reference is None else reference
            if not np.array_equal(tags, reference):
                raise InputError(
                    f"The cells of {name!r} are for {len(tags):,} records, others for {len(reference):,} "
                    "or for different records: every record needs every cell."
                )
        order = orders[holders]
        column = np.concatenate([blocks[i].codes[name] for i in holders])
        columns[name] = column if order is None else column[order]
    mixed = permutation(0 if reference is None else len(reference))
    return {name: np.ascontiguousarray(column[mixed]) for name, column in columns.items()}


def _merge(tags: Sequence[pseudonyms.Tags], name: str) -> tuple[pseudonyms.Tags, NDArray[np.intp] | None]:
    """Return sorted pseudonyms of several blocks as one sorted list, and the order that sorts them."""
    if len(tags) == 1:
        return tags[0], None
    together = np.concatenate(tags)
    first, second = pseudonyms.words_of(together)
    order = np.lexsort((second, first))
    if not pseudonyms.increasing(first[order], second[order]):
        raise InputError(f"Cells of {name!r} came twice for one record.")
    return together[order], order


def _check_policy(party: str, found: str, agreed: str) -> None:
    if found != agreed:
        raise PolicyMismatch(
            f"Party {party!r} disguised under policy {found[:12]}…, but {agreed[:12]}… was agreed: "
            "estimates would be wrong."
        )


@dataclass(frozen=True, eq=False)
class ClearCells:
    """Clear cells of one party, one row per pseudonym; all reports are drawn before the first is sent."""

    codes: Mapping[str, Codes]
    tags: pseudonyms.Tags
    draws: Draws
    _drawn: dict[str, Codes] = dataclasses.field(default_factory=dict, init=False, repr=False)

    def clear(self, names: Sequence[str], rows: Places) -> dict[str, Codes]:
        """Return cells of the given pseudonyms in clear."""
        return {name: self.codes[name][rows] for name in names}

    def reports(self, policy: Policy, names: Sequence[str], rows: Places) -> dict[str, Codes]:
        """Return reports of some pseudonyms; all later releases use the same draws."""
        if not self._drawn:
            self._drawn.update(_draw_reports(self.codes, policy, policy.observed.names, self.draws))
        return {name: self._drawn[name][rows] for name in names}


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedCells:
    """Cells of one party whose reports a memo repeats: they are drawn on request and not stored.

    `places` are the rows of `codes` that the pseudonyms refer to; `draws` draws the reports of some rows, the
    same reports every time.
    """

    codes: Mapping[str, Codes]
    tags: pseudonyms.Tags
    places: Places
    draws: Callable[[Places], Draws]

    def clear(self, names: Sequence[str], rows: Places) -> dict[str, Codes]:
        """Return cells of the given pseudonyms in clear."""
        at = self.places[rows]
        return {name: self.codes[name][at] for name in names}

    def reports(self, policy: Policy, names: Sequence[str], rows: Places) -> dict[str, Codes]:
        """Draw reports of some pseudonyms."""
        return _draw_reports(
            self.clear(tuple(self.codes), rows), policy, names, self.draws(self.places[rows])
        )


def _draw_reports(
    codes: Mapping[str, Codes], policy: Policy, names: Sequence[str], draws: Draws
) -> dict[str, Codes]:
    """Draw the reports of some variables, each group by its index in the policy."""
    return {
        name: column
        for place, group in enumerate(policy.groups)
        if group.names[0] in codes and not set(group.reports).isdisjoint(names)
        for name, column in through(codes, [group], draws, None, place).items()
    }


class Site(Responder):
    """Holds clear cells and releases reports, the same reports in every release.

    `cells` are its clear cells by block; each block also draws its reports.
    """

    session: bytes

    def __init__(
        self, name: str, policy: Policy, cells: Sequence[ClearCells | RepeatedCells], session: bytes
    ) -> None:
        check_policy(policy)
        if policy.stratum_variable is not None:
            raise InputError("A policy with strata cannot be combined with other parties' policies.")
        self.name, self.policy, self.session = name, policy, session
        self.cells = tuple(cells)
        for block in self.cells:
            _check_tags(block)
            for group in policy.groups:
                if 0 < len(set(group.names) & set(block.codes)) < len(group.names):
                    raise InputError(
                        f"{', '.join(group.names)} are disguised together: a record needs the cells of all."
                    )
        self.released: dict[str, frozenset[str]] = {}
        self.handlers = {
            DescriptionRequest: lambda asked: self.describe(asked.names),
            CellRequest: self._release,
        }

    @cached_property
    def _sort(self) -> tuple[pseudonyms.SortedPseudonyms, ...]:
        """Sort the pseudonyms of every block, once."""
        return tuple(pseudonyms.SortedPseudonyms(cells.tags) for cells in self.cells)

    def _release(self, request: CellRequest) -> DisguisedCells:
        """Return a part of the cells, disguised."""
        if not request.part < request.parts <= pseudonyms.MOST_PARTS:
            raise InputError(f"There are {request.parts} parts. Part {request.part + 1} was asked for.")
        policy = restrict_to_variables(self.policy, request.names or self.policy.schema.names)
        blocks = tuple(
            _pack(reports.codes, reports.tags, policy)
            for reports in self.draw_cells(policy, request.part, request.parts)
        )
        before = self.released.get(request.recipient, frozenset())
        self.released[request.recipient] = before | set(policy.schema)
        return DisguisedCells(request.session, self.name, policy.id, request.part, request.parts, blocks)

    def describe(self, names: Sequence[str] = ()) -> CellDescription:
        """Return the policy and the blocks of some variables, or of all if none is named."""
        policy = restrict_to_variables(self.policy, names or self.policy.schema.names)
        shapes = tuple(BlockShape(own, len(self.cells[block].tags)) for block, own in self._holding(policy))
        return CellDescription(self.session, self.name, policy, shapes)

    def clear(self, part: int, parts: int) -> list[ReceivedCells]:
        """Return a part of this site's clear cells, for use at this site only."""
        return [
            ReceivedCells(self.cells[block].clear(names, rows), self.cells[block].tags[rows])
            for block, names, rows in self._cut(self.policy.without_channels(), part, parts)
        ]

    def draw_cells(self, policy: Policy, part: int, parts: int) -> list[ReceivedCells]:
        """Return a part of this site's reports of some variables, as it sends them."""
        return [
            ReceivedCells(self.cells[block].reports(self.policy, names, rows), self.cells[block].tags[rows])
            for block, names, rows in self._cut(policy, part, parts)
        ]

    def clear_shapes(self) -> tuple[BlockShape, ...]:
        """Return the blocks of this site's clear cells."""
        held = self._holding(self.policy.without_channels())
        return tuple(BlockShape(names, len(self.cells[block].tags)) for block, names in held)

    def _holding(self, policy: Policy) -> list[tuple[int, tuple[str, ...]]]:
        """Return the blocks with reports of a policy, and the variables in each."""
        held = [
            {name for group in policy.groups if group.names[0] in cells.codes for name in group.reports}
            for cells in self.cells
        ]
        columns = [tuple(name for name in policy.observed if name in own) for own in held]
        return [(block, names) for block, names in enumerate(columns) if names]

    def _cut(
        self, policy: Policy, part: int, parts: int
    ) -> list[tuple[int, tuple[str, ...], NDArray[np.intp]]]:
        """Return the blocks with some variables, these variables, and the rows of a part by pseudonym."""
        return [(block, names, self._sort[block].rows(part, parts)) for block, names in self._holding(policy)]


def _pack(reports: Mapping[str, Codes], tags: pseudonyms.Tags, policy: Policy) -> bytes:
    names = [name for name in policy.observed if name in reports]
    schema = schema_of(names, policy)
    ids = pa.Array.from_buffers(schema[0].type, len(tags), [None, pa.py_buffer(np.ascontiguousarray(tags))])
    columns = [
        pa.array(np.ascontiguousarray(reports[name]), schema.field(place).type)
        for place, name in enumerate(names, start=1)
    ]
    return pack(pa.RecordBatch.from_arrays([ids, *columns], schema=schema))


def _check_tags(cells: ClearCells | RepeatedCells) -> None:
    tags = cells.tags
    if tags.dtype != np.uint8 or tags.ndim != 2 or tags.shape[1] != pseudonyms.PSEUDONYM_SIZE:
        raise InputError(f"A pseudonym has {pseudonyms.PSEUDONYM_SIZE} bytes.")
    sizes = [len(cells.places)] if isinstance(cells, RepeatedCells) else map(len, cells.codes.values())
    for rows in sizes:
        if rows != len(tags):
            raise InputError(f"A block of {rows:,} rows needs as many pseudonyms. Got {len(tags):,} instead.")
