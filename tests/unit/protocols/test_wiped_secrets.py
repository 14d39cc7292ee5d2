"""Secrets that are done with are overwritten where they were held, and refuse to be used."""

from __future__ import annotations

import pytest
from tests.unit.protocols.frequency_mining.people import Village

from masquerade.crypto.errors import KeySpent
from masquerade.crypto.group import Secret
from masquerade.protocols.k_anonymity.threshold import faithful
from masquerade.protocols.k_anonymity.threshold.sealed_keys import SealedKeys
from masquerade.protocols.linkage.psi import Joiner, LinkingParty
from masquerade.protocols.wire.session import LocalTransport


def held(secret):
    """Return the bytes that a secret is held in."""
    assert isinstance(secret, Secret)
    return secret._held


def test_masks_of_linking():
    parties = {name: LinkingParty(name, ["ann", "ben"]) for name in ("a", "b")}
    Joiner(tuple(parties), LocalTransport({name: one.receive for name, one in parties.items()})).link()
    for one in parties.values():
        before = [held(one._mask), held(one._blind)]
        assert all(map(any, before))
        one.forget()
        assert not any(map(any, before))
        assert any(held(one._mask))  # others


def test_keys_of_a_vote_that_left():
    village = Village(4)
    current = village.until(village.round(), "votes")
    pairs = village.users["u0"]._round.keys._value
    assert all(any(held(number)) for pair in pairs for number in (pair.x, pair.y))
    village.step(current)
    assert not any(any(held(number)) for pair in pairs for number in (pair.x, pair.y))


def test_the_polynomial_of_a_dealer_and_the_points_of_a_user():
    dealer = faithful.PolynomialDealer("spring", k=2, users=3, sensitive_size=4)
    user = faithful.DealtUser(dealer.dealing(), dealer.deal(1))
    sent = user.submit(b"quasi", b"row")
    assert user.submit(b"quasi", b"row") == sent
    dealer.forget()
    for secret in (*dealer._coefficients, user._own, user._submitted):
        assert not any(held(secret))
    with pytest.raises(KeySpent):
        dealer.deal(2)


def test_what_keys_are_sealed_under(tmp_path):
    sealed = SealedKeys(tmp_path, b"sixteen bytes or more")
    sealed.keep("spring", bytes(range(32)))
    sealed.wipe()
    assert not any(sealed._secret)
    for use in (lambda: sealed.find("spring"), lambda: sealed.keep("summer", bytes(32))):
        with pytest.raises(KeySpent):
            use()
    assert SealedKeys(tmp_path, b"sixteen bytes or more").find("spring") == bytes(range(32))
