"""The server (the miner) of one round: it relays what users seal for each other and unmasks the sum.

Who learns what: the server learns the sum of the votes of the survivors, who takes part and who drops out.
It is driven by two methods: `advance` ends a stage and returns what to send, `receive` takes a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from masquerade.core.errors import Refusal, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import KEY_SIZE, SIGNATURE_SIZE, AgreementKey
from masquerade.protocols.aggregation import masks
from masquerade.protocols.aggregation.batch import Batch, Counts
from masquerade.protocols.aggregation.committee_server import Convening, Outgoing
from masquerade.protocols.aggregation.crypto_cache import Work
from masquerade.protocols.aggregation.graph import Graph, complete_graph
from masquerade.protocols.aggregation.history import FIRST, against_difference
from masquerade.protocols.aggregation.messages import (
    Kind,
    MessageRefused,
    bundle,
    check_length,
    kind_of,
    pack_bits,
    plain,
    signed_body_of,
    unbundle,
)
from masquerade.protocols.aggregation.roster import Context, Terms
from masquerade.protocols.aggregation.round_state import ADVERT_SIZE, SEALED_SIZE, write_announcement
from masquerade.protocols.aggregation.seed_shares import SHARE_SIZE, decode_share
from masquerade.protocols.aggregation.survivor_tree import Root, SurvivorTree, leaves_near
from masquerade.protocols.aggregation.unmask import Unmasking

PROMISE_SIZE = 32
DRAWING = (Kind.COMMITMENT, Kind.REVEAL)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counts of a round, over whom, and who was caught giving wrong shares (which did no harm).

    `graph` and `drawn` (how it was drawn) are kept for later rounds of the session.
    """

    counts: Counts
    survivors: tuple[int, ...]
    root: Root
    graph: Graph | None = None
    drawn: bytes = b""
    culprits: tuple[str, ...] = ()


class Server:
    """One round. Call `advance` for the messages to send, `receive` for each reply; until `outcome` is there.

    A user who does not reply to a stage has dropped out. Too few replies raise `RoundAborted`.
    """

    def __init__(
        self,
        terms: Terms,
        nonce: bytes,
        number: int,
        batch: Batch,
        *,
        before: Outcome | None = None,
        work: Work | None = None,
    ) -> None:
        self.terms, self.batch = terms, batch
        self.context = Context(terms.session(nonce), number, batch.hash)
        self.outcome: Outcome | None = None
        self._nonce, self._before, self._work = nonce, before, work or Work()
        self._invited = range(terms.parameters.users) if before is None else before.survivors
        self._stage: Callable[[], Outgoing] = self._announce
        self._expected: Kind | None = None
        self._asked: set[int] = set()
        self._convening = Convening(self.context, terms)
        self._graph = before.graph if before is not None else None
        self._probe = AgreementKey()
        self._drawn = before.drawn if before is not None else b""
        self._adverts: dict[int, bytes] = {}
        self._promises: dict[int, bytes] = {}
        self._sealed: dict[int, list[bytes | None]] = {}
        self._delivered: dict[int, bytes] = {}
        self._votes: dict[int, masks.Ring] = {}
        self._endorsements: dict[int, bytes] = {}
        self._given: dict[int, list[bytes | None]] = {}
        self._root = Root(FIRST, 0)
        self._takers: dict[Kind, tuple[Callable[[int, bytes, bytes], None], Mapping[int, object]]] = {
            Kind.ADVERT: (self._take_advert, self._adverts),
            Kind.COMMITMENT: (self._convening.take_commitment, self._convening.commitments),
            Kind.REVEAL: (self._convening.take_reveal, self._convening.reveals),
            Kind.SHARES: (self._take_shares, self._sealed),
            Kind.INPUT: (self._take_vote, self._votes),
            Kind.ENDORSEMENT: (self._take_endorsement, self._endorsements),
            Kind.UNMASKING: (self._take_unmasking, self._given),
        }

    @property
    def graph(self) -> Graph:
        """Return the graph of the round, once it is drawn."""
        if self._graph is None:
            raise MessageRefused("The graph has not been drawn yet.")
        return self._graph

    def advance(self) -> Outgoing:
        """End the stage and return the messages of the next one by place; nothing when the round is over."""
        return self._stage()

    def receive(self, place: int, message: bytes) -> None:
        """Take the reply of a user; a message that is refused (`MessageRefused`) changes nothing."""
        kind = kind_of(message)
        if kind is not self._expected or place not in self._asked:
            raise MessageRefused(f"A message of the kind {kind.name.lower()} is out of turn.")
        take, taken = self._takers[kind]
        name = self.terms.roster.names[place]
        if place in taken:
            raise MessageRefused(f"{name!r} has replied already.", [name])
        signer = self.terms.roster.signer(place)
        context = self.context.opening if kind in DRAWING else self.context
        body = signed_body_of(message, context, signer, work=self._work, about=self._about())
        take(place, body, message[-SIGNATURE_SIZE:])

    def _about(self) -> bytes:
        if self._expected is Kind.REVEAL:
            return self._convening.about
        if self._expected in (Kind.ENDORSEMENT, Kind.UNMASKING):
            chained = self._before is not None and not self.terms.disguised
            return self._root.encode() + (self._before.root.hash if self._before and chained else FIRST)
        return b""

    def _next(self, stage: Callable[[], Outgoing], expected: Kind, outgoing: Outgoing) -> Outgoing:
        self._stage, self._expected, self._asked = stage, expected, set(outgoing)
        return outgoing

    def _abort(self, reason: str, culprits: tuple[str, ...] = ()) -> RoundAborted:
        self._expected, self._stage = None, dict
        return RoundAborted(reason, spent=bool(self._votes), culprits=culprits)

    def _announce(self) -> Outgoing:
        message = write_announcement(self.context, self._nonce, self.batch)
        drawn = self.terms.parameters.complete or self._graph is not None
        following = self._show_neighbours if drawn else self._call
        return self._next(following, Kind.ADVERT, dict.fromkeys(self._invited, message))

    def _take_advert(self, place: int, body: bytes, signature: bytes) -> None:
        check_length(body, ADVERT_SIZE)
        for key in (body[:KEY_SIZE], body[KEY_SIZE:]):
            self._probe.agree(key, "aggregation probe")  # a key of small order would stop all neighbours
        self._adverts[place] = body + signature

    def _call(self) -> Outgoing:
        calls = self._convening.call(self._adverts)
        if not calls:
            raise self._abort("No committee could draw the graph: too many users are silent.")
        return self._next(self._show_commitments, Kind.COMMITMENT, calls)

    def _show_commitments(self) -> Outgoing:
        shown = self._convening.show()
        return self._next(self._draw, Kind.REVEAL, shown) if shown else self._call()

    def _draw(self) -> Outgoing:
        drawn = self._convening.drawn()
        if drawn is None:
            return self._call()
        self._graph, self._drawn = drawn
        return self._show_neighbours()

    def _show_neighbours(self) -> Outgoing:
        if self._graph is None:
            self._graph = complete_graph(self.terms.parameters.users)
        self._require(self._adverts, "advertised keys")
        found = self._adverts.get
        outgoing = {
            place: plain(
                Kind.NEIGHBOURS,
                self.context,
                self._drawn + bundle([found(other) for other in self.graph.around(place)]),
            )
            for place in self._adverts
        }
        return self._next(self._deliver, Kind.SHARES, outgoing)

    def _take_shares(self, place: int, body: bytes, _signature: bytes) -> None:
        if len(body) < PROMISE_SIZE:
            raise DecodingError("The shares lack the commitment to the user's own seed.")
        items = unbundle(body[PROMISE_SIZE:], self.graph.neighbours, SEALED_SIZE)
        wanted = [other in self._adverts for other in self.graph.around(place)]
        if [item is not None for item in items] != wanted:
            raise MessageRefused("The shares are not for the neighbours that advertised.")
        self._promises[place], self._sealed[place] = body[:PROMISE_SIZE], items

    def _deliver(self) -> Outgoing:
        self._require(self._sealed, "sent shares")
        sealed = self._sealed
        outgoing = {}
        for place in sealed:
            items = [
                sealed[other][back] if other in sealed else None
                for other, back in zip(self.graph.around(place), self.graph.backs(place), strict=True)
            ]
            self._delivered[place] = pack_bits([item is not None for item in items])
            outgoing[place] = plain(Kind.DELIVERY, self.context, bundle(items))
        sealed.clear()  # relayed: the server has no further use for it
        return self._next(self._list, Kind.INPUT, outgoing)

    def _take_vote(self, place: int, body: bytes, _signature: bytes) -> None:
        head = self._delivered[place]
        check_length(body, len(head) + self.batch.length * self.terms.width.itemsize)
        if body[: len(head)] != head:
            raise MessageRefused(
                "The vote is masked with other neighbours than those whose shares were sent."
            )
        self._votes[place] = np.frombuffer(body[len(head) :], dtype=self.terms.width)

    def _list(self) -> Outgoing:
        self._require(self._votes, "voted")
        parameters = self.terms.parameters
        if self._before is not None and not self.terms.disguised:
            # users check the same: an honest server does not ask them in vain
            refusal = against_difference(len(self._before.survivors), len(self._votes), parameters.minimum)
            if refusal is not None:
                raise self._abort(f"The round is void: {refusal.reason}.")
        surviving = np.zeros(parameters.users, dtype=bool)
        surviving[self.graph.position[list(self._votes)]] = True
        tree = SurvivorTree(surviving)
        self._root = tree.root
        outgoing = {
            place: plain(Kind.SURVIVORS, self.context, tree.shown(leaves_near(self.graph, place)))
            for place in self._votes
        }
        if parameters.server == "semi-honest":
            return self._next(self._finish, Kind.UNMASKING, outgoing)
        return self._next(self._show_endorsements, Kind.ENDORSEMENT, outgoing)

    def _take_endorsement(self, place: int, body: bytes, signature: bytes) -> None:
        check_length(body, 0)
        self._endorsements[place] = signature

    def _show_endorsements(self) -> Outgoing:
        self._require(self._endorsements, "signed the list of survivors")
        found = self._endorsements.get
        outgoing = {
            place: plain(
                Kind.ENDORSEMENTS,
                self.context,
                bundle([found(other) for other in self.graph.around(place)]),
            )
            for place in self._endorsements
        }
        return self._next(self._finish, Kind.UNMASKING, outgoing)

    def _take_unmasking(self, place: int, body: bytes, _signature: bytes) -> None:
        items = unbundle(body, self.graph.neighbours, SHARE_SIZE)
        if pack_bits([item is not None for item in items]) != self._delivered[place]:
            raise MessageRefused("The shares are not those that were delivered.")
        for item in items:
            if item is not None:
                decode_share(item)
        self._given[place] = items

    def _finish(self) -> Outgoing:
        unmasking = Unmasking(
            self.context,
            self.terms,
            self.batch.length,
            self.graph,
            {place: advert[:ADVERT_SIZE] for place, advert in self._adverts.items()},
            self._promises,
            self._votes,
            self._given,
        )
        self._expected, self._stage = None, dict
        counts, cheats = unmasking.counts()
        names = tuple(self.terms.roster.names[place] for place in sorted(cheats))
        self.outcome = Outcome(
            counts.astype(np.int64),
            tuple(sorted(self._votes)),
            self._root,
            self._graph,
            self._drawn,
            names,
        )
        return {}

    def _require(self, replies: Mapping[int, object], what: str) -> None:
        least = max(self.terms.parameters.minimum, self.terms.parameters.threshold + 1)
        if len(replies) < least:
            raise self._abort(f"Only {len(replies)} users {what}; at least {least} must.")


class Rounds(Protocol):
    """A way to have a batch counted by all users in one round: in this process or over a network."""

    @property
    def terms(self) -> Terms:
        """What everybody agreed to."""

    def refusals(self) -> list[Refusal]:
        """Return why no further round would be answered. Pure."""

    def ask(self, batch: Batch) -> Outcome:
        """Count a batch; `QueryRefused` before anything left, `RoundAborted` after."""
