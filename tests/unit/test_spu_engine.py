"""What is refused before SPU's processes meet, and the frames between an engine and its process."""

import io
import json
import sys

import numpy as np
import pytest
from benchmarks import spu_worker
from benchmarks.spu_engine import SpuEngine
from benchmarks.spu_worker import Node, _ordered, read_frame, write_frame

from masquerade.core.errors import InputError

ADDRESSES = {name: f"127.0.0.1:{9001 + place}" for place, name in enumerate("abc")}


def framed(header, *arrays):
    stream = io.BytesIO()
    write_frame(stream, header, arrays)
    return stream.getvalue()


def test_everything_wrong_is_said_at_once(monkeypatch):
    monkeypatch.delenv("MASQUERADE_SPU_PYTHON", raising=False)
    with pytest.raises(InputError) as told:
        SpuEngine("x", {"a": "127.0.0.1:9001", "b": "hospital.example:9001", "c": "127.0.0.1", "d": "::1:0"})
    text = str(told.value)
    wrong = [f"of {name!r} is none of this machine" for name in "bcd"]
    for part in ("for 3 parties, named are 4", "'x' is none", *wrong):
        assert part in text
    assert "of 'a' is none" not in text
    assert "pip install spu==" in text
    assert "MASQUERADE_SPU_PYTHON" in text
    with pytest.raises(InputError, match="an address of its own"):
        SpuEngine("a", dict.fromkeys("abc", "127.0.0.1:9001"), python=sys.executable)


def test_a_python_without_spu_or_none_at_all_is_named(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="SPU gave up: ModuleNotFoundError"):
        SpuEngine("a", ADDRESSES, python=sys.executable)
    with pytest.raises(InputError, match="cannot be started"):
        SpuEngine("a", ADDRESSES, python=tmp_path / "python")
    empty = tmp_path / "empty.py"
    empty.touch()
    monkeypatch.setattr(spu_worker, "__file__", str(empty))
    with pytest.raises(InputError, match="its process ended"):
        SpuEngine("a", ADDRESSES, python=sys.executable)


def test_frames_carry_whole_numbers_and_bytes():
    arrays = [np.arange(-3, 3).reshape(2, 3), np.zeros((0, 4), dtype=np.uint8), np.array(2**63 - 1)]
    stream = io.BytesIO(framed({"do": "step"}, *arrays) + framed({}))
    header, found = read_frame(stream)
    assert header == {"do": "step"}
    for one, other in zip(arrays, found, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    assert read_frame(stream) == ({}, [])
    with pytest.raises(EOFError):
        read_frame(stream)


def test_a_frame_that_is_cut_or_of_another_kind_is_refused():
    whole = framed({"do": "open"}, np.arange(5))
    for end in range(len(whole)):
        with pytest.raises(EOFError):
            read_frame(io.BytesIO(whole[:end]))
    for arrays in ([["|O", [1]]], [["<f8", [1]]], [["<i8", [-1]]], [["<i8", [True]]]):
        text = json.dumps({"arrays": arrays}).encode()
        with pytest.raises(ValueError, match="whole numbers or bytes"):
            read_frame(io.BytesIO(len(text).to_bytes(4, "little") + text + bytes(8)))
    with pytest.raises(ValueError, match="too long"):
        read_frame(io.BytesIO((1 << 25).to_bytes(4, "little")))


def test_a_graph_is_ordered_parts_first_and_nothing_twice():
    given = Node("", (), (), (3,))
    given.place = "n1"
    node, chain = given, []
    for _ in range(5000):  # deeper than calls may be
        node = Node("add", (node, node), (), (3,))
        chain.append(node)
    order, inputs = _ordered([chain[-1], chain[10]])
    assert order == chain
    assert inputs == [given]
