"""The server (the miner) of one round: it relays what users seal for each other and unmasks the sum.

Who learns what: the server learns the sum of the votes of the survivors, who takes part and who drops out.
It is driven by two methods: `advance` ends a stage and returns what to send, `receive` takes a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol

import numpy as np

from masquerade.core.errors import Refusal, RoundAborted
from masquerade.crypto.errors import SharesInconsistent
from masquerade.crypto.keys import AgreementKey
from masquerade.crypto.seed_shares import decode_share, open_checked
from masquerade.protocols.aggregation import masks
from masquerade.protocols.aggregation.agreement import Batch, RoundContext, Terms
from masquerade.protocols.aggregation.committee import CommitteeCalls, Outgoing, signer_of
from masquerade.protocols.aggregation.history import NO_PAST, against_another_list, past_with
from masquerade.protocols.aggregation.messages import (
    Advert,
    Announcement,
    Commitment,
    Delivery,
    Endorsement,
    Endorsements,
    MessageRefused,
    MessageSizes,
    Neighbours,
    Reveal,
    RoundMessage,
    Shares,
    Survivors,
    Unmasking,
    UserMessage,
    Vote,
    Work,
    kind_of,
)
from masquerade.protocols.aggregation.neighbour_graph import Graph, complete_graph
from masquerade.protocols.aggregation.survivor_tree import Root, SurvivorTree, leaves_near
from masquerade.protocols.people.questions import Counts

Drawing = tuple[int, bytes]  # the attempt, and nonces with their signatures
NOT_DRAWN: Drawing = (0, b"")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counts of a round, over whom, and who was caught giving wrong shares (which did no harm).

    `graph` and `drawn` (how it was drawn) are kept for later rounds of the session, and so is `past`, which
    stands for all lists of survivors so far.
    """

    counts: Counts
    survivors: tuple[int, ...]
    past: bytes = NO_PAST
    graph: Graph | None = None
    drawn: Drawing = NOT_DRAWN
    culprits: tuple[str, ...] = ()


class Rounds(Protocol):
    """A way to have a batch counted by all users in one round: in this process or over a network."""

    @property
    def terms(self) -> Terms:
        """What everybody agreed to."""

    def refusals(self) -> list[Refusal]:
        """Return why no further round would be answered. Pure."""

    def ask(self, batch: Batch) -> Outcome:
        """Count a batch; `QueryRefused` before anything left, `RoundAborted` after."""


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
        self.context = RoundContext(terms.session(nonce), number, batch.hash)
        self.sizes = MessageSizes.of(terms, batch)
        self.outcome: Outcome | None = None
        self._nonce, self._before, self._work = nonce, before, work or Work()
        self._invited = range(terms.parameters.users) if before is None else before.survivors
        self._graph = None if before is None else before.graph
        self._drawn = NOT_DRAWN if before is None else before.drawn
        self._past = NO_PAST if before is None or terms.disguised else before.past
        self._stage: Callable[[], Outgoing] = self._announce
        self._expected: type[UserMessage] | None = None
        self._asked: set[int] = set()
        self._root = Root(NO_PAST, 0)
        self._probe = AgreementKey()
        self._calls = CommitteeCalls(self.context, terms, self.sizes)
        self._adverts: dict[int, Advert] = {}
        self._promises: dict[int, bytes] = {}
        self._sealed: dict[int, tuple[bytes | None, ...]] = {}
        self._delivered: dict[int, list[bool]] = {}
        self._votes: dict[int, masks.Ring] = {}
        self._endorsements: dict[int, bytes] = {}
        self._given: dict[int, tuple[bytes | None, ...]] = {}
        self._takers: dict[type[RoundMessage], tuple[Callable[[int, Any], None], Mapping[int, object]]] = {
            Advert: (self._take_advert, self._adverts),
            Commitment: (self._calls.take_commitment, self._calls.commitments),
            Reveal: (self._calls.take_reveal, self._calls.reveals),
            Shares: (self._take_shares, self._sealed),
            Vote: (self._take_vote, self._votes),
            Endorsement: (self._take_endorsement, self._endorsements),
            Unmasking: (self._take_unmasking, self._given),
        }

    @property
    def graph(self) -> Graph:
        """Return the graph of the round, once it is drawn."""
        if self._graph is None:
            raise MessageRefused("The graph has not been drawn yet.")
        return self._graph

    @property
    def witnesses(self) -> tuple[int, ...]:
        """Return who is to sign the list of survivors."""
        return self.graph.witnesses(self.terms.parameters.witnesses)

    def advance(self) -> Outgoing:
        """End the stage and return the messages of the next one by place; nothing when the round is over."""
        return self._stage()

    def receive(self, place: int, message: bytes) -> None:
        """Take the reply of a user; a message that is refused (`MessageRefused`) changes nothing."""
        kind, expected = kind_of(message), self._expected
        if expected is None or kind is not expected or place not in self._asked:
            raise MessageRefused(f"A message of the kind {kind.__name__.lower()} is out of turn.")
        take, taken = self._takers[kind]
        name = self.terms.roster.names[place]
        if place in taken:
            raise MessageRefused(f"{name!r} has replied already.", [name])
        context = self.context.opening if kind in (Commitment, Reveal) else self.context
        signer = signer_of(self.terms, place, self._work)
        take(place, expected.checked(message, context, self.sizes, signer, self._about()))

    def _about(self) -> bytes:
        if self._expected is Reveal:
            return self._calls.about
        if self._expected in (Endorsement, Unmasking):
            return self._root.encode() + self._past
        return b""

    def _next(
        self, stage: Callable[[], Outgoing], expected: type[UserMessage], outgoing: Outgoing
    ) -> Outgoing:
        self._stage, self._expected, self._asked = stage, expected, set(outgoing)
        return outgoing

    def _abort(self, reason: str) -> RoundAborted:
        self._expected, self._stage = None, dict
        return RoundAborted(reason, spent=bool(self._votes))

    def _announce(self) -> Outgoing:
        announced = Announcement(self.context.tag, self._nonce, self.context.round, self.batch.questions)
        drawn = self.terms.parameters.complete or self._graph is not None
        following = self._show_neighbours if drawn else self._call
        message = announced.encode(self.terms)
        return self._next(following, Advert, dict.fromkeys(self._invited, message))

    def _take_advert(self, place: int, said: Advert) -> None:
        for key in (said.sealing, said.masking):
            self._probe.agree(key, "aggregation probe")  # a key of small order would stop all neighbours
        self._adverts[place] = said

    def _call(self) -> Outgoing:
        calls = self._calls.call(self._adverts)
        if not calls:
            raise self._abort("No committee could draw the graph: too many users are silent.")
        return self._next(self._show_commitments, Commitment, calls)

    def _show_commitments(self) -> Outgoing:
        shown = self._calls.show()
        return self._next(self._draw, Reveal, shown) if shown else self._call()

    def _draw(self) -> Outgoing:
        drawn = self._calls.drawn()
        if drawn is None:
            return self._call()
        self._graph, self._drawn = drawn[0], (self._calls.attempt, drawn[1])
        return self._show_neighbours()

    def _show_neighbours(self) -> Outgoing:
        if self._graph is None:
            self._graph = complete_graph(self.terms.parameters.users)
        self._require(self._adverts, "advertised keys")
        signed = {p: said.sealing + said.masking + said.signature for p, said in self._adverts.items()}
        outgoing = {
            place: self._message(Neighbours, *self._drawn, self._around(place, signed)) for place in signed
        }
        return self._next(self._deliver, Shares, outgoing)

    def _take_shares(self, place: int, said: Shares) -> None:
        wanted = [other in self._adverts for other in self.graph.around(place)]
        if [item is not None for item in said.sealed_shares] != wanted:
            raise MessageRefused("The shares are not for the neighbours that advertised.")
        self._promises[place], self._sealed[place] = said.promise, said.sealed_shares

    def _deliver(self) -> Outgoing:
        self._require(self._sealed, "sent shares")
        sealed = self._sealed
        outgoing = {}
        for place in sealed:
            items = tuple(
                sealed[other][back] if other in sealed else None
                for other, back in zip(self.graph.around(place), self.graph.backs(place), strict=True)
            )
            self._delivered[place] = [item is not None for item in items]
            outgoing[place] = self._message(Delivery, items)
        sealed.clear()  # relayed: the server has no further use for it
        return self._next(self._list, Vote, outgoing)

    def _take_vote(self, place: int, said: Vote) -> None:
        if said.masked_with.tolist() != self._delivered[place]:
            raise MessageRefused(
                "The vote is masked with other neighbours than those whose shares were sent."
            )
        self._votes[place] = said.vector

    def _list(self) -> Outgoing:
        self._require(self._votes, "voted")
        parameters = self.terms.parameters
        if self._before is not None and not self.terms.disguised:
            # users check the same: an honest server does not ask them in vain
            refusal = against_another_list(len(self._votes), len(self._before.survivors), parameters.minimum)
            if refusal is not None:
                raise self._abort(f"The round is void: {refusal.reason}.")
        surviving = np.zeros(parameters.users, dtype=bool)
        surviving[self.graph.position[list(self._votes)]] = True
        tree = SurvivorTree(surviving)
        self._root = tree.root
        outgoing = {
            place: self._message(Survivors, tree.shown(leaves_near(self.graph, place)))
            for place in self._votes
        }
        if parameters.server == "semi-honest":
            return self._next(self._finish, Unmasking, outgoing)
        return self._next(self._show_endorsements, Endorsement, outgoing)

    def _take_endorsement(self, place: int, said: Endorsement) -> None:
        if place not in self.witnesses:
            raise MessageRefused(f"{self.terms.roster.names[place]!r} is no witness.")
        self._endorsements[place] = said.signature

    def _show_endorsements(self) -> Outgoing:
        quorum = self.terms.parameters.quorum
        if len(self._endorsements) < quorum:
            found = len(self._endorsements)
            raise self._abort(f"Only {found} witnesses signed the list of survivors; at least {quorum} must.")
        shown = dict(islice(self._endorsements.items(), quorum))  # more say no more
        message = self._message(Endorsements, tuple(shown.get(place) for place in self.witnesses))
        return self._next(self._finish, Unmasking, dict.fromkeys(self._votes, message))

    def _take_unmasking(self, place: int, said: Unmasking) -> None:
        if [item is not None for item in said.shares] != self._delivered[place]:
            raise MessageRefused("The shares are not those that were delivered.")
        for item in said.shares:
            if item is not None:
                decode_share(item)
        self._given[place] = said.shares

    def _finish(self) -> Outgoing:
        self._expected, self._stage = None, dict
        cheats: set[int] = set()
        counts = self._unmasked(cheats).astype(np.int64)
        self.outcome = Outcome(
            counts,
            tuple(sorted(self._votes)),
            past_with(self._past, self._root),
            self._graph,
            self._drawn,
            tuple(self.terms.roster.names[place] for place in sorted(cheats)),
        )
        return {}

    def _unmasked(self, cheats: set[int]) -> masks.Ring:
        """Return the sum of the votes; note the users whose shares were wrong.

        Cost: one seed and one mask a survivor; one seed a dropped user, and for each of its surviving
        neighbours one key agreement and one mask. Nothing else grows with n.
        """
        width, length = self.terms.width, self.batch.length
        result = masks.total(self._votes.values(), length, width)
        result -= masks.total(self._own_masks(cheats), length, width)
        for place in [place for place in self._promises if place not in self._votes]:
            added, taken = self._pair_masks(place, cheats)
            result += masks.total(taken, length, width)
            result -= masks.total(added, length, width)
        return result

    def _own_masks(self, cheats: set[int]) -> Iterator[masks.Ring]:
        info = self.context.info
        for place in self._votes:
            seed = self._opened_seed(place, partial(self._keeps, self._promises[place]), cheats)
            yield masks.mask(masks.own_mask_key(seed, info), self.batch.length, self.terms.width)

    def _keeps(self, promise: bytes, seed: bytes) -> bool:
        return masks.seed_promise(seed, self.context.info) == promise

    def _pair_masks(self, place: int, cheats: set[int]) -> tuple[list[masks.Ring], list[masks.Ring]]:
        """Return the masks that surviving neighbours of a dropped user added, and those they took away."""
        info, public = self.context.info, self._adverts[place].masking
        seed = self._opened_seed(place, lambda seed: masks.mask_key_pair(seed, info).public == public, cheats)
        pair = masks.mask_key_pair(seed, info)
        added: list[masks.Ring] = []
        taken: list[masks.Ring] = []
        for other in self.graph.around(place):
            if other in self._votes:
                key = pair.agree(self._adverts[other].masking, masks.MASKING, info)
                mask = masks.mask(key, self.batch.length, self.terms.width)
                (added if other < place else taken).append(mask)
        return added, taken

    def _opened_seed(self, place: int, right: Callable[[bytes], bool], cheats: set[int]) -> bytes:
        """Return the seed of a user that its neighbours' shares open."""
        shares: dict[int, int] = {}
        near = self.graph.around(place)
        for x, (other, back) in enumerate(zip(near, self.graph.backs(place), strict=True), start=1):
            given = self._given.get(other)
            item = None if given is None else given[back]
            if item is not None:
                shares[x] = int.from_bytes(item, "big")
        threshold, name = self.terms.parameters.threshold, self.terms.roster.names[place]
        if len(shares) < threshold:
            raise RoundAborted(
                f"Only {len(shares)} neighbours of {name!r} answered, unmasking the sum takes {threshold}.",
                spent=True,
            )
        try:
            seed, wrong = open_checked(shares, threshold, right)
        except SharesInconsistent:
            raise RoundAborted(
                f"The shares of {name!r} are wrong: it dealt wrong ones, or neighbours changed them.",
                spent=True,
                culprits=[name],
            ) from None
        cheats.update(near[x - 1] for x in wrong)
        return seed

    def _around(self, place: int, items: Mapping[int, bytes]) -> tuple[bytes | None, ...]:
        """Return what there is of every neighbour of a user."""
        return tuple(items.get(other) for other in self.graph.around(place))

    def _message(self, kind: type[RoundMessage], *fields: object) -> bytes:
        return kind(self.context.tag, *fields).encode(self.sizes)

    def _require(self, replies: Mapping[int, object], what: str) -> None:
        least = max(self.terms.parameters.minimum, self.terms.parameters.threshold + 1)
        if len(replies) < least:
            raise self._abort(f"Only {len(replies)} users {what}; at least {least} must.")
