"""What a client remembers of an epoch, on the disk before anything leaves: so a retry never asks twice.

The number that hides the request is there until the report is made; the row itself never is. The mark tells
another row from the first one without holding either: it is keyed with the credential.
"""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from masquerade.core.atomic import write_whole
from masquerade.core.errors import FileError
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.codec import Message, Reader, Writer
from masquerade.protocols.threshold.agreement import MOST_BYTES
from masquerade.protocols.threshold.oprf_messages import Credential

_MARK_SIZE = 32
_MOST_REPORT = 4 * MOST_BYTES


@dataclass(frozen=True)
class Record(Message):
    """How far a person has come in an epoch: asking (`kept`), reporting (`report`), or `delivered`."""

    TAG: ClassVar[bytes] = b"collect record 1"
    notice: bytes
    mark: bytes
    kept: bytes = b""
    report: bytes = b""
    delivered: bool = False

    def __repr__(self) -> str:
        """Show how far it is, nothing of what it holds."""
        return f"Record({'delivered' if self.delivered else 'reporting' if self.report else 'asking'})"

    def write(self, writer: Writer) -> None:
        """Write the fields in order."""
        writer.varying(self.notice, 2 * MOST_BYTES)
        writer.fixed(self.mark, _MARK_SIZE)
        writer.varying(self.kept, 64)
        writer.varying(self.report, _MOST_REPORT)
        writer.number(self.delivered, 1)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the fields in order."""
        notice, mark = reader.varying(2 * MOST_BYTES), reader.fixed(_MARK_SIZE)
        kept, report = reader.varying(64), reader.varying(_MOST_REPORT)
        return cls(notice, mark, kept, report, bool(reader.number(1, most=1)))


def mark_of(credential: Credential, quasi: bytes, sensitive: bytes) -> bytes:
    """Return what tells a row from another one, to the holder of the credential alone."""
    parts = b"".join([len(part).to_bytes(4, "big") + part for part in (quasi, sensitive)])
    return hmac.digest(credential.key, b"collect record 1" + parts, "sha256")


def load_record(path: Path) -> Record | None:
    """Return the record in a file, None if there is none yet."""
    try:
        return Record.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({os.strerror(error.errno or 5).lower()}).") from None
    except DecodingError:
        raise FileError(f"{path}: is damaged, or not the record of a collection.") from None


def save_record(path: Path, record: Record) -> None:
    """Write a record; it is on the disk when this returns."""
    write_whole(path, record.encode(), private=True)
