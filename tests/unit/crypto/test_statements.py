"""Everything a statement says enters its challenge; the package stays behind its door."""

import json
import subprocess
import sys

import pytest
from tests.unit.crypto.votes import election, transcript

from masquerade.crypto.proofs import (
    Either,
    Equation,
    Linear,
    describe,
    equal_logs,
    knows_bit,
    mask,
    one_hot,
    open_proof,
    possession,
    prove,
    valid_bit,
)
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.secp256k1 import secp256k1


@pytest.mark.parametrize("group", [secp256k1, ristretto255], ids=str)
def test_statements_that_differ_anywhere_are_described_differently(group):
    G = group.generator
    A, B = (group.multiply_public(G, k) for k in (5, 7))
    _, ballots = election(group, [0, 1])
    moved = [ballots[0]._replace(**{name: value + G}) for name, value in ballots[0]._asdict().items()]
    one = Equation(A, ((0, G),))
    statements = [
        *map(possession, (A, B)),
        *map(equal_logs, ([(A, G), (B, G)], [(B, G), (A, G)], [(A, B), (B, G)])),
        *map(valid_bit, (*ballots, *moved)),
        *map(one_hot, (ballots, ballots[::-1], ballots[:1])),
        (Linear((one,)), Linear((one,))),
        (Linear((one, one)),),
        (Linear((one, one), 2),),
        (Linear((one, Equation(A, ((1, G),))), 2),),
        (Either((Linear((one,)),)),),
        (Either((Linear((one,)), Linear((one,)))),),
        (Linear((Equation(A, ((0, G),), 1),)),),
        (Linear((Equation(A, ((0, G), (0, G))),)),),
    ]
    described = {describe(statement) for statement in statements}
    assert len(described) == len(statements)


def test_a_statement_cannot_be_chosen_after_its_challenge():
    """Weak Fiat–Shamir hashes commitments alone: then X = (s·G − A)/c has a proof that nobody earned."""
    group, s = secp256k1, 12345
    A = group.multiply_public(group.generator, 67890)
    first = possession(group.multiply_public(group.generator, 99))
    c = open_proof(first, A.encode() + group.encode_scalar(s), transcript()).challenges[0]
    X = group.multiply_public(group.multiply_public(group.generator, s) - A, pow(c, -1, group.order))
    forged = open_proof(possession(X), A.encode() + group.encode_scalar(s), transcript())
    assert forged.challenges[0] != c


def operations(monkeypatch, group, action):
    """Return the names of the group's operations that an action performs, sorted."""
    done = []
    with monkeypatch.context() as patched:
        for name in ("multiply", "multiply_generator", "multiply_public", "negate", "sum_points", "respond"):
            real = getattr(type(group), name)
            patched.setattr(
                type(group), name, lambda *a, real=real, name=name: (done.append(name), real(*a))[1]
            )
        action()
    return sorted(done)


@pytest.mark.parametrize("group", [secp256k1, ristretto255], ids=str)
def test_neither_casting_nor_proving_tells_the_bit_by_the_work_done(monkeypatch, group):
    keys, ballots = election(group, [0, 1])
    X, Y = ballots[0].X, ballots[0].Y
    proving, casting = (
        [operations(monkeypatch, group, lambda bit=bit, act=act: act(bit)) for bit in (0, 1)]
        for act in (
            lambda bit: prove(valid_bit(ballots[bit]), knows_bit(bit, keys[bit]), transcript()),
            lambda bit: mask(bit, keys[bit], X, Y),
        )
    )
    assert proving[0] == proving[1]
    assert proving[0].count("multiply") == 5
    assert casting[0] == casting[1]
    assert casting[0].count("multiply") == 2


def test_the_library_does_not_load_any_of_it():
    code = (
        "import json, sys, masquerade; masquerade.learn; "
        "wanted = ('coincurve', 'rbcl', 'masquerade.crypto'); "
        "print(json.dumps([name for name in sys.modules if name.startswith(wanted)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert json.loads(done.stdout) == []
