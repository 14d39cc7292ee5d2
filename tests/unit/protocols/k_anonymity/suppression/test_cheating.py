"""Key holders who cheat in blinding, shuffling or opening are caught before anything opens, and named."""

from __future__ import annotations

import pytest
from tests.unit.protocols.k_anonymity.suppression.parties import (
    ROWS,
    board,
    clear_distances,
    pairs,
    signed,
    small,
)

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.elgamal import POINT, Ciphertext, decode_rows, encode_rows, encrypt
from masquerade.crypto.errors import DecodingError, KeySpent
from masquerade.crypto.proofs import Knows, prove
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.k_anonymity.suppression.comparison import MixedPairs, mix_pairs, outcome_of
from masquerade.protocols.k_anonymity.suppression.messages import Boards, distances_on
from masquerade.protocols.mixnet.messages import (
    ENDORSEMENT,
    OPENING,
    SHUFFLE,
    MixBoard,
    SignedMixMessage,
    transcript_for,
)
from masquerade.protocols.mixnet.roles import opening_statement
from masquerade.protocols.mixnet.shuffle import shuffle


@pytest.fixture
def begun():
    population = small()
    return population, population.batch(population.keys())


def nothing(population):
    """Return an encryption of nothing, which would make two people agree."""
    return encrypt(secp256k1.identity, population.holders[0].key.point, secp256k1.random_secret())


def with_nothing(population, blinded):
    first = (nothing(population), *blinded[0][1:])
    return encode_rows([first, *blinded[1:]])


def with_zero(_population, blinded):
    """Return what a factor of zero gives: points that have no encoding."""
    return bytes(2 * POINT) + encode_rows(blinded)[2 * POINT :]


def with_other_factor(_population, blinded):
    pair = blinded[0][0]
    twisted = Ciphertext(pair.a, secp256k1.multiply(pair.b, secp256k1.random_secret()))
    return encode_rows([(twisted, *blinded[0][1:]), *blinded[1:]])


def with_pairs_swapped(_population, blinded):
    return encode_rows([blinded[1], blinded[0], *blinded[2:]])


def with_one_pair_less(_population, blinded):
    return encode_rows(blinded[:-1])


@pytest.mark.parametrize(
    "cheat", [with_nothing, with_zero, with_other_factor, with_pairs_swapped, with_one_pair_less]
)
def test_a_holder_that_cheats_in_blinding_is_named(begun, cheat):
    population, batch = begun
    rows, key, where = pairs(population, batch)
    honest = MixedPairs.decode(mix_pairs(rows, key, where)[0])
    blinded = decode_rows(honest.blinded, 2)
    forged = MixedPairs(cheat(population, blinded), honest.proof, honest.shuffles)
    sent = signed(population, "key holder 1", SHUFFLE, forged.encode())
    with pytest.raises(RoundAborted, match="did not prove") as aborted:
        population.holders[1].shuffle(batch, board(sent))
    assert aborted.value.culprits == ("key holder 1",)


def test_blinding_that_makes_rows_agree_is_caught_even_with_honest_shuffles_after_it(begun):
    population, batch = begun
    rows, key, where = pairs(population, batch)
    honest = MixedPairs.decode(mix_pairs(rows, key, where)[0])
    blinded = tuple((nothing(population), row[1]) for row in decode_rows(honest.blinded, 2))
    shuffles = tuple(
        shuffle(tuple((pair,) for pair in row), key, where(b"shuffle " + p.to_bytes(8, "big"))).encode()
        for p, row in enumerate(blinded)
    )
    forged = MixedPairs(encode_rows(blinded), honest.proof, shuffles).encode()
    sent = signed(population, "key holder 1", SHUFFLE, forged)
    with pytest.raises(RoundAborted) as aborted:
        population.holders[1].shuffle(batch, board(sent))
    assert aborted.value.culprits == ("key holder 1",)


def test_a_holder_that_cheats_in_shuffling_is_named(begun):
    population, batch = begun
    rows, key, where = pairs(population, batch)
    honest = MixedPairs.decode(mix_pairs(rows, key, where)[0])
    first = decode_rows(honest.blinded, 2)[0]
    twice = shuffle(((first[0],), (first[0],)), key, where(b"shuffle " + bytes(8))).encode()
    for replaced in (twice, honest.shuffles[1]):  # one attribute counted twice; another pair's shuffle
        forged = MixedPairs(honest.blinded, honest.proof, (replaced, *honest.shuffles[1:])).encode()
        sent = signed(population, "key holder 1", SHUFFLE, forged)
        with pytest.raises(RoundAborted) as aborted:
            population.holders[1].shuffle(batch, board(sent))
        assert aborted.value.culprits == ("key holder 1",)


def test_the_last_holder_is_checked_by_those_before_it(begun):
    population, batch = begun
    first = population.holders[0].shuffle(batch, board())
    copied = SignedMixMessage.decode(first).payload  # the other holder's work as one's own
    sent = signed(population, "key holder 2", SHUFFLE, copied)
    with pytest.raises(RoundAborted) as aborted:
        population.holders[0].endorse(batch, board(first, sent))
    assert aborted.value.culprits == ("key holder 2",)


def test_nothing_opens_until_all_holders_have_signed_the_same(begun):
    population, batch = begun
    mixings = population.mixings(batch)
    first = population.holders[0].endorse(batch, mixings)
    with pytest.raises(RoundAborted) as aborted:
        population.holders[0].open(board(first))
    assert aborted.value.culprits == ("key holder 2",)
    other = signed(population, "key holder 2", ENDORSEMENT, bytes(32))
    with pytest.raises(RoundAborted, match="different shuffles"):
        population.holders[0].open(board(first, other))
    with pytest.raises(RoundAborted, match="different shuffles"):
        population.miner.open(batch, mixings, board(first, other))
    with pytest.raises(InputError, match="come before"):
        population.holders[1].open(board(first, other))


def opened(population, batch):
    mixings = population.mixings(batch)
    endorsements = population.endorsements(batch, mixings)
    parts = [holder.open(endorsements) for holder in population.holders]
    parts.append(population.miner.open(batch, mixings, endorsements))
    return mixings, endorsements, parts


def test_a_holder_that_cheats_in_opening_is_named():
    population = small()
    keys = population.keys()
    batch = population.batch(keys)
    mixings, endorsements, parts = opened(population, batch)
    boards = Boards(keys, batch, mixings, endorsements, board(*parts))
    view = distances_on(population.terms, boards)
    assert view.between.tolist() == clear_distances(ROWS)
    key = population.holders[0].key
    rows = outcome_of(SignedMixMessage.decode(MixBoard.decode(mixings).parts[-1]).payload, 6, 2)
    for place, name in enumerate(("key holder 1", "key holder 2", "miner")):
        other = secp256k1.random_secret()
        partial = [secp256k1.multiply(pair.a, other) for row in rows for pair in row]
        where = transcript_for(population.terms.mix, name, OPENING, roster=key.id, query=boards.mixed_hash)
        statement = opening_statement(rows, secp256k1.multiply_generator(other), partial)
        proof = prove(statement, [Knows((other,))], where)
        forged = signed(population, name, OPENING, b"".join(p.encode() for p in partial) + proof)
        changed = [*parts[:place], forged, *parts[place + 1 :]]
        with pytest.raises(RoundAborted, match="did not prove") as aborted:
            distances_on(population.terms, boards._replace(openings=board(*changed)))
        assert aborted.value.culprits == (name,)


def test_a_holder_who_stays_away_is_named_and_nothing_opens(begun):
    population, batch = begun
    _, _, parts = opened(population, batch)
    with pytest.raises(RoundAborted) as aborted:
        population.miner.opening_board(parts[1:])
    assert aborted.value.culprits == ("key holder 1",)


def test_every_step_is_taken_once(begun):
    population, batch = begun
    mixings, endorsements, _ = opened(population, batch)
    first = population.holders[0]
    for again in (
        lambda: first.shuffle(batch, board()),
        lambda: first.endorse(batch, mixings),
        lambda: first.open(endorsements),
        lambda: population.miner.open(batch, mixings, endorsements),
        lambda: population.people[0].submit(b""),
    ):
        with pytest.raises((KeySpent, DecodingError)):
            again()


def test_mixings_of_another_session_prove_nothing(begun):
    population, batch = begun
    other = small()
    replayed = other.holders[0].shuffle(other.batch(other.keys()), board())
    with pytest.raises(RoundAborted, match="not signed by its sender"):
        population.holders[1].shuffle(batch, board(replayed))
    payload = SignedMixMessage.decode(replayed).payload
    with pytest.raises(RoundAborted) as aborted:
        population.holders[1].shuffle(batch, board(signed(population, "key holder 1", SHUFFLE, payload)))
    assert aborted.value.culprits == ("key holder 1",)


@pytest.mark.parametrize("place", [0, 0.3, 0.6, 0.999])
def test_changed_and_truncated_mixings_fail_closed(begun, place):
    population, batch = begun
    honest = SignedMixMessage.decode(population.holders[0].shuffle(batch, board())).payload
    at = int(place * len(honest))
    for payload in (
        honest[:at] + bytes([honest[at] ^ 1]) + honest[at + 1 :],
        honest[:at],
        honest + b"\0",
    ):
        with pytest.raises(RoundAborted) as aborted:
            population.holders[1].shuffle(batch, board(signed(population, "key holder 1", SHUFFLE, payload)))
        assert aborted.value.culprits == ("key holder 1",)
