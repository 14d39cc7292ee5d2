"""A whole table in one process: every party, every message as bytes, and what each role spent."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from masquerade.core.errors import InputError
from masquerade.core.guarantee import Guarantee
from masquerade.crypto.keys import AgreementKey, SigningKey
from masquerade.protocols.partition.agreement import PartitionTerms
from masquerade.protocols.partition.comparison import Between
from masquerade.protocols.partition.cost import check_cost
from masquerade.protocols.partition.guarantee import partition_guarantee
from masquerade.protocols.partition.holder import KeyHolder
from masquerade.protocols.partition.miner import Miner
from masquerade.protocols.partition.person import Person, Table
from masquerade.protocols.partition.public_board import Boards, Checks, Partition
from masquerade.protocols.partition.randomness_server import Randomness

PEOPLE, HOLDERS, MINER, SERVER = "people", "key holders", "miner", "randomness server"


@dataclass(slots=True)
class Cost:
    """What all parties of one role sent, and their processor time."""

    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Costs:
    """What each role spent; people's checks of public boards are counted once for the whole process."""

    roles: dict[str, Cost] = field(
        default_factory=lambda: {role: Cost() for role in (PEOPLE, HOLDERS, MINER, SERVER)}
    )

    @contextmanager
    def of(self, role: str) -> Iterator[Cost]:
        """Count processor time for a role."""
        began = time.process_time()
        try:
            yield self.roles[role]
        finally:
            self.roles[role].seconds += time.process_time() - began

    def sent(self, role: str, *messages: bytes) -> None:
        """Count messages."""
        self.roles[role].messages += len(messages)
        self.roles[role].bytes += sum(map(len, messages))

    @property
    def seconds(self) -> float:
        """Return the processor time of all."""
        return sum(cost.seconds for cost in self.roles.values())

    def summary(self) -> str:
        """Return a line for each role."""
        return "\n".join(
            f"{role}: {cost.messages:,} messages, {cost.bytes:,} bytes, {cost.seconds:.2f} s"
            for role, cost in self.roles.items()
        )


@dataclass(frozen=True, slots=True, eq=False)
class Anonymised:
    """The released table, None where suppressed, in the order given; and what it came from and cost."""

    rows: tuple[tuple[str | None, ...], ...]
    groups: tuple[int, ...]
    distances: Between
    costs: Costs
    guarantee: Guarantee


class Population:
    """The people with their rows, two or more key holders, the miner and the randomness server.

    Each step takes the boards before it and returns the next; `run` takes them all. People in one process
    check public boards once, together.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[str]],
        k: int,
        partition: Partition,
        *,
        attributes: Sequence[str] | None = None,
        holders: int = 2,
        session: str = "local run",
        value_size: int = 64,
        accept_cost: bool = False,
    ) -> None:
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            raise InputError("A table has rows, all with the same attributes.")
        check_cost(len(rows), len(rows[0]), holders, accept_cost=accept_cost)
        width = len(str(len(rows)))
        self.identities = {
            **{f"person {place:0{width}}": SigningKey() for place in range(1, len(rows) + 1)},
            **{f"key holder {place}": SigningKey() for place in range(1, holders + 1)},
            MINER: SigningKey(),
            SERVER: SigningKey(),
        }
        public = {name: key.public for name, key in self.identities.items()}
        box = AgreementKey()
        self.terms = PartitionTerms(
            session,
            k,
            attributes or [f"attribute {place}" for place in range(1, len(rows[0]) + 1)],
            public[MINER],
            box.public,
            {name: key for name, key in public.items() if name.startswith("key holder")},
            public[SERVER],
            {name: key for name, key in public.items() if name.startswith("person")},
            value_size,
        )
        self.partition, self.costs, checks = partition, Costs(), Checks()
        self.people = [
            Person(name, self.identities[name], self.terms, row, checks=checks)
            for name, row in zip(self.terms.people, rows, strict=True)
        ]
        self.holders = [
            KeyHolder(name, self.identities[name], self.terms, accept_cost=True)
            for name in self.terms.holders
        ]
        self.miner = Miner(self.identities[MINER], box, self.terms, accept_cost=True, checks=checks)
        self.randomness = Randomness(self.identities[SERVER], self.terms)

    def keys(self) -> bytes:
        """Return the board of key shares."""
        with self.costs.of(HOLDERS):
            shares = [holder.share() for holder in self.holders]
        with self.costs.of(MINER):
            board = self.miner.key_board([self.miner.share(), *shares])
        with self.costs.of(HOLDERS):
            for holder in self.holders:
                holder.take_key(board)
        self.costs.sent(HOLDERS, *shares)
        self.costs.sent(MINER, board)
        return board

    def batch(self, keys: bytes) -> bytes:
        """Return the board of encrypted rows."""
        with self.costs.of(PEOPLE):
            submissions = [person.submit(keys) for person in self.people]
        with self.costs.of(MINER):
            board = self.miner.batch(submissions)
        self.costs.sent(PEOPLE, *submissions)
        self.costs.sent(MINER, board)
        return board

    def mixings(self, batch: bytes) -> bytes:
        """Return the board of what the key holders made of all pairs, one after the other."""
        done: list[bytes] = []
        for holder in self.holders:
            before = self.miner.shuffle_board(done)
            with self.costs.of(HOLDERS):
                done.append(holder.mix(batch, before))
        board = self.miner.shuffle_board(done)
        self.costs.sent(HOLDERS, *done)
        self.costs.sent(MINER, board)
        return board

    def endorsements(self, batch: bytes, mixings: bytes) -> bytes:
        """Return the board of signatures by which key holders say that they checked all mixings."""
        with self.costs.of(HOLDERS):
            signed = [holder.endorse(batch, mixings) for holder in self.holders]
        self.costs.sent(HOLDERS, *signed)
        board = self.miner.endorsement_board(signed)
        self.costs.sent(MINER, board)
        return board

    def openings(self, batch: bytes, mixings: bytes, endorsements: bytes) -> bytes:
        """Return the board of all parts of opening the distances."""
        with self.costs.of(HOLDERS):
            parts = [holder.open(endorsements) for holder in self.holders]
        with self.costs.of(MINER):
            own = self.miner.open(batch, mixings, endorsements)
            board = self.miner.opening_board([*parts, own])
        self.costs.sent(HOLDERS, *parts)
        self.costs.sent(MINER, own, board)
        return board

    def compared(self) -> Boards:
        """Return all boards of the first phase: from them everybody reads the distances."""
        keys = self.keys()
        batch = self.batch(keys)
        mixings = self.mixings(batch)
        endorsements = self.endorsements(batch, mixings)
        return Boards(keys, batch, mixings, endorsements, self.openings(batch, mixings, endorsements))

    def agreement(self, boards: Boards) -> bytes:
        """Return the board on which all sign the groups: the second phase."""
        with self.costs.of(PEOPLE):
            words = [person.agree(boards, self.partition) for person in self.people]
        with self.costs.of(MINER):
            board = self.miner.agreement_board(boards, words, self.partition)
        self.costs.sent(PEOPLE, *words)
        self.costs.sent(MINER, board)
        return board

    def release(self, agreement: bytes) -> bytes:
        """Return the signed table: the third phase."""
        with self.costs.of(SERVER):
            notices = self.randomness.begin(agreement)
        with self.costs.of(PEOPLE):
            requests = [person.request(agreement, notices) for person in self.people]
        with self.costs.of(SERVER):
            replies = self.randomness.evaluate(requests)
            closings = self.randomness.close()
        with self.costs.of(PEOPLE):
            reports = [
                report
                for person, reply in zip(self.people, replies, strict=True)
                for report in person.report(reply, closings)
            ]
        with self.costs.of(HOLDERS):
            passed = self.holders[0].pass_on(reports)
        with self.costs.of(MINER):
            release = self.miner.release(agreement, notices, closings, passed)
        self.costs.sent(PEOPLE, *requests, *reports)
        self.costs.sent(SERVER, notices, *replies, closings)
        self.costs.sent(HOLDERS, *passed)
        self.costs.sent(MINER, release)
        return release

    def run(self) -> Anonymised:
        """Return the table that everybody ends up with."""
        boards = self.compared()
        agreement = self.agreement(boards)
        release = self.release(agreement)
        with self.costs.of(PEOPLE):
            tables: list[Table] = [person.accept(release) for person in self.people]
        view = self.miner.view(boards)
        agreed = self.miner.agreed(agreement)
        return Anonymised(
            tuple(tables[0][name] for name in view.names),
            tuple(agreed.group_of(name) for name in view.names),
            view.between,
            self.costs,
            partition_guarantee(self.terms),
        )


def run(
    rows: Sequence[Sequence[str]],
    k: int,
    partition: Partition,
    *,
    attributes: Sequence[str] | None = None,
    holders: int = 2,
    accept_cost: bool = False,
) -> Anonymised:
    """Anonymise a table as its people would, each with one row, all in this process.

    `partition` makes groups of at least k from the matrix of distances, the same from the same:
    `masquerade.anonymity.distance_cover.partition_distances`.
    """
    return Population(
        rows, k, partition, attributes=attributes, holders=holders, accept_cost=accept_cost
    ).run()
