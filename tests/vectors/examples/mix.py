"""Messages of the mix."""

from masquerade.crypto.keys import SigningKey
from masquerade.protocols.mixnet.messages import (
    ENDORSEMENT,
    OPENING,
    SHARE,
    SHUFFLE,
    SUBMISSION,
    MixBoard,
    MixTerms,
    SignedMixMessage,
)
from tests.vectors.message_vectors import Example

NAMES = ("miner", "leader 1", "leader 2", "ann", "zoë")
KEYS = {name: SigningKey.from_seed(bytes([place] * 32)) for place, name in enumerate(NAMES, 1)}
PUBLIC = {name: key.public for name, key in KEYS.items()}
TERMS = MixTerms(
    "spring",
    PUBLIC["miner"],
    {name: PUBLIC[name] for name in NAMES[1:3]},
    {name: PUBLIC[name] for name in NAMES[3:]},
    width=2,
    minimum=3,
)
SENDERS = {
    SHARE: "miner",
    SUBMISSION: "ann",
    SHUFFLE: "leader 1",
    ENDORSEMENT: "leader 2",
    OPENING: "leader 1",
}


def signed(kind):
    """Return a message of a kind; its signature is the same whenever it is made."""
    sender = SENDERS[kind]
    return SignedMixMessage.make(TERMS, KEYS[sender], kind, sender, kind.encode())


OTHER = signed(SHARE).encode().replace(b"\0\0\0\x09key share", b"\0\0\0\x09key_share")
EXAMPLES = [
    *[Example(signed(kind), bad={"another kind": OTHER}) for kind in SENDERS],
    Example(MixBoard((signed(SHARE).encode(), b""))),
    Example(MixBoard(())),
    Example(TERMS),
]
