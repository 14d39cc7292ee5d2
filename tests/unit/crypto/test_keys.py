"""Deriving, agreeing, signing; sealed messages; keys that may be used once."""

import copy
import pickle
import threading
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError
from masquerade.crypto import keys
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.keys import (
    AgreementKey,
    SigningKey,
    SingleUse,
    decode_agreement_key,
    decode_identity,
    derive,
    verify_signature,
)
from masquerade.crypto.symmetric import OVERHEAD, TAG_SIZE, seal, seal_once, unseal, unseal_once

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
checked = settings(max_examples=60, deadline=None, derandomize=True)


def flips(data):
    for at in range(8 * len(data)):
        changed = bytearray(data)
        changed[at // 8] ^= 1 << at % 8
        yield bytes(changed)


def test_derived_keys_are_bound_to_label_and_context():
    secret = bytes(range(32))
    purposes = [("a", ()), ("b", ()), ("a", (b"",)), ("a", (b"xy",)), ("a", (b"x", b"y")), ("ax", (b"y",))]
    derived = {derive(secret, label, *context) for label, context in purposes}
    assert len(derived) == len(purposes)
    assert derive(secret, "a", size=64)[:32] == derive(secret, "a")
    assert derive(bytes(32), "a") != derive(secret, "a")
    for wrong in (
        lambda: derive(bytes(15), "a"),
        lambda: derive(secret, ""),
        lambda: derive(secret, "a", size=0),
    ):
        with pytest.raises(InputError):
            wrong()


def test_two_people_agree_and_a_third_does_not():
    a, b, c = AgreementKey(), AgreementKey(), AgreementKey()
    shared = a.agree(b.public, "test", b"session")
    assert shared == b.agree(a.public, "test", b"session")
    others = {
        a.agree(c.public, "test", b"session"),
        c.agree(b.public, "test", b"session"),
        a.agree(b.public, "test", b"other"),
        a.agree(b.public, "other", b"session"),
    }
    assert len(others | {shared}) == 5


def test_keys_from_seeds_come_back():
    seed = bytes(range(31))
    assert AgreementKey.from_seed(seed).public == AgreementKey.from_seed(seed).public
    assert AgreementKey.from_seed(seed).public != AgreementKey.from_seed(seed + b"\x00").public
    identity = SigningKey()
    assert SigningKey.from_seed(identity.reveal()).public == identity.public
    for wrong in (lambda: AgreementKey.from_seed(bytes(30)), lambda: SigningKey.from_seed(bytes(31))):
        with pytest.raises(InputError):
            wrong()


def test_public_keys_that_agree_on_nothing_secret_are_refused():
    ours = AgreementKey()
    order_8 = 325606250916557431795983626356110631294008115727848805560023387167927233504
    for u in (0, 1, order_8, P - 1):
        with pytest.raises(DecodingError, match="small order"):
            ours.agree(u.to_bytes(32, "little"), "test")
    for wrong in (
        P.to_bytes(32, "little"),
        (P + 9).to_bytes(32, "little"),
        b"\xff" * 32,
        bytes(31),
        bytes(33),
        b"",
    ):
        with pytest.raises(DecodingError, match="canonical"):
            ours.agree(wrong, "test")


def edwards_add(a, b):
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P


def on_curve(y):
    """Return a point with this y, by plain formulas, or None."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    root = root if root * root % P == square else root * pow(2, (P - 1) // 4, P) % P
    return (root, y) if root * root % P == square else None


def test_identities_of_small_order_are_exactly_those_refused():
    """Multiply points by the group's odd order: what remains has an order of 1, 2, 4 or 8."""
    order, found = 2**252 + 27742317777372353535851937790883648493, set()
    for y in range(2, 40):
        point = on_curve(y)
        if point is None:
            continue
        total, k = (0, 1), order
        while k:
            if k & 1:
                total = edwards_add(total, point)
            point, k = edwards_add(point, point), k >> 1
        found.add(total[1])
    assert found == keys._SMALL_ORDER
    for y in found:
        for sign in (0, 1 << 255):
            with pytest.raises(DecodingError, match="small order"):
                decode_identity((y + sign).to_bytes(32, "little"))
            with pytest.raises(DecodingError, match="small order"):
                verify_signature((y + sign).to_bytes(32, "little"), bytes(64), "test")
    for wrong in ((P + 3).to_bytes(32, "little"), bytes(31), bytes(33)):
        with pytest.raises(DecodingError):
            decode_identity(wrong)


def test_signatures_bind_label_and_fields():
    signer, other = SigningKey(), SigningKey()
    signature = signer.sign("roster", b"ab", b"c")
    verify_signature(signer.public, signature, "roster", b"ab", b"c")
    wrong = [
        (other.public, signature, "roster", b"ab", b"c"),
        (signer.public, signature, "other", b"ab", b"c"),
        (signer.public, signature, "roster", b"a", b"bc"),
        (signer.public, signature, "roster", b"ab"),
        *((signer.public, changed, "roster", b"ab", b"c") for changed in flips(signature)),
    ]
    for arguments in wrong:
        with pytest.raises(SealBroken):
            verify_signature(*arguments)
    for size in (0, 63, 65):
        with pytest.raises(DecodingError):
            verify_signature(signer.public, bytes(size), "roster")
    with pytest.raises(InputError, match="label"):
        signer.sign("", b"ab")


@checked
@given(st.binary(max_size=40), st.binary(max_size=70))
def test_fuzzed_keys_and_signatures_raise_their_own_errors(public, signature):
    for parse in (
        decode_agreement_key,
        decode_identity,
        lambda key: verify_signature(key, signature, "test"),
    ):
        with suppress(DecodingError, SealBroken):
            parse(public)


KEY = bytes(range(32))


@checked
@given(st.binary(max_size=100), st.binary(max_size=20))
def test_sealed_messages_open(message, context):
    sealed = seal(KEY, message, context)
    assert len(sealed) == len(message) + OVERHEAD
    assert unseal(KEY, sealed, context) == message
    assert seal(KEY, message, context) != sealed


def test_a_key_of_one_message_seals_without_a_nonce():
    sealed = seal_once(KEY, b"m", b"context")
    assert len(sealed) == 1 + TAG_SIZE
    assert unseal_once(KEY, sealed, b"context") == b"m"
    for changed in flips(sealed):
        with pytest.raises(SealBroken):
            unseal_once(KEY, changed, b"context")
    for key, context in ((bytes(32), b"context"), (KEY, b"other")):
        with pytest.raises(SealBroken):
            unseal_once(key, sealed, context)


def test_every_flipped_bit_of_a_sealed_message_is_noticed():
    sealed = seal(KEY, b"sensitive", b"context")
    for changed in flips(sealed):
        with pytest.raises(SealBroken):
            unseal(KEY, changed, b"context")
    for key, context in ((bytes(32), b"context"), (KEY, b"other")):
        with pytest.raises(SealBroken):
            unseal(key, sealed, context)
    for shorter in (b"", sealed[: OVERHEAD - 1]):
        with pytest.raises(DecodingError):
            unseal(KEY, shorter, b"context")
    with pytest.raises(SealBroken):
        unseal(KEY, sealed[:-1], b"context")
    with pytest.raises(InputError, match="32 bytes"):
        seal(KEY[:-1], b"", b"")


@pytest.mark.parametrize(
    "kept",
    [AgreementKey(), SigningKey(), SingleUse(b"k", "k", lambda _: None)],
    ids=lambda kept: type(kept).__name__,
)
def test_keys_are_not_copied(kept):
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            leave(kept)


def test_secret_bytes_do_not_print():
    identity = SigningKey()
    assert identity.reveal().hex() not in repr(identity)
    assert "secret" not in repr(SingleUse("secret", "name", lambda _: None))
    assert repr(AgreementKey()).startswith("AgreementKey(public=")


def test_a_key_comes_out_once_and_is_burnt_first():
    burnt = []
    key = SingleUse("secret", "vote 7", burnt.append)
    assert "unused" in repr(key)
    assert key.take() == "secret"
    assert burnt == ["vote 7"]
    assert "spent" in repr(key)
    with pytest.raises(KeySpent, match="vote 7"):
        key.take()
    assert burnt == ["vote 7"]


def test_a_key_that_could_not_be_burnt_is_gone():
    def fail(_name):
        raise OSError("disk full")

    key = SingleUse("secret", "vote 7", fail)
    with pytest.raises(OSError, match="disk full"):
        key.take()
    with pytest.raises(KeySpent):
        key.take()


def test_of_many_threads_one_gets_the_key():
    for _ in range(20):
        key, got, start = SingleUse("secret", "k", lambda _: None), [], threading.Barrier(4)

        def try_it(key=key, got=got, start=start):
            start.wait()
            try:
                got.append(key.take())
            except KeySpent:
                got.append(None)

        threads = [threading.Thread(target=try_it) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got, key=str) == [None, None, None, "secret"]
