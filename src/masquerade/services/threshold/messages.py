"""What people and the two servers send each other, and keep, beyond the protocol's own messages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from masquerade.core.errors import FileError
from masquerade.core.util.atomic import write_whole
from masquerade.crypto import symmetric
from masquerade.crypto.class_secrets import TAG_SIZE
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.protocols.k_anonymity.threshold.messages import MOST_BYTES, Credential
from masquerade.protocols.wire.codec import Blob, Digest, Many, Message, Signature

MOST_TOGETHER: Final = 256  # requests in one message
MOST_ENROLLED: Final = 1000  # people in one message
_LARGEST: Final = 1 << 14  # bytes of a request or of a reply
_SHOWN: Final = "collect notice shown"
_OPEN: Final = "collect open tags"

NoticeBytes = Annotated[bytes, Blob(2 * MOST_BYTES)]


class Batch(Message, tag=b"collect batch 1"):
    """Several requests, or the replies to them in the same order."""

    items: Annotated[tuple[Annotated[bytes, Blob(_LARGEST)], ...], Many(MOST_TOGETHER)]


class ShownNotice(Message, tag=b"collect notice shown 1"):
    """The notice that the collector was shown, signed by the collector.

    A person who was shown another one knows that the randomness server tells people apart, and both
    signatures together are evidence.
    """

    notice: NoticeBytes
    signature: Signature

    @classmethod
    def signed(cls, notice: bytes, key: SigningKey) -> ShownNotice:
        """Return a notice with the collector's signature."""
        return cls(notice, key.sign(_SHOWN, notice))

    def verify(self, identity: bytes) -> None:
        """Raise `SealBroken` unless the collector of this identity signed it."""
        verify_signature(identity, self.signature, _SHOWN, self.notice)


class OpenTags(Message, tag=b"collect open tags 1"):
    """Which classes opened, by their tags, signed by the collector: random bytes to all but their members.

    Only collections whose form has hierarchies have it: who is not among them reports again, coarser. A
    member of a class whose row was published and whose tag is missing holds evidence against the collector.
    """

    notice: Digest
    tags: Annotated[bytes, Blob(1 << 26)]
    signature: Signature

    @classmethod
    def signed(cls, notice: bytes, tags: frozenset[bytes], key: SigningKey) -> OpenTags:
        """Return tags with the collector's signature; `notice` is the digest of the epoch's notice."""
        run = b"".join(sorted(tags))
        return cls(notice, run, key.sign(_OPEN, notice, run))

    def verify(self, identity: bytes) -> None:
        """Raise `SealBroken` unless the collector of this identity signed them."""
        verify_signature(identity, self.signature, _OPEN, self.notice, self.tags)

    @property
    def listed(self) -> frozenset[bytes]:
        """Return the tags one by one."""
        return frozenset(self.tags[at : at + TAG_SIZE] for at in range(0, len(self.tags), TAG_SIZE))


class ClientRecord(Message, tag=b"collect record 1"):
    """How far a person has come in an epoch: asking (`kept`), reporting (`report`), or `delivered`.

    It is on the disk before anything leaves, so a retry never asks twice. The number that hides the request
    is there until the report is made; the row itself never is. The mark tells another row from the first one
    without holding either: it is keyed with the credential.
    """

    notice: NoticeBytes
    mark: Digest
    kept: Annotated[bytes, Blob(64)] = b""
    report: Annotated[bytes, Blob(4 * MOST_BYTES)] = b""
    delivered: bool = False

    def __repr__(self) -> str:
        """Show how far it is, nothing of what it holds."""
        state = "delivered" if self.delivered else "reporting" if self.report else "asking"
        return f"ClientRecord({state})"

    @classmethod
    def load(cls, path: Path) -> ClientRecord | None:
        """Return the record in a file, None if there is none yet."""
        try:
            return cls.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(f"{path}: cannot be read ({(error.strerror or 'error').lower()}).") from None
        except DecodingError:
            raise FileError(f"{path}: is damaged, or not the record of a collection.") from None

    def save(self, path: Path) -> None:
        """Write the record; it is on the disk when this returns."""
        write_whole(path, self.encode(), private=True)


def mark_of(credential: Credential, quasi: bytes, sensitive: bytes) -> bytes:
    """Return what tells a row from another one, to the holder of the credential alone."""
    parts = b"".join([len(part).to_bytes(4, "big") + part for part in (quasi, sensitive)])
    return symmetric.code(credential.key, b"collect record 1" + parts)
