"""Records joined from the cells of several parties, as a source of counts in memory or in a folder.

A miner (Model II, and arbitrary partitions) joins the disguised cells of all parties and learns from them
alone. Without a miner (Model I) each party learns its own nodes from its own clear columns. Only those
columns of others that it needs are sent, disguised by their owner, and one disguise of a column serves all
parties that need it.

A folder contains ``session.json`` (whose records, in how many parts, under which policy) and one Parquet file
per part, written atomically. No file contains a pseudonym, and the rows of a part are in random order.
Existing parts are not fetched again.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.json_text import read_json
from masquerade.disguising.report_draws import Codes
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.label_codes import decode
from masquerade.protocols.linkage.pseudonyms import ROWS_AT_ONCE, parts_for
from masquerade.protocols.vertical.disguised_cells import (
    CellSupplier,
    DescriptionRequest,
    ReceivedCells,
    Room,
    Site,
    Structure,
    combine_policies,
    cross_parents,
    join_blocks,
    owner_of,
    restrict_to_variables,
    rows_of,
    seen_by,
)
from masquerade.protocols.wire.session import Transport
from masquerade.sources.engines.engine import Engine
from masquerade.sources.records import Records
from masquerade.sources.tally import tally

KIND = "masquerade joined records"
Progress = Callable[[int, int], None]


class JoiningMiner:
    """Miner that receives every variable as its party's policy allows, and keeps only joined records.

    `policies` are the agreed policy ids by party. In a vertical partition parties hold different variables of
    the same records. In an arbitrary partition any cell may be held by any party, and a variable of two
    parties goes through the same channel at both. `room` limits the data accepted from a party.
    """

    def __init__(
        self, policies: Mapping[str, str], session: bytes, *, name: str = "miner", room: Room | None = None
    ) -> None:
        if not policies:
            raise InputError("A miner needs at least one party.")
        self.policies, self.session, self.name = dict(policies), session, name
        self._room = room
        self._joined = False

    def records(
        self,
        transport: Transport,
        folder: str | Path | None = None,
        *,
        rows_at_once: int = ROWS_AT_ONCE,
        parts_ahead: int = 0,
        progress: Progress | None = None,
    ) -> Records | Engine:
        """Fetch all cells, join them on pseudonyms, delete the pseudonyms, and return a source of counts.

        Parameters
        ----------
        transport : Transport
            Connection to the parties.
        folder : path, optional
            Folder for the joined records, part by part, as Parquet. Memory then holds one part at a time. A
            session that was started in the folder continues with the missing parts; a complete one contacts
            nobody.
        rows_at_once : int, optional
            Approximate number of records in a part.
        parts_ahead : int, optional
            Number of parts fetched in advance, from all parties concurrently. The transport must be
            thread-safe.
        progress : callable, optional
            Called with the number of finished parts and of all parts.

        Returns
        -------
        Records or Engine
            A source of counts over the joined records.
        """
        if folder is None and self._joined:
            raise InputError("The records of this session were already joined, and their pseudonyms deleted.")
        source = _joined_source(
            self.session,
            self.name,
            self.policies,
            lambda: [
                CellSupplier(
                    transport, party, DescriptionRequest(self.session, self.name, ()), agreed, self._room
                )
                for party, agreed in self.policies.items()
            ],
            folder=folder,
            rows_at_once=rows_at_once,
            parts_ahead=parts_ahead,
            progress=progress,
        )
        source.guarantee = seen_by(self.name, source.policy)
        self._joined = True
        return source


class LearningSite:
    """A site that learns from its own clear variables and from others' variables as their policies allow.

    `policies` are the agreed policies of the other parties. `room` limits the data accepted from a party.
    """

    def __init__(self, own: Site, policies: Mapping[str, Policy], *, room: Room | None = None) -> None:
        self.site, self.policies, self._room = own, dict(policies), room
        self.sites = {own.name: own.policy.schema.names, **{p: q.schema.names for p, q in policies.items()}}
        owner_of(self.sites)

    def needed_columns(self, structure: Structure | None) -> dict[str, tuple[str, ...]]:
        """Return the columns needed from each other party: cross parents, or all for learning a structure."""
        if structure is None:
            return {party: policy.schema.names for party, policy in self.policies.items()}
        crossing = cross_parents(structure, self.sites)
        return {giver: names for (giver, receiver), names in crossing.items() if receiver == self.site.name}

    def source(
        self,
        transport: Transport,
        structure: Structure | None = None,
        *,
        folder: str | Path | None = None,
        rows_at_once: int = ROWS_AT_ONCE,
        progress: Progress | None = None,
    ) -> Records | Engine:
        """Return a source of counts over own clear and others' disguised columns, joined on pseudonyms.

        Variables disguised together are sent together. Without a structure every column of the others is
        fetched, in the one disguise that its owner has drawn. Joined records, with own columns in clear, stay
        in memory or are stored in a `folder` of this party, as for a miner.
        """
        own, session, name = _OwnCells(self.site), self.site.session, self.site.name
        needed = {
            party: (names, restrict_to_variables(self.policies[party], names).id)
            for party, names in self.needed_columns(structure).items()
        }
        view = _joined_source(
            session,
            name,
            {name: own.policy.id, **{party: agreed for party, (_, agreed) in needed.items()}},
            lambda: [
                own,
                *(
                    CellSupplier(
                        transport, party, DescriptionRequest(session, name, names), agreed, self._room
                    )
                    for party, (names, agreed) in needed.items()
                ),
            ],
            folder=folder,
            rows_at_once=rows_at_once,
            progress=progress,
        )
        view.guarantee = seen_by(name, view.policy, own.policy.schema.names)
        return view


class _OwnCells:
    """A site's own cells, in clear."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.policy, self.shapes = site.policy.without_channels(), site.clear_shapes()

    def fetch(self, part: int, parts: int) -> list[ReceivedCells]:
        return self._site.clear(part, parts)


def _joined_source(
    session: bytes,
    recipient: str,
    agreed: Mapping[str, str],
    suppliers: Callable[[], Sequence[CellSupplier | _OwnCells]],
    *,
    folder: str | Path | None,
    rows_at_once: int,
    parts_ahead: int = 0,
    progress: Progress | None,
) -> Records | Engine:
    """Return the joined records of all suppliers, which are queried for the missing parts."""
    place = None if folder is None else _make_folder(Path(folder))
    begun = None if place is None else _FolderParts.resume(place, session, recipient, dict(agreed))
    if begun is not None and begun.complete:
        return begun.source()
    asked = suppliers()
    policy = combine_policies([one.policy for one in asked])
    rows = rows_of(policy.observed, [shape for one in asked for shape in one.shapes])
    parts = parts_for(rows, rows_at_once) if begun is None else begun.plan.parts
    plan = _Plan(session, recipient, dict(agreed), policy, rows, parts)
    store = _MemoryParts(plan) if place is None else _FolderParts(place, plan)
    missing = [part for part in range(parts) if not store.has(part)]
    with closing(_fetch_parts(asked, missing, parts, parts_ahead)) as arriving:
        for part in range(parts):
            if part in missing:
                store.keep(part, join_blocks(policy.observed, next(arriving)))
            if progress is not None:
                progress(part + 1, parts)
    return store.source()


def _fetch_parts(
    asked: Sequence[CellSupplier | _OwnCells], wanted: Sequence[int], parts: int, ahead: int
) -> Generator[list[ReceivedCells]]:
    """Yield the blocks of some parts. All suppliers work concurrently, `ahead` parts in advance."""
    if not ahead:
        for part in wanted:
            yield [block for one in asked for block in one.fetch(part, parts)]
        return
    pool, due = ThreadPoolExecutor(len(asked) * (ahead + 1)), deque[list[Future[list[ReceivedCells]]]]()
    try:
        for place, part in enumerate(wanted):
            due.append([pool.submit(one.fetch, part, parts) for one in asked])
            if place >= ahead:
                yield [block for future in due.popleft() for block in future.result()]
        while due:
            yield [block for future in due.popleft() for block in future.result()]
    finally:  # on an early exit, wait only for requests under way
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Description of a session that is being joined: recipient, policies, number of records and of parts."""

    session: bytes
    recipient: str
    agreed: dict[str, str]
    policy: Policy
    rows: int
    parts: int

    def check_rows(self, rows: int) -> None:
        if rows != self.rows:
            raise InputError(f"The parties announced {self.rows:,} records, but sent {rows:,}.")

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "version": 1,
            "session": self.session.hex(),
            "recipient": self.recipient,
            "agreed": self.agreed,
            "rows": self.rows,
            "parts": self.parts,
            "policy": json.loads(json.dumps(self.policy.to_dict())),
        }


class _MemoryParts:
    """Joined parts as arrays of codes."""

    def __init__(self, plan: _Plan) -> None:
        self.plan, self._parts = plan, dict[int, dict[str, Codes]]()

    def has(self, part: int) -> bool:
        return part in self._parts

    def keep(self, part: int, codes: dict[str, Codes]) -> None:
        self._parts[part] = codes

    def source(self) -> Records:
        parts = [self._parts[part] for part in range(self.plan.parts)]
        names = self.plan.policy.observed.names
        records = Records({n: np.concatenate([part[n] for part in parts]) for n in names}, self.plan.policy)
        self.plan.check_rows(records.n)
        return records


class _FolderParts:
    """Joined parts as Parquet files. Existing parts of the same session are kept."""

    def __init__(self, folder: Path, plan: _Plan) -> None:
        self._folder, self.plan = folder, plan
        if not (folder / "session.json").exists():
            if any(folder.glob("part-*.parquet")):
                raise FileError(f"{folder}: contains parts of joined records, but no session.json.")
            write_whole(folder / "session.json", json.dumps(plan.to_dict(), indent=2) + "\n")
        elif _read_plan(folder) != plan.to_dict():
            raise FileError(
                f"{folder}: contains records of a different session, or not the announced records."
            )

    @classmethod
    def resume(
        cls, folder: Path, session: bytes, recipient: str, agreed: dict[str, str]
    ) -> _FolderParts | None:
        """Return the parts of a session that was started in a folder, or None."""
        if not (folder / "session.json").exists():
            return None
        read = _read_plan(folder)
        if (read["session"], read["recipient"], read["agreed"]) != (session.hex(), recipient, agreed):
            raise FileError(f"{folder}: contains records of a different session, recipient or policy.")
        try:
            policy = Policy.from_dict(read["policy"])
        except (ValueError, TypeError):
            raise FileError(f"{folder / 'session.json'}: is damaged.") from None
        return cls(folder, _Plan(session, recipient, agreed, policy, read["rows"], read["parts"]))

    @property
    def complete(self) -> bool:
        return all(self.has(part) for part in range(self.plan.parts))

    def has(self, part: int) -> bool:
        return self._path(part).exists()

    def keep(self, part: int, codes: dict[str, Codes]) -> None:
        observed = self.plan.policy.observed
        columns = {name: decode(codes[name], observed[name].categories) for name in observed}
        batch = pa.RecordBatch.from_pydict(columns)
        with AtomicWriter(self._path(part), batch.schema, {"policy": self.plan.policy.id}) as writer:
            writer.write(batch)

    def source(self) -> Records | Engine:
        """Return the files as a source: in memory if they are small, else in an engine."""
        paths = [self._path(part) for part in range(self.plan.parts)]
        self.plan.check_rows(sum(parquet.read_metadata(path).num_rows for path in paths))
        return tally(paths, self.plan.policy)

    def _path(self, part: int) -> Path:
        return self._folder / f"part-{part:06}.parquet"


def _make_folder(folder: Path) -> Path:
    """Return a folder, created for its owner only if necessary."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        raise FileError(f"{folder}: cannot create this folder.") from None
    return folder


def _read_plan(folder: Path) -> dict[str, Any]:
    path = folder / "session.json"
    read = read_json(path)
    numbers = isinstance(read, dict) and all(type(read.get(key)) is int for key in ("rows", "parts"))
    keys = {"kind", "version", "session", "recipient", "agreed", "rows", "parts", "policy"}
    if not numbers or set(read) != keys or (read["kind"], read["version"]) != (KIND, 1):
        raise FileError(f"{path}: is not a description of joined records of version 1.")
    return dict(read)
