"""A user of secure aggregation: one record, one vote per round, bytes in and bytes out.

The server learns the sum of the votes of all users on the list of survivors, and who they are; other users
learn which of their neighbours participate. A refused message changes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.keys import KEY_SIZE, SIGNATURE_SIZE, AgreementKey, SigningKey
from masquerade.crypto.shamir import SHARE_SIZE, deal, decode_share, new_seed
from masquerade.protocols.people.ledger import Enrolled, PersonLedger
from masquerade.protocols.people.reports import reports_of
from masquerade.protocols.secure_aggregation import circle, masks
from masquerade.protocols.secure_aggregation import messages as wire
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms, QuestionBatch, RoundContext
from masquerade.protocols.secure_aggregation.circle import Graph, complete_graph, leaves_near, read_shown
from masquerade.protocols.secure_aggregation.history import SumHistory
from masquerade.protocols.secure_aggregation.messages import MessageRefused, RoundMessage, UserMessage

if TYPE_CHECKING:
    from masquerade.protocols.noise_shares import NoiseShares


@dataclass(slots=True, repr=False)
class RoundState:
    """State of a user in one round; its neighbours get shares of the seeds."""

    context: RoundContext
    batch: QuestionBatch
    turn: int
    expected: type[RoundMessage] = wire.Neighbours
    sealing: AgreementKey = field(default_factory=AgreementKey)
    mask_seed: bytes = field(default_factory=new_seed)
    own_seed: bytes = field(default_factory=new_seed)
    nonces: dict[int, bytes] = field(default_factory=dict)
    revealed: set[int] = field(default_factory=set)
    graph: Graph = field(default_factory=lambda: complete_graph(0))
    near: list[int] = field(default_factory=list)
    mask_keys: list[bytes | None] = field(default_factory=list)
    secrets: list[bytes | None] = field(default_factory=list)
    held: list[bytes | None] = field(default_factory=list)
    surviving: list[bool] = field(default_factory=list)
    about: bytes = b""


class AggregationUser(Enrolled):
    """One enrolled person: `receive` takes the server's messages in sequence and returns the replies.

    `record` has truth codes by variable. The vote contains the reports, which are drawn once if the policy
    disguises any variable. A user enforces these rules, whatever the server sends:

    - one vote per round, recorded before it is sent;
    - a sum has at least the minimum of users;
    - later rounds have the same users, or fewer, if enough have left that the difference hides each of them;
    - one list of survivors per round, without a neighbour who sent no shares, and (against a malicious
      server) signed by a quorum of witnesses with the same earlier lists;
    - for each neighbour, either the share of its own mask or the share of its key, never both.

    With noise, a user draws its shares of noise once per round, after recording the tables as spent. All
    sessions of the same agreement together use at most the agreed number of tables.
    """

    def __init__(
        self,
        name: str,
        identity: SigningKey,
        record: Mapping[str, int],
        terms: AggregationTerms,
        *,
        ledger: PersonLedger | None = None,
        work: wire.Work | None = None,
    ) -> None:
        super().__init__(name, identity, terms.roster, ledger)
        self.terms, self.place, self.work = terms, terms.roster.places[name], work or wire.Work()
        self._reports = reports_of(record, terms.policy, name, self._ledger)
        self._history = SumHistory(self._ledger, terms)
        self._noise = _noise_shares(terms, self._ledger)
        self._round: RoundState | None = None
        self._handlers: dict[type[RoundMessage], Callable[[RoundState, Any], bytes | None]] = {
            wire.RoundCall: self._commit,
            wire.Commitments: self._reveal,
            wire.Neighbours: self._share,
            wire.Delivery: self._vote,
            wire.Survivors: self._stand,
            wire.Endorsements: self._confirm,
        }

    def receive(self, message: bytes) -> bytes | None:
        """Return the reply to a message of the server, None if there is no reply.

        Raises `DecodingError`, `MessageRefused`, or `QueryRefused` if a rule of the user forbids it; the
        state is then unchanged.
        """
        kind = wire.kind_of(message)
        if kind is wire.Announcement:
            return self._join(message)
        now, handler = self._round, self._handlers.get(kind)
        due = wire.Neighbours if kind in wire.DRAWING else kind
        if now is None or handler is None or now.expected is not due:
            raise MessageRefused(f"A message of type {kind.NAME} is out of sequence.")
        context = now.context.opening if kind in wire.DRAWING else now.context
        try:
            return handler(now, kind.parse(message, context))
        except KeySpent:
            reason = "this user has voted or endorsed a list in another process in the meantime"
            raise QueryRefused([Refusal("already_spent", reason)]) from None

    def _join(self, message: bytes) -> bytes:
        asked = wire.Announcement.decode(message, self.terms)
        try:
            batch = QuestionBatch(asked.questions, self.terms.sizes)
        except InputError as error:
            raise DecodingError(str(error)) from None
        context = RoundContext.of(self.terms, asked.nonce, asked.number, batch)
        if asked.round != context.tag:
            raise MessageRefused("The message belongs to another round.")
        now = self._round
        if now is not None and now.context.session == context.session and now.context.round >= context.round:
            same = now.context == context
            reason = "was announced already" if same else "was announced before with different questions"
            raise MessageRefused(f"Round {context.round} {reason}.")
        parameters = self.terms.parameters
        if parameters.users < parameters.minimum:
            reason = f"{parameters.users} users are enrolled, but at least {parameters.minimum} are needed"
            raise QueryRefused([Refusal("roster_too_small", reason)])
        turn = self._history.turn()
        refusal = self._history.against_joining(context)
        if refusal is None and self._noise is not None:
            refusal = self._noise.refusal(batch.queries)
        if refusal is not None:
            raise QueryRefused([refusal])
        new = RoundState(context, batch, turn)
        self._round = new
        masking = masks.mask_key_pair(new.mask_seed, context.info).public
        return self._seal(wire.AggregationAdvert, new, new.sealing.public, masking)

    def _commit(self, now: RoundState, said: wire.RoundCall) -> bytes:
        if self.place not in circle.members(now.context, said.attempt, self.terms):
            raise MessageRefused("This user is not in the committee that draws the graph.")
        nonce = now.nonces.setdefault(said.attempt, secrets.token_bytes(wire.NONCE_SIZE))
        fixed = circle.commitment_to(now.context, said.attempt, self.place, nonce)
        return self._seal(wire.Commitment, now, said.attempt, fixed)

    def _reveal(self, now: RoundState, said: wire.Commitments) -> bytes:
        attempt, nonce = said.attempt, now.nonces.get(said.attempt)
        if nonce is None or attempt in now.revealed:
            raise MessageRefused("This user has no nonce to reveal, or has revealed it already.")
        at = circle.members(now.context, attempt, self.terms).index(self.place)
        if said.commitments[at] != circle.commitment_to(now.context, attempt, self.place, nonce):
            raise MessageRefused("This user's own commitment was replaced.", ["the server"])
        now.revealed.add(attempt)
        about = circle.commitments_hash(now.context, attempt, said.commitments)
        return self._seal(wire.Reveal, now, attempt, nonce, about=about)

    def _share(self, now: RoundState, said: wire.Neighbours) -> bytes:
        graph = self._graph(now, said)
        near = list(graph.around(self.place))
        there = [slot for slot, item in enumerate(said.adverts) if item is not None]
        self._require(len(there), "advertised")
        xs = [slot + 1 for slot in there]
        threshold, info = self.terms.parameters.threshold, now.context.info
        own, key = deal(now.own_seed, threshold, xs), deal(now.mask_seed, threshold, xs)
        mask_keys, agreed, sealed = [list[bytes | None]([None] * len(near)) for _ in range(3)]
        for i, slot in enumerate(there):
            keys = self._checked_advert(now, near[slot], said.adverts[slot] or b"")
            secret = self.work.agree(now.sealing, keys[:KEY_SIZE], masks.SEALING, info, 2 * KEY_SIZE)
            mask_keys[slot], agreed[slot] = keys[KEY_SIZE:], secret
            sealed[slot] = masks.seal_shares(secret, self.place, near[slot], own[i] + key[i], info)
        promise = masks.seed_promise(now.own_seed, info)
        reply = self._seal(wire.Shares, now, promise, tuple(sealed))
        self._history.settle(now.context, graph.key)
        now.graph, now.near, now.expected = graph, near, wire.Delivery
        now.mask_keys, now.secrets = mask_keys, agreed
        return reply

    def _vote(self, now: RoundState, said: wire.Delivery) -> bytes:
        held = [
            None if item is None else self._open_item(now, slot, item)
            for slot, item in enumerate(said.sealed_shares)
        ]
        there = [item is not None for item in held]
        self._require(sum(there), "sent shares")
        vector = self._mask(now, held)
        self._history.spend(now.context, now.turn)
        if self._noise is not None:
            vector = self._add_noise(now, self._noise, vector)
        now.held, now.expected = held, wire.Survivors
        return self._seal(wire.Vote, now, there, vector)

    def _mask(self, now: RoundState, held: Sequence[bytes | None]) -> bytes:
        """Return the vote under the user's own mask and the masks shared with neighbours that sent shares."""
        width, length, info = self.terms.width, now.batch.length, now.context.info
        pair = masks.mask_key_pair(now.mask_seed, info)
        keys = {
            now.near[slot]: self.work.agree(pair, now.mask_keys[slot] or b"", masks.MASKING, info)
            for slot, item in enumerate(held)
            if item is not None
        }
        own = masks.mask(masks.own_mask_key(now.own_seed, info), length, width)
        added = [masks.mask(key, length, width) for other, key in keys.items() if self.place < other]
        taken = [masks.mask(key, length, width) for other, key in keys.items() if self.place > other]
        vote = now.batch.vote(self._reports, width)
        return masks.total([vote, own, *added], taken, length, width)

    def _add_noise(self, now: RoundState, noise: NoiseShares, vector: bytes) -> bytes:
        """Return the masked vote with this user's shares of noise, after they were spent durably."""
        context, sizes = now.context, self.terms.sizes
        cells = [question.cells(sizes) for question in now.batch.questions]
        name = context.session + context.round.to_bytes(4, "big")
        shares = noise.draw_cells(name, now.batch.queries, cells)
        added = shares.astype(f"<u{context.width}").tobytes()
        return masks.total([vector, added], [], context.length, context.width)

    def _stand(self, now: RoundState, said: wire.Survivors) -> bytes | None:
        parameters = self.terms.parameters
        graph = now.graph
        shown = read_shown(said.stretch, leaves_near(graph, self.place), graph.users)
        if not shown.bits[graph.position[self.place]]:
            raise MessageRefused("This user is not on the list of survivors.")
        surviving = [shown.bits[graph.position[other]] for other in now.near]
        for other, there, held in zip(now.near, surviving, now.held, strict=True):
            if there and held is None:
                name = self.terms.roster.names[other]
                raise MessageRefused(f"The list counts {name!r}, who sent no shares.", ["the server"])
        self._require(sum(surviving), "survived")
        refusal = self._history.against_standing(now.context, shown)
        if refusal is not None:
            raise QueryRefused([refusal])
        about = shown.root + self._history.past(now.context.session)
        self._history.stand(now.context, shown)
        now.surviving, now.about = surviving, about
        if parameters.server == "semi-honest":
            return self._unmask(now)
        now.expected = wire.Endorsements
        if self.place not in graph.witnesses(parameters.witnesses):
            return None
        return self._seal(wire.Endorsement, now, about=about)

    def _confirm(self, now: RoundState, said: wire.Endorsements) -> bytes:
        parameters = self.terms.parameters
        signed = 0
        for place, signature in zip(now.graph.witnesses(parameters.witnesses), said.signatures, strict=True):
            if signature is not None:
                self._signer(place).check(wire.Endorsement, now.context, b"", signature, now.about)
                signed += 1
        if signed < parameters.quorum:
            least = parameters.quorum
            raise MessageRefused(
                f"Only {signed} witnesses signed the list of survivors; at least {least} must."
            )
        return self._unmask(now)

    def _unmask(self, now: RoundState) -> bytes:
        """Return one share per neighbour: of its own mask if it survived, else of its key."""
        shares = tuple(
            None if held is None else held[:SHARE_SIZE] if alive else held[SHARE_SIZE:]
            for held, alive in zip(now.held, now.surviving, strict=True)
        )
        reply = self._seal(wire.Unmasking, now, shares, about=now.about)
        # neither the others' shares nor the seeds are needed any more
        now.expected, now.held, now.secrets, now.own_seed, now.mask_seed = wire.Unmasking, [], [], b"", b""
        return reply

    def _graph(self, now: RoundState, said: wire.Neighbours) -> Graph:
        if self.terms.parameters.complete:
            if said.attempt:
                raise MessageRefused("If all users are neighbours, no graph is drawn.", ["the server"])
            return complete_graph(self.terms.parameters.users)
        graph = circle.checked_graph(said, now.context, self.terms, self.work)
        if self._history.graph(now.context.session) not in {None, graph.key}:
            raise MessageRefused("The session's graph has changed.", ["the server"])
        return graph

    def _checked_advert(self, now: RoundState, other: int, item: bytes) -> bytes:
        """Return a neighbour's two public keys, signed by its identity."""
        keys, signature = item[: wire.ADVERT_SIZE], item[wire.ADVERT_SIZE :]
        self._signer(other).check(wire.AggregationAdvert, now.context, keys, signature, b"")
        return keys

    def _open_item(self, now: RoundState, slot: int, item: bytes) -> bytes:
        other, secret = now.near[slot], now.secrets[slot]
        if secret is None:
            raise MessageRefused("Shares came from a neighbour without an advert.")
        try:
            both = masks.open_shares(secret, other, self.place, item, now.context.info)
            decode_share(both[:SHARE_SIZE])
            decode_share(both[SHARE_SIZE:])
        except (SealBroken, DecodingError):
            name = self.terms.roster.names[other]
            raise MessageRefused(
                f"The shares of {name!r} differ from those that it sealed.", [name]
            ) from None
        return both

    def _seal(self, kind: type[UserMessage], now: RoundState, *fields: object, about: bytes = b"") -> bytes:
        context = now.context.opening if kind in wire.DRAWING else now.context
        unsigned = kind(context.tag, bytes(SIGNATURE_SIZE), *fields)
        return unsigned.encode_signed(self._identity, context, about)

    def _signer(self, place: int) -> wire.Signer:
        return wire.Signer.at(place, self.terms, self.work)

    def _require(self, number: int, what: str) -> None:
        threshold = self.terms.parameters.threshold
        if number < threshold:
            raise MessageRefused(f"Only {number} neighbours {what}; at least {threshold} must have.")


def _noise_shares(terms: AggregationTerms, ledger: PersonLedger) -> NoiseShares | None:
    """Return a user's shares of noise, with the user's ledger; None without noise."""
    if terms.noise is None:
        return None
    from masquerade.protocols.noise_shares import NoiseShares  # noqa: PLC0415  (loads numpy)

    return NoiseShares(terms.noise, ledger, terms.agreement)
