"""Many proofs at once: the same verdicts as one by one."""

import pytest
from tests.unit.crypto.votes import proved_bits, transcript

from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.crypto.proof_batches import ProofClaim, WeightedSum, find_rejected, random_weights
from masquerade.crypto.proofs import verify
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.secp256k1 import secp256k1

both = pytest.mark.parametrize("group", [secp256k1, ristretto255], ids=str)


@pytest.fixture(scope="module")
def votes():
    made = {
        group.name: proved_bits(group, [user % 2 for user in range(n)])
        for group, n in ((secp256k1, 100), (ristretto255, 20))
    }
    return lambda group: list(zip(range(1000), *made[group.name], strict=False))


def claim(item):
    user, statement, proof = item
    if statement is None:
        raise DecodingError("unreadable")
    return ProofClaim(statement, proof, transcript(user))


def flipped(proof, at):
    changed = bytearray(proof)
    changed[at] ^= 1
    return bytes(changed)


@both
@pytest.mark.parametrize("batch", [7, 1000])
def test_honest_proofs_all_pass(group, batch, votes):
    assert find_rejected(votes(group), claim, batch=batch) == []
    assert find_rejected([], claim) == []


@both
@pytest.mark.parametrize("batch", [7, 50])
def test_cheaters_are_named(group, batch, votes):
    items = votes(group)
    last = len(items) - 1
    items[3] = (3, items[3][1], flipped(items[3][2], -1))  # a response
    items[4] = (4, items[4][1], flipped(items[4][2], 0))  # a commitment
    items[5] = (6, items[5][1], items[5][2])  # another user's context
    items[11] = (11, None, b"")  # unreadable
    items[last] = (last, items[last][1], items[last][2][:-1])  # too short
    assert find_rejected(items, claim, batch=batch) == [3, 4, 5, 11, last]
    assert find_rejected(iter(items), claim, batch=batch, workers=1) == [3, 4, 5, 11, last]


@pytest.mark.parametrize("each", [9, 60, 10_000])
def test_cheaters_are_named_among_large_claims(each, votes):
    """However few claims are weighed together, down to one alone, the same ones fail."""
    items = votes(secp256k1)
    for user in (0, 31, 99):
        items[user] = (user, items[user][1], flipped(items[user][2], -1))
    items[50] = (50, None, b"")
    assert find_rejected(items, claim, batch=300, each=each, workers=1) == [0, 31, 50, 99]


def test_only_cheaters(votes):
    items = [(user + 1, statement, proof) for user, statement, proof in votes(secp256k1)[:30]]
    assert find_rejected(items, claim) == list(range(30))


@both
def test_two_errors_that_would_cancel_unweighed_are_both_noticed(group, votes):
    """Move t·G from one response to another: the plain sum of all equations would not change."""
    items = votes(group)[:10]
    at = len(items[0][2]) - 3 * 32  # the shared witness x of the first part
    start = slice(at - 32, at)
    for user, delta in ((0, 1), (1, -1)):
        scalar = (int.from_bytes(items[user][2][start], group.byteorder) + delta) % group.order
        proof = items[user][2][: at - 32] + group.encode_scalar(scalar) + items[user][2][at:]
        items[user] = (user, items[user][1], proof)
        with pytest.raises(ProofRejected):
            verify(items[user][1], proof, transcript(user))
    assert find_rejected(items, claim) == [0, 1]


def test_a_claim_that_cannot_be_read_leaves_nothing_behind(votes):
    user, statement, proof = votes(secp256k1)[0]
    weighed = WeightedSum()
    broken = proof[: 5 * 33] + bytes(33) + proof[6 * 33 :]
    with pytest.raises(DecodingError):
        weighed.add(ProofClaim(statement, broken, transcript(user)))
    weighed.add(ProofClaim(statement, proof, transcript(user)))
    assert weighed.holds()


def test_transcripts_of_claims_are_not_used_up(votes):
    user, statement, proof = votes(secp256k1)[0]
    kept = ProofClaim(statement, proof, transcript(user))
    assert find_rejected([kept] * 20, lambda item: item) == []
    assert find_rejected([kept] * 20, lambda item: item) == []


def test_weights_are_fresh_and_of_128_bits():
    drawn = random_weights(1000)
    assert len(set(drawn)) == 1000
    assert all(0 < weight < 2**128 for weight in drawn)
    assert max(drawn) >> 120  # false alarm: all 1000 below 2^120 with probability 2^-8000
