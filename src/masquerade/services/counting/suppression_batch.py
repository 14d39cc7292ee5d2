"""The miner's side of a suppression: rows of people's devices, their groups, and the table that opens.

Nothing opens twice. All keys are in memory: a miner, key holder or randomness server that stops between the
first key and the table ends the suppression, and so does a person who stops answering after the row was sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from masquerade.anonymity.suppression import partition_distances
from masquerade.core.errors import InputError, QueryRefused, Refusal, RoundAborted
from masquerade.core.guarantee import ENROLMENT_OFFICE, Disclosure, Guarantee
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.protocols.k_anonymity.suppression.messages import (
    MINER,
    RELEASE,
    Boards,
    PartitionTerms,
    TableRelease,
    partition_guarantee,
    signed_groups,
    word_of,
)
from masquerade.protocols.k_anonymity.suppression.roles import SuppressionMiner, released_table
from masquerade.protocols.mixnet.roles import MixMiner
from masquerade.services.common.client import HttpTransport
from masquerade.services.counting.message_queue import MessageQueue
from masquerade.services.counting.messages import (
    LETTER_ID,
    MESSAGE,
    OVER,
    DeviceReply,
    Letter,
    SuppressionCountTerms,
)
from masquerade.services.counting.mix_batch import MixBatch
from masquerade.services.counting.suppression_messages import (
    CLOSINGS,
    DISTANCES,
    GROUPS,
    KEYS,
    TABLE,
    PeopleParts,
    RelayBatch,
    SuppressionStep,
)

if TYPE_CHECKING:
    from masquerade.services.counting.miner import MinerService

ACCEPTED = b"accepted"
T = TypeVar("T")


class SuppressionBatch(MixBatch):
    """The miner's side of a suppression: the rows of a mix, compared instead of opened, then the table."""

    def __init__(
        self, service: MinerService, terms: SuppressionCountTerms, agreed: PartitionTerms, most_held: int
    ) -> None:
        super().__init__(service, agreed.mix)
        if self.over is not None:
            reason = "The miner stopped after the keys of this table were made: it is over. Name a new count."
            self.over = replace(self.over, reason=reason)
        self._count_terms, self._agreed = terms, agreed
        self._queue = MessageQueue(len(terms.members), most_held, service.settings.patience)
        self._results: dict[str, Any] = {}
        self._accepted: dict[str, bool] = {}
        self._table_letter = secrets.token_bytes(LETTER_ID)

    def keys_message(self, board: bytes) -> bytes:
        """Return the step that hands the board of keys to a person."""
        return SuppressionStep(KEYS, (board,)).encode()

    def make_miner(self) -> MixMiner:
        """Return the miner's role, with a new share of the key."""
        return SuppressionMiner(self.service.identity, self.service.box, self._agreed)

    def letter(self, person: str) -> Letter:
        """Return the pending step of a person: the keys, a step of the closing, or the table."""
        self.check_over()
        if self.result is not None:
            if person not in self.result["names"] or person in self._accepted:
                return Letter(OVER)
            step = SuppressionStep(TABLE, tuple(bytes.fromhex(one) for one in self.result["boards"]))
            return Letter(MESSAGE, 0, step.encode(), self._table_letter)
        if person in self._submissions:
            return self._queue.letter(person)
        return super().letter(person)

    def take(self, reply: DeviceReply) -> bool:
        """Accept a person's row, reply to a step, or answer to the table; return True if it was expected."""
        if reply.letter == self._letter:
            return super().take(reply)
        if reply.letter == self._table_letter and self.result is not None:
            if reply.person in self.result["names"]:
                self._accepted.setdefault(reply.person, reply.content == ACCEPTED)
            return True
        return self._queue.take(reply.person, reply.letter, reply.content)

    def open_batch(self, miner: MixMiner, batch: bytes, http: HttpTransport) -> dict[str, Any]:
        """Compare the rows, have people sign the groups, and open the values that groups share.

        After a server was out of reach this may be called again: each step is taken once, and what came of
        it is used again. An invalid message or a person who does not answer ends the suppression.
        """
        if not isinstance(miner, SuppressionMiner):
            raise InputError("A suppression needs its own role of the miner.")
        try:
            return self._make_table(miner, batch, http)
        except QueryRefused as refused:
            self.over = refused.refusals[0]
            raise
        except (RoundAborted, InputError, DecodingError, SealBroken, KeySpent) as error:
            self.over = Refusal("aborted", f"This table is over: {error} Name a new count.")
            raise

    def _make_table(self, miner: SuppressionMiner, batch: bytes, http: HttpTransport) -> dict[str, Any]:
        terms, randomness = self._agreed, self.service.randomness
        mixings, endorsed, openings = self.run_shuffles(miner, batch, http)
        opening = self._once("opening", lambda: miner.open(batch, mixings, endorsed))
        opened = self._once("openings", lambda: miner.opening_board([*openings, opening]))
        boards = Boards(self._require_board(), batch, mixings, endorsed, opened)
        names = tuple(sorted(set(self._submissions) - set(miner.refused)))
        votes = self._once(DISTANCES, lambda: self._ask_people(DISTANCES, dict.fromkeys(names, boards)))
        agreement = self._once(
            "agreement", lambda: miner.agreement_board(boards, list(votes.values()), partition_distances)
        )
        notices = self.ask(http, randomness, "begin", agreement)
        bundles = self._once(
            GROUPS, lambda: self._ask_people(GROUPS, dict.fromkeys(names, (agreement, notices)))
        )
        evaluated = self.ask(http, randomness, "evaluate", PeopleParts(tuple(bundles.values())).encode())
        closings = self.ask(http, randomness, "close", b"")
        replies = dict(zip(names, PeopleParts.decode(evaluated).parts, strict=True))
        sent = self._once(
            CLOSINGS,
            lambda: self._ask_people(CLOSINGS, {name: (replies[name], closings) for name in names}),
        )
        relay = next(iter(terms.holders))
        relayed = self.ask(http, relay, "relay", RelayBatch(agreement, tuple(sent.values())).encode())
        sealed = PeopleParts.decode(relayed).parts
        release = self._once("release", lambda: miner.release(agreement, notices, closings, sealed))
        agreed = signed_groups(terms, agreement)
        table = released_table(terms, agreed, TableRelease.decode(word_of(release, terms, RELEASE)))
        return {
            "names": list(names),
            "attributes": list(terms.attributes),
            "rows": [list(table[name]) for name in names],
            "groups": [agreed.group_of(name) for name in names],
            "refused": list(miner.refused),
            "unreadable": miner.unreadable,
            "boards": [release.hex()],
        }

    def _require_board(self) -> bytes:
        if self._board is None:
            raise InputError("There is no board of keys yet.")
        return self._board

    def _once(self, step: str, work: Callable[[], T]) -> T:
        """Return the result of a step, which is taken only once."""
        if step not in self._results:
            self._results[step] = work()
        result: T = self._results[step]
        return result

    def _ask_people(self, step: str, parts: Mapping[str, tuple[bytes, ...]]) -> dict[str, bytes]:
        """Return all people's replies to a step, in the order of their names.

        Nobody can be left out any more: all rows were compared, and all people sign the groups.
        """
        letters = {name: SuppressionStep(step, tuple(parts[name])).encode() for name in parts}
        replies = {name: reply for name, reply in self._queue.replies(letters) if reply}
        missing = sorted(set(letters) - set(replies))
        if missing:
            raise QueryRefused(
                [
                    Refusal(
                        "people_left",
                        f"{', '.join(missing)} did not answer after the rows were compared: this table is "
                        "over, and no value was opened. Name a new count.",
                    )
                ]
            )
        return {name: replies[name] for name in sorted(replies)}

    def summary(self) -> dict[str, Any]:
        """Return the entries of the status of a released table."""
        result = self.result or {}
        cells = [value for row in result["rows"] for value in row]
        return {
            "rows": len(result["rows"]),
            "groups": len(set(result["groups"])),
            "cells": len(cells),
            "suppressed": sum(value is None for value in cells),
            "refused": result["refused"],
            "accepted": sum(self._accepted.values()),
            "objections": sorted(name for name, accepted in self._accepted.items() if not accepted),
        }


def suppression_guarantee(terms: PartitionTerms) -> Guarantee:
    """Return the guarantee of the protocol, with what the services reveal in addition."""
    protocol = partition_guarantee(terms)
    names = tuple(terms.attributes)
    more = (
        Disclosure(MINER, "when and from which address people answer, and nothing", names, Fraction(1)),
        Disclosure(ENROLMENT_OFFICE, "who is enrolled, and nothing", names, Fraction(1)),
    )
    return replace(
        protocol,
        disclosures=(*protocol.disclosures, *more),
        assumptions=(
            *protocol.assumptions,
            "the enrolment office gives each person one identity, and has no copy of a person's file",
        ),
        adversaries={**protocol.adversaries, ENROLMENT_OFFICE: "semi-honest"},
    )
