"""Messages of parties: what decodes encodes to the same bytes; everything else is the one decoding error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import masquerade as mq
from masquerade.core.errors import Refusal
from masquerade.crypto.errors import DecodingError
from masquerade.data.example_networks import eleven_nodes_policy
from masquerade.protocols.codec import Batch, tag_of
from masquerade.protocols.linking.messages import (
    Begin,
    BeginKeyed,
    Compare,
    Done,
    Finish,
    Named,
    Points,
    Pseudonyms,
)
from masquerade.protocols.pooling.masked_sum import Ask, Consent, Masked, Proposal
from masquerade.protocols.pooling.ring_sum import Passed
from masquerade.protocols.products.columns import Columns, Part
from masquerade.protocols.products.messages import Correlate, Correlated, Multiply, Opened, Show, Shown, Sums
from masquerade.protocols.products.paillier_messages import Ciphertexts, Encrypt, Key, Open, Plaintexts
from masquerade.protocols.session_keys import Advert, Join, Joined, Roster
from masquerade.protocols.vertical.messages import Announce, Cells, Described, Parameters, Request, Shape

S = bytes(range(16))
D = bytes(32)
WORDS = np.arange(3, dtype=np.uint64)
BATCH = Batch((mq.Query(by=("a", "b"), where={"c": True, "d": 1}), mq.Query()))
OWN = Columns("x", (Part("x", ("a",)),))
PRODUCT = Columns("x", (Part("x", ("a",)), Part("y", ("b", "c"))))
EXAMPLES = [
    Join(S, D, ("x", "ü")),
    Advert(S, D, "x", D, bytes(64)),
    Roster(S, (b"1", b"")),
    Joined(S, D),
    Proposal(S, 1, BATCH),
    Consent(S, 1, (Refusal("code", "reason"),)),
    Ask(S, 2, BATCH),
    Masked(S, 2, WORDS),
    Passed(S, D, 3, BATCH, WORDS),
    Show(S, PRODUCT),
    Shown(S, OWN, WORDS),
    Correlate(S, 1, PRODUCT, OWN),
    Correlated(S, b"sealed"),
    Multiply(S, 0, (OWN, PRODUCT), OWN, (b"1",)),
    Sums(S, ("a", "b")),
    Opened(S, WORDS),
    Open(S, D),
    Key(S, b"n"),
    Encrypt(S, ("a",)),
    Ciphertexts(S, b"c"),
    Plaintexts(S, b"p"),
    Begin(S, ("x", "y"), 100),
    Points(S, "x", D),
    Finish(S, D),
    Compare(S),
    Pseudonyms(S, S),
    Done(S, 7),
    BeginKeyed(S, ("x", "y"), 100),
    Named(S, 7, D),
    Announce(S, "miner", ("a",)),
    Described(S, "x", eleven_nodes_policy(), (Shape(("A", "B"), 1 << 40), Shape(("S",), 0))),
    Request(S, "miner", ("a",), 0, 1),
    Cells(S, "x", eleven_nodes_policy().id, 0, 1, (b"", b"arrow")),
    Parameters.of(S, "x", {"a": {"p": 1}}),
]
KINDS = [type(example) for example in EXAMPLES]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_every_message_survives_its_bytes(message):
    data = message.encode()
    again = type(message).decode(data)
    assert again.encode() == data
    assert tag_of(data) == type(message).TAG
    assert len({kind.TAG for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_nothing_may_be_missing_or_left_over(message):
    data = message.encode()
    for cut in {*range(0, len(data), max(1, len(data) // 40)), len(data) - 1}:
        with pytest.raises(DecodingError):
            type(message).decode(data[:cut])
    with pytest.raises(DecodingError):
        type(message).decode(data + b"\0")


@settings(max_examples=300, deadline=None)
@given(
    which=st.integers(0, len(EXAMPLES) - 1),
    at=st.floats(0, 1, exclude_max=True),
    value=st.integers(0, 255),
    junk=st.binary(max_size=60),
)
def test_damage_raises_only_the_decoding_error(which, at, value, junk):
    message = EXAMPLES[which]
    data = bytearray(message.encode())
    data[int(at * len(data))] = value
    head = message.encode()[: len(message.TAG) + 4]
    for damaged in (bytes(data), junk, head + junk):
        try:
            decoded = type(message).decode(damaged)
        except DecodingError:
            continue
        if not isinstance(message, Described):  # a policy has many spellings, one id
            assert decoded.encode() == damaged


@pytest.mark.parametrize(
    "text",
    ["{}", "[[]]", '[["a",[]]]', '[[["a"], []]]', '[[["a","a"],[]]]', '[[["a"],[["b",1.5]]]]', "[" * 50],
)
def test_a_batch_has_one_spelling(text):
    message = Ask(S, 1, BATCH).encode()
    canonical = BATCH.text.encode()
    data = message.replace(
        len(canonical).to_bytes(4, "big") + canonical, len(text).to_bytes(4, "big") + text.encode()
    )
    with pytest.raises(DecodingError):
        Ask.decode(data)
