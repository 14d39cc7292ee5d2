"""What people and the two servers send each other beyond the protocol's own messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from masquerade.crypto.keys import SIGNATURE_SIZE, SigningKey, verify_signature
from masquerade.protocols.codec import Message, Reader, Writer
from masquerade.protocols.threshold.agreement import MOST_BYTES

MOST_TOGETHER: Final = 256  # requests in one message
MOST_ENROLLED: Final = 1000  # people in one message
_LARGEST: Final = 1 << 14  # bytes of a request or of a reply
_SHOWN: Final = "collect notice shown"


@dataclass(frozen=True)
class Batch(Message):
    """Several requests, or the replies to them in the same order."""

    TAG: ClassVar[bytes] = b"collect batch 1"
    items: tuple[bytes, ...]

    def write(self, writer: Writer) -> None:
        """Write the items in order."""
        writer.many(self.items, MOST_TOGETHER, lambda item: writer.varying(item, _LARGEST))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the items in order."""
        return cls(reader.many(MOST_TOGETHER, lambda: reader.varying(_LARGEST)))


@dataclass(frozen=True)
class Shown(Message):
    """The notice that the collector was shown, signed by the collector.

    A person who was shown another one knows that the randomness server tells people apart, and both
    signatures together are evidence.
    """

    TAG: ClassVar[bytes] = b"collect notice shown 1"
    notice: bytes
    signature: bytes

    @classmethod
    def signed(cls, notice: bytes, key: SigningKey) -> Shown:
        """Return a notice with the collector's signature."""
        return cls(notice, key.sign(_SHOWN, notice))

    def verify(self, identity: bytes) -> None:
        """Raise `SealBroken` unless the collector of this identity signed it."""
        verify_signature(identity, self.signature, _SHOWN, self.notice)

    def write(self, writer: Writer) -> None:
        """Write the fields in order."""
        writer.varying(self.notice, 2 * MOST_BYTES)
        writer.fixed(self.signature, SIGNATURE_SIZE)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order."""
        return cls(reader.varying(2 * MOST_BYTES), reader.fixed(SIGNATURE_SIZE))
