"""What messages keep to themselves, and terms that nobody may agree on; their bytes have vectors."""

import pytest
from tests.unit.protocols.k_anonymity.threshold.world import World

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.k_anonymity.threshold.faithful import PolynomialDealer, PrivateDeal
from masquerade.protocols.k_anonymity.threshold.messages import Credential, ThresholdTerms, read_reply


def test_secrets_are_not_shown():
    credential = Credential.decode(World().server.enrol("ann"))
    assert credential.key.hex() not in repr(credential)
    assert repr(credential.key) not in repr(credential)
    deal = PrivateDeal.decode(PolynomialDealer("talk", k=2, users=3, sensitive_size=8).deal(1))
    assert str(deal.own) not in repr(deal)


@pytest.mark.parametrize("noise", [b"", b"noise", bytes(300), b"\0\0\0\x13threshold refusal 1"])
def test_noise_is_no_reply(noise):
    with pytest.raises(DecodingError):
        read_reply(noise)


@pytest.mark.parametrize(
    "fields",
    [
        ("", 3, 8, 8),
        ("e" * 201, 3, 8, 8),
        ("e", 1, 8, 8),
        ("e", 10_001, 8, 8),
        ("e", 3, 0, 8),
        ("e", 3, 8, 5000),
    ],
)
def test_terms_out_of_range_are_refused(fields):
    with pytest.raises(InputError):
        ThresholdTerms(*fields)
