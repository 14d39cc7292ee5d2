"""Proofs hold for true statements in their context, and for nothing else."""

import pytest
from tests.unit.crypto.votes import cast, election, proved_bits, proved_one_hot, transcript

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.crypto.proofs import (
    BallotKeys,
    Either,
    Equation,
    Knows,
    Linear,
    equal_logs,
    knows_bit,
    knows_one_hot,
    one_hot,
    possession,
    proof_size,
    prove,
    valid_bit,
    verify,
)
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.secp256k1 import secp256k1

both = pytest.mark.parametrize("group", [secp256k1, ristretto255], ids=str)
REFUSED = (ProofRejected, DecodingError)


def known(group):
    x = group.random_secret()
    return x, group.multiply_generator(x)


@both
def test_possession_is_proved(group):
    x, X = known(group)
    proof = prove(possession(X), [Knows((x,))], transcript())
    assert len(proof) == proof_size(possession(X)) == group.point_size + 32
    verify(possession(X), proof, transcript())


@both
def test_possession_fails_for_another_key_and_a_wrong_witness(group):
    x, X = known(group)
    y, Y = known(group)
    proof = prove(possession(X), [Knows((x,))], transcript())
    with pytest.raises(ProofRejected):
        verify(possession(Y), proof, transcript())
    with pytest.raises(ProofRejected):
        verify(possession(X), prove(possession(X), [Knows((y,))], transcript()), transcript())


@both
@pytest.mark.parametrize("name", ["protocol", "session", "roster", "query", "user", "role"])
def test_a_proof_is_worth_nothing_in_another_context(group, name):
    x, X = known(group)
    proof = prove(possession(X), [Knows((x,))], transcript())
    with pytest.raises(ProofRejected):
        verify(
            possession(X), proof, transcript(**{name: "other" if name in {"protocol", "role"} else b"other"})
        )


@both
def test_a_rogue_key_has_no_proof(group):
    """X_n = a·G − ΣX_j: its maker knows a, and cannot pass it off as the logarithm."""
    _, others = known(group)
    a, A = known(group)
    rogue = A - others
    with pytest.raises(ProofRejected):
        verify(possession(rogue), prove(possession(rogue), [Knows((a,))], transcript()), transcript())


@both
def test_equal_logarithms(group):
    x, X = known(group)
    _, B = known(group)
    _, C = known(group)
    pairs = [(X, group.generator), (group.multiply(B, x), B), (group.multiply(C, x), C)]
    proof = prove(equal_logs(pairs), [Knows((x,))], transcript())
    verify(equal_logs(pairs), proof, transcript())
    for at in range(3):
        changed = list(pairs)
        changed[at] = (pairs[at][0] + group.generator, pairs[at][1])
        with pytest.raises(ProofRejected):
            verify(equal_logs(changed), proof, transcript())
        with pytest.raises(ProofRejected):
            verify(equal_logs(changed), prove(equal_logs(changed), [Knows((x,))], transcript()), transcript())
    with pytest.raises(ProofRejected):
        verify(equal_logs(pairs[::-1]), proof, transcript())
    with pytest.raises(InputError, match="identity"):
        equal_logs([(X, group.identity)])


@both
def test_several_witnesses_in_several_equations(group):
    """A Pedersen commitment and one of its parts: C = a·G + b·H, A = a·G."""
    a, A = known(group)
    b, _ = known(group)
    _, H = known(group)
    C = A + group.multiply(H, b)
    statement = (
        Linear((Equation(C, ((0, group.generator), (1, H))), Equation(A, ((0, group.generator),))), 2),
    )
    verify(statement, prove(statement, [Knows((a, b))], transcript()), transcript())
    with pytest.raises(ProofRejected):
        verify(statement, prove(statement, [Knows((b, a))], transcript()), transcript())


@both
def test_one_of_three(group):
    keys = [known(group) for _ in range(3)]
    statement = (Either(tuple(possession(K)[0] for _, K in keys)),)
    for branch, (secret, _) in enumerate(keys):
        verify(statement, prove(statement, [Knows((secret,), branch)], transcript()), transcript())
    stranger, _ = known(group)
    for branch in range(3):
        with pytest.raises(ProofRejected):
            verify(statement, prove(statement, [Knows((stranger,), branch)], transcript()), transcript())


@both
@pytest.mark.parametrize("bit", [0, 1])
def test_bits_are_proved_and_unmask_to_their_sum(group, bit):
    statements, proofs = proved_bits(group, [bit, 1])
    for user, (statement, proof) in enumerate(zip(statements, proofs, strict=True)):
        verify(statement, proof, transcript(user))
    assert len(proofs[0]) == 6 * group.point_size + 4 * 32
    _, ballots = election(group, [bit, 1, 1])
    masked, masks = group.sum_points(b.m_i for b in ballots), group.sum_points(b.h_i for b in ballots)
    assert masked - masks == group.multiply_public(group.generator, bit + 2)


@both
def test_malformed_votes_cannot_be_proved(group):
    keys, ballots = election(group, [0, 1])
    pair, ballot = keys[0], ballots[0]
    G = group.generator
    wrong = {
        "two": ballot._replace(m_i=ballot.m_i + G + G),
        "minus one": ballot._replace(m_i=ballot.m_i - G),
        "h adds a vote": ballot._replace(h_i=ballot.h_i - G),
        "another's X_i": ballot._replace(X_i=ballots[1].X_i),
        "another's Y_i": ballot._replace(Y_i=ballots[1].Y_i),
    }
    for name, forged in wrong.items():
        for bit in (0, 1):
            proof = prove(valid_bit(forged), knows_bit(bit, pair), transcript())
            with pytest.raises(ProofRejected):
                pytest.fail(f"{name}: {verify(valid_bit(forged), proof, transcript())}")
    honest = prove(valid_bit(ballot), knows_bit(0, pair), transcript())
    for changed in ("X", "Y", "X_i", "Y_i", "m_i", "h_i"):
        moved = ballot._replace(**{changed: getattr(ballot, changed) + G})
        with pytest.raises(ProofRejected):
            verify(valid_bit(moved), honest, transcript())


@both
def test_a_masked_bit_equal_to_the_generator_is_judged_not_crashed_on(group):
    _, ballots = election(group, [0, 1])
    strange = valid_bit(ballots[0]._replace(m_i=group.generator))
    _, proofs = proved_bits(group, [0, 1])
    with pytest.raises(ProofRejected):
        verify(strange, proofs[0], transcript())


@both
def test_keys_that_cancel_out_mask_nothing_and_are_refused(group):
    keys, ballots = election(group, [0, 1])
    for sums in ({"X": group.identity}, {"Y": group.identity}):
        with pytest.raises(InputError, match="cancel"):
            valid_bit(ballots[0]._replace(**sums))
    with pytest.raises(InputError, match="cancel"):
        cast(1, keys[0], group.identity, ballots[0].Y)
    with pytest.raises(InputError, match="0 or 1"):
        cast(2, keys[0], ballots[0].X, ballots[0].Y)


@both
@pytest.mark.parametrize("hot", [0, 2])
def test_one_hot(group, hot):
    statement, proof = proved_one_hot(group, [int(l == hot) for l in range(3)])
    verify(statement, proof, transcript())


@both
@pytest.mark.parametrize("bits", [(0, 0, 0), (1, 1, 0)])
def test_bits_that_do_not_add_up_to_one_are_not_one_hot(group, bits):
    counts = [election(group, [bit, 0]) for bit in bits]
    keys, ballots = [pairs[0] for pairs, _ in counts], [cast_[0] for _, cast_ in counts]
    with pytest.raises(InputError, match="Exactly one"):
        knows_one_hot(bits, keys)
    # a cheater who goes around that check
    knows = [*(k for bit, pair in zip(bits, keys, strict=True) for k in knows_bit(bit, pair))]
    knows.append(Knows(tuple(pair.y for pair in keys)))
    proof = prove(one_hot(ballots), knows, transcript())
    with pytest.raises(ProofRejected):
        verify(one_hot(ballots), proof, transcript())


def test_a_one_hot_statement_needs_a_ballot():
    with pytest.raises(InputError, match="at least one"):
        one_hot([])


@both
def test_every_flipped_bit_is_noticed(group):
    statements, proofs = proved_bits(group, [1, 0])
    for at in range(8 * len(proofs[0])):
        flipped = bytearray(proofs[0])
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(REFUSED):
            verify(statements[0], bytes(flipped), transcript())


@both
def test_scalars_that_are_not_reduced_are_refused(group):
    statements, proofs = proved_bits(group, [0])
    first = 6 * group.point_size
    for at in range(first, len(proofs[0]), 32):
        value = int.from_bytes(proofs[0][at : at + 32], group.byteorder) + group.order
        if value < 2**256:
            unreduced = value.to_bytes(32, group.byteorder)
            with pytest.raises(DecodingError, match="below the group's order"):
                verify(statements[0], proofs[0][:at] + unreduced + proofs[0][at + 32 :], transcript())


@both
def test_proofs_of_another_length_are_refused(group):
    statements, proofs = proved_bits(group, [0])
    for wrong in (b"", proofs[0][:-1], proofs[0] + b"\x00", proofs[0] * 2):
        with pytest.raises(DecodingError, match="bytes"):
            verify(statements[0], wrong, transcript())


@both
def test_knowledge_that_does_not_fit_is_refused(group):
    keys, ballots = election(group, [0, 1])
    good = knows_bit(0, keys[0])
    for wrong in (
        good[:1],
        (*good, good[0]),
        (good[0], Knows(good[1].witnesses, 2)),
        (good[0], Knows((), 0)),
    ):
        with pytest.raises(InputError):
            prove(valid_bit(ballots[0]), wrong, transcript())


@both
def test_two_proofs_of_the_same_do_not_repeat_their_nonces(group):
    x, X = known(group)
    assert prove(possession(X), [Knows((x,))], transcript()) != prove(
        possession(X), [Knows((x,))], transcript()
    )


def test_ballot_keys_do_not_print():
    pair = BallotKeys(secp256k1.secret(123456789), secp256k1.secret(987654321))
    assert "123456789" not in repr(pair)
    assert "987654321" not in repr(pair)
