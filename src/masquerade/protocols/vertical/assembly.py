"""From cells at several parties to joined records, one part at a time; what is there is not fetched again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError
from masquerade.protocols.vertical.fetch import Arrived
from masquerade.protocols.vertical.join import joined, rows_of
from masquerade.protocols.vertical.joined_store import InFolder, InMemory, Keeper, Plan
from masquerade.protocols.vertical.joint_policy import combined
from masquerade.protocols.vertical.messages import Shape
from masquerade.protocols.vertical.pseudonym_ranges import parts_for
from masquerade.sources.engine import Engine
from masquerade.sources.records import Records

Progress = Callable[[int, int], None]


class Supplier(Protocol):
    """Whoever gives cells: another party, or this one in clear."""

    @property
    def policy(self) -> Policy:
        """What its cells went through."""

    @property
    def shapes(self) -> Sequence[Shape]:
        """The blocks they come in."""

    def fetch(self, part: int, parts: int) -> list[Arrived]:
        """Return one part of them."""


def assemble(
    session: bytes,
    recipient: str,
    agreed: Mapping[str, str],
    suppliers: Callable[[], Sequence[Supplier]],
    *,
    folder: str | Path | None,
    rows_at_once: int,
    progress: Progress | None = None,
) -> Records | Engine:
    """Return the joined records of all suppliers as a source; pseudonyms live as long as a part is joined."""
    place = None if folder is None else made(Path(folder))
    begun = None if place is None else InFolder.found(place, session, recipient, dict(agreed))
    if begun is not None and begun.complete:
        return begun.source()
    asked = suppliers()
    policy = combined([one.policy for one in asked])
    rows = rows_of(policy.schema, [shape for one in asked for shape in one.shapes])
    parts = parts_for(rows, rows_at_once) if begun is None else begun.plan.parts
    plan = Plan(session, recipient, dict(agreed), policy, rows, parts)
    keeper: Keeper = InMemory(plan) if place is None else InFolder(place, plan)
    for part in range(parts):
        if not keeper.has(part):
            blocks = [block for one in asked for block in one.fetch(part, parts)]
            keeper.keep(part, joined(policy.schema, blocks))
        if progress is not None:
            progress(part + 1, parts)
    return keeper.source()


def made(folder: Path) -> Path:
    """Return a folder, made if it is not there, for its owner alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        raise FileError(f"{folder}: cannot be made a folder.") from None
    return folder
