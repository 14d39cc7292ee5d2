"""Messages have one encoding, and nothing else decodes."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import Point
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.wire.codec import (
    U16,
    Array,
    Bits,
    Blob,
    Converted,
    Enclosed,
    Fixed,
    Many,
    Message,
    Number,
    OneOf,
    Reader,
    Run,
    Struct,
    Text,
    Writer,
    kind_of,
    point_of,
    scalar_of,
    tag_of,
)

U8 = Annotated[int, Number(1)]
POINTS = [secp256k1.multiply_public(secp256k1.generator, k) for k in range(1, 5)]
checked = settings(max_examples=150, deadline=None, derandomize=True)


class Colour(IntEnum):
    RED = 1
    BLUE = 2


class Word(StrEnum):
    YES = "yes"
    NO = "no"


@dataclass(frozen=True)
class Pair(Struct):
    left: U8
    right: Annotated[bytes, Blob(3)]


class Ballots(Message, tag=b"test ballots 1"):
    round: Annotated[int, Number(2, most=1000)]
    session: Annotated[bytes, Fixed(4)]
    name: Annotated[str, Text(20)]
    points: Annotated[tuple[Annotated[Point, point_of(secp256k1)], ...], Many(4)]
    scalar: Annotated[int, scalar_of(secp256k1)]

    def __post_init__(self):
        if self.round == 13:
            raise InputError("There is no round 13.")


class Everything(Message, tag=b"test everything 1"):
    colour: Colour
    word: Word
    truth: bool
    maybe: U16 | None
    pair: Pair
    row: tuple[U8, Annotated[str, Text(5)]]
    pairs: Annotated[tuple[Pair, ...], Many(3)]
    people: Annotated[Mapping[Annotated[str, Text(5)], Annotated[bytes, Fixed(2)]], Many(3)]
    few: Annotated[str, OneOf(Text(9), ("one", "two"))]
    most: Annotated[int, Number(1, most=9)]
    inner: Annotated[Ballots, Enclosed(500)]
    signature: Annotated[bytes, Blob(4, (0, 4))]
    fraction: Annotated[Fraction, Converted(Text(9), str, Fraction, "A fraction")]


@dataclass(frozen=True)
class Known:
    slots: int
    width: str


class Round(Message, tag=b"test round 1", eq=False):
    """A message whose sizes both sides know."""

    run: Annotated[tuple[U8, ...], Run(lambda known: known.slots)]
    bits: Annotated[NDArray[np.bool_], Bits(lambda known: known.slots)]
    vote: Annotated[NDArray[Any], Array(lambda known: known.width, count=lambda known: known.slots)]
    floats: Annotated[NDArray[np.float64], Array("f8", most=3)]
    more: Annotated[bytes, Fixed(lambda known: known.slots)]


messages = st.builds(
    Ballots,
    st.integers(0, 1000).filter(lambda n: n != 13),
    st.binary(min_size=4, max_size=4),
    st.text(max_size=5),
    st.lists(st.sampled_from(POINTS), max_size=4).map(tuple),
    st.integers(0, secp256k1.order - 1),
)
ONE = Ballots(7, b"sess", "ann", (POINTS[0], POINTS[1]), 5)


@checked
@given(messages)
def test_messages_come_back(message):
    assert Ballots.decode(message.encode()) == message


@checked
@given(messages, messages)
def test_different_messages_have_different_bytes(one, other):
    assert (one == other) == (one.encode() == other.encode())


@checked
@given(messages, st.data())
def test_truncated_extended_and_changed_bytes_decode_canonically_or_not_at_all(message, data):
    encoded = message.encode()
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(DecodingError):
        Ballots.decode(encoded[:cut])
    with pytest.raises(DecodingError):
        Ballots.decode(encoded + data.draw(st.binary(min_size=1, max_size=9)))
    changed = bytearray(encoded)
    changed[cut] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(DecodingError):
        assert Ballots.decode(bytes(changed)).encode() == changed


@checked
@given(st.binary(max_size=200), st.booleans())
def test_fuzzed_bytes_raise_the_one_error(data, tagged):
    prefix = len(Ballots.TAG).to_bytes(4, "big") + Ballots.TAG if tagged else b""
    with suppress(DecodingError):
        assert Ballots.decode(prefix + data).encode() == prefix + data


def test_each_kind_of_mistake_is_refused():
    encoded = ONE.encode()
    fields = 4 + len(Ballots.TAG)
    name, points = fields + 6, fields + 6 + 4 + 3

    def put(at, new):
        return encoded[:at] + new + encoded[at + len(new) :]

    wrong = {
        "of type": encoded.replace(b"ballots 1", b"ballots 2"),
        "at most 1000": put(fields, (1001).to_bytes(2, "big")),
        "no round 13": put(fields, (13).to_bytes(2, "big")),
        "UTF-8": put(name + 4, b"\xff"),
        "announces 21": put(name, (21).to_bytes(4, "big")),
        "announces 5": put(points, (5).to_bytes(4, "big")),
        "announces 4294967295": put(points, b"\xff" * 4),
        "on the curve": put(points + 4, b"\x06"),
        "below the group's order": encoded[:-32] + b"\xff" * 32,
        "after its last field": encoded + b"\x00",
        "ends at byte": encoded[:-1],
    }
    for reason, data in wrong.items():
        with pytest.raises(DecodingError, match=reason):
            Ballots.decode(data)


def test_writers_refuse_what_readers_would():
    wrong = [
        lambda w: w.number(256, 1),
        lambda w: w.number(-1, 1),
        lambda w: w.fixed(b"abc", 4),
        lambda w: w.varying(b"abc", 2),
        lambda w: w.text("é", 1),
        lambda w: w.text("\ud800", 9),
        lambda w: Many(1, Number(1)).write(w, [1, 2]),
        lambda w: scalar_of(secp256k1).write(w, secp256k1.order),
        lambda w: point_of(secp256k1).write(w, secp256k1.identity),
    ]
    for write in wrong:
        with pytest.raises(InputError):
            write(Writer())


def test_a_reader_reads_what_was_written_in_order():
    writer = Writer()
    writer.varying(b"", 0)
    writer.number(2**64 - 1, 8)
    reader = Reader(writer.done())
    assert (reader.varying(0), reader.number(8)) == (b"", 2**64 - 1)
    reader.done()


ALL = Everything(
    Colour.BLUE,
    Word.NO,
    truth=True,
    maybe=None,
    pair=Pair(7, b"abc"),
    row=(3, "é"),
    pairs=(Pair(0, b""), Pair(255, b"z")),
    people={"b": b"12", "a": b"34"},
    few="two",
    most=9,
    inner=ONE,
    signature=b"",
    fraction=Fraction(1, 3),
)


def test_every_kind_of_field_comes_back():
    for message in (ALL, replace(ALL, maybe=7, truth=False, signature=b"sign", people={})):
        data = message.encode()
        assert Everything.decode(data) == message
        assert Everything.decode(data).encode() == data
        assert tag_of(data) == Everything.TAG


def changed(data, old, new):
    assert data.count(old) == 1
    return data.replace(old, new)


def test_every_kind_of_field_is_read_strictly():
    data = ALL.encode()
    head = 4 + len(Everything.TAG)
    for wrong in (
        data[:head] + b"\x03" + data[head + 1 :],  # no such colour
        changed(data, b"\x02no", b"\x02on"),
        changed(data, b"no\x01\x00", b"no\x02\x00"),  # truth is 0 or 1
        changed(data, b"no\x01\x00", b"no\x01\x02"),  # so is whether a value is there
        changed(data, b"\x01b12", b"\x01a12"),  # an entry twice
        changed(data, b"two\x09", b"owt\x09"),
        changed(data, b"two\x09", b"two\x0a"),
        changed(data, b"1/3", b"2/6"),  # another spelling
        changed(data, b"1/3", b"1/0"),
    ):
        with pytest.raises(DecodingError):
            Everything.decode(wrong)
    with pytest.raises(DecodingError, match="0 or 4 bytes"):
        Everything.decode(replace(ALL, signature=b"abc").encode())
    for wrong in ({"few": "three"}, {"row": (3, "too long")}):
        with pytest.raises(InputError):
            replace(ALL, **wrong).encode()


def test_sizes_that_both_sides_know_are_not_written():
    known = Known(9, "u4")
    numbers = np.arange(9)
    bits = numbers % 2 == 0
    floats = np.array([1.5, -2.0])
    message = Round(tuple(range(9)), bits, numbers, floats, bytes(9))
    data = message.encode(known)
    assert len(data) == 4 + len(Round.TAG) + 9 + 2 + 36 + (4 + 16) + 9
    again = Round.decode(data, known)
    assert again.encode(known) == data
    assert np.array_equal(again.vote, numbers)
    assert np.array_equal(again.bits, bits)
    for other in (Known(8, "u4"), Known(9, "u8")):
        with pytest.raises(DecodingError):
            Round.decode(data, other)
        with pytest.raises(InputError):
            message.encode(Known(8, "u4"))
    at = 4 + len(Round.TAG) + 9
    with pytest.raises(DecodingError, match="after the last one"):
        Round.decode(data[: at + 1] + b"\xff" + data[at + 2 :], known)
    for wrong in (np.array([np.nan]), np.array([np.inf])):
        with pytest.raises(DecodingError, match="not finite"):
            Round.decode(replace(message, floats=wrong).encode(known), known)


def test_a_count_beyond_the_bytes_is_refused_before_anything_is_kept():
    reader = Reader((2**31).to_bytes(4, "big") + b"abc")
    with pytest.raises(DecodingError, match="has 3 bytes left"):
        Many(2**32, Fixed(0)).read(reader)


def test_a_type_that_says_not_how_it_is_written_is_no_field():
    for hint in (int, bytes, tuple[int, ...], Annotated[int, "no kind"]):
        with pytest.raises(TypeError, match="has no encoding"):
            kind_of(hint)
    with pytest.raises(TypeError, match="not a tuple"):
        kind_of(Annotated[bytes, Many(3)])
