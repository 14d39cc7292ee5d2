"""The miner: gathers and publishes the boards, trusted by nobody, and releases the table in the end."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.keys import AgreementKey, SigningKey
from masquerade.protocols.mix import roles as mix
from masquerade.protocols.mix.key_holder import check_endorsed
from masquerade.protocols.mix.messages import OPENING, SHUFFLE, Board, opened_board
from masquerade.protocols.partition.agreement import (
    AGREEMENT,
    MINER,
    NOTICES,
    RANDOMNESS,
    RELEASE,
    PartitionTerms,
)
from masquerade.protocols.partition.comparison import check_cost, outcome_of
from masquerade.protocols.partition.messages import (
    AddressedReport,
    Closings,
    Notices,
    Release,
    Word,
    unsealed,
    word_of,
)
from masquerade.protocols.partition.public_board import (
    Boards,
    Checks,
    Distances,
    Partition,
    SignedGroups,
    groups_of,
    signed_groups,
)
from masquerade.protocols.threshold.class_opening import Opening
from masquerade.protocols.threshold.collector import Collector


class Miner(mix.Miner):
    """Gathers what people and key holders send, and opens what whole groups share.

    Learns what everybody learns, and how many of a group agree on an attribute that does not open: neither
    who nor on what. A miner that leaves people out, changes a board or makes up a value is noticed.
    """

    def __init__(
        self,
        identity: SigningKey,
        box: AgreementKey,
        terms: PartitionTerms,
        *,
        accept_cost: bool = False,
        checks: Checks | None = None,
    ) -> None:
        check_cost(len(terms.people), len(terms.attributes), len(terms.holders), accept_cost=accept_cost)
        super().__init__(identity, terms.mix)
        if box.public != terms.box:
            raise InputError("These terms name another key to seal reports for.")
        self.agreed_terms, self._box, self._checks = terms, box, checks or Checks()
        self.unreadable = 0
        self._released = False

    def open(self, batch: bytes, mixings: bytes, endorsements: bytes) -> bytes:
        """Return the miner's part of opening the distances, once all key holders have signed the same."""
        boards = Boards(b"", batch, mixings, endorsements, b"")
        check_endorsed(self.terms, endorsements, boards.mixed)
        people = len(self._rows_of(batch))
        last = opened_board(mixings, self.terms, SHUFFLE, tuple(self.terms.leaders))[-1]
        return self._opening(
            outcome_of(last.payload, people * (people - 1) // 2, self.terms.width), boards.mixed
        )

    def opening_board(self, openings: Sequence[bytes]) -> bytes:
        """Return the board of all parts of opening the distances."""
        return self._gathered(OPENING, self.terms.holders, openings, spent=True)

    def view(self, boards: Boards) -> Distances:
        """Return the distances on the boards, as everybody sees them."""
        return self._checks.distances(self.agreed_terms, boards)

    def agreement_board(self, boards: Boards, words: Sequence[bytes], partition: Partition) -> bytes:
        """Return the board on which all people sign the groups; anyone missing or differing aborts."""
        view = self.view(boards)
        first = Word.first(words, self.agreed_terms, AGREEMENT)
        missing = [name for name in view.names if name not in first]
        if missing:
            raise RoundAborted(f"No agreement came from {', '.join(missing)}.", spent=True, culprits=missing)
        board = Board(tuple(first[name] for name in view.names)).encode()
        agreed = signed_groups(self.agreed_terms, board)
        own = groups_of(view, self.agreed_terms.k, partition)
        if agreed.view != view.digest or [agreed.group_of(name) for name in agreed.names] != list(own):
            raise RoundAborted("People came to other groups than the miner.", spent=True)
        return board

    def agreed(self, agreement: bytes) -> SignedGroups:
        """Return the groups that all have signed."""
        return self._checks.groups(self.agreed_terms, agreement)

    def release(self, agreement: bytes, notices: bytes, closings: bytes, sealed: Sequence[bytes]) -> bytes:
        """Return the table, signed: of every group the values that all its members have."""
        if self._released:
            raise KeySpent("The table of this session has been released already.")
        terms = self.agreed_terms
        agreed = self.agreed(agreement)
        collectors = self._collectors(agreed, notices, closings)
        self._released = True
        for one in sealed:
            try:
                report = AddressedReport.decode(unsealed(self._box, one, terms))
                collectors[report.group, report.attribute].take(report.report)
            except (DecodingError, SealBroken, KeyError):
                self.unreadable += 1
        values = [
            _shared(collector.open_classes(), len(agreed.groups[group]))
            for (group, _), collector in collectors.items()
        ]
        receipts = sorted({hashlib.sha256(one).digest() for one in sealed})
        said = Release(agreed.digest, tuple(values), tuple(receipts))
        return Word.make(terms, self._identity, RELEASE, MINER, said.encode()).encode()

    def _collectors(
        self, agreed: SignedGroups, notices: bytes, closings: bytes
    ) -> dict[tuple[int, int], Collector]:
        """Return a collector for every group and attribute, ready to take reports."""
        said = Notices.decode(word_of(notices, self.agreed_terms, NOTICES))
        closed, width = Closings.decode(closings).parts, len(self.agreed_terms.attributes)
        if not len(said.notices) == len(closed) == width * len(agreed.groups):
            raise RoundAborted(
                "Not every group and attribute has its notice and its closing.",
                spent=True,
                culprits=(RANDOMNESS,),
            )
        collectors = {}
        for group, members in enumerate(agreed.groups):
            for attribute in range(width):
                place = group * width + attribute
                collector = Collector(said.notices[place], identity=said.identities[group], k=len(members))
                collector.begin(closed[place])
                collectors[group, attribute] = collector
        return collectors


def _shared(opening: Opening, size: int) -> tuple[bytes, ...]:
    """Return the value that all of a group reported, in a tuple; an empty one if none opened."""
    if opening.opened < size or len(opening.quasi) != 1:
        return ()
    value = opening.quasi[0, : opening.quasi_length[0]].tobytes()
    try:
        value.decode()
    except UnicodeDecodeError:  # a group that agrees on nonsense must not spoil the table
        return ()
    return (value,)
