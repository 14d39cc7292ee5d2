"""Messages of distributed k-anonymity, formulation 2."""

from masquerade.crypto.keys import SigningKey
from masquerade.protocols.k_anonymity.suppression.comparison import MixedPairs
from masquerade.protocols.k_anonymity.suppression.messages import (
    AGREEMENT,
    NOTICES,
    RELEASE,
    AddressedReport,
    Bundle,
    Closings,
    GroupVote,
    Notices,
    PartitionTerms,
    TableRelease,
    Word,
)
from tests.vectors.message_vectors import Example

DIGEST = bytes(range(32))
KEYS = [SigningKey.from_seed(bytes([number]) * 32) for number in range(8)]
PUBLIC = [key.public for key in KEYS]
TERMS = PartitionTerms(
    "vectors",
    2,
    ("born", "zip"),
    PUBLIC[0],
    bytes([9]) + bytes(31),
    {"key holder 1": PUBLIC[1], "key holder 2": PUBLIC[2]},
    PUBLIC[3],
    {f"person {place}": PUBLIC[3 + place] for place in (1, 2, 3)},
)
VOTE = GroupVote(DIGEST, PUBLIC[4], (0, 0, 1, 1))
SAID = Notices(DIGEST, PUBLIC[3], (PUBLIC[5], PUBLIC[6]), (b"a", b"b", b"c", b"d"), (b"x", b"y", b"z"))
TABLE = TableRelease(DIGEST, ((b"1957",), (), (), (b"07030",)), (DIGEST, bytes(32)))
EXAMPLES = [
    Example(MixedPairs(b"blinded", b"proof", (b"one", b"two"))),
    Example(MixedPairs(b"", b"", ())),
    *[
        Example(Word.make(TERMS, key, kind, sender, payload.encode()))
        for key, kind, sender, payload in (
            (KEYS[4], AGREEMENT, "person 1", VOTE),
            (KEYS[3], NOTICES, "randomness server", SAID),
            (KEYS[0], RELEASE, "miner", TABLE),
        )
    ],
    Example(VOTE),
    Example(SAID),
    Example(Bundle("person 1", (b"request", b""))),
    Example(Closings((b"a", b"b"))),
    Example(AddressedReport(1, 0, b"report")),
    Example(TABLE),
]
