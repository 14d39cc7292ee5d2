"""Linking by a shared secret: equal keys link, nothing else is told, and its weak point is named."""

import hmac
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.errors import DecodingError, KeySpent
from masquerade.protocols.linking.joiner import Joiner
from masquerade.protocols.linking.key_normal_form import normal_form
from masquerade.protocols.linking.messages import BeginKeyed, Compare, Named
from masquerade.protocols.linking.party import LinkingParty
from masquerade.protocols.linking.shared_secret import KeyedJoiner, KeyedParty, keyed_hash, keyed_pseudonyms
from masquerade.protocols.transport import LocalTransport

SECRET, SESSION = os.urandom(32), os.urandom(16)
KEYS = {
    "clinic": [f"Patient {i}" for i in range(40)],
    "registry": [f"  PATIENT   {i}" for i in range(39, 9, -1)],
    "school": [f"patient {i}" for i in range(0, 60, 3)],
}


def linked(keys=KEYS, secrets=None, *, name="miner"):
    parties = {p: KeyedParty(p, listed, (secrets or {}).get(p, SECRET)) for p, listed in keys.items()}
    joiner = KeyedJoiner(tuple(keys), LocalTransport({n: p.receive for n, p in parties.items()}), name=name)
    return parties, joiner, joiner.link()


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=300))
def test_the_keyed_hash_is_hmac(secret, message):
    assert keyed_hash(secret)(message) == hmac.digest(secret, message, "sha256")


def test_pseudonyms_are_what_they_are_said_to_be():
    found = keyed_pseudonyms(["Ann", ("bob", 1970)], SECRET, SESSION)
    for row, key in zip(found, ("ann", ("bob", 1970)), strict=True):
        assert bytes(row) == hmac.digest(SECRET, SESSION + normal_form(key), "sha256")[:16]
    assert keyed_pseudonyms([], SECRET, SESSION).shape == (0, 16)


def test_parties_agree_on_the_common_records_and_their_order():
    parties, joiner, count = linked()
    orders = [[KEYS[n][row].split()[-1] for row in party.rows] for n, party in parties.items()]
    assert orders[0] == orders[1] == orders[2]
    assert set(orders[0]) == {str(i) for i in range(12, 40, 3)}
    assert count == len(orders[0])
    assert len({party.alignment for party in parties.values()}) == 1
    assert joiner.sizes == {"clinic": 40, "registry": 30, "school": 20}


def test_it_finds_what_private_linking_finds():
    private = {name: LinkingParty(name, keys) for name, keys in KEYS.items()}
    Joiner(tuple(KEYS), LocalTransport({n: p.receive for n, p in private.items()})).link()
    keyed, *_ = linked()
    assert {n: sorted(p.rows) for n, p in private.items()} == {n: sorted(p.rows) for n, p in keyed.items()}


def test_another_session_or_secret_gives_other_pseudonyms():
    keys = KEYS["clinic"]
    first = keyed_pseudonyms(keys, SECRET, SESSION)
    for other in (
        keyed_pseudonyms(keys, SECRET, bytes(16)),
        keyed_pseudonyms(keys, bytes(32), SESSION),
    ):
        assert not {bytes(row) for row in first} & {bytes(row) for row in other}


def test_different_secrets_are_found_out_before_anything_is_compared():
    with pytest.raises(RoundAborted, match="the same linking secret") as caught:
        linked(secrets={"school": bytes(32)})
    assert not caught.value.spent


def test_the_joiner_is_no_party_and_the_guarantee_says_why():
    with pytest.raises(InputError, match="with the secret it could try keys"):
        linked({name: KEYS[name] for name in ("clinic", "school")}, name="clinic")
    _, joiner, _ = linked()
    guarantee = joiner.guarantee()
    assert set(guarantee.excluded_coalitions) == {("miner", party) for party in KEYS}
    assert any("miner does not get the linking secret" in text for text in guarantee.assumptions)
    assert {item.role: item.gamma for item in guarantee.disclosures}["miner"] == 1


def test_the_joiner_sees_pseudonyms_only_and_a_party_could_open_them():
    """The weak point, as the guarantee names it: secret and pseudonyms together show who is in a set."""
    parties, joiner, _ = linked()
    seen = set(parties["registry"].pseudonyms)
    guesses = [f"patient {i}" for i in range(100)]
    opened = {
        guess
        for guess, row in zip(guesses, keyed_pseudonyms(guesses, SECRET, joiner.session), strict=True)
        if bytes(row) in seen
    }
    assert opened == {f"patient {i}" for i in range(10, 40)}


def test_what_cannot_be_linked_is_refused():
    for secret in (b"", b"password", bytes(31)):
        with pytest.raises(InputError, match="32 random bytes"):
            KeyedParty("a", ["x"], secret)
    with pytest.raises(InputError, match="16 bytes"):
        keyed_pseudonyms(["x"], SECRET, b"")
    with pytest.raises(InputError, match="another record has too"):
        keyed_pseudonyms(["Ann", "ann "], SECRET, SESSION)
    with pytest.raises(InputError, match="At most 1 keys"):
        keyed_pseudonyms(["a", "b"], SECRET, SESSION, most=1)
    parties = {"a": KeyedParty("a", ["x"], SECRET), "b": KeyedParty("b", ["x", "y"], SECRET, most=1)}
    joiner = KeyedJoiner(tuple(parties), LocalTransport({n: p.receive for n, p in parties.items()}))
    with pytest.raises(RoundAborted, match="'b' refused: At most 1 keys"):
        joiner.link()


def test_other_parties_than_agreed_and_too_few_common_records_are_refused():
    party = KeyedParty("a", ["x", "y"], SECRET, roster=("a", "b"), least=2)
    for roster in (("a", "c"), ("a", "b", "c")):
        with pytest.raises(InputError, match="other parties than were agreed on"):
            party.receive(BeginKeyed(SESSION, roster, 10).encode())
    parties = {"a": party, "b": KeyedParty("b", ["x", "z"], SECRET, roster=("b", "a"))}
    transport = LocalTransport({n: p.receive for n, p in parties.items()})
    joiner = KeyedJoiner(tuple(parties), transport, session=SESSION)
    assert joiner.session == SESSION
    with pytest.raises(RoundAborted, match="1 records are said to be common: this party takes part with 2"):
        joiner.link()
    with pytest.raises(InputError, match="not known yet"):
        _ = party.common


def test_a_party_keeps_to_one_session():
    party = KeyedParty("a", ["x", "y"], SECRET)
    with pytest.raises(InputError, match="No session was begun"):
        party.receive(Compare(SESSION).encode())
    with pytest.raises(InputError, match="this one among them"):
        party.receive(BeginKeyed(SESSION, ("b", "c"), 10).encode())
    offer = BeginKeyed(SESSION, ("a", "b"), 10).encode()
    reply = party.receive(offer)
    assert Named.decode(reply).records == 2
    assert party.receive(offer) == reply
    with pytest.raises(KeySpent):
        party.receive(BeginKeyed(bytes(16), ("a", "b"), 10).encode())
    with pytest.raises(InputError, match="another session"):
        party.receive(Compare(bytes(16)).encode())
    for data in (b"", b"\1" * 40, offer[:-1], offer + b"\0"):
        with pytest.raises((DecodingError, KeySpent)):
            party.receive(data)
    assert np.array_equal(
        np.frombuffer(b"".join(party.pseudonyms), np.uint8).reshape(-1, 16),
        keyed_pseudonyms(["x", "y"], SECRET, SESSION),
    )
    party.forget()
    with pytest.raises(InputError, match="forgotten"):
        _ = party.pseudonyms
    with pytest.raises(InputError, match="forgotten the secret"):
        party.receive(offer)
