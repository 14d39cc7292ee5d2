"""A computation on shares between members of a session, with rounds relayed by the coordinator (convener).

Every party runs the program itself, so the coordinator cannot choose a query. The numbers that a party shows
in a round are signed, together with the session, its roster and the number of the round. The helper (trusted
dealer) deals only randomness that all parties requested in signed messages, and seals it for each party: an
owner receives the keys of its own masks only. The coordinator can therefore stop a computation, but not
change it; it sees masked numbers and the opened results.

Keys are fresh and in memory only. Before a party shows anything, the computation is durably marked as used:
an interrupted computation is never resumed. A new one starts with new keys.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.guarantee import RELAY
from masquerade.crypto.errors import KeySpent, SealBroken
from masquerade.crypto.keys import SIGNATURE_SIZE, SigningKey, derive, verify_signature
from masquerade.crypto.symmetric import seal, unseal
from masquerade.protocols.mpc.dealer import Dealer, Keys, local_keys
from masquerade.protocols.mpc.engine import Cost, Deal, Driver, EngineRound, Reply, Steps, Words
from masquerade.protocols.wire import codec, session

MOST_BYTES = 1 << 29  # bytes of one party's numbers in a round, or of its part of a deal
MOST_SIZES = 1 << 20
MOST_RESULT = 1 << 24
TURN, ASKED = "turn of a computation", "deal of a computation"  # labels of signatures
SECRET, SEALED = "hidden computation", "hidden deal"

Bytes = Annotated[bytes, codec.Blob(MOST_BYTES)]
Width = Annotated[int, codec.OneOf(codec.Number(1), (2, 4, 8))]
Need = Annotated[bytes, codec.Blob(8 * MOST_SIZES + 1000)]
Sizes = Annotated[Words, codec.Array("<u8", MOST_SIZES)]


class NeededDeal(codec.SessionMessage, tag=b"masquerade hidden need 1", eq=False):
    """A deal that a party requests, in the form that it signs."""

    number: codec.U64
    kind: codec.Name
    sizes: Sizes

    @classmethod
    def of(cls, session: bytes, deal: Deal) -> NeededDeal:
        """Return a deal as a message."""
        return cls(session, deal.number, deal.kind, np.array(deal.sizes, dtype=np.uint64))

    @property
    def deal(self) -> Deal:
        """Return the requested deal."""
        return Deal(self.number, self.kind, tuple(map(int, self.sizes)))


class DealRequest(codec.SessionMessage, tag=b"masquerade hidden deal 1"):
    """Request a deal from the helper, signed by every party, in the order of the roster."""

    needed: Need
    signatures: Annotated[tuple[codec.Signature, ...], codec.Many(codec.MOST_PARTIES)]


class DealtShares(codec.SessionMessage, tag=b"masquerade hidden dealt 1"):
    """A deal, sealed for each party, in the order of the roster."""

    sealed: Annotated[tuple[Bytes, ...], codec.Many(codec.MOST_PARTIES)]


class Turn(codec.SessionMessage, tag=b"masquerade hidden turn 1"):
    """The signed numbers of a party in a round and the deal that it needs next, or its result."""

    number: codec.U64
    width: Width
    words: Bytes
    needed: Need = b""
    asked: codec.Signature = bytes(SIGNATURE_SIZE)
    found: Annotated[str, codec.Text(MOST_RESULT)] | None = None
    signature: codec.Signature = bytes(SIGNATURE_SIZE)

    def signed_bytes(self, roster: bytes) -> tuple[bytes, ...]:
        """Return the bytes that the signature covers: session, roster, round, and every number."""
        told = b"" if self.found is None else b"1" + self.found.encode()
        facts = (self.number.to_bytes(8, "big"), bytes([self.width]), self.needed, told)
        return self.session, roster, *facts, hashlib.sha256(self.words).digest()

    def numbers(self) -> Words:
        """Return the numbers of the round."""
        if len(self.words) % self.width:
            raise InputError("The last number of a round is incomplete.")
        kind = np.dtype(f"<u{self.width}")
        return np.frombuffer(self.words, dtype=kind).astype(kind.newbyteorder("="), copy=False)


class Continuation(codec.SessionMessage, tag=b"masquerade hidden next 1"):
    """Start of a round: the other parties' previous numbers, and this party's part of the deal."""

    number: codec.U64
    turns: Annotated[tuple[Annotated[bytes, codec.Blob(MOST_BYTES + 1000)], ...], codec.Many(1000)]
    sealed: Bytes = b""


class ComputingParty(session.Member):
    """A party of a computation: it takes part in every round once, in sequence.

    `program` receives the keys that this party shares with the helper, by purpose and deal number, and yields
    its rounds; it returns the result as text. `burn` is called with the session's id before any number
    is shown, and raises if the session was used before.
    """

    def __init__(
        self,
        name: str,
        identity: SigningKey,
        peers: Mapping[str, bytes],
        *,
        parties: Sequence[str],
        helper: str,
        agreement: bytes,
        program: Callable[[Callable[[str, int], bytes]], Steps[str]],
        burn: Callable[[bytes], object],
    ) -> None:
        super().__init__(name, identity, peers, agreement)
        self._parties, self._helper, self._program, self._burn = tuple(parties), helper, program, burn
        self._steps: Steps[str] | None = None
        self._secret = b""
        self._next, self._mine = 0, EngineRound(np.zeros(0, dtype=np.uint64))
        self.handlers |= {Continuation: self._go_on}

    def _check_offer(self, offer: session.SessionOffer) -> None:
        if offer.roster != (*self._parties, self._helper):
            raise InputError("The offered parties or their order differ from the agreement.")

    def _go_on(self, message: Continuation) -> Turn:
        """Take part in a round. After any error, this party shows nothing more in this computation."""
        due, self._next = self._next, -1
        if message.number != due or due < 0:
            raise KeySpent("Every round of a computation is run once, in order; this one is over.")
        try:
            if due == 0:
                self._burn(message.session)
                self._secret = self.secret(self._helper, SECRET)
                self._steps = self._program(self._key_of)
                step = next(self._steps)
            elif self._steps is None:
                raise KeySpent("This computation is over.")
            else:
                step = self._steps.send(self._parse_reply(message))
        except StopIteration as end:
            self._steps = None
            return self._sign(Turn(message.session, due, 8, b"", found=str(end.value)))
        self._mine, self._next = step, due + 1
        words = np.ascontiguousarray(step.words)
        data = words.astype(words.dtype.newbyteorder("<"), copy=False).tobytes()
        turn = Turn(message.session, due, words.itemsize, data)
        if step.deal is not None:
            needed = NeededDeal.of(message.session, step.deal).encode()
            turn = replace(turn, needed=needed, asked=self._identity.sign(ASKED, self.roster, needed))
        return self._sign(turn)

    def _key_of(self, purpose: str, number: int) -> bytes:
        return derive(self._secret, "hidden " + purpose, number.to_bytes(8, "big"))

    def _sign(self, turn: Turn) -> Turn:
        return replace(turn, signature=self._identity.sign(TURN, *turn.signed_bytes(self.roster)))

    def _parse_reply(self, message: Continuation) -> Reply:
        """Return the signed numbers of all parties, and this party's part of the requested deal."""
        others = [name for name in self._parties if name != self.name]
        if len(message.turns) != len(others):
            raise InputError("The round needs the numbers of every other party.")
        shown = {self.name: self._mine.words}
        for name, data in zip(others, message.turns, strict=True):
            turn = Turn.decode(data)
            try:
                verify_signature(self._peers[name], turn.signature, TURN, *turn.signed_bytes(self.roster))
            except SealBroken:
                reason = (
                    f"The turn of party {name!r} does not match its signature: it was changed on the way."
                )
                raise RoundAborted(reason, spent=True, culprits=(RELAY,)) from None
            if turn.number != message.number - 1 or turn.session != message.session:
                raise RoundAborted(
                    f"Party {name!r} is in another round, or an old message was repeated.",
                    spent=True,
                    culprits=(RELAY,),
                )
            shown[name] = turn.numbers()
        words = tuple(shown[name] for name in self._parties)
        return Reply(words, self._open_result(message))

    def _open_result(self, message: Continuation) -> bytes:
        deal = self._mine.deal
        if deal is None:
            if message.sealed:
                raise InputError("This round needs no deal.")
            return b""
        asked = NeededDeal.of(message.session, deal).encode()
        return unseal(sealing_key(self._secret, deal), message.sealed, asked)


def sealing_key(secret: bytes, deal: Deal) -> bytes:
    """Return the key, shared by the helper and one party, that seals a deal."""
    return derive(secret, SEALED, deal.number.to_bytes(8, "big"))


class DealingHelper(session.Member):
    """The helper (trusted dealer) of a computation: it deals once per deal number, sealed for each party."""

    def __init__(
        self,
        name: str,
        identity: SigningKey,
        peers: Mapping[str, bytes],
        *,
        parties: Sequence[str],
        agreement: bytes,
    ) -> None:
        super().__init__(name, identity, peers, agreement)
        self._parties = tuple(parties)
        self._secrets: dict[str, bytes] = {}
        self._dealer: Dealer | None = None
        self.handlers |= {DealRequest: self._deal}

    def _check_offer(self, offer: session.SessionOffer) -> None:
        if offer.roster != (*self._parties, self.name):
            raise InputError("The offered parties or their order differ from the agreement.")

    def _deal(self, request: DealRequest) -> DealtShares:
        if self._dealer is None:
            self._secrets = {party: self.secret(party, SECRET) for party in self._parties}
            keys: Keys = local_keys(self._secrets)
            self._dealer = Dealer(self._parties, keys)
        self._check_asked(request)
        needed = NeededDeal.decode(request.needed)
        session.check_session(needed.session, request.session)
        deal, asked = needed.deal, request.needed
        dealt = self._dealer.deal(deal)
        return DealtShares(
            request.session,
            tuple(
                seal(sealing_key(self._secrets[party], deal), dealt.get(party, b""), asked)
                for party in self._parties
            ),
        )

    def _check_asked(self, request: DealRequest) -> None:
        """Raise an error unless all parties signed the request, which decides whose keys are dealt."""
        if len(request.signatures) != len(self._parties):
            raise InputError("Every party must request the deal.")
        for party, signature in zip(self._parties, request.signatures, strict=True):
            try:
                verify_signature(self._peers[party], signature, ASKED, self.roster, request.needed)
            except SealBroken:
                reason = f"Party {party!r} did not sign that it needs this deal."
                raise RoundAborted(reason, spent=True, culprits=(RELAY,)) from None


class Computation:
    """The coordinator: relays rounds between the parties, and passes on to them what the helper deals."""

    def __init__(
        self, parties: Sequence[str], helper: str, transport: session.Transport, agreement: bytes
    ) -> None:
        session.check_names((*parties, helper))
        self.parties, self.helper, self._transport = tuple(parties), helper, transport
        self.session, self.cost = os.urandom(codec.SESSION_SIZE), Cost()
        session.convene((*parties, helper), transport, self.session, agreement)

    def compute(self, progress: Callable[[int], object] = lambda _: None) -> str:
        """Return the result, on which all parties must agree; call `progress` with each round's number."""
        driver = Driver(self.parties, self.cost)
        waiting: dict[str, Continuation] = {
            party: Continuation(self.session, 0, ()) for party in self.parties
        }
        number = 0
        with ThreadPoolExecutor(len(self.parties)) as pool:
            while True:
                progress(number)
                turns = dict(zip(self.parties, pool.map(self._ask_party, waiting.items()), strict=True))
                results = {turn.found for turn in turns.values()}
                if results != {None}:
                    break
                rounds = [EngineRound(turn.numbers(), self._deal_of(turn)) for turn in turns.values()]
                driver.deal_of(rounds)
                sealed = self._request_deals(list(turns.values()))
                coded = {party: turn.encode() for party, turn in turns.items()}
                number += 1
                waiting = {
                    party: Continuation(
                        self.session,
                        number,
                        tuple(data for other, data in coded.items() if other != party),
                        sealed[party],
                    )
                    for party in self.parties
                }
        [result] = results if len(results) == 1 else [None]
        if result is None:
            raise RoundAborted("The parties computed different results.", spent=True)
        return result

    def _ask_party(self, item: tuple[str, Continuation]) -> Turn:
        party, message = item
        turn = session.ask(self._transport, party, message, Turn, spent=True)
        if turn.number != message.number:
            raise RoundAborted(f"Party {party!r} is in another round.", spent=True, culprits=(party,))
        return turn

    @staticmethod
    def _deal_of(turn: Turn) -> Deal | None:
        return NeededDeal.decode(turn.needed).deal if turn.needed else None

    def _request_deals(self, turns: Sequence[Turn]) -> dict[str, bytes]:
        """Request a deal from the helper and return each party's part."""
        if not turns[0].needed:
            return dict.fromkeys(self.parties, b"")
        request = DealRequest(self.session, turns[0].needed, tuple(turn.asked for turn in turns))
        reply: Any = session.ask(self._transport, self.helper, request, DealtShares, spent=True)
        if len(reply.sealed) != len(self.parties):
            raise RoundAborted(
                "The helper dealt for the wrong number of parties.", spent=True, culprits=(self.helper,)
            )
        self.cost.dealt += sum(map(len, reply.sealed))
        return dict(zip(self.parties, reply.sealed, strict=True))
