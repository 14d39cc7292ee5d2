"""A shuffle is accepted if it is one, and whatever else was done to the rows is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError
from masquerade.crypto.elgamal import (
    PIECE,
    Ciphertext,
    decode_rows,
    embed_piece,
    encode_rows,
    encrypt,
    extract_piece,
    pieces_of,
    record_of,
    rerandomize,
)
from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.crypto.proofs import NOT_YET, Context, Knows, Transcript, prove
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.mixnet import shuffle as module
from masquerade.protocols.mixnet.shuffle import Shuffled, check_shuffle, shuffle

G = secp256k1.generator
SECRET = secp256k1.random_secret()
KEY = secp256k1.multiply_generator(SECRET)


def transcript(session=b"s"):
    return Transcript(Context("mix", session, NOT_YET, NOT_YET, b"leader", "shuffle"))


def rows(n, width=1):
    return tuple(
        tuple(encrypt(embed_piece(bytes([i, j])), KEY, secp256k1.random_secret()) for j in range(width))
        for i in range(n)
    )


def opened(row):
    return tuple(extract_piece(pair.b - secp256k1.multiply(pair.a, SECRET)) for pair in row)


@pytest.mark.parametrize(("n", "width"), [(1, 1), (2, 1), (5, 1), (4, 3), (60, 1)])
def test_a_shuffle_holds_the_same_in_another_order_and_proves_it(n, width):
    before = rows(n, width)
    shuffled = shuffle(before, KEY, transcript())
    assert sorted(map(opened, shuffled.rows)) == sorted(map(opened, before))
    points = {point for row in before for pair in row for point in pair}
    assert points.isdisjoint(point for row in shuffled.rows for pair in row for point in pair)
    received = Shuffled.decode(shuffled.encode(), n, width)
    check_shuffle(before, KEY, received, transcript())


def test_every_order_is_possible_and_provable():
    before = rows(3)
    for order in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]):
        shuffled = module._shuffle_in_order(before, KEY, transcript(), order)
        assert [opened(row) for row in shuffled.rows] == [opened(before[j]) for j in order]
        check_shuffle(before, KEY, shuffled, transcript())
    seen = {tuple(map(opened, shuffle(before, KEY, transcript()).rows)) for _ in range(150)}
    assert len(seen) == 6  # one of six missing in 150 draws: 6·(5/6)^150 < 1e-11


def refused(before, shuffled):
    with pytest.raises(ProofRejected):
        check_shuffle(before, KEY, shuffled, transcript())


def new(piece):
    return (encrypt(embed_piece(piece), KEY, secp256k1.random_secret()),)


def tagged(row):
    """Return a row whose record is marked by a known difference."""
    return tuple(Ciphertext(pair.a, pair.b + G) for pair in row)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda out: (new(b"other"), *out[1:]),
        lambda out: (out[1], *out[1:]),
        lambda out: (tuple(rerandomize(pair, KEY, secp256k1.random_secret()) for pair in out[1]), *out[1:]),
        lambda out: (tagged(out[0]), *out[1:]),
        lambda out: (tagged(out[0]), tuple(Ciphertext(p.a, p.b - G) for p in out[1]), *out[2:]),
        lambda out: out[1:],
        lambda out: (*out, out[0]),
        lambda out: (out[1], out[0], *out[2:]),
        lambda out: (tuple(Ciphertext(pair.b, pair.a) for pair in out[0]), *out[1:]),
    ],
    ids=[
        "replaced", "duplicated", "duplicated and rerandomize", "tagged", "two tags that cancel", "dropped",
        "added", "swapped afterwards", "halves exchanged",
    ],
)  # fmt: skip
def test_outputs_changed_after_the_proof_are_refused(spoil):
    before = rows(4)
    shuffled = shuffle(before, KEY, transcript())
    refused(before, shuffled._replace(rows=spoil(shuffled.rows)))


class Cheat:
    """A prover that changes its outputs or its matrix and then follows the protocol as far as it can."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch

    def outputs(self, before, spoil):
        """Prove honestly for `before`, with outputs spoilt before the challenges are drawn."""
        honest = module._challenges

        def challenges(rows_, key, outputs, commitments, where):
            return honest(rows_, key, spoil(outputs), commitments, where)

        with self.monkeypatch.context() as patch:
            patch.setattr(module, "_challenges", challenges)
            shuffled = shuffle(before, KEY, transcript())
        return shuffled._replace(rows=spoil(shuffled.rows))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda out: (new(b"other"), *out[1:]),
        lambda out: (tagged(out[0]), *out[1:]),
        lambda out: (tuple(Ciphertext(pair.a + G, pair.b) for pair in out[0]), *out[1:]),
        lambda out: (tuple(rerandomize(pair, KEY, secp256k1.secret(7)) for pair in out[1]), *out[1:]),
    ],
    ids=["replaced", "tagged", "tagged in the other half", "duplicated"],
)
def test_a_cheat_that_knows_the_challenges_of_its_outputs_is_refused(monkeypatch, spoil):
    before = rows(4)
    fixed = {}

    def once(out):
        return fixed.setdefault("rows", spoil(out))

    refused(before, Cheat(monkeypatch).outputs(before, once))


@pytest.mark.parametrize("order", [[0, 0, 1, 2], [1, 1, 1, 1]])
def test_a_matrix_that_is_no_permutation_is_refused(order):
    """A prover that sends an input to two places has no commitment for the one it drops, and makes one up."""
    before = rows(4)
    refused(before, _made_up(before, order))


def _made_up(before, order):
    original = module.secp256k1.multiply_generator
    lost = [j for j in range(len(before)) if j not in order]
    honest = module._challenges

    def challenges(rows_, key, outputs, commitments, where):
        for j in lost:
            commitments[j] = original(secp256k1.secret(99 + j))
        return honest(rows_, key, outputs, commitments, where)

    module._challenges, saved = challenges, module._challenges
    try:
        return module._shuffle_in_order(before, KEY, transcript(), order)
    finally:
        module._challenges = saved


def times(pairs, numbers):
    """Return Σ number·ciphertext."""
    return Ciphertext(
        secp256k1.combine_public([pair.a for pair in pairs], numbers),
        secp256k1.combine_public([pair.b for pair in pairs], numbers),
    )


def by_matrix(before, matrix, moving, committed=None):
    """Follow the protocol with any matrix M; output i is Σ_j N_ij·e_j, where N is the inverse of Mᵀ."""
    committed = matrix if committed is None else committed
    n, q = len(before), secp256k1.order
    fresh, s, t = ([secp256k1.random_secret() for _ in range(n)] for _ in range(3))
    inputs = [row[0] for row in before]
    outputs = tuple((rerandomize(times(inputs, moving[i]), KEY, fresh[i]),) for i in range(n))
    bases = [module._base(i) for i in range(n)]
    commitments = tuple(
        secp256k1.multiply_generator(s[j])
        + secp256k1.combine_public(bases, [committed[i][j] for i in range(n)])
        for j in range(n)
    )
    where = transcript()
    u = module._challenges(before, KEY, outputs, commitments, where)
    moved = [sum(matrix[i][j] * u[j] for j in range(n)) % q for i in range(n)]
    chain, total = module._chain([secret.reveal() for secret in t], moved)
    opened_s = [secret.reveal() for secret in s]
    witnesses = [
        sum(opened_s),
        total,
        sum(a * b for a, b in zip(opened_s, u, strict=True)),
        -sum(r.reveal() * number for r, number in zip(fresh, moved, strict=True)),
    ]
    knows = Knows((*[secp256k1.secret(w) for w in witnesses], *t, *[secp256k1.secret(m) for m in moved]))
    shuffled = Shuffled(outputs, commitments, tuple(chain), b"")
    proof = prove(module._statement(before, KEY, shuffled, u), [knows], where)
    return shuffled._replace(proof=proof)


HALF = pow(2, -1, secp256k1.order)


@pytest.mark.parametrize(
    ("matrix", "moving"),
    [([[2, -1], [1, 0]], [[0, -1], [1, 2]]), ([[2, 0], [0, HALF]], [[HALF, 0], [0, 2]])],
    ids=["rows add up to one, products differ", "products agree, rows do not add up"],
)
def test_each_half_of_the_argument_for_a_permutation_is_needed(matrix, moving):
    before = rows(2)
    refused(before, by_matrix(before, matrix, moving))


def test_the_permutation_used_must_be_the_one_committed_to():
    before = rows(2)
    same, swapped = [[1, 0], [0, 1]], [[0, 1], [1, 0]]
    check_shuffle(before, KEY, by_matrix(before, swapped, swapped), transcript())
    refused(before, by_matrix(before, swapped, swapped, committed=same))


def test_the_same_prover_is_believed_with_a_permutation():
    before = rows(3)
    matrix = [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    check_shuffle(before, KEY, by_matrix(before, matrix, matrix), transcript())


def test_the_made_up_prover_is_believed_where_it_does_not_cheat():
    before = rows(4)
    check_shuffle(before, KEY, _made_up(before, [2, 0, 3, 1]), transcript())


def test_a_proof_is_for_its_inputs_its_key_and_its_context():
    before = rows(3)
    shuffled = shuffle(before, KEY, transcript())
    refused((before[1], before[0], before[2]), shuffled)
    refused(rows(3), shuffled)
    for key, session in ((KEY + G, b"s"), (KEY, b"another session")):
        with pytest.raises(ProofRejected):
            check_shuffle(before, key, shuffled, transcript(session))


def test_any_changed_bit_of_a_shuffle_is_refused():
    before = rows(2)
    data = shuffle(before, KEY, transcript()).encode()
    for bit in range(0, 8 * len(data), 29):
        spoilt = bytearray(data)
        spoilt[bit // 8] ^= 1 << bit % 8
        with pytest.raises((ProofRejected, DecodingError)):
            check_shuffle(before, KEY, Shuffled.decode(bytes(spoilt), 2, 1), transcript())
    for other in (data[:-1], data + b"\0", data[: len(data) // 3]):
        with pytest.raises((ProofRejected, DecodingError)):
            check_shuffle(before, KEY, Shuffled.decode(other, 2, 1), transcript())


def test_the_commitments_rest_on_points_nobody_knows_the_logarithm_of():
    points = {module._base(i) for i in range(50)} | {module._first(), G}
    assert len(points) == 52


@settings(max_examples=60, derandomize=True, deadline=None)
@given(piece=st.binary(max_size=PIECE))
def test_pieces_are_embedded_and_extracted(piece):
    assert extract_piece(embed_piece(piece)) == piece


@settings(max_examples=40, derandomize=True, deadline=None)
@given(record=st.binary(max_size=3 * PIECE))
def test_records_are_cut_and_put_together(record):
    assert record_of([embed_piece(piece) for piece in pieces_of(record, 3)]) == record


def test_what_is_no_record_is_refused():
    with pytest.raises(InputError, match="at most 30 bytes"):
        embed_piece(bytes(31))
    with pytest.raises(InputError, match="at most 60 bytes"):
        pieces_of(bytes(61), 2)
    for point in (G, -embed_piece(b"odd"), secp256k1.identity, embed_piece(b"x") + G):
        with pytest.raises(DecodingError):
            extract_piece(point)
    with pytest.raises(DecodingError, match="not filled in order"):
        record_of([embed_piece(b"short"), embed_piece(b"more")])


@settings(max_examples=60, derandomize=True, deadline=None)
@given(noise=st.binary(max_size=400), keep=st.integers(0, 140), width=st.integers(1, 3))
def test_noise_is_no_rows(noise, keep, width):
    data = encode_rows(ROWS)[:keep] + noise
    try:
        found = decode_rows(data, width)
    except DecodingError:
        return
    assert encode_rows(found) == data


ROWS = rows(2)
