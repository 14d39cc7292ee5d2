"""Texts are found in a list of labels, and rows of labels written, as Python's own dictionary and join do."""

import numpy as np
import pyarrow as pa
import pytest

from masquerade.kernels.label_text import MOST_LABELS, label_rows, label_table, mark_texts

LONG = "a label of more than sixteen bytes "
SHORT = ["", "a", "b", "ab", "ba", "aaaaaaaa", "aaaaaaab", "baaaaaaa", "aaaaaaaaa", "äöü", "a\0", "\0"]
MIXED = [*SHORT, "a" * 15, "a" * 16, "a" * 17, *(LONG + end for end in "xyz"), *map(str, range(100))]
OTHERS = ["c", "aa", "a" * 18, LONG.replace("more", "less") + "x", LONG, "-1", "ö", "aaaaaaac", "a\0\0"]


def marked(texts, labels, kind=None):
    column = pa.array(texts, kind or pa.string())
    _, places, data = column.buffers()
    width = np.int64 if kind == pa.large_string() else np.int32
    offsets = np.frombuffer(places, dtype=width)[: len(texts) + 1]
    bare = np.frombuffer(data or b"", dtype=np.uint8)[: offsets[-1]]  # no byte to spare after the last text
    out = np.empty(len(texts), dtype=np.uint16)
    mark_texts((bare, offsets), label_table(tuple(labels)), np.arange(len(labels) + 1, dtype=np.uint16), out)
    return out.tolist()


@pytest.mark.parametrize("labels", [SHORT, MIXED, [""], [LONG]])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_every_text_has_the_mark_of_its_label(labels, kind):
    texts = np.random.default_rng().choice([*MIXED, *OTHERS], 5000).tolist()
    known = {label: place for place, label in enumerate(labels)}
    assert marked(texts, labels, kind) == [known.get(text, len(labels)) for text in texts]
    for last in [*MIXED, *OTHERS]:  # where the bytes end
        assert marked([last], labels, kind) == [known.get(last, len(labels))]


def test_lists_that_have_no_table():
    assert label_table(()) is None
    assert label_table(tuple(map(str, range(MOST_LABELS)))) is not None
    assert label_table(tuple(map(str, range(MOST_LABELS + 1)))) is None
    assert label_table(tuple(f"the first bytes {k} the last bytes" for k in range(2))) is None


@pytest.mark.parametrize("rows", [0, 1, 70_000])
def test_rows_are_the_labels_one_after_the_other(rows):
    generator = np.random.default_rng()
    columns = [[b"x,", b"longer than a word,", b","], [f"{k};".encode() for k in range(300)], [b"\n"]]
    kinds = (np.int8, np.uint16, np.int64)
    codes = [
        generator.integers(0, len(own), rows).astype(kind) for own, kind in zip(columns, kinds, strict=True)
    ]
    written = b"".join(bytes(piece) for piece in label_rows(codes, columns))
    assert written == b"".join(a + b + c for a, b, c in zip(*map(_taken, columns, codes), strict=True))


def _taken(labels, codes):
    return [labels[code] for code in codes.tolist()]


@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_code_without_a_label_is_refused(wrong):
    with pytest.raises(IndexError, match="outside"):
        list(label_rows([np.array([0, wrong], dtype=np.int16)], [[b"a", b"b"]]))
