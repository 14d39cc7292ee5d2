"""Every message has frozen vectors: a changed byte fails a test, and so does a message without any."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.vectors.message_vectors import FOLDER, digest, examples, load, message_classes, vector

from masquerade.crypto.errors import DecodingError
from masquerade.protocols.wire.codec import tag_of

ALL = examples()
EXAMPLES = [(protocol, place) for protocol, listed in ALL.items() for place in range(len(listed))]
NAMES = [f"{ALL[protocol][place].kind.__name__} {place}" for protocol, place in EXAMPLES]
each = pytest.mark.parametrize(("protocol", "place"), EXAMPLES, ids=NAMES)


def test_every_message_has_a_vector_and_a_tag_of_its_own():
    classes = message_classes()
    assert len(classes) > 30
    covered = {example.kind for listed in ALL.values() for example in listed}
    assert [kind.__qualname__ for kind in classes if kind not in covered] == []
    tags = [kind.TAG for kind in classes]
    assert len(set(tags)) == len(tags)
    assert all(tag.split()[-1].isdigit() for tag in tags)


def test_every_file_of_vectors_belongs_to_a_protocol():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(ALL)
    assert {protocol: len(load(protocol)) for protocol in ALL} == {
        protocol: len(listed) for protocol, listed in ALL.items()
    }


@each
def test_the_bytes_are_the_frozen_ones(protocol, place):
    assert vector(ALL[protocol][place]) == load(protocol)[place]


@each
def test_frozen_bytes_decode_to_the_same_fields_and_encode_to_the_same_bytes(protocol, place):
    example, frozen = ALL[protocol][place], load(protocol)[place]
    data = bytes.fromhex(frozen["good"])
    again = example.decode(data)
    assert again.encode(example.context) == data
    assert digest(again) == frozen["fields"]
    assert tag_of(data) == example.kind.TAG


@each
def test_frozen_tampered_bytes_are_refused(protocol, place):
    example, frozen = ALL[protocol][place], load(protocol)[place]
    assert len(frozen["bad"]) >= 6
    for data in frozen["bad"].values():
        with pytest.raises(DecodingError):
            example.decode(bytes.fromhex(data))


@each
def test_a_changed_byte_is_refused_or_says_something_else(protocol, place):
    example, frozen = ALL[protocol][place], load(protocol)[place]
    good = bytes.fromhex(frozen["good"])
    for at in range(0, len(good), max(1, len(good) // 200)):
        changed = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
        if not example.refused(changed):  # which looks whether it encodes to the same bytes
            assert digest(example.decode(changed)) != frozen["fields"]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    which=st.sampled_from(EXAMPLES),
    at=st.floats(0, 1, exclude_max=True),
    value=st.integers(0, 255),
    junk=st.binary(max_size=60),
)
def test_damage_raises_only_the_decoding_error(which, at, value, junk):
    protocol, place = which
    example = ALL[protocol][place]
    good = example.message.encode(example.context)
    data = bytearray(good)
    data[int(at * len(data))] = value
    for damaged in (bytes(data), junk, good[: len(example.kind.TAG) + 4] + junk):
        example.refused(damaged)
