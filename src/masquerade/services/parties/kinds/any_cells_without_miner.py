"""Any cell at any party, and no miner: tables are counted by whoever holds most of their variables.

What a party holds it counts as it is, what others hold as they report it. Of a variable that several hold
some of, it has both; it counts people apart by which of these it holds, and the estimates of both add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from masquerade.services.parties.coordinator import are_cells, no_tables_of
from masquerade.services.parties.kinds.any_cells import ScatteredCellsRole, schema_of_cells
from masquerade.services.parties.kinds.base import Partition, SessionKind, Tables
from masquerade.services.parties.kinds.without_miner import (
    CrossParentsRole,
    OwnNodes,
    WithoutMiner,
    crossing_of,
    seen_without_miner,
)
from masquerade.sources.parties.own_tables import OwnTablesOfStrata, Stratum, counted, shared_by
from masquerade.sources.parties.scattered_cells import ScatteredCells

if TYPE_CHECKING:
    from masquerade.core.schema import Schema
    from masquerade.protocols.wire.session import Transport
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import JointSchema, SessionSpec

TOLD = "counts of own cells beside others' reports, by who holds what of whom"


class _OwnCells(OwnNodes):
    """A party that sends others what they count with, and counts itself."""

    told = TOLD
    _seen: ScatteredCells | None = None

    def _counted(self, tables: Tables, members: Callable[[str], Transport]) -> dict[str, Any]:
        """Count tables of own clear and others' disguised cells, stratum by stratum."""
        part = self._part
        if self._seen is None:
            joint = part.arranged()
            self._seen = ScatteredCells(
                self._site,
                joint.policies,
                crossing_of(part.spec, joint),
                members("cells"),
                least=part.least_people,
                room=part.room,
            )
        strata = self._seen.strata
        return {
            "strata": [[list(names), records.n] for names, records in strata.items()],
            "counts": [[counted(records, [names])[0] for records in strata.values()] for names in tables],
        }


class _CrossingCellsRole(CrossParentsRole, ScatteredCellsRole):
    """Parties send each other reports of the cells that the other counts with."""

    def player(self, part: Participant) -> _OwnCells:
        return _OwnCells(part, self)


class AnyCellsWithoutMiner(WithoutMiner):
    """Everybody learns the model, and of records the reports of cells that cross to it."""

    name = "arbitrary-without-miner"
    why = "one party has nobody to learn from"
    partition = Partition.CELLS
    roles = (_CrossingCellsRole(),)
    told = TOLD

    def schema(self, spec: SessionSpec, joint: JointSchema) -> Schema:  # noqa: ARG002
        """Return the variables of everybody, of which several may hold one."""
        return schema_of_cells(joint)

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield shared variables that are reported together with others, or under another name."""
        yield from SessionKind.faults(self, spec, joint)
        for party, policy in joint.policies.items():
            for name in shared_by(party, joint.policies):
                group = policy.group(name)
                if (group.names, group.reports) != ((name,), (name,)):
                    yield (
                        f"Several hold cells of {name!r}, which party {party!r} reports together with "
                        "others or under another name: without a miner it must be reported by itself."
                    )

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Let whoever holds most of a table's variables count it, and learn from that."""
        run.note("parties count tables")
        crossing = crossing_of(run.spec, run.joint)
        seen = seen_without_miner(run.joint, crossing, run.spec.convener, TOLD)

        def strata(party: str) -> list[Stratum]:
            told: Any = run.counted_by(party, ()).get("strata")
            try:
                return [Stratum(tuple(names), people) for names, people in told if type(people) is int]
            except (TypeError, ValueError):
                raise no_tables_of(party) from None

        def tables(party: str, asked: Sequence[tuple[str, ...]]) -> list[list[list[int]]]:
            counts = run.counted_by(party, asked).get("counts")
            if not isinstance(counts, list) or not all(
                isinstance(parts, list) and all(map(are_cells, parts)) for parts in counts
            ):
                raise no_tables_of(party)
            return counts

        return run.learnt_from(OwnTablesOfStrata(run.joint.policies, crossing, strata, tables, seen))
