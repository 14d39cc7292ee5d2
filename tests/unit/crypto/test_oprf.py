"""The oblivious function against the RFC's vectors, and against servers that cheat."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError
from masquerade.crypto import oprf
from masquerade.crypto.errors import DecodingError, ProofRejected
from masquerade.crypto.ristretto255 import ristretto255 as group

FILE = Path(__file__).parents[2] / "vectors" / "oprf" / "ristretto255_sha512_voprf.json"
RFC = json.loads(FILE.read_text(encoding="utf-8"))


def scalar(text):
    return group.secret(group.decode_scalar(bytes.fromhex(text)))


def alone(key, value):
    """Return the output as whoever holds the key computes it, without a client."""
    return oprf.output_of(value, group.multiply(oprf._hash_input(value), key.secret).encode())


KEY = oprf.ServerKey(scalar(RFC["secret"]), group.decode(bytes.fromhex(RFC["public"])))


@pytest.mark.parametrize("vector", RFC["vectors"], ids=lambda vector: vector["name"])
def test_vectors_of_the_rfc(vector):
    inputs = [bytes.fromhex(text) for text in vector["inputs"]]
    blinded = [
        oprf._blind_from_parts(value, scalar(number))
        for value, number in zip(inputs, vector["blinds"], strict=True)
    ]
    elements = [one.element for one in blinded]
    assert [element.encode().hex() for element in elements] == vector["blinded"]
    evaluated, proof = oprf._evaluate_from_parts(KEY, elements, scalar(vector["proof_nonce"]))
    assert [element.encode().hex() for element in evaluated] == vector["evaluated"]
    assert proof.hex() == vector["proof"]
    oprf.verify(KEY.public, elements, evaluated, proof)
    for value, one, point, output in zip(inputs, blinded, evaluated, vector["outputs"], strict=True):
        assert oprf.output_of(value, oprf.unblind(one, point).encode()).hex() == output
        assert alone(KEY, value).hex() == output


@settings(max_examples=15, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_outputs_depend_on_input_and_key_only(values):
    key = oprf.random_key()
    blinded = [oprf.blind(value) for value in values]
    elements = [one.element for one in blinded]
    evaluated, proof = oprf.evaluate(key, elements)
    oprf.verify(key.public, elements, evaluated, proof)
    outputs = [
        oprf.output_of(one.value, oprf.unblind(one, point).encode())
        for one, point in zip(blinded, evaluated, strict=True)
    ]
    assert outputs == [alone(key, value) for value in values]
    assert len({element.encode() for element in elements}) == len(values)  # equal inputs do not look equal


def test_every_way_of_cheating_in_a_batch_is_rejected():
    key, other = oprf.random_key(), oprf.random_key()
    elements = [oprf.blind(bytes([i])).element for i in range(3)]
    evaluated, proof = oprf.evaluate(key, elements)
    wrong = group.multiply(elements[1], other.secret)
    forgeries = [
        (other.public, elements, evaluated, proof),
        (key.public, elements, [evaluated[0], wrong, evaluated[2]], proof),
        (key.public, elements[::-1], evaluated, proof),
        (key.public, elements[:2], evaluated[:2], proof),
        (key.public, elements, evaluated[:2], proof),
        (key.public, elements, evaluated, proof[:32] + bytes(32)),
        (key.public, elements, evaluated, bytes(64)),
        (key.public, elements, evaluated, proof + b"\0"),
        # one key for some and another for the rest, with an honest proof of another batch
        (key.public, elements, oprf.evaluate(other, elements)[0], oprf.evaluate(other, elements)[1]),
    ]
    for forgery in forgeries:
        with pytest.raises(ProofRejected):
            oprf.verify(*forgery)
    with pytest.raises(DecodingError):
        oprf.verify(key.public, elements, evaluated, proof[:32] + b"\xff" * 32)


def test_limits_are_refused():
    with pytest.raises(InputError, match="batch"):
        oprf.evaluate(KEY, [])
    with pytest.raises(InputError, match="65,535 bytes"):
        oprf.blind(bytes(2**16))
