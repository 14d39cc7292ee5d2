"""What the server does with shares: open seeds, expand masks, take them out of the sum.

Cost: one seed and one mask a survivor; one seed a dropped user, and for each of its surviving neighbours
one key agreement and one mask. Nothing else grows with n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from masquerade.core.errors import RoundAborted
from masquerade.crypto.errors import SharesInconsistent
from masquerade.crypto.keys import KEY_SIZE
from masquerade.protocols.aggregation import masks
from masquerade.protocols.aggregation.graph import Graph
from masquerade.protocols.aggregation.roster import Context, Terms
from masquerade.protocols.aggregation.round_state import MASKING, own_commitment
from masquerade.protocols.aggregation.seed_shares import open_checked

Check = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Unmasking:
    """What arrived in a round: keys, promises, who was masked with whom, masked votes, shares by giver."""

    context: Context
    terms: Terms
    length: int
    graph: Graph
    adverts: Mapping[int, bytes]
    promises: Mapping[int, bytes]
    votes: Mapping[int, masks.Ring]
    given: Mapping[int, Sequence[bytes | None]]

    def counts(self) -> tuple[masks.Ring, set[int]]:
        """Return the sum of the votes, and the users whose shares were wrong."""
        width = self.terms.width
        cheats: set[int] = set()
        result = masks.total(self.votes.values(), self.length, width)
        result -= masks.total(self._own_masks(cheats), self.length, width)
        dropped = [place for place in self.promises if place not in self.votes]
        for place in dropped:
            added, taken = self._pair_masks(place, cheats)
            result += masks.total(taken, self.length, width)
            result -= masks.total(added, self.length, width)
        return result, cheats

    def _own_masks(self, cheats: set[int]) -> Iterator[masks.Ring]:
        for place in self.votes:
            promise = self.promises[place]
            seed = self._opened(place, partial(self._keeps, promise), cheats)
            yield masks.mask(masks.own_mask_key(seed, self.context.info), self.length, self.terms.width)

    def _keeps(self, promise: bytes, seed: bytes) -> bool:
        return own_commitment(seed, self.context) == promise

    def _pair_masks(self, place: int, cheats: set[int]) -> tuple[list[masks.Ring], list[masks.Ring]]:
        """Return the masks that surviving neighbours of a dropped user added, and those they took away."""
        info, public = self.context.info, self.adverts[place][KEY_SIZE:]
        seed = self._opened(place, lambda seed: masks.mask_key_pair(seed, info).public == public, cheats)
        pair = masks.mask_key_pair(seed, info)
        added: list[masks.Ring] = []
        taken: list[masks.Ring] = []
        for other in self.graph.around(place):
            if other in self.votes:
                key = pair.agree(self.adverts[other][KEY_SIZE:], MASKING, info)
                stream = masks.mask(key, self.length, self.terms.width)
                (added if other < place else taken).append(stream)
        return added, taken

    def _opened(self, place: int, right: Check, cheats: set[int]) -> bytes:
        """Return the seed of a user that its neighbours' shares open."""
        shares: dict[int, int] = {}
        near = self.graph.around(place)
        for x, (other, back) in enumerate(zip(near, self.graph.backs(place), strict=True), start=1):
            given = self.given.get(other)
            item = None if given is None else given[back]
            if item is not None:
                shares[x] = int.from_bytes(item, "big")
        threshold = self.terms.parameters.threshold
        name = self.terms.roster.names[place]
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
