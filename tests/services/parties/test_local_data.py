"""What a party holds: people are named the same in runs and at once; keys of several files are alike."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.services.parties import local_data
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
    with pytest.raises(InputError, match="a text or a whole number"):
        held(pa.array([3.5]), pa.array(["1"])).keys()
