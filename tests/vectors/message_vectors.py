"""Frozen messages: examples of every class as bytes, and what must not decode, found by taking them apart."""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from masquerade.crypto.errors import DecodingError
from masquerade.protocols.wire.codec import Message, Reader
from tests.architecture.modules import MODULES

FOLDER = Path(__file__).parent / "messages"
# Names that classes had when the vectors were frozen: digests of fields contain them, and stay as they are.
FROZEN_NAMES = {
    "AggregationAdvert": "Advert",
    "AggregationTerms": "Terms",
    "ColumnPart": "Part",
    "DealtShares": "Dealt",
    "DealtSubmission": "Submission",
    "DisguisedCells": "Cells",
    "FrequencyTerms": "Terms",
    "LinkageStep": "Step",
    "MiningStep": "Step",
    "MixBoard": "Board",
    "MixBoards": "Boards",
    "QuestionBatch": "Batch",
    "ReportLayout": "Layout",
    "RequestBatch": "Batch",
    "RoundCall": "Call",
    "SessionRoster": "Roster",
    "ShownNode": "Shown",
    "SignedConsent": "Consent",
    "SignedMiningMessage": "Signed",
    "SignedMixMessage": "Signed",
    "TableRelease": "Release",
    "ThresholdTerms": "Terms",
}


@dataclass(frozen=True)
class Example:
    """A message, what its reader knows, and bytes that only look like one, by what is wrong with them."""

    message: Message
    context: Any = None
    bad: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def kind(self) -> type[Message]:
        """Return the class of the message."""
        return type(self.message)

    @property
    def name(self) -> str:
        """Return the full name of the class."""
        return f"{self.kind.__module__}.{self.kind.__qualname__}"

    def decode(self, data: bytes) -> Message:
        """Read bytes as a message of this kind."""
        return self.kind.decode(data, self.context)

    def refused(self, data: bytes) -> bool:
        """Tell whether bytes do not decode; if they do, they must encode to the same."""
        try:
            decoded = self.decode(data)
        except DecodingError:
            return True
        assert decoded.encode(self.context) == data, f"{self.name}: another spelling of one message decodes"
        return False


class Tracing(Reader):
    """A reader that notes where counts and numbers stand."""

    def __init__(self, data: bytes, context: object) -> None:
        super().__init__(data, context)
        self.numbers: list[tuple[int, int]] = []

    def number(self, size: int, most: int | None = None) -> int:
        """Read a number and note its place."""
        self.numbers.append((self._at, size))
        return super().number(size, most)


def message_classes() -> list[type[Message]]:
    """Return every class of messages in the package."""
    for module in MODULES:
        if "codec" in module.path.read_text(encoding="utf-8"):
            importlib.import_module(module.name)

    def below(kind: type[Message]) -> Iterator[type[Message]]:
        for one in kind.__subclasses__():
            yield one
            yield from below(one)

    return sorted(
        {
            kind
            for kind in below(Message)
            if kind.__module__.startswith("masquerade.")
            and hasattr(kind, "TAG")
            and getattr(importlib.import_module(kind.__module__), kind.__name__, None) is kind
        },
        key=lambda kind: (kind.__module__, kind.__name__),
    )


def examples() -> dict[str, list[Example]]:
    """Return the examples of every protocol."""
    package = importlib.import_module("tests.vectors.examples")
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return {name: importlib.import_module(f"tests.vectors.examples.{name}").EXAMPLES for name in names}


def vector(example: Example) -> dict[str, Any]:
    """Return what is frozen of an example."""
    data = example.message.encode(example.context)
    bad = tampered(example, data) | dict(example.bad)
    for why, wrong in bad.items():
        assert example.refused(wrong), f"{example.name}: decodes with {why}"
    return {
        "message": example.name,
        "good": data.hex(),
        "fields": digest(example.message),
        "bad": {why: wrong.hex() for why, wrong in bad.items()},
    }


def tampered(example: Example, data: bytes) -> dict[str, bytes]:
    """Return a message cut, extended, with another tag, with other counts and numbers that are refused."""
    found = {f"cut to {size} bytes": data[:size] for size in sorted({0, 3, len(data) // 2, len(data) - 1})}
    found["a byte more"] = data + b"\0"
    reader = Tracing(data, example.context)
    example.kind.read_whole(reader)
    tag = example.kind.TAG
    at = data.index(tag) if len(tag) > 1 else 0
    found["another tag"] = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    end = at + len(tag) - 1
    found["another version"] = data[:end] + bytes([data[end] ^ 3]) + data[end + 1 :]
    for place, size in dict.fromkeys(reader.numbers):
        value = int.from_bytes(data[place : place + size], "big")
        for other in sorted({value + 1, value - 1, (1 << 8 * size) - 1} - {value, -1, 1 << 8 * size}):
            wrong = data[:place] + other.to_bytes(size, "big") + data[place + size :]
            if example.refused(wrong):
                found[f"{other} at byte {place}"] = wrong
    return found


def digest(value: object) -> str:
    """Return a hash of all fields of a message, secret ones too."""
    return hashlib.sha256(json.dumps(_plain(value), ensure_ascii=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [value.dtype.name, value.tolist()]
    if isinstance(value, Message) or (is_dataclass(value) and not isinstance(value, type)):
        return [_frozen_name(value), *[_plain(getattr(value, item.name)) for item in fields(value)]]
    if isinstance(value, Enum):
        return f"<{_frozen_name(value)}.{value.name}: {value.value!r}>"
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return [[_plain(key), _plain(one)] for key, one in value.items()]
    return repr(value)


def _frozen_name(value: object) -> str:
    name = type(value).__name__
    return FROZEN_NAMES.get(name, name)


def load(protocol: str) -> list[dict[str, Any]]:
    """Return the frozen vectors of a protocol."""
    found: list[dict[str, Any]] = json.loads((FOLDER / f"{protocol}.json").read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":  # python -m tests.vectors.message_vectors writes them anew
    for protocol, listed in examples().items():
        text = json.dumps([vector(example) for example in listed], indent=1) + "\n"
        (FOLDER / f"{protocol}.json").write_text(text, encoding="utf-8")
