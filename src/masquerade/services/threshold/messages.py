"""Messages and records of the services, in addition to the messages of the protocol."""

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


class RequestBatch(Message, tag=b"collect batch 1"):
    """Several requests, or their replies in the same order."""

    items: Annotated[tuple[Annotated[bytes, Blob(_LARGEST)], ...], Many(MOST_TOGETHER)]


class ShownNotice(Message, tag=b"collect notice shown 1"):
    """The notice that the collector received, signed by the collector.

    A person who received a different notice knows that the randomness server sends different notices to
    different people, and both signatures together prove it.
    """

    notice: NoticeBytes
    signature: Signature

    @classmethod
    def sign(cls, notice: bytes, key: SigningKey) -> ShownNotice:
        """Sign a notice with the collector's key."""
        return cls(notice, key.sign(_SHOWN, notice))

    def verify(self, identity: bytes) -> None:
        """Raise `SealBroken` unless the collector of this identity signed the notice."""
        verify_signature(identity, self.signature, _SHOWN, self.notice)


class OpenTags(Message, tag=b"collect open tags 1"):
    """Tags of open classes, signed by the collector; to anyone outside a class, its tag is random bytes.

    They exist only if the form has hierarchies: members of other classes then report again at a coarser
    level. If a row was published but the tag of its class is missing, a member of the class can prove fraud.
    """

    notice: Digest
    tags: Annotated[bytes, Blob(1 << 26)]
    signature: Signature

    @classmethod
    def sign(cls, notice: bytes, tags: frozenset[bytes], key: SigningKey) -> OpenTags:
        """Sign tags with the collector's key; `notice` is the digest of the epoch's notice."""
        run = b"".join(sorted(tags))
        return cls(notice, run, key.sign(_OPEN, notice, run))

    def verify(self, identity: bytes) -> None:
        """Raise `SealBroken` unless the collector of this identity signed the tags."""
        verify_signature(identity, self.signature, _OPEN, self.notice, self.tags)

    def split_tags(self) -> frozenset[bytes]:
        """Split the concatenated tags."""
        return frozenset(self.tags[at : at + TAG_SIZE] for at in range(0, len(self.tags), TAG_SIZE))


class ClientRecord(Message, tag=b"collect record 1"):
    """State of a person in an epoch: asking (`kept`), reporting (`report`), or `delivered`.

    It is durable before anything is sent, so that a retry never makes a second request. Until the report is
    made, `kept` has the blinding secret of the request. The record never contains the row itself; `mark`
    detects that a different row is used. Until the report is delivered, anyone who has the record and the
    credential can test guesses of the row, and a member of the class who has the record can open its report.
    Then the mark is removed, and of the report only the tag of its class is kept.
    """

    notice: NoticeBytes
    mark: Digest
    kept: Annotated[bytes, Blob(64)] = b""
    report: Annotated[bytes, Blob(4 * MOST_BYTES)] = b""
    delivered: bool = False

    def __repr__(self) -> str:
        """Show the state and no content."""
        state = "delivered" if self.delivered else "reporting" if self.report else "asking"
        return f"ClientRecord({state})"

    @classmethod
    def load(cls, path: Path) -> ClientRecord | None:
        """Load the record from a file, None if the file does not exist."""
        try:
            return cls.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(f"{path}: cannot be read ({(error.strerror or 'error').lower()}).") from None
        except DecodingError:
            raise FileError(f"{path}: is damaged, or not the record of a collection.") from None

    def save(self, path: Path) -> None:
        """Write the record durably."""
        write_whole(path, self.encode(), private=True)


def mark_of(credential: Credential, quasi: bytes, sensitive: bytes) -> bytes:
    """Return a code of a row that only the owner of the credential can compute."""
    parts = b"".join([len(part).to_bytes(4, "big") + part for part in (quasi, sensitive)])
    return symmetric.code(credential.key, b"collect record 1" + parts)
