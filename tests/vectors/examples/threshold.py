"""Messages of distributed k-anonymity, formulation 1, in both forms."""

from masquerade.crypto.keys import SigningKey
from masquerade.crypto.ristretto255 import ristretto255 as group
from masquerade.protocols.k_anonymity.threshold.faithful import DealtSubmission, PrivateDeal, PublicDeal
from masquerade.protocols.k_anonymity.threshold.messages import (
    REFUSALS,
    Closing,
    Credential,
    Evaluation,
    EvaluationRefusal,
    Notice,
    Request,
    ThresholdTerms,
)
from tests.vectors.message_vectors import Example

DIGEST = bytes(range(32))
KEY = SigningKey.from_seed(bytes(range(32)))
TERMS = ThresholdTerms("spring ü", 3, 12, 16, shown=True, form=DIGEST)
POINTS = [group.multiply_generator(group.secret(number)) for number in (1, 2, 3)]
NOTICE = Notice.sign(TERMS, POINTS[0], KEY)
CLOSING = Closing.sign(NOTICE.digest, 7, KEY)
CREDENTIAL = Credential(bytes(range(16)), DIGEST)
REQUEST = Request.make(NOTICE.digest, CREDENTIAL, POINTS[1].encode())
ELEMENTS = POINTS[1].encode() + POINTS[2].encode()
EVALUATION = Evaluation(ELEMENTS, ELEMENTS[::-1], bytes(range(64)), 1)
SUBMISSION = DealtSubmission(2, b"quasi", POINTS[1], bytes(96), bytes(46))


def spoilt(message, *changes):
    """Return a message with some bytes in place of others."""
    data = message.encode()
    found = {}
    for why, old, new in changes:
        assert data.count(old) == 1, why
        found[why] = data.replace(old, new)
    return found


IDENTITY = bytes(32)
NO_POINT = b"\xff" * 32
EXAMPLES = [
    Example(
        TERMS,
        bad=spoilt(
            TERMS,
            ("k of 1", b"\0\0\0\x03\0\0\0\x0c", b"\0\0\0\x01\0\0\0\x0c"),
            ("k too large", b"\0\0\0\x03\0\0\0\x0c", b"\0\0\x27\x11\0\0\0\x0c"),
            ("no quasi-identifier", b"\0\0\0\x0c\0\0\0\x10", b"\0\0\0\0\0\0\0\x10"),
            ("a name that is no text", "ü".encode(), b"\xff\xff"),
        ),
    ),
    Example(ThresholdTerms("e", 2, 1, 1)),
    Example(
        NOTICE,
        bad=spoilt(
            NOTICE,
            ("the identity as key", POINTS[0].encode(), IDENTITY),
            ("no point as key", POINTS[0].encode(), NO_POINT),
            ("terms of another version", b"threshold terms 1", b"threshold terms 2"),
        ),
    ),
    Example(CLOSING),
    Example(CREDENTIAL),
    Example(REQUEST),
    Example(
        EVALUATION,
        bad={
            "a place that is none": EVALUATION.encode()[:-1] + b"\x02",
            "fewer results": EVALUATION.encode().replace(
                b"\0\0\0\x40" + ELEMENTS[::-1], b"\0\0\0\x20" + ELEMENTS[::-1][:32]
            ),
        },
    ),
    *[Example(EvaluationRefusal(reason)) for reason in REFUSALS],
    Example(
        PublicDeal("talk", 3, 8, (POINTS[0], POINTS[1])),
        bad=spoilt(
            PublicDeal("talk", 3, 8, (POINTS[0], POINTS[1])),
            ("a commitment that is no point", POINTS[1].encode(), NO_POINT),
            ("fewer users than k", b"\0\0\0\x03\0\0\0\x08", b"\0\0\0\x01\0\0\0\x08"),
        ),
    ),
    Example(
        PrivateDeal(1, 5, group.order - 1),
        bad={
            "a number beyond the order": PrivateDeal(1, 5, 0).encode()[:-32]
            + group.order.to_bytes(32, "little")
        },
    ),
    Example(SUBMISSION, bad=spoilt(SUBMISSION, ("the identity as point", POINTS[1].encode(), IDENTITY))),
]
