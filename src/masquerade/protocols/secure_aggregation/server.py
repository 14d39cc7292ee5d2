"""The server (the miner) of one round: it relays sealed shares between users and unmasks the sum.

The server learns the sum of the survivors' votes, who participates and who drops out. It has two methods:
`advance` ends a stage and returns the next messages, `receive` processes a reply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np

from masquerade.core.errors import Refusal, RoundAborted
from masquerade.crypto.errors import SharesInconsistent
from masquerade.crypto.keys import AgreementKey
from masquerade.crypto.shamir import decode_share, open_checked
from masquerade.protocols.people.questions import Counts
from masquerade.protocols.secure_aggregation import circle, masks
from masquerade.protocols.secure_aggregation import messages as wire
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms, QuestionBatch, RoundContext
from masquerade.protocols.secure_aggregation.circle import Graph, SurvivorTree, complete_graph, leaves_near
from masquerade.protocols.secure_aggregation.history import NO_PAST, against_another_list, past_with
from masquerade.protocols.secure_aggregation.messages import MessageRefused, UserMessage

Outgoing = dict[int, bytes]
Drawing = tuple[int, bytes]  # the attempt, and nonces with their signatures
NOT_DRAWN: Drawing = (0, b"")


@dataclass(frozen=True, slots=True)
class AggregationOutcome:
    """The counts of a round, the counted users, and those whose wrong shares were detected and not used.

    `graph`, `drawn` (the messages of its drawing) and `past` (a hash of all lists of survivors so far) are
    kept for later rounds of the session.
    """

    counts: Counts
    survivors: tuple[int, ...]
    past: bytes = NO_PAST
    graph: Graph | None = None
    drawn: Drawing = NOT_DRAWN
    culprits: tuple[str, ...] = ()


class Rounds(Protocol):
    """Interface for counting a batch in one round of all users: in this process or over a network."""

    @property
    def terms(self) -> AggregationTerms:
        """The terms that all users agreed to."""

    def refusals(self) -> list[Refusal]:
        """Return the reasons why no further round would be answered. Has no side effects."""

    def ask(self, batch: QuestionBatch) -> AggregationOutcome:
        """Count a batch; raise `QueryRefused` if it is refused, `RoundAborted` if the round fails."""


class Server:
    """One round. Call `advance` for the messages to send, `receive` for each reply, until `outcome` is set.

    A user who does not reply to a stage has dropped out. Too few replies raise `RoundAborted`.
    """

    def __init__(
        self,
        terms: AggregationTerms,
        nonce: bytes,
        number: int,
        batch: QuestionBatch,
        *,
        before: AggregationOutcome | None = None,
        work: wire.Work | None = None,
    ) -> None:
        self.terms, self.batch = terms, batch
        self.context = RoundContext.of(terms, nonce, number, batch)
        self.outcome: AggregationOutcome | None = None
        self._nonce, self._before, self._work = nonce, before, work or wire.Work()
        self._invited = range(terms.parameters.users) if before is None else before.survivors
        self._graph = None if before is None else before.graph
        self._drawn = NOT_DRAWN if before is None else before.drawn
        self._past = NO_PAST if before is None or not terms.chained else before.past
        self._stage: Callable[[], Outgoing] = self._announce
        self._expected: type[UserMessage] | None = None
        self._asked: set[int] = set()
        self._attempt = -1  # attempts to draw the graph
        self._root = b""
        self._probe = AgreementKey()
        self._said: dict[type[UserMessage], dict[int, Any]] = defaultdict(dict)
        self._promises: dict[int, bytes] = {}
        self._delivered: dict[int, list[bool]] = {}
        self._checks: dict[type[UserMessage], Callable[[int, Any], None]] = {
            wire.AggregationAdvert: self._check_advert,
            wire.Commitment: self._check_commitment,
            wire.Reveal: self._check_reveal,
            wire.Shares: self._check_shares,
            wire.Vote: self._check_vote,
            wire.Endorsement: self._check_endorsement,
            wire.Unmasking: self._check_unmasking,
        }

    @property
    def graph(self) -> Graph:
        """Return the graph of the round; raise an error if it has not been drawn."""
        if self._graph is None:
            raise MessageRefused("The graph has not been drawn yet.")
        return self._graph

    @property
    def witnesses(self) -> tuple[int, ...]:
        """Return the users who sign the list of survivors."""
        return self.graph.witnesses(self.terms.parameters.witnesses)

    def advance(self) -> Outgoing:
        """End the stage and return the messages of the next stage by user; none when the round is over."""
        return self._stage()

    def receive(self, place: int, message: bytes) -> None:
        """Process the reply of a user; a message that is refused (`MessageRefused`) changes nothing."""
        kind, expected = wire.kind_of(message), self._expected
        if expected is None or kind is not expected or place not in self._asked:
            raise MessageRefused(f"A message of type {kind.NAME} is out of sequence.")
        signer = wire.Signer.at(place, self.terms, self._work)
        if place in self._said[expected]:
            raise MessageRefused(f"{signer.name!r} has replied already.", [signer.name])
        context = self.context.opening if expected in wire.DRAWING else self.context
        said = expected.parse_signed(message, context, signer, self._about())
        self._checks[expected](place, said)
        self._said[expected][place] = said

    def _about(self) -> bytes:
        if self._expected is wire.Reveal:
            return circle.commitments_hash(self.context, self._attempt, self._commitments())
        if self._expected in (wire.Endorsement, wire.Unmasking):
            return self._root + self._past
        return b""

    def _next(
        self, stage: Callable[[], Outgoing], expected: type[UserMessage], outgoing: Outgoing
    ) -> Outgoing:
        self._stage, self._expected, self._asked = stage, expected, set(outgoing)
        return outgoing

    def _abort(self, reason: str) -> RoundAborted:
        self._expected, self._stage = None, dict
        return RoundAborted(reason, spent=bool(self._said[wire.Vote]))

    def _announce(self) -> Outgoing:
        announced = wire.Announcement(self.context.tag, self._nonce, self.context.round, self.batch.questions)
        drawn = self.terms.parameters.complete or self._graph is not None
        following = self._show_neighbours if drawn else self._call
        message = announced.encode(self.terms)
        return self._next(following, wire.AggregationAdvert, dict.fromkeys(self._invited, message))

    def _check_advert(self, _place: int, said: wire.AggregationAdvert) -> None:
        for key in (said.sealing, said.masking):
            self._probe.agree(key, "aggregation probe")  # a key of small order would stop all neighbours

    def _members(self) -> list[int]:
        return circle.members(self.context, self._attempt, self.terms)

    def _call(self) -> Outgoing:
        """Call the next committee whose members all advertised keys in this round."""
        self._said[wire.Commitment].clear()
        self._said[wire.Reveal].clear()
        while self._attempt + 1 < wire.MOST_ATTEMPTS:
            self._attempt += 1
            if all(place in self._said[wire.AggregationAdvert] for place in self._members()):
                call = wire.RoundCall(self.context.opening.tag, self._attempt).encode()
                outgoing = dict.fromkeys(self._members(), call)
                return self._next(self._show_commitments, wire.Commitment, outgoing)
        raise self._abort("No committee could draw the graph: too many users did not answer.")

    def _check_commitment(self, _place: int, said: wire.Commitment) -> None:
        if said.attempt != self._attempt:
            raise MessageRefused("The commitment is for a different attempt.")

    def _commitments(self) -> tuple[bytes, ...]:
        return tuple(self._said[wire.Commitment][place].commitment for place in self._members())

    def _show_commitments(self) -> Outgoing:
        if len(self._said[wire.Commitment]) < len(self._members()):
            return self._call()
        shown = wire.Commitments(self.context.opening.tag, self._attempt, self._commitments())
        outgoing = dict.fromkeys(self._members(), shown.encode(self.context))
        return self._next(self._draw, wire.Reveal, outgoing)

    def _check_reveal(self, place: int, said: wire.Reveal) -> None:
        fixed = circle.commitment_to(self.context, self._attempt, place, said.nonce)
        if said.attempt != self._attempt or fixed != self._said[wire.Commitment][place].commitment:
            name = self.terms.roster.names[place]
            raise MessageRefused(f"{name!r} revealed a nonce that does not match its commitment.", [name])

    def _draw(self) -> Outgoing:
        if len(self._said[wire.Reveal]) < len(self._members()):
            return self._call()
        reveals = [self._said[wire.Reveal][place] for place in self._members()]
        nonces = [one.nonce for one in reveals]
        self._graph = circle.drawn_graph(self.context, self._attempt, nonces, self.terms)
        self._drawn = (self._attempt, b"".join(one.nonce + one.signature for one in reveals))
        return self._show_neighbours()

    def _show_neighbours(self) -> Outgoing:
        if self._graph is None:
            self._graph = complete_graph(self.terms.parameters.users)
        adverts = self._said[wire.AggregationAdvert]
        self._require(adverts, "advertised keys")
        signed = {p: said.sealing + said.masking + said.signature for p, said in adverts.items()}
        outgoing = {}
        for place in signed:
            near = tuple(signed.get(other) for other in self._graph.around(place))
            outgoing[place] = self._message(wire.Neighbours, *self._drawn, near)
        return self._next(self._deliver, wire.Shares, outgoing)

    def _check_shares(self, place: int, said: wire.Shares) -> None:
        wanted = [other in self._said[wire.AggregationAdvert] for other in self.graph.around(place)]
        if [item is not None for item in said.sealed_shares] != wanted:
            raise MessageRefused("The shares are not for the neighbours that advertised.")

    def _deliver(self) -> Outgoing:
        sent = self._said[wire.Shares]
        self._require(sent, "sent shares")
        outgoing = {}
        for place, said in sent.items():
            items = tuple(
                sent[other].sealed_shares[back] if other in sent else None
                for other, back in zip(self.graph.around(place), self.graph.backs(place), strict=True)
            )
            self._promises[place] = said.promise
            self._delivered[place] = [item is not None for item in items]
            outgoing[place] = self._message(wire.Delivery, items)
        sent.clear()  # relayed: the server has no further use for it
        return self._next(self._list, wire.Vote, outgoing)

    def _check_vote(self, place: int, said: wire.Vote) -> None:
        if said.masked_with != self._delivered[place]:
            raise MessageRefused(
                "The vote is masked with neighbours other than those whose shares were sent."
            )

    def _list(self) -> Outgoing:
        votes, parameters = self._said[wire.Vote], self.terms.parameters
        self._require(votes, "voted")
        if self._before is not None and not self.terms.bounded:
            # users check this too, so an honest server stops here
            refusal = against_another_list(len(votes), len(self._before.survivors), parameters.minimum)
            if refusal is not None:
                raise self._abort(f"The round is void: {refusal.reason}.")
        surviving = [False] * parameters.users
        for place in votes:
            surviving[self.graph.position[place]] = True
        tree = SurvivorTree(surviving)
        self._root = tree.root
        outgoing = {
            place: self._message(wire.Survivors, tree.show_leaves(leaves_near(self.graph, place)))
            for place in votes
        }
        if parameters.server == "semi-honest":
            return self._next(self._finish, wire.Unmasking, outgoing)
        return self._next(self._show_endorsements, wire.Endorsement, outgoing)

    def _check_endorsement(self, place: int, _said: wire.Endorsement) -> None:
        if place not in self.witnesses:
            raise MessageRefused(f"{self.terms.roster.names[place]!r} is not a witness.")

    def _show_endorsements(self) -> Outgoing:
        quorum, signed = self.terms.parameters.quorum, self._said[wire.Endorsement]
        if len(signed) < quorum:
            raise self._abort(
                f"Only {len(signed)} witnesses signed the list of survivors; at least {quorum} must."
            )
        # more endorsements are not needed
        signatures = {place: item.signature for place, item in islice(signed.items(), quorum)}
        message = self._message(wire.Endorsements, tuple(signatures.get(place) for place in self.witnesses))
        return self._next(self._finish, wire.Unmasking, dict.fromkeys(self._said[wire.Vote], message))

    def _check_unmasking(self, place: int, said: wire.Unmasking) -> None:
        if [item is not None for item in said.shares] != self._delivered[place]:
            raise MessageRefused("The shares are not those that were delivered.")
        for item in said.shares:
            if item is not None:
                decode_share(item)

    def _finish(self) -> Outgoing:
        self._expected, self._stage = None, dict
        cheats: set[int] = set()
        sign = "u" if self.terms.noise is None else "i"  # sums with noise may be negative
        counts = np.frombuffer(self._unmask(cheats), dtype=f"<{sign}{self.terms.width}").astype(np.int64)
        self.outcome = AggregationOutcome(
            counts,
            tuple(sorted(self._said[wire.Vote])),
            past_with(self._past, self._root),
            self._graph,
            self._drawn,
            tuple(self.terms.roster.names[place] for place in sorted(cheats)),
        )
        return {}

    def _unmask(self, cheats: set[int]) -> bytes:
        """Return the sum of the votes; note the users whose shares were wrong.

        Cost: one seed and one mask per survivor; one seed per dropped user, and one key agreement and one
        mask for each of its surviving neighbours.
        """
        votes = self._said[wire.Vote]
        added, taken = (
            [said.vector for said in votes.values()],
            [self._own_mask_key(p, cheats) for p in votes],
        )
        recovered: list[bytes] = []
        for place in [place for place in self._promises if place not in votes]:
            plus, minus = self._pair_mask_keys(place, cheats)
            taken += plus
            recovered += minus
        length, width = self.batch.length, self.terms.width
        masked = chain(added, (masks.mask(key, length, width) for key in recovered))
        return masks.total(masked, (masks.mask(key, length, width) for key in taken), length, width)

    def _own_mask_key(self, place: int, cheats: set[int]) -> bytes:
        info, promise = self.context.info, self._promises[place]
        seed = self._opened_seed(place, lambda seed: masks.seed_promise(seed, info) == promise, cheats)
        return masks.own_mask_key(seed, info)

    def _pair_mask_keys(self, place: int, cheats: set[int]) -> tuple[list[bytes], list[bytes]]:
        """Return keys of masks that neighbours share with a dropped user: those added, those subtracted."""
        info, adverts = self.context.info, self._said[wire.AggregationAdvert]
        public = adverts[place].masking
        seed = self._opened_seed(place, lambda seed: masks.mask_key_pair(seed, info).public == public, cheats)
        pair = masks.mask_key_pair(seed, info)
        keys: tuple[list[bytes], list[bytes]] = ([], [])
        for other in self.graph.around(place):
            if other in self._said[wire.Vote]:
                keys[other > place].append(pair.agree(adverts[other].masking, masks.MASKING, info))
        return keys

    def _opened_seed(self, place: int, right: Callable[[bytes], bool], cheats: set[int]) -> bytes:
        """Return the seed of a user, opened by its neighbours' shares."""
        shares: dict[int, int] = {}
        near, given = self.graph.around(place), self._said[wire.Unmasking]
        for x, (other, back) in enumerate(zip(near, self.graph.backs(place), strict=True), start=1):
            item = given[other].shares[back] if other in given else None
            if item is not None:
                shares[x] = int.from_bytes(item, "big")
        threshold, name = self.terms.parameters.threshold, self.terms.roster.names[place]
        if len(shares) < threshold:
            raise RoundAborted(
                f"Only {len(shares)} neighbours of {name!r} answered; unmasking the sum needs {threshold}.",
                spent=True,
            )
        try:
            seed, wrong = open_checked(shares, threshold, right)
        except SharesInconsistent:
            reason = f"The shares of {name!r} are wrong: it dealt wrong ones, or neighbours changed them."
            raise RoundAborted(reason, spent=True, culprits=[name]) from None
        cheats.update(near[x - 1] for x in wrong)
        return seed

    def _message(self, kind: type[wire.RoundMessage], *fields: object) -> bytes:
        return kind(self.context.tag, *fields).encode(self.context)

    def _require(self, replies: Collection[int], what: str) -> None:
        least = max(self.terms.parameters.minimum, self.terms.parameters.threshold + 1)
        if len(replies) < least:
            raise self._abort(f"Only {len(replies)} users {what}; at least {least} must.")
