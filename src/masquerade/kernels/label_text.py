"""Look up texts in a short list of labels, and write rows of codes as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled, expect_rows, numpy_twin
from masquerade.kernels.key_texts import Texts

MOST_LABELS: Final = 256  # a larger table of slots does not fit into the cache
_WORD: Final = 8
_TRIES: Final = 64
_PIECE: Final = 1 << 20  # bytes of text per piece, which stay in the cache until they are written
_ODD: Final = 0x9E3779B97F4A7C15
_MASKS: Final = np.array([(1 << (8 * size)) - 1 for size in range(_WORD + 1)], dtype=np.uint64)
U = np.uint64  # unsigned indices avoid numba's check for negative indices, which dominates the cost


@dataclass(frozen=True, slots=True)
class LabelTable:
    """Labels identified by their first and last eight bytes and their length, each in its own slot.

    Attributes
    ----------
    words
        ``(K, 2)`` first and last eight bytes of each label, low byte first; a short label is stored twice.
    sizes
        ``(K,)`` numbers of bytes.
    slots
        Candidate label of a text, indexed by the top bits of ``factor`` times a mixture of its words.
    texts
        The bytes of all labels, and their offsets.
    """

    words: NDArray[np.uint64]
    sizes: NDArray[np.int64]
    slots: NDArray[np.uint16]
    factor: int
    texts: Texts


@lru_cache(maxsize=1024)
def label_table(labels: tuple[str, ...]) -> LabelTable | None:
    """Return a table of distinct labels; None if there are too many, or if some differ only in the middle."""
    if not 0 < len(labels) <= MOST_LABELS:
        return None
    spelled = [label.encode() for label in labels]
    pairs = [(own[:_WORD], own[-_WORD:]) for own in spelled]
    words = np.array([[int.from_bytes(part, "little") for part in pair] for pair in pairs], dtype=U)
    sizes = np.array([len(own) for own in spelled], dtype=np.int64)
    offsets = np.array([0, *accumulate(map(len, spelled))], dtype=np.int64)
    bits = 2 * len(labels).bit_length()
    mixed = _mix_words(words[:, 0], words[:, 1], sizes.astype(U))
    for attempt in range(1, _TRIES):
        factor = (_ODD * (2 * attempt - 1)) % (1 << 64)
        places = (mixed * U(factor)) >> U(64 - bits)
        if len(np.unique(places)) == len(labels):
            slots = np.zeros(1 << bits, dtype=np.uint16)
            slots[places] = np.arange(len(labels))
            data = np.frombuffer(b"".join(spelled), dtype=np.uint8)
            return LabelTable(words, sizes, slots, factor, (data, offsets))
    return None


def mark_texts(
    texts: Texts, table: LabelTable, marks: NDArray[np.integer[Any]], out: NDArray[np.integer[Any]]
) -> None:
    """Write the mark of each text's label to ``out``; unknown texts get the last mark.

    Cost: two words and one slot are read per text, without a branch that could be mispredicted. A text
    longer than two words is compared in full.
    """
    data, offsets = texts
    expect_rows(out.size)
    known = table.words, table.sizes, table.slots, *table.texts
    shift = 65 - len(table.slots).bit_length()
    _mark((_read_only(data), _read_only(offsets)), known, (U(table.factor), U(shift), _MASKS), marks, out)


def label_rows(
    codes: Sequence[NDArray[np.integer[Any]]], labels: Sequence[Sequence[bytes]]
) -> Iterator[memoryview]:
    """Yield the text of rows in pieces; a row is the concatenation of the labels of its codes.

    Each piece is overwritten by the next. Raise IndexError if a code is outside its column's labels.
    """
    for column, own in zip(codes, labels, strict=True):
        if column.size and not 0 <= int(column.min()) <= int(column.max()) < len(own):
            raise IndexError(f"a code is outside 0..{len(own) - 1}")
    table = [label for column in labels for label in column]
    padded = [label.ljust(-(-len(label) // _WORD) * _WORD, b"\0") for label in table]
    begins = [0, *accumulate(len(label) // _WORD for label in padded)]
    spelled = (
        np.frombuffer(b"".join(padded), dtype="<u8"),
        np.array(begins[:-1], dtype=U),
        np.array([len(label) for label in table], dtype=U),
    )
    first = np.array([0, *accumulate(map(len, labels))][:-1], dtype=U)
    longest = sum(max(map(len, column)) for column in labels)
    rows = max(_PIECE // longest, 1)
    room = np.empty(rows * longest + _WORD, dtype=np.uint8)
    widest = max((len(column) for column in labels), default=1)
    some = np.empty((len(codes), rows), dtype=np.min_scalar_type(widest - 1))
    for start in range(0, len(codes[0]), rows):
        for place, column in enumerate(codes):
            part = column[start : start + rows]
            some[place, : len(part)] = part
        yield room.data[: _write(some, len(part), first, spelled, room)]


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, so that one compiled version serves all arrays."""
    shown = values.view()
    shown.flags.writeable = False
    return shown


def _mix_words(first: Any, last: Any, size: Any) -> Any:
    """Return a number that depends on all bits of the words and the size."""
    return (first ^ (last >> U(29)) ^ (last << U(35))) + size


_mix = compiled(_mix_words)


@compiled
def _word(data: NDArray[np.uint8], at: Any) -> Any:
    """Return eight bytes as one number, in a form that compiles to one unaligned load."""
    at = U(at)
    return (
        U(data[at])
        | (U(data[at + U(1)]) << U(8))
        | (U(data[at + U(2)]) << U(16))
        | (U(data[at + U(3)]) << U(24))
        | (U(data[at + U(4)]) << U(32))
        | (U(data[at + U(5)]) << U(40))
        | (U(data[at + U(6)]) << U(48))
        | (U(data[at + U(7)]) << U(56))
    )


@compiled
def _last_word(data: NDArray[np.uint8], at: int) -> Any:
    """Return the remaining bytes at the end as one number."""
    word = U(0)
    for place in range(data.size - at):
        word |= U(data[at + place]) << U(8 * place)
    return word


@compiled
def _mark(
    texts: Texts,
    known: tuple[Any, ...],
    hashing: tuple[Any, ...],
    marks: NDArray[np.integer[Any]],
    out: NDArray[np.integer[Any]],
) -> None:
    (data, offsets), (words, sizes, slots, spelled, begins) = texts, known
    factor, shift, masks = hashing
    unknown, last = marks[-1], data.size - 8
    for row in range(out.size):
        begin: Any = np.int64(offsets[row])
        size: Any = np.int64(offsets[row + 1]) - begin
        mask = masks[U(min(size, 8))]
        if begin <= last:
            head = _word(data, begin) & mask
            tail = _word(data, begin + max(size - 8, 0)) & mask
        else:
            head = _last_word(data, begin) & mask
            tail = head
        label = U(slots[(_mix(head, tail, U(size)) * factor) >> shift])
        same = (words[label, U(0)] == head) & (words[label, U(1)] == tail) & (sizes[label] == size)
        if same and size > 16:
            for place in range(8, size - 8):
                same &= data[begin + place] == spelled[begins[label] + place]
        out[row] = marks[label] if same else unknown


@numpy_twin(_mark)
def _mark_few(
    texts: Texts,
    known: tuple[Any, ...],
    hashing: tuple[Any, ...],
    marks: NDArray[np.integer[Any]],
    out: NDArray[np.integer[Any]],
) -> None:
    (data, offsets), (words, sizes, slots, spelled, begins) = texts, known
    factor, shift, masks = hashing
    padded = np.zeros(data.size + _WORD, dtype=np.uint8)
    padded[: data.size] = data
    word_at = np.ndarray(data.size + 1, dtype="<u8", buffer=padded, strides=(1,))  # unaligned words
    begin = offsets[: out.size].astype(np.int64)
    size = offsets[1 : out.size + 1] - begin
    mask = masks[np.minimum(size, _WORD)]
    head, tail = word_at[begin] & mask, word_at[begin + np.maximum(size - _WORD, 0)] & mask
    label = slots[(_mix_words(head, tail, size.astype(U)) * factor) >> shift]
    same = (words[label, 0] == head) & (words[label, 1] == tail) & (sizes[label] == size)
    for long in np.flatnonzero(sizes > 2 * _WORD):
        rows = np.flatnonzero(same & (label == long))
        inner = np.arange(_WORD, sizes[long] - _WORD)
        same[rows] = (data[begin[rows, None] + inner] == spelled[begins[long] + inner]).all(axis=1)
    out[:] = np.where(same, marks[:-1][np.minimum(label, len(marks) - 2)], marks[-1])


@compiled
def _write(
    codes: NDArray[np.unsignedinteger[Any]],
    rows: int,
    first: NDArray[np.uint64],
    labels: tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]],
    out: NDArray[np.uint8],
) -> Any:
    """Write labels as full words, each overwriting the padding of the previous label; return the end."""
    words, begins, sizes = labels
    at = U(0)
    for row in range(rows):
        for column in range(len(codes)):
            label = first[U(column)] + U(codes[U(column), U(row)])
            begin, size = begins[label], sizes[label]
            for place in range((size + U(7)) >> U(3)):
                word, to = words[begin + U(place)], at + U(8 * place)
                for byte in range(8):
                    out[to + U(byte)] = np.uint8(word >> U(8 * byte))
            at += size
    return np.int64(at)


@numpy_twin(_write)
def _write_few(
    codes: NDArray[np.unsignedinteger[Any]],
    rows: int,
    first: NDArray[np.uint64],
    labels: tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]],
    out: NDArray[np.uint8],
) -> int:
    words, begins, sizes = labels
    padded = words.tobytes()
    texts = [
        padded[_WORD * begin : _WORD * begin + size]
        for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)
    ]
    label = (codes[:, :rows].astype(U) + first[:, None]).T.ravel()
    text = b"".join([texts[place] for place in label.tolist()])
    out[: len(text)] = np.frombuffer(text, dtype=np.uint8)
    return len(text)
