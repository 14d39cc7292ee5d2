"""Session type for arbitrarily partitioned data without a miner.

A table is counted by the party that holds most of its variables, from its own clear cells and other parties'
reports. A party may hold a variable for some people and have reports for the rest: it counts these strata
separately, and their estimates are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from masquerade.services.parties.coordinator import are_cells, invalid_tables
from masquerade.services.parties.kinds.any_cells import ScatteredCellsRole, schema_of_cells
from masquerade.services.parties.kinds.base import Partition, SessionKind, Tables
from masquerade.services.parties.kinds.without_miner import (
    CrossParentsRole,
    LocalNodes,
    WithoutMiner,
    crossing_of,
    seen_without_miner,
)
from masquerade.sources.parties.own_tables import OwnTablesOfStrata, Stratum, count_reports, shared_by
from masquerade.sources.parties.scattered_cells import ScatteredCells

if TYPE_CHECKING:
    from masquerade.core.schema import Schema
    from masquerade.protocols.wire.session import Transport
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import JointSchema, SessionSpec

RESULTS = "counts of own cells beside others' reports, by who holds what of whom"


class _LocalCells(LocalNodes):
    """A party that sends other parties the cells they need, and counts its own tables."""

    results_text = RESULTS
    _seen: ScatteredCells | None = None

    def _count_tables(self, tables: Tables, members: Callable[[str], Transport]) -> dict[str, Any]:
        """Count tables from local clear cells and others' disguised cells, stratum by stratum."""
        part = self._part
        if self._seen is None:
            joint = part.require_joint_schema()
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
            "counts": [
                [count_reports(records, [names])[0] for records in strata.values()] for names in tables
            ],
        }


class _CrossingCellsRole(CrossParentsRole, ScatteredCellsRole):
    """A party sends the reports of those cells that another party needs for its tables."""

    def player(self, part: SessionParticipant) -> _LocalCells:
        return _LocalCells(part, self)


class AnyCellsWithoutMiner(WithoutMiner):
    """All parties learn the model; a party also receives reports of the cells that its tables need."""

    name = "arbitrary-without-miner"
    why = "one party has nobody to learn from"
    partition = Partition.CELLS
    roles = (_CrossingCellsRole(),)
    results_text = RESULTS
    em = SessionKind.em

    def schema(self, spec: SessionSpec, joint: JointSchema) -> Schema:  # noqa: ARG002
        """Return the variables of all parties; several parties may hold cells of the same variable."""
        return schema_of_cells(joint)

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield a problem for each shared variable that is not reported by itself, under its own name."""
        yield from SessionKind.faults(self, spec, joint)
        for party, policy in joint.policies.items():
            for name in shared_by(party, joint.policies):
                group = policy.group(name)
                if (group.names, group.reports) != ((name,), (name,)):
                    yield (
                        f"Several parties hold cells of {name!r}, which party {party!r} reports together "
                        "with others or under another name: without a miner it must be reported by itself."
                    )

    def model(self, run: Coordinator) -> dict[str, Any]:
        """Request each table from the party with most of its variables, and learn from the counts."""
        run.note("parties count tables")
        crossing = crossing_of(run.spec, run.joint)
        seen = seen_without_miner(run.joint, crossing, run.spec.convener, RESULTS)

        def strata(party: str) -> list[Stratum]:
            reply: Any = run.request_counts(party, ()).get("strata")
            try:
                return [Stratum(tuple(names), people) for names, people in reply if type(people) is int]
            except (TypeError, ValueError):
                raise invalid_tables(party) from None

        def tables(party: str, asked: Sequence[tuple[str, ...]]) -> list[list[list[int]]]:
            counts = run.request_counts(party, asked).get("counts")
            if not isinstance(counts, list) or not all(
                isinstance(parts, list) and all(map(are_cells, parts)) for parts in counts
            ):
                raise invalid_tables(party)
            return counts

        return run.learn_from(OwnTablesOfStrata(run.joint.policies, crossing, strata, tables, seen))
