"""A user of secure aggregation: one record, one vote a round, bytes in and bytes out.

Who learns what: the server learns the sum of the votes of all who stand on the list of survivors, and who
they are; other users learn which of their neighbours take part. A message that is refused changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.keys import KEY_SIZE, SIGNATURE_SIZE, SigningKey
from masquerade.protocols.aggregation import committee, masks
from masquerade.protocols.aggregation.crypto_cache import Work
from masquerade.protocols.aggregation.graph import Graph, complete_graph
from masquerade.protocols.aggregation.history import History
from masquerade.protocols.aggregation.messages import (
    Kind,
    MessageRefused,
    body_of,
    bundle,
    check_signature,
    kind_of,
    pack_bits,
    signed,
    unbundle,
)
from masquerade.protocols.aggregation.record import Record
from masquerade.protocols.aggregation.roster import NONCE_SIZE, Terms
from masquerade.protocols.aggregation.round_state import (
    ADVERT_SIZE,
    MASKING,
    SEALED_SIZE,
    SEALING,
    Round,
    open_shares,
    own_commitment,
    read_announcement,
    seal_shares,
)
from masquerade.protocols.aggregation.seed_shares import SHARE_SIZE, deal, decode_share
from masquerade.protocols.aggregation.survivor_tree import leaves_near, read_shown
from masquerade.protocols.people.ledger import Ledger


class User:
    """One enrolled person: `receive` takes the server's messages in turn and returns what to send back.

    Rules of its own, whatever the server says: a vote leaves once a round and is recorded before; a sum
    needs the minimum of users; after a first round only all of them, or so many fewer that the difference
    hides each; only one list of survivors is stood on, and (malicious server) only if enough neighbours
    signed the same; of a neighbour either the share of its own mask or that of its key leaves, never both.
    """

    def __init__(
        self,
        place: int,
        key: SigningKey,
        terms: Terms,
        record: Record,
        ledger: Ledger,
        *,
        work: Work | None = None,
    ) -> None:
        if terms.roster.identities[place] != key.public:
            raise InputError("The identity key is not the one enrolled at this place of the roster.")
        if record.policy != terms.policy or len(record.codes) != len(terms.sizes):
            raise InputError("The record was not made by the policy that was agreed on.")
        self.place, self.terms = place, terms
        self._key, self._record = key, record
        self._history = History(ledger, terms)
        self.work = work or Work()
        self._round: Round | None = None
        self._handlers: dict[Kind, Callable[[Round, bytes], bytes | None]] = {
            Kind.CALL: self._commit,
            Kind.COMMITMENTS: self._reveal,
            Kind.NEIGHBOURS: self._share,
            Kind.DELIVERY: self._vote,
            Kind.SURVIVORS: self._stand,
            Kind.ENDORSEMENTS: self._confirm,
        }

    def receive(self, message: bytes) -> bytes | None:
        """Return the reply to a message of the server.

        Raises `DecodingError`, `MessageRefused`, or `QueryRefused` where a rule of the user's own forbids
        it; its state is then as before.
        """
        kind = kind_of(message)
        if kind is Kind.ANNOUNCEMENT:
            return self._join(message)
        now = self._round
        handler = self._handlers.get(kind)
        drawing_now = kind in (Kind.CALL, Kind.COMMITMENTS)
        if now is None or handler is None or now.expected is not (Kind.NEIGHBOURS if drawing_now else kind):
            raise MessageRefused(f"A message of the kind {kind.name.lower()} is out of turn.")
        body = body_of(message, now.context.opening if drawing_now else now.context)
        try:
            return handler(now, body)
        except KeySpent:
            reason = "this user, in another process, has voted or stood on a list in the meantime"
            raise QueryRefused([Refusal("already_spent", reason)]) from None

    def _join(self, message: bytes) -> bytes:
        context, batch = read_announcement(message, self.terms)
        now = self._round
        if now is not None and now.context.session == context.session and now.context.round >= context.round:
            same = now.context == context
            reason = "was announced already" if same else "was announced before with other questions"
            raise MessageRefused(f"Round {context.round} {reason}.")
        parameters = self.terms.parameters
        if parameters.users < parameters.minimum:
            reason = f"{parameters.users} users are enrolled, at least {parameters.minimum} must be"
            raise QueryRefused([Refusal("roster_too_small", reason)])
        turn = self._history.turn()
        refusal = self._history.against_joining(context)
        if refusal is not None:
            raise QueryRefused([refusal])
        new = Round(context, batch, Kind.NEIGHBOURS, turn)
        self._round = new
        public = masks.mask_key_pair(new.mask_seed, context.info).public
        return signed(Kind.ADVERT, context, new.sealing.public + public, self._key)

    def _commit(self, now: Round, body: bytes) -> bytes:
        attempt = committee.read_call(body)
        if self.place not in committee.members(now.context, attempt, self.terms):
            raise MessageRefused("This user is not among those who draw the graph.")
        nonce = now.nonces.setdefault(attempt, os.urandom(NONCE_SIZE))
        fixed = committee.commitment(now.context.opening.info, attempt, self.place, nonce)
        return signed(Kind.COMMITMENT, now.context.opening, bytes([attempt]) + fixed, self._key)

    def _reveal(self, now: Round, body: bytes) -> bytes:
        attempt, commitments = committee.read_commitments(body, self.terms)
        nonce = now.nonces.get(attempt)
        if nonce is None or attempt in now.revealed:
            raise MessageRefused("This user has no nonce to reveal, or has revealed it already.")
        at = committee.members(now.context, attempt, self.terms).index(self.place)
        if commitments[at] != committee.commitment(now.context.opening.info, attempt, self.place, nonce):
            raise MessageRefused("This user's own commitment was replaced.", ["the server"])
        now.revealed.add(attempt)
        about = committee.commitments_hash(now.context.opening.info, attempt, commitments)
        return signed(Kind.REVEAL, now.context.opening, bytes([attempt]) + nonce, self._key, about)

    def _share(self, now: Round, body: bytes) -> bytes:
        graph, rest = self._graph(now, body)
        near = list(graph.around(self.place))
        items = unbundle(rest, len(near), ADVERT_SIZE + SIGNATURE_SIZE)
        there = [slot for slot, item in enumerate(items) if item is not None]
        self._require(len(there), "advertised")
        xs = [slot + 1 for slot in there]
        threshold, info = self.terms.parameters.threshold, now.context.info
        own, key = deal(now.own_seed, threshold, xs), deal(now.mask_seed, threshold, xs)
        mask_keys, secrets, sealed = [list[bytes | None]([None] * len(near)) for _ in range(3)]
        for i, slot in enumerate(there):
            keys = self._checked_advert(now, near[slot], items[slot] or b"")
            secret = self.work.agree(now.sealing, keys[:KEY_SIZE], SEALING, info, 2 * KEY_SIZE)
            mask_keys[slot], secrets[slot] = keys[KEY_SIZE:], secret
            sealed[slot] = seal_shares(secret, self.place, near[slot], own[i] + key[i], info)
        promise = own_commitment(now.own_seed, now.context)
        reply = signed(Kind.SHARES, now.context, promise + bundle(sealed), self._key)
        self._history.settle(now.context, graph.key)
        now.graph, now.near, now.expected = graph, near, Kind.DELIVERY
        now.mask_keys, now.secrets = mask_keys, secrets
        return reply

    def _vote(self, now: Round, body: bytes) -> bytes:
        items = unbundle(body, len(now.near), SEALED_SIZE)
        held: list[bytes | None] = [None] * len(items)
        for slot, item in enumerate(items):
            if item is not None:
                held[slot] = self._opened(now, slot, item)
        self._require(sum(item is not None for item in held), "sent shares")
        vector = self._masked(now, held)
        self._history.spend(now.context, now.turn)
        now.held, now.expected = held, Kind.SURVIVORS
        body = pack_bits([item is not None for item in held]) + vector.tobytes()
        return signed(Kind.INPUT, now.context, body, self._key)

    def _masked(self, now: Round, held: Sequence[bytes | None]) -> masks.Ring:
        """Return the vote under its own mask and those shared with every neighbour that sent shares."""
        width, length, info = self.terms.width, now.batch.length, now.context.info
        pair = masks.mask_key_pair(now.mask_seed, info)
        keys = {
            now.near[slot]: self.work.agree(pair, now.mask_keys[slot] or b"", MASKING, info)
            for slot, item in enumerate(held)
            if item is not None
        }
        own = masks.mask(masks.own_mask_key(now.own_seed, info), length, width)
        added = [masks.mask(key, length, width) for other, key in keys.items() if self.place < other]
        taken = [masks.mask(key, length, width) for other, key in keys.items() if self.place > other]
        vote: masks.Ring = now.batch.vote(self._record.codes, width)
        return vote + own + masks.total(added, length, width) - masks.total(taken, length, width)

    def _stand(self, now: Round, body: bytes) -> bytes:
        graph = now.graph or complete_graph(self.terms.parameters.users)
        shown = read_shown(body, leaves_near(graph, self.place), graph.users)
        if not shown.bits[graph.position[self.place]]:
            raise MessageRefused("This user is not on the list of survivors.")
        surviving: NDArray[np.bool_] = shown.bits[graph.position[now.near]]
        self._require(int(surviving.sum()), "survived")
        refusal = self._history.against_standing(now.context, shown)
        if refusal is not None:
            raise QueryRefused([refusal])
        about = shown.root.encode() + self._history.previous(now.context.session)
        self._history.stand(now.context, shown)
        now.surviving, now.about = surviving.tolist(), about
        if self.terms.parameters.server == "semi-honest":
            return self._unmask(now)
        now.expected = Kind.ENDORSEMENTS
        return signed(Kind.ENDORSEMENT, now.context, b"", self._key, about)

    def _confirm(self, now: Round, body: bytes) -> bytes:
        items = unbundle(body, len(now.near), SIGNATURE_SIZE)
        for slot, item in enumerate(items):
            if item is None:
                continue
            signer = self.terms.roster.signer(now.near[slot])
            if not now.surviving[slot]:
                raise MessageRefused("A user that is not on the list signed it.", [signer.name])
            kind, context = Kind.ENDORSEMENT, now.context
            check_signature(kind, context, b"", item, signer, work=self.work, about=now.about)
        self._require(sum(item is not None for item in items), "signed the list of survivors")
        return self._unmask(now)

    def _unmask(self, now: Round) -> bytes:
        """Return, of every neighbour, the share of its own mask if it survived, else that of its key."""
        shares = [
            None if held is None else held[:SHARE_SIZE] if alive else held[SHARE_SIZE:]
            for held, alive in zip(now.held, now.surviving, strict=True)
        ]
        reply = signed(Kind.UNMASKING, now.context, bundle(shares), self._key, now.about)
        # what was kept for others, and the seeds, serve nothing any more
        now.expected, now.held, now.secrets, now.own_seed, now.mask_seed = Kind.UNMASKING, [], [], b"", b""
        return reply

    def _graph(self, now: Round, body: bytes) -> tuple[Graph, bytes]:
        if self.terms.parameters.complete:
            return complete_graph(self.terms.parameters.users), body
        graph, rest = committee.read_drawn(body, now.context, self.terms, self.work)
        if self._history.graph(now.context.session) not in {None, graph.key}:
            raise MessageRefused("The session has another graph than before.", ["the server"])
        return graph, rest

    def _checked_advert(self, now: Round, other: int, item: bytes) -> bytes:
        """Return a neighbour's two public keys, signed by its identity."""
        keys, signature = item[:ADVERT_SIZE], item[ADVERT_SIZE:]
        signer = self.terms.roster.signer(other)
        check_signature(Kind.ADVERT, now.context, keys, signature, signer, work=self.work)
        return keys

    def _opened(self, now: Round, slot: int, item: bytes) -> bytes:
        other = now.near[slot]
        secret = now.secrets[slot]
        if secret is None:
            raise MessageRefused("Shares came from a neighbour without an advert.")
        try:
            both = open_shares(secret, other, self.place, item, now.context.info)
            decode_share(both[:SHARE_SIZE])
            decode_share(both[SHARE_SIZE:])
        except (SealBroken, DecodingError):
            name = self.terms.roster.names[other]
            raise MessageRefused(f"The shares of {name!r} are not what it sealed.", [name]) from None
        return both

    def _require(self, number: int, what: str) -> None:
        threshold = self.terms.parameters.threshold
        if number < threshold:
            raise MessageRefused(f"Only {number} neighbours {what}; at least {threshold} must have.")
