"""Frozen vectors: the formats stay what they were, and spoiled proofs fail as they did."""

import json

import pytest
from tests.unit.crypto.make_vectors import FOLDER, GROUPS, KEY, begin, everything, statement_of

from masquerade.crypto import errors
from masquerade.crypto.proofs import verify
from masquerade.crypto.symmetric import unseal


def read(name):
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def check(vector):
    group = GROUPS[vector["group"]]
    replaced = vector.get("point", {})
    points = [replaced.get(str(at), point) for at, point in enumerate(vector["points"])]
    statement = statement_of(group, vector["kind"], points)
    verify(statement, bytes.fromhex(vector["proof"]), begin(vector["context"]))


def test_the_files_are_what_the_code_makes():
    for name, contents in everything().items():
        assert contents == read(name), name


@pytest.mark.parametrize("vector", read("proofs.json"), ids=lambda v: f"{v['group']}, {v['name']}")
def test_valid_proofs_hold(vector):
    check(vector)


def test_spoiled_proofs_fail_as_they_must():
    good = {(vector["group"], vector["name"]): vector for vector in read("proofs.json")}
    spoiled = read("proofs_bad.json")
    assert len(spoiled) > 200
    for bad in spoiled:
        with pytest.raises((errors.ProofRejected, errors.DecodingError)) as caught:
            pytest.fail(f"{bad} held: {check(good[bad['group'], bad['of']] | bad['changed'])}")
        assert type(caught.value).__name__ == bad["error"], bad["name"]


def test_every_bit_of_every_part_counts():
    """Flip each bit of the shortest proofs, their points and their context."""
    for vector in read("proofs.json"):
        if vector["kind"] != "possession":
            continue
        for field in ("proof", "points"):
            data = bytes.fromhex(vector["proof"] if field == "proof" else vector["points"][0])
            for at in range(8 * len(data)):
                changed = bytearray(data)
                changed[at // 8] ^= 1 << at % 8
                value = changed.hex() if field == "proof" else [changed.hex()]
                with pytest.raises((errors.ProofRejected, errors.DecodingError)):
                    check(vector | {field: value})


def test_a_sealed_vector_opens():
    assert unseal(KEY, bytes.fromhex(read("formats.json")["sealed"]), b"context") == b"message"
