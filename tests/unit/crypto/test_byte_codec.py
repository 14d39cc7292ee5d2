"""Messages have one encoding, and nothing else decodes."""

from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError
from masquerade.crypto.byte_codec import Message, Reader, Writer
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.group import Point
from masquerade.crypto.secp256k1 import secp256k1

POINTS = [secp256k1.multiply_public(secp256k1.generator, k) for k in range(1, 5)]
checked = settings(max_examples=150, deadline=None, derandomize=True)


@dataclass(frozen=True)
class Ballots(Message):
    TAG = b"test ballots 1"
    round: int
    session: bytes
    name: str
    points: tuple[Point, ...]
    scalar: int

    def __post_init__(self):
        if self.round == 13:
            raise InputError("There is no round 13.")

    def write(self, writer):
        writer.number(self.round, 2)
        writer.fixed(self.session, 4)
        writer.text(self.name, 20)
        writer.many(self.points, 4, writer.point)
        writer.scalar(self.scalar, secp256k1)

    @classmethod
    def read(cls, reader):
        return cls(
            reader.number(2, 1000),
            reader.fixed(4),
            reader.text(20),
            reader.many(4, lambda: reader.point(secp256k1)),
            reader.scalar(secp256k1),
        )


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
        "kind": encoded.replace(b"ballots 1", b"ballots 2"),
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
        lambda w: w.many([1, 2], 1, lambda _: None),
        lambda w: w.scalar(secp256k1.order, secp256k1),
        lambda w: w.point(secp256k1.identity),
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
