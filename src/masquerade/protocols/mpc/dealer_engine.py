"""MPC engine of two computing parties and a trusted dealer (helper): additive shares modulo 2^64.

The first two parties hold additive shares; further parties bring records and read opened results. The helper
deals correlated randomness, expanded from keys that it shares with each party, and never sees a share:
together with one computing party it could unmask everything. All parties are assumed to follow the program.

Products are Beaver's (1991); a table is looked up by a shared unit vector (Boyle, Gilboa & Ishai 2016) for
the lower digits of the masked index and one product for the higher digits; numbers are compared by the sign
of their masked difference: a few numbers by a shared threshold (Boyle et al. 2021) in one round, many numbers
by the bits of their masks (`masked_bits`), with a few bytes per number. Indicators are masked once per
session, in the smallest ring that can count all records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.dpf import PointKeys, ThresholdKeys
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import KEY_SIZE
from masquerade.kernels import node_tree
from masquerade.protocols.mpc.dealer import (
    COUNTS,
    CROSSED,
    HIGH,
    LESS,
    LOOKUP,
    MASK,
    MATRIX,
    PRODUCT,
    SHARE,
    SIGNS,
    expand_key,
    held_purpose,
    ring,
    times,
)
from masquerade.protocols.mpc.engine import Deal, EngineRound, Integers, Reply, SecretEngine, Steps, Words
from masquerade.protocols.mpc.masked_bits import (
    Groups,
    Planes,
    factors,
    halvings,
    numbers,
    planes,
    words_of,
)

Secret = NDArray[np.unsignedinteger[Any]]  # a share, which programs use like the number
BOTH = 2**16  # instead of an owner: numbers of which only the computing parties have shares
AT_ONCE = 2048  # unit vectors expanded in one batch
MOST_SHOWN = 1 << 23  # numbers of a round; if a step needs more, it takes several rounds
MOST_MULTIPLIED = 1 << 20  # products of a round: 16 MiB per party; a message may contain those of two parties
MOST_LOOKED_UP = 1 << 15  # lookups of a round: keys are dealt for each of them
FEW_COMPARED, MOST_COMPARED = 1 << 12, 1 << 20  # most comparisons by keys in a round, and by bits in a batch
MOST_RECORDS = 2**31


def batches(count: int, most: int) -> list[slice]:
    """Return slices of at most `most` of `count` items; without items, one slice."""
    return [slice(start, start + most) for start in range(0, max(count, 1), most)]


def join_runs(runs: Sequence[Steps[Secret]]) -> Steps[Secret]:
    """Return the joined results of batches that run in sequence."""
    parts: list[Secret] = []
    for steps in runs:
        parts += [(yield from steps)]
    return np.concatenate(parts)


def groups(sizes: Sequence[int], most: int) -> list[slice]:
    """Return slices of items whose sizes sum to at most `most`; a larger item is a slice by itself."""
    found, start, total = [], 0, 0
    for place, size in enumerate(sizes):
        if place > start and total + size > most:
            found.append(slice(start, place))
            start, total = place, 0
        total += size
    return [*found, slice(start, len(sizes))] if sizes else []


@dataclass(eq=False)
class Held:
    """Numbers (lines × records), shown once under a mask, to be multiplied with other such numbers.

    `shown` is public. `mask` is this party's share of the mask, None if it has no share. `name` is the mask's
    deal and its index in the deal. Until the numbers are shown, `words` stores them: the owner's numbers, or
    a share if there is no owner.
    """

    shape: tuple[int, int]
    kind: Any
    owner: int | None
    name: tuple[int, int] = (-1, -1)
    words: Words | None = None
    shown: Words | None = None
    mask: Words | None = None


class HelpedEngine(SecretEngine[Secret]):
    """The engine of one party; `key` returns the key shared with the helper, by purpose and deal number."""

    def __init__(
        self, name: str, parties: Sequence[str], key: Callable[[str, int], bytes], records: int
    ) -> None:
        if not 0 <= records < MOST_RECORDS:
            raise InputError(f"Hidden counts are for fewer than {MOST_RECORDS:,} records.")
        self.name, self.parties = name, tuple(parties)
        self._key, self._me = key, self.parties.index(name)
        self._count_bits = max(int(records + 2).bit_length(), HIGH + 2)
        self._number = 0

    # ---- local operations

    def constant(self, values: Integers) -> Secret:
        """Return values as the first party's share."""
        found = np.asarray(values, dtype=np.int64).astype(np.uint64)
        return found if self._me == 0 else np.zeros_like(found)

    def linear(self, matrix: Integers, secret: Secret) -> Secret:
        """Return a public matrix times this party's share."""
        return np.asarray(np.asarray(matrix, dtype=np.int64).astype(secret.dtype) @ secret)

    def stack(self, secrets: Sequence[Secret]) -> Secret:
        """Return shares, concatenated."""
        return np.concatenate([secret.ravel() for secret in secrets])

    # ---- operations with rounds

    def open(self, secret: Secret, bits: Sequence[int] | None = None) -> Steps[Integers]:
        """Open numbers by showing this party's share; with `bits`, only the lowest bits of each share."""
        if bits is None:
            reply = yield EngineRound(self._mine(secret))
            return self._total(reply, secret.size, secret.dtype).astype(np.int64).reshape(secret.shape)
        kind = ring(max(bits, default=1))
        low = np.array([(1 << count) - 1 for count in bits], dtype=kind)
        reply = yield EngineRound(self._mine(secret.astype(kind) & low))
        opened: Integers = (self._total(reply, secret.size, kind) & low).astype(np.int64)
        return opened

    def wait_for_all(self) -> Steps[None]:
        """Take a round without numbers: the next round needs a signed message of every party."""
        yield EngineRound(np.zeros(0, dtype=np.uint64))

    def share(self, owner: str, values: Integers | None, shape: tuple[int, ...]) -> Steps[Secret]:
        """Return shares of an owner's numbers: a computing owner's share is the numbers themselves."""
        place = self.parties.index(owner)
        if (values is not None) != (owner == self.name):
            raise InputError("The owner, and no other party, gives the numbers to be shared.")
        own = None if values is None else np.asarray(values, dtype=np.int64).astype(np.uint64).reshape(shape)
        if place < 2:
            return np.zeros(shape, dtype=np.uint64) if own is None else own
        count = prod(shape)
        deal = self._deal(SHARE, place, count)
        reply = yield EngineRound(np.zeros(0, dtype=np.uint64), deal)
        show = np.zeros(0, dtype=np.uint64)
        if own is not None:
            keys = _keys(reply.dealt)
            show = own.ravel() - expand_key(keys[0], count) - expand_key(keys[1], count)
        reply = yield EngineRound(show)
        shown = _check_words(reply.shown[place], count, np.uint64).reshape(shape)
        mine = self._mask("share", deal, count).reshape(shape) if self._me < 2 else np.zeros_like(shown)
        return mine + shown if self._me == 0 else mine

    def product(self, first: Secret, second: Secret) -> Steps[Secret]:
        """Multiply shares elementwise, both under fresh masks."""
        x, y = first.ravel(), second.ravel()
        runs = [self._multiply(x[some], y[some]) for some in batches(x.size, MOST_MULTIPLIED)]
        found = yield from join_runs(runs)
        return found.reshape(first.shape)

    def _multiply(self, first: Secret, second: Secret) -> Steps[Secret]:
        x, y = (np.asarray(part, dtype=np.uint64).ravel() for part in (first, second))
        deal = self._deal(PRODUCT, x.size)
        masks = [self._mask(purpose, deal, x.size) for purpose in ("first", "second")]
        reply = yield EngineRound(self._mine(np.concatenate([x - masks[0], y - masks[1]])), deal)
        a, b = np.split(self._total(reply, 2 * x.size), 2)
        found = a * masks[1] + masks[0] * b + self._rest(reply.dealt, "product", deal, x.size)
        return found + a * b if self._me == 0 else found

    def inner(self, first: Secret, second: Secret) -> Steps[Secret]:
        """Multiply two matrices of shares (records × lines), both under fresh masks."""
        x, y = (np.ascontiguousarray(part.T, dtype=np.uint64) for part in (first, second))
        (left, rows), right = x.shape, len(y)
        deal = self._deal(MATRIX, rows, left, right)
        masks = [
            self._mask(purpose, deal, part.size).reshape(part.shape)
            for purpose, part in (("first", x), ("second", y))
        ]
        show = np.concatenate([(x - masks[0]).ravel(), (y - masks[1]).ravel()])
        reply = yield EngineRound(self._mine(show), deal)
        total = self._total(reply, x.size + y.size)
        a, b = total[: x.size].reshape(x.shape), total[x.size :].reshape(y.shape)
        found = times(a, masks[1]) + times(masks[0], b)
        found += self._rest(reply.dealt, "product", deal, left * right).reshape(left, right)
        return found + times(a, b) if self._me == 0 else found

    def lookup(self, secret: Secret, tables: Integers, which: Integers) -> Steps[Secret]:
        """Look up secret indices in public tables."""
        places, number = secret.ravel(), np.asarray(which, dtype=np.int64)
        runs = [
            self._looked_up(places[some], tables, number[some])
            for some in batches(places.size, MOST_LOOKED_UP)
        ]
        found = yield from join_runs(runs)
        return found.reshape(secret.shape)

    def _looked_up(self, places: Secret, tables: Integers, number: Integers) -> Steps[Secret]:
        length = tables.shape[1]
        bits = max(int(length - 1).bit_length(), HIGH + 2)
        known = 8 * places.itemsize
        if bits > known:
            raise InputError(f"Numbers modulo 2^{known} cannot index tables of {length:,} entries.")
        wide, low = 1 << HIGH, bits - HIGH
        modulus = np.uint64((1 << bits) - 1)
        deal = self._deal(LOOKUP, places.size, bits, HIGH)
        mask = self._mask("place", deal, places.size)
        masked = (places.astype(np.uint64) + mask) & modulus
        reply = yield EngineRound(self._mine(masked.astype(ring(bits))), deal)
        at = (self._total(reply, places.size, ring(bits)).astype(np.uint64) & modulus).astype(np.int64)
        whole = np.zeros((len(tables), 1 << bits), dtype=np.uint64)
        whole[:, :length] = np.asarray(tables, dtype=np.int64).astype(np.uint64)
        sums = np.zeros((places.size, wide), dtype=np.uint64)
        units = sums
        rest = np.zeros(places.size, dtype=np.uint64)
        if self._me < 2:
            size = PointKeys.size(low, places.size)
            roots = self._mask("roots", deal, 2 * places.size).reshape(-1, 2)
            keys = PointKeys.read(reply.dealt[:size], self._me, low, roots)
            for start in range(0, places.size, AT_ONCE):
                some = slice(start, start + AT_ONCE)
                vectors = keys.some(some).expand()
                node_tree.windows(vectors, whole, number[some], at[some], sums[some])
            dealt = reply.dealt[size:]
            units = self._rest(dealt[: 8 * sums.size], "unit", deal, sums.size).reshape(sums.shape)
            rest = self._rest(dealt[8 * sums.size :], "product", deal, places.size)
        shares = sums - self._mask("mask", deal, sums.size).reshape(sums.shape)
        reply = yield EngineRound(self._mine(shares.ravel()))
        total = self._total(reply, sums.size).reshape(sums.shape)
        found: Secret = (units * total).sum(axis=1, dtype=np.uint64) + rest
        return found

    def less(self, first: Secret, second: Secret, *, bits: int = 62) -> Steps[Secret]:
        """Compare by the sign of the masked difference: a few numbers in one round, many with few bytes."""
        difference = (first - second).ravel().astype(np.uint64)
        negative = self._negative if difference.size <= FEW_COMPARED else self._negative_by_bits
        runs = [negative(difference[some], bits) for some in batches(difference.size, MOST_COMPARED)]
        found = yield from join_runs(runs)
        return found.reshape(first.shape)

    def _negative(self, difference: Secret, bits: int) -> Steps[Secret]:
        """Return 1 where a difference is negative, else 0."""
        count = difference.size
        deal = self._deal(LESS, count, bits)
        modulus = np.uint64((1 << (bits + 1)) - 1)
        masked = (difference + self._mask("place", deal, count)) & modulus
        reply = yield EngineRound(self._mine(masked), deal)
        if self._me > 1:
            return np.zeros(count, dtype=np.uint64)
        total = self._total(reply, count) & modulus
        size = ThresholdKeys.size(bits, count)
        roots = self._mask("roots", deal, 2 * count).reshape(-1, 2)
        keys = ThresholdKeys.read(reply.dealt[:size], self._me, bits, roots)
        bit = keys.evaluate(total & np.uint64((1 << bits) - 1))
        bit += self._rest(reply.dealt[size:], "top", deal, count)
        top = (total >> np.uint64(bits)).astype(bool)
        return np.where(top, np.uint64(1 - self._me) - bit, bit)

    def _negative_by_bits(self, difference: Secret, bits: int) -> Steps[Secret]:
        """Return 1 where a difference is negative, else 0, by the bits of its mask."""
        count, words, first = difference.size, words_of(difference.size), self._me == 0
        deal, (lefts, of_left) = self._deal(SIGNS, count, bits), factors(bits)
        modulus = np.uint64((1 << (bits + 1)) - 1)
        masked = (difference + self._mask("place", deal, count)) & modulus
        reply = yield EngineRound(self._mine(masked), deal)
        opened = planes(self._total(reply, count) & modulus, bits + 1)
        ends = 8 * words * np.cumsum([bits + 1, of_left.size])
        mask = self._bits(reply.dealt[: ends[0]], "bits", deal, (bits + 1, words))
        products = self._bits(reply.dealt[ends[0] : ends[1]], "products", deal, (of_left.size, words))
        flipped = self._rest(reply.dealt[ends[1] :], "flipped", deal, count)
        left = self._mask("left", deal, lefts * words).reshape(-1, words)
        right = self._mask("right", deal, of_left.size * words).reshape(-1, words)
        groups = Groups(mask[:bits], opened[:bits], first=first)
        for step in halvings(bits):
            x, y = groups.factors(step.pairs)
            a, b, of = left[step.left], right[step.right], step.of_left
            shown = yield from self._either(np.concatenate([x ^ a, y ^ b]))
            x, y = shown[: step.pairs][of], shown[step.pairs :]
            product = (x & b) ^ (a[of] & y) ^ products[step.right]
            groups.join(step.pairs, product ^ (x & y) if first else product)
        sign = groups.larger[0] ^ mask[bits] ^ self._mask("flip", deal, words)
        shown = yield from self._either((sign ^ opened[bits] if first else sign)[None])
        other = numbers(shown[0], count).astype(bool)
        return np.where(other, np.uint64(first) - flipped, flipped)

    def _either(self, shares: Planes) -> Steps[Planes]:
        """Show shares of masked bits, and return these bits."""
        reply = yield EngineRound(self._mine(shares.ravel()))
        first, second = (_check_words(words, shares.size, np.uint64) for words in reply.shown[:2])
        return (first ^ second).reshape(shares.shape)

    # ---- counts of indicators

    def indicators(self, owner: str, lines: NDArray[np.uint8] | None, shape: tuple[int, int]) -> Held:
        """Return a handle; lines are masked and shown when first counted with another owner's lines."""
        place = self.parties.index(owner)
        kind = ring(self._count_bits)
        if (lines is not None) != (owner == self.name) or (lines is not None and lines.shape != shape):
            raise InputError("The owner, and no other party, gives the indicators, in the agreed shape.")
        return Held(shape, kind, place, words=None if lines is None else lines.astype(kind))

    def counts(self, pairs: Sequence[tuple[Held, Held]]) -> Steps[list[Secret]]:
        """Multiply masked lines of different owners and sum over records, many pairs in one round."""
        yield from self._show([held for pair in pairs for held in pair])
        found = []
        for some in groups([left.shape[0] * right.shape[0] for left, right in pairs], MOST_SHOWN):
            found += yield from self._count(pairs[some])
        return found

    def _count(self, pairs: Sequence[tuple[Held, Held]]) -> Steps[list[Secret]]:
        sizes = [left.shape[0] * right.shape[0] for left, right in pairs]
        deal = self._deal(COUNTS, *(fact for pair in pairs for held in pair for fact in held.name))
        reply = yield EngineRound(np.zeros(0, dtype=np.uint64), deal)
        rest = self._rest(reply.dealt, "product", deal, sum(sizes), pairs[0][0].kind)
        found = []
        for (left, right), part in zip(pairs, np.split(rest, np.cumsum(sizes)[:-1]), strict=True):
            total = part.reshape(left.shape[0], right.shape[0]).copy()
            if self._me < 2:
                mine = _local_share(left, self._me)
                if mine is not None:
                    total += times(mine, _public(right))
                if right.mask is not None:
                    total += times(_public(left), right.mask)
            found.append(total)
        return found

    def cross(self, pairs: Sequence[tuple[Held, Held]]) -> Steps[list[Held]]:
        """Multiply masked lines of different owners record by record; both parties mask the products."""
        yield from self._show([held for pair in pairs for held in pair])
        found = []
        numbers = [left.shape[0] * right.shape[0] * left.shape[1] for left, right in pairs]
        for some in groups(numbers, MOST_SHOWN):
            found += yield from self._form_products(pairs[some])
        return found

    def _form_products(self, pairs: Sequence[tuple[Held, Held]]) -> Steps[list[Held]]:
        kind = pairs[0][0].kind
        shapes = [(left.shape[0] * right.shape[0], left.shape[1]) for left, right in pairs]
        deal = self._deal(CROSSED, *(fact for pair in pairs for held in pair for fact in held.name))
        reply = yield EngineRound(np.zeros(0, dtype=np.uint64), deal)
        rest = self._rest(reply.dealt, "product", deal, sum(map(prod, shapes)), kind)
        found = []
        for (left, right), shape, part in zip(
            pairs, shapes, np.split(rest, np.cumsum([prod(shape) for shape in shapes])[:-1]), strict=True
        ):
            words = part.reshape(shape)
            if self._me < 2:
                mine = _local_share(left, self._me)
                if mine is not None:
                    words = words + (mine[:, None] * _public(right)[None]).reshape(shape)
                if right.mask is not None:
                    words = words + (_public(left)[:, None] * right.mask[None]).reshape(shape)
            found.append(Held(shape, kind, None, words=words))
        return found

    def _show(self, wanted: Sequence[Held]) -> Steps[None]:
        """Mask and show all numbers not shown yet, each once under a separate mask."""
        fresh = [held for held in dict.fromkeys(wanted) if held.shown is None]
        for some in groups([prod(held.shape) for held in fresh], MOST_SHOWN):
            yield from self._shown_together(fresh[some])

    def _shown_together(self, fresh: Sequence[Held]) -> Steps[None]:
        bits = 8 * np.dtype(fresh[0].kind).itemsize
        owners = [held.owner if held.owner is not None else BOTH for held in fresh]
        facts = [fact for owner, held in zip(owners, fresh, strict=True) for fact in (owner, held.shape[0])]
        deal = self._deal(MASK, bits, fresh[0].shape[1], *facts)
        for place, (owner, held) in enumerate(zip(owners, fresh, strict=True)):
            held.name = (deal.number, place)
            if self._me < 2 and (owner > 1 or owner == self._me):
                held.mask = self._mask(held_purpose(place), deal, prod(held.shape), held.kind).reshape(
                    held.shape
                )
        if any(1 < owner < BOTH for owner in owners):  # an owner that does not compute needs both masks
            reply = yield EngineRound(np.zeros(0, dtype=fresh[0].kind), deal)
            keys = iter(_keys(reply.dealt, 2 * owners.count(self._me)) if self._me > 1 else ())
            masked = []
            for owner, held in zip(owners, fresh, strict=True):
                words = self._subtract_mask(held)
                if held.words is not None and 1 < owner < BOTH:
                    masks = [expand_key(next(keys), held.words.size, held.kind) for _ in range(2)]
                    words = held.words.ravel() - masks[0] - masks[1]
                masked.append(words)
            reply = yield EngineRound(np.concatenate(masked))
        else:
            reply = yield EngineRound(np.concatenate([self._subtract_mask(held) for held in fresh]), deal)
        self._keep_shown(fresh, owners, reply)

    @staticmethod
    def _subtract_mask(held: Held) -> Words:
        if held.words is None or held.mask is None:
            return np.zeros(0, dtype=held.kind)
        return (held.words - held.mask).ravel()

    @staticmethod
    def _keep_shown(fresh: Sequence[Held], owners: Sequence[int], reply: Reply) -> None:
        """Split the numbers that every party showed, in the order of the request."""
        at = [0] * len(reply.shown)
        for owner, held in zip(owners, fresh, strict=True):
            count = prod(held.shape)
            parts = []
            for party in (0, 1) if owner == BOTH else (owner,):
                words = reply.shown[party][at[party] : at[party] + count]
                parts.append(_check_words(words, count, held.kind))
                at[party] += count
            held.shown = np.asarray(sum(parts[1:], start=parts[0])).reshape(held.shape)
            held.words = None
        if at != [words.size for words in reply.shown]:
            raise DecodingError("A party sent the wrong number of values for this step.")

    # ---- masks

    def _deal(self, kind: str, *sizes: int) -> Deal:
        self._number += 1
        return Deal(self._number - 1, kind, tuple(map(int, sizes)))

    def _mask(self, purpose: str, deal: Deal, count: int, kind: Any = np.uint64) -> Words:
        """Return the numbers that this party and the helper draw for a deal; zeros without a share."""
        if self._me > 1:
            return np.zeros(count, dtype=kind)
        return expand_key(self._key(purpose, deal.number), count, kind)

    def _rest(self, dealt: bytes, purpose: str, deal: Deal, count: int, kind: Any = np.uint64) -> Words:
        """Return a share of dealt numbers: the first party draws it, the second receives it."""
        if self._me == 0:
            return self._mask(purpose, deal, count, kind)
        if self._me > 1:
            return np.zeros(count, dtype=kind)
        if len(dealt) != count * np.dtype(kind).itemsize:
            raise DecodingError("The deal from the helper has the wrong size.")
        return np.frombuffer(dealt, dtype=np.dtype(kind).newbyteorder("<")).astype(kind)

    def _bits(self, dealt: bytes, purpose: str, deal: Deal, shape: tuple[int, int]) -> Planes:
        """Return a share of dealt bits: the first party draws it, the second receives it."""
        return self._rest(dealt, purpose, deal, prod(shape)).reshape(shape)

    def _mine(self, words: Words) -> Words:
        return words if self._me < 2 else words[:0]

    def _total(self, reply: Reply, count: int, kind: Any = np.uint64) -> Words:
        first, second = (_check_words(words, count, kind) for words in reply.shown[:2])
        return first + second


def _check_words(words: Words, count: int, kind: Any) -> Words:
    if words.size != count or words.dtype != kind:
        raise DecodingError("A party sent the wrong number of values for this step.")
    return words.ravel()


def _keys(dealt: bytes, count: int = 2) -> list[bytes]:
    if len(dealt) != count * KEY_SIZE:
        raise DecodingError("The deal from the helper has the wrong size.")
    return [dealt[start : start + KEY_SIZE] for start in range(0, len(dealt), KEY_SIZE)]


def _public(held: Held) -> Words:
    if held.shown is None:
        raise InputError("These numbers were not shown yet.")
    return held.shown


def _local_share(held: Held, me: int) -> Words | None:
    """Return this party's share of numbers that were shown: the first party adds the public part."""
    if me == 0:
        return _public(held) if held.mask is None else _public(held) + held.mask
    return held.mask
