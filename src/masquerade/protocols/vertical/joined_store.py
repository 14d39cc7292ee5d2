"""Where joined records go: into memory, or part by part into Parquet files of a folder.

A folder holds ``session.json`` (whose records these are, in how many parts, under which policy) and one file
for each part, written whole or not at all. No pseudonym is in any of them; rows of a part have random order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from masquerade.channels.policy import Policy
from masquerade.core.atomic import write_whole
from masquerade.core.errors import FileError, InputError
from masquerade.disguising.report_draws import Codes
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.label_codes import decode
from masquerade.sources.engine import Engine
from masquerade.sources.records import Records
from masquerade.sources.tally import tally

KIND = "masquerade joined records"


@dataclass(frozen=True, slots=True)
class Plan:
    """A session that is being joined: who joins what of whom, how many records, in how many parts."""

    session: bytes
    recipient: str
    agreed: dict[str, str]
    policy: Policy
    rows: int
    parts: int


class Keeper(Protocol):
    """Takes joined parts and makes them a source of counts."""

    def has(self, part: int) -> bool:
        """Tell whether a part is there already."""

    def keep(self, part: int, codes: dict[str, Codes]) -> None:
        """Take a part."""

    def source(self) -> Records | Engine:
        """Return all parts as a source."""


class InMemory:
    """Parts as arrays of codes."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._parts = plan, dict[int, dict[str, Codes]]()

    def has(self, part: int) -> bool:
        """Tell whether a part is there already."""
        return part in self._parts

    def keep(self, part: int, codes: dict[str, Codes]) -> None:
        """Take a part."""
        self._parts[part] = codes

    def source(self) -> Records:
        """Return all parts as records."""
        names = self._plan.policy.schema.names
        parts = [self._parts[part] for part in range(self._plan.parts)]
        records = Records({n: np.concatenate([part[n] for part in parts]) for n in names}, self._plan.policy)
        check_rows(self._plan, records.n)
        return records


class InFolder:
    """Parts as Parquet files; those of the same session that are there already stay."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder, self.plan = folder, plan
        if not (folder / "session.json").exists():
            if any(folder.glob("part-*.parquet")):
                raise FileError(
                    f"{folder}: has parts of joined records, and no session.json that says whose."
                )
            write_whole(folder / "session.json", json.dumps(plain(plan), indent=2) + "\n")
        elif read_plan(folder) != plain(plan):
            raise FileError(f"{folder}: holds records of another session, or other ones than are announced.")

    @classmethod
    def found(cls, folder: Path, session: bytes, recipient: str, agreed: dict[str, str]) -> InFolder | None:
        """Return the records of a session that was begun in a folder; None if none was."""
        if not (folder / "session.json").exists():
            return None
        read = read_plan(folder)
        if (read["session"], read["recipient"], read["agreed"]) != (session.hex(), recipient, agreed):
            raise FileError(f"{folder}: holds records of another session, recipient or policy.")
        try:
            policy = Policy.from_dict(read["policy"])
        except (ValueError, TypeError):
            raise FileError(f"{folder / 'session.json'}: is damaged.") from None
        return cls(folder, Plan(session, recipient, agreed, policy, read["rows"], read["parts"]))

    @property
    def complete(self) -> bool:
        """Tell whether every part is there."""
        return all(self.has(part) for part in range(self.plan.parts))

    def has(self, part: int) -> bool:
        """Tell whether a part is there already."""
        return self._path(part).exists()

    def keep(self, part: int, codes: dict[str, Codes]) -> None:
        """Write a part."""
        observed = self.plan.policy.observed
        columns = {name: decode(codes[name], observed[name].categories) for name in observed}
        batch = pa.RecordBatch.from_pydict(columns)
        with AtomicWriter(self._path(part), batch.schema, {"policy": self.plan.policy.id}) as writer:
            writer.write(batch)

    def source(self) -> Records | Engine:
        """Return the files as a source: in memory if they fit easily, else in an engine."""
        paths = [self._path(part) for part in range(self.plan.parts)]
        check_rows(self.plan, sum(parquet.read_metadata(path).num_rows for path in paths))
        return tally(paths, self.plan.policy)

    def _path(self, part: int) -> Path:
        return self._folder / f"part-{part:06}.parquet"


def check_rows(plan: Plan, rows: int) -> None:
    """Refuse another number of records than were announced."""
    if rows != plan.rows:
        raise InputError(f"The parties announced {plan.rows:,} records and sent {rows:,}.")


def plain(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain values."""
    return {
        "kind": KIND,
        "version": 1,
        "session": plan.session.hex(),
        "recipient": plan.recipient,
        "agreed": plan.agreed,
        "rows": plan.rows,
        "parts": plan.parts,
        "policy": json.loads(json.dumps(plan.policy.to_dict())),
    }


def read_plan(folder: Path) -> dict[str, Any]:
    """Return the plain values of a session that was begun in a folder."""
    path = folder / "session.json"
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise FileError(f"{path}: cannot be read.") from None
    numbers = isinstance(read, dict) and all(type(read.get(key)) is int for key in ("rows", "parts"))
    keys = {"kind", "version", "session", "recipient", "agreed", "rows", "parts", "policy"}
    if not numbers or set(read) != keys or (read["kind"], read["version"]) != (KIND, 1):
        raise FileError(f"{path}: is no description of joined records of version 1.")
    return dict(read)
