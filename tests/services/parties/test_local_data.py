"""What a party holds: people are named the same in runs and at once; keys of several files are alike."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.core.util import scratch
from masquerade.protocols.linkage import pseudonyms
from masquerade.protocols.linkage.record_keys import KeyColumn
from masquerade.services.parties import growing_keys, linkage, local_data
from masquerade.services.parties.local_data import LocalData, RecordBlock, people_digest

KEYS = {
    "numbers": pa.array(np.random.default_rng().permutation(1000)),
    "texts": pa.array([f"person {i} é" for i in np.random.default_rng().permutation(1000)]),
    "long texts": pa.array([f"p{i}" for i in np.random.default_rng().permutation(1003)], pa.large_string()),
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_the_digest_of_people_is_that_of_earlier_versions(keys, monkeypatch):
    """Which hashed all of them at once: a state remembers whom results were about."""
    monkeypatch.setattr(local_data, "KEYS_AT_ONCE", 64)
    at_once = hashlib.sha256()
    for buffer in pa.concat_arrays([keys.take(pc.sort_indices(keys)).cast(pa.string())]).buffers():
        at_once.update(b"" if buffer is None else buffer)
    assert people_digest(keys) == at_once.hexdigest()
    order = pa.array(np.random.default_rng().permutation(len(keys)))
    assert people_digest(keys.take(order)) == people_digest(keys)
    assert people_digest(keys[1:]) != people_digest(keys)


def held(*keys):
    blocks = tuple(RecordBlock({}, column, len(column)) for column in keys)
    return LocalData(Policy.clear(Schema({"a": [0, 1]})), blocks, "", ())


def test_keys_of_several_files():
    data = held(pa.array([3, 1]), pa.array(["1", "x"]), pa.array([7]))
    assert list(data.keys()) == ["3", "1", "x", "7"]
    assert [places.tolist() for places in data.places_of_keys()] == [[0, 1], [1, 2], [3]]
    assert list(held(pa.array([3, 1]), pa.array([1])).keys()) == [3, 1]
    with pytest.raises(InputError, match="names two records"):
        held(pa.array([3, 3]), pa.array([1])).keys()
    with pytest.raises(InputError, match="must be a text or a whole number"):
        held(pa.array([3.5]), pa.array(["1"])).keys()


@pytest.fixture
def many(tmp_path, monkeypatch):
    """Lower the limits so that a few hundred records count as many, and a kilobyte as long."""
    monkeypatch.setattr(scratch, "IN_MEMORY", 1000)
    for module in (growing_keys, local_data, pseudonyms):
        monkeypatch.setattr(module, "SORTED_AT_ONCE", 128)
    for module in (growing_keys, pseudonyms, linkage):
        monkeypatch.setattr(module, "ROWS_AT_ONCE", 50)
    return scratch.Scratch(tmp_path)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_many_records_are_linked_and_ordered_piece_by_piece_as_few_are_at_once(keys, many, monkeypatch):
    generator = np.random.default_rng()
    grown = growing_keys.GrowingKeys(many)
    for at in range(0, len(keys), 170):
        grown.append(keys[at : at + 170])
    assert grown.array().equals(keys)
    ordered = growing_keys.sorted_keys(keys, many)
    assert ordered.equals(keys.take(pc.sort_indices(keys)))
    codes = {"a": generator.integers(0, 3, len(keys)).astype(np.uint8)}
    block = RecordBlock(codes, keys, len(keys))
    tags = pseudonyms.keyed_pseudonyms(KeyColumn(keys), bytes(32), bytes(16), scratch=many)
    found, digest = linkage.Linkage.of(None, tags, many), people_digest(keys, many)
    again = linkage.Linkage.from_pieces(found.to_pieces(), many)
    assert again.alignment == found.alignment
    np.testing.assert_array_equal(again.rows, found.rows)
    moved, expected = block.in_order(found.rows, many), block.take(found.rows)
    assert moved.keys.equals(expected.keys)
    np.testing.assert_array_equal(moved.codes["a"], expected.codes["a"])
    np.testing.assert_array_equal(found.in_place(many).rows, np.arange(len(keys)))
    subset = np.flatnonzero(generator.random(len(keys)) < 0.6)
    some = linkage.Linkage.of(subset, tags[subset], many)
    np.testing.assert_array_equal(tags[some.rows], some.tags)
    monkeypatch.undo()
    plain = linkage.Linkage.of(None, pseudonyms.keyed_pseudonyms(KeyColumn(keys), bytes(32), bytes(16)))
    np.testing.assert_array_equal(found.rows, plain.rows)
    np.testing.assert_array_equal(found.tags, plain.tags)
    assert found.alignment == plain.alignment
    assert digest == people_digest(keys)


def test_a_key_that_is_twice_among_many_is_refused(many):
    keys = KeyColumn(pa.array([*range(600), 3]))
    with pytest.raises(InputError, match="1 records share their key with another record"):
        pseudonyms.keyed_pseudonyms(keys, bytes(32), bytes(16), scratch=many)


def test_keys_of_two_kinds_in_files_that_are_one_block_are_refused():
    grown = growing_keys.GrowingKeys(scratch.MEMORY_ONLY)
    grown.append(pa.array([1, 2]))
    with pytest.raises(InputError, match="int64 in one file and string in another"):
        grown.append(pa.array(["a"]))


def test_missing_keys_are_counted():
    grown = growing_keys.GrowingKeys(scratch.MEMORY_ONLY)
    grown.append(pa.chunked_array([["a", None], ["b"]]).dictionary_encode())
    assert grown.missing == 1
