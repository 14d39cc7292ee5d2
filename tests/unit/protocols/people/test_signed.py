"""Whatever is changed in a signed message on its way is noticed, byte by byte."""

from functools import partial

import pytest
from tests.vectors.examples import aggregation, frequency, mix

from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.protocols.frequency_mining.messages import MiningStep, SignedMiningMessage
from masquerade.protocols.mixnet.messages import SignedMixMessage as MixSigned
from masquerade.protocols.secure_aggregation.messages import (
    Endorsement,
    MessageRefused,
    Reveal,
    Signer,
    Unmasking,
    Work,
)

CHECKS = {
    step.name.lower(): (
        frequency.signed(step, step.name.encode()).encode(),
        lambda data: SignedMiningMessage.decode(data).check(frequency.TERMS),
    )
    for step in MiningStep
} | {
    kind: (mix.signed(kind).encode(), lambda data, kind=kind: MixSigned.parse(data, mix.TERMS, kind))
    for kind in mix.SENDERS
}
ABOUT = (Reveal, Endorsement, Unmasking)


def checked(data, kind):
    """Check a message of a user of secure aggregation as the server does."""
    signer = Signer("ann", aggregation.IDENTITY.public, Work())
    about = aggregation.HASH if kind in ABOUT else b""
    kind.parse_signed(data, aggregation.CONTEXT, signer, about)


CHECKS |= {
    type(message).__name__.lower(): (
        message.encode(aggregation.CONTEXT),
        partial(checked, kind=type(message)),
    )
    for message in aggregation.SIGNED
}


@pytest.mark.parametrize("name", CHECKS)
def test_every_changed_byte_is_refused(name):
    good, check = CHECKS[name]
    check(good)
    for at in range(len(good)):
        for change in (1, 128):
            with pytest.raises((DecodingError, SealBroken, MessageRefused)):
                check(good[:at] + bytes([good[at] ^ change]) + good[at + 1 :])


@pytest.mark.parametrize("name", CHECKS)
def test_every_message_cut_short_or_extended_is_refused(name):
    good, check = CHECKS[name]
    for data in [*[good[:size] for size in range(len(good))], good + b"\0"]:
        with pytest.raises(DecodingError):
            check(data)
