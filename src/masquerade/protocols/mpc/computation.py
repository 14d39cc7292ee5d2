"""A computation on shares between members of a session, its rounds carried by whoever convenes.

Every party runs the program itself, so whoever carries chooses no question. What a party shows in a round is
signed, with the session, its roster and the number of the round. The helper deals what all parties signed
that they need, sealed for each: an owner gets keys of its own masks and nobody else's. Whoever carries can
therefore stop a computation, but change nothing in it; it sees masked numbers pass by and what is opened.

Keys are fresh, live in memory only, and a party that shows anything has the computation burnt on the disk
before: one that was interrupted is never taken up again. Another begins with other keys, from the start.
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
from masquerade.crypto.errors import KeySpent, SealBroken
from masquerade.crypto.keys import SIGNATURE_SIZE, SigningKey, derive, verify_signature
from masquerade.crypto.symmetric import seal, unseal
from masquerade.protocols.mpc.dealer import Dealer, Keys, local_keys
from masquerade.protocols.mpc.engine import Cost, Deal, Driver, Reply, Round, Steps, Words
from masquerade.protocols.wire import codec, session

MOST_BYTES = 1 << 29  # of one party's numbers in a round, or of what it is dealt
MOST_SIZES = 1 << 20
MOST_RESULT = 1 << 24
TURN, ASKED = "turn of a computation", "deal of a computation"  # what signatures are about
SECRET, SEALED = "hidden computation", "hidden deal"
CARRIER = "whoever carries the rounds"

Bytes = Annotated[bytes, codec.Blob(MOST_BYTES)]
Width = Annotated[int, codec.OneOf(codec.Number(1), (2, 4, 8))]
Need = Annotated[bytes, codec.Blob(8 * MOST_SIZES + 1000)]
Sizes = Annotated[Words, codec.Array("<u8", MOST_SIZES)]


class NeededDeal(codec.SessionMessage, tag=b"masquerade hidden need 1", eq=False):
    """The randomness of one number, as parties sign that they need it."""

    number: codec.U64
    kind: codec.Name
    sizes: Sizes

    @classmethod
    def of(cls, session: bytes, deal: Deal) -> NeededDeal:
        """Return a deal as a message."""
        return cls(session, deal.number, deal.kind, np.array(deal.sizes, dtype=np.uint64))

    @property
    def deal(self) -> Deal:
        """Return the deal that the message asks for."""
        return Deal(self.number, self.kind, tuple(map(int, self.sizes)))


class DealRequest(codec.SessionMessage, tag=b"masquerade hidden deal 1"):
    """Ask the helper for what all parties need, each of which has signed it, in the order of the roster."""

    needed: Need
    signatures: Annotated[tuple[codec.Signature, ...], codec.Many(codec.MOST_PARTIES)]


class Dealt(codec.SessionMessage, tag=b"masquerade hidden dealt 1"):
    """What the helper deals, sealed for each party in the order of the roster."""

    sealed: Annotated[tuple[Bytes, ...], codec.Many(codec.MOST_PARTIES)]


class Turn(codec.SessionMessage, tag=b"masquerade hidden turn 1"):
    """What a party shows in a round, signed, and the deal it needs to go on; or what it has found."""

    number: codec.U64
    width: Width
    words: Bytes
    needed: Need = b""
    asked: codec.Signature = bytes(SIGNATURE_SIZE)
    found: Annotated[str, codec.Text(MOST_RESULT)] | None = None
    signature: codec.Signature = bytes(SIGNATURE_SIZE)

    def signed(self, roster: bytes) -> tuple[bytes, ...]:
        """Return what the signature covers: session, roster, round, and every number."""
        told = b"" if self.found is None else b"1" + self.found.encode()
        facts = (self.number.to_bytes(8, "big"), bytes([self.width]), self.needed, told)
        return self.session, roster, *facts, hashlib.sha256(self.words).digest()

    def numbers(self) -> Words:
        """Return the numbers that are shown."""
        if len(self.words) % self.width:
            raise InputError("The numbers of a round end inside a number.")
        kind = np.dtype(f"<u{self.width}")
        return np.frombuffer(self.words, dtype=kind).astype(kind.newbyteorder("="), copy=False)


class Continuation(codec.SessionMessage, tag=b"masquerade hidden next 1"):
    """Take the turn of this number: what the others showed in the one before, and what was dealt for it."""

    number: codec.U64
    turns: Annotated[tuple[Annotated[bytes, codec.Blob(MOST_BYTES + 1000)], ...], codec.Many(1000)]
    sealed: Bytes = b""


class ComputingParty(session.Member):
    """A party of a computation: it takes one turn after the other, each once.

    `program` is given the keys that this party shares with the helper, by purpose and number, and yields its
    rounds; what it returns, as a text, is what was found. `burn` is told the computation before anything is
    shown, and raises if it was burnt before.
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
        self._next, self._mine = 0, Round(np.zeros(0, dtype=np.uint64))
        self.handlers |= {Continuation: self._go_on}

    def _check_offer(self, offer: session.SessionOffer) -> None:
        if offer.roster != (*self._parties, self._helper):
            raise InputError("The computation is offered to others than agreed, or in another order.")

    def _go_on(self, message: Continuation) -> Turn:
        """Take a turn; whatever goes wrong, nothing is shown in this computation ever after."""
        due, self._next = self._next, -1
        if message.number != due or due < 0:
            raise KeySpent("Every turn of a computation is taken once, in order; this one is over.")
        try:
            if due == 0:
                self._burn(message.session)
                self._secret = self.secret(self._helper, SECRET)
                self._steps = self._program(self._key_of)
                step = next(self._steps)
            elif self._steps is None:
                raise KeySpent("This computation is over.")
            else:
                step = self._steps.send(self._told(message))
        except StopIteration as end:
            self._steps = None
            return self._signed(Turn(message.session, due, 8, b"", found=str(end.value)))
        self._mine, self._next = step, due + 1
        words = np.ascontiguousarray(step.words)
        data = words.astype(words.dtype.newbyteorder("<"), copy=False).tobytes()
        turn = Turn(message.session, due, words.itemsize, data)
        if step.deal is not None:
            needed = NeededDeal.of(message.session, step.deal).encode()
            turn = replace(turn, needed=needed, asked=self._identity.sign(ASKED, self.roster, needed))
        return self._signed(turn)

    def _key_of(self, purpose: str, number: int) -> bytes:
        return derive(self._secret, "hidden " + purpose, number.to_bytes(8, "big"))

    def _signed(self, turn: Turn) -> Turn:
        return replace(turn, signature=self._identity.sign(TURN, *turn.signed(self.roster)))

    def _told(self, message: Continuation) -> Reply:
        """Return what everybody showed, as they signed it, and what was dealt for what was asked for."""
        others = [name for name in self._parties if name != self.name]
        if len(message.turns) != len(others):
            raise InputError("Every other party's turn is needed to go on.")
        shown = {self.name: self._mine.words}
        for name, data in zip(others, message.turns, strict=True):
            turn = Turn.decode(data)
            try:
                verify_signature(self._peers[name], turn.signature, TURN, *turn.signed(self.roster))
            except SealBroken:
                reason = f"The turn of party {name!r} is not as it signed it: it was changed on the way."
                raise RoundAborted(reason, spent=True, culprits=(CARRIER,)) from None
            if turn.number != message.number - 1 or turn.session != message.session:
                raise RoundAborted(
                    f"Party {name!r} is at another turn, or an old one was repeated.",
                    spent=True,
                    culprits=(CARRIER,),
                )
            shown[name] = turn.numbers()
        words = tuple(shown[name] for name in self._parties)
        return Reply(words, self._opened(message))

    def _opened(self, message: Continuation) -> bytes:
        deal = self._mine.deal
        if deal is None:
            if message.sealed:
                raise InputError("Nothing was to be dealt for this turn.")
            return b""
        asked = NeededDeal.of(message.session, deal).encode()
        return unseal(sealing_key(self._secret, deal), message.sealed, asked)


def sealing_key(secret: bytes, deal: Deal) -> bytes:
    """Return the key that seals what is dealt for a number, of the helper and one party."""
    return derive(secret, SEALED, deal.number.to_bytes(8, "big"))


class DealingHelper(session.Member):
    """The helper of a computation: it deals for every number once, sealed for each party."""

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
            raise InputError("The computation is offered to others than agreed, or in another order.")

    def _deal(self, request: DealRequest) -> Dealt:
        if self._dealer is None:
            self._secrets = {party: self.secret(party, SECRET) for party in self._parties}
            keys: Keys = local_keys(self._secrets)
            self._dealer = Dealer(self._parties, keys)
        self._check_asked(request)
        needed = NeededDeal.decode(request.needed)
        session.check_session(needed.session, request.session)
        deal, asked = needed.deal, request.needed
        dealt = self._dealer.deal(deal)
        return Dealt(
            request.session,
            tuple(
                seal(sealing_key(self._secrets[party], deal), dealt.get(party, b""), asked)
                for party in self._parties
            ),
        )

    def _check_asked(self, request: DealRequest) -> None:
        """Refuse to deal what parties did not ask for: an owner gets the keys of masks that it names."""
        if len(request.signatures) != len(self._parties):
            raise InputError("What is dealt has to be asked for by every party.")
        for party, signature in zip(self._parties, request.signatures, strict=True):
            try:
                verify_signature(self._peers[party], signature, ASKED, self.roster, request.needed)
            except SealBroken:
                reason = f"Party {party!r} did not sign that it needs this deal."
                raise RoundAborted(reason, spent=True, culprits=(CARRIER,)) from None


class Computation:
    """Whoever convenes: carries rounds between parties, and deals from the helper to them."""

    def __init__(
        self, parties: Sequence[str], helper: str, transport: session.Transport, agreement: bytes
    ) -> None:
        session.check_names((*parties, helper))
        self.parties, self.helper, self._transport = tuple(parties), helper, transport
        self.session, self.cost = os.urandom(codec.SESSION_SIZE), Cost()
        session.convene((*parties, helper), transport, self.session, agreement)

    def found(self, progress: Callable[[int], object] = lambda _: None) -> str:
        """Return what all parties found, the same; `progress` is told the number of every round."""
        driver = Driver(self.parties, self.cost)
        waiting: dict[str, Continuation] = {
            party: Continuation(self.session, 0, ()) for party in self.parties
        }
        number = 0
        with ThreadPoolExecutor(len(self.parties)) as pool:
            while True:
                progress(number)
                turns = dict(zip(self.parties, pool.map(self._asked, waiting.items()), strict=True))
                results = {turn.found for turn in turns.values()}
                if results != {None}:
                    break
                rounds = [Round(turn.numbers(), self._deal_of(turn)) for turn in turns.values()]
                driver.deal_of(rounds)
                sealed = self._dealt(list(turns.values()))
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
            raise RoundAborted("The parties did not find the same.", spent=True)
        return result

    def _asked(self, item: tuple[str, Continuation]) -> Turn:
        party, message = item
        turn = session.ask(self._transport, party, message, Turn, spent=True)
        if turn.number != message.number:
            raise RoundAborted(f"Party {party!r} is at another turn.", spent=True, culprits=(party,))
        return turn

    @staticmethod
    def _deal_of(turn: Turn) -> Deal | None:
        return NeededDeal.decode(turn.needed).deal if turn.needed else None

    def _dealt(self, turns: Sequence[Turn]) -> dict[str, bytes]:
        """Return what the helper deals to every party for what all of them need."""
        if not turns[0].needed:
            return dict.fromkeys(self.parties, b"")
        request = DealRequest(self.session, turns[0].needed, tuple(turn.asked for turn in turns))
        reply: Any = session.ask(self._transport, self.helper, request, Dealt, spent=True)
        if len(reply.sealed) != len(self.parties):
            raise RoundAborted(
                "The helper dealt for another number of parties.", spent=True, culprits=(self.helper,)
            )
        self.cost.dealt += sum(map(len, reply.sealed))
        return dict(zip(self.parties, reply.sealed, strict=True))
