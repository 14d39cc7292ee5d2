"""A person's one file: who they are, which counts they were admitted to, and the ledger of what has left.

It is a ledger like every other (`people.ledger`), so that nothing in it can be taken back; the office makes
it, and hands it over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.json_text import parse_json, read_text
from masquerade.crypto import symmetric
from masquerade.crypto.errors import DecodingError, KeySpent
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.people.ledger import Claim, FileLedger
from masquerade.services.common.device_client import DeviceClient
from masquerade.services.common.peers import Peer, TlsFiles, client_context
from masquerade.services.counting.messages import CountTerms

ENDING: Final = ".person"
PERSON, ADMITTED, TERMS, RECORD = "person", "count admitted", "count terms", "count record"
_MOST_JSON: Final = 1 << 20
_NAME, _IDENTITY = b"name", b"identity"


@dataclass(frozen=True)
class Admission:
    """What everybody is given of a count: where its miner is, how it is known, the digest of the terms."""

    count: str
    url: str
    fingerprints: tuple[str, ...]
    authority: str
    terms: str

    @classmethod
    def from_json(cls, data: str | bytes, where: str) -> Self:
        """Return the admission of a JSON object; what is not one is refused."""
        try:
            values = parse_json(data)
        except InputError:
            values = None
        texts = ("count", "url", "authority", "terms")
        if (
            not isinstance(values, dict)
            or set(values) != {*texts, "fingerprints"}
            or not all(isinstance(values[name], str) for name in texts)
            or not isinstance(values["fingerprints"], list)
            or not all(isinstance(one, str) for one in values["fingerprints"])
        ):
            raise FileError(f"{where}: is not what a count's office gives to people (count, url, …).")
        return cls(**values | {"fingerprints": tuple(values["fingerprints"])})

    def to_json(self) -> str:
        """Return it as the public file that everybody may have."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def client(self, patience: float = 60.0) -> DeviceClient:
        """Return the way to the miner, which shows a certificate with one of these fingerprints."""
        context = None
        if self.url.startswith("https:"):
            peer = Peer("the miner", self.url, self.fingerprints)
            context = client_context(peer, TlsFiles(authority=self.authority or None))
        return DeviceClient(self.url, context=context, timeout=60.0, patience=patience)


class PersonFile:
    """An open file of a person."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileError(f"{self.path}: there is no such file; the enrolment office hands it over.")
        self.ledger = FileLedger(self.path)
        name, seed = (self.ledger.find(PERSON, what) for what in (_NAME, _IDENTITY))
        if name is None or seed is None:
            self.ledger.close()
            raise FileError(f"{self.path}: is a ledger, but not the file of a person.")
        self.name, self.identity = name.decode(), SigningKey.from_seed(seed)

    @classmethod
    def make(cls, path: str | Path, name: str) -> bytes:
        """Make the file of a person with a fresh identity, and return the public key."""
        place, key = Path(path), SigningKey()
        if place.exists():
            raise FileError(f"{place}: is there already; a person keeps one file for good.")
        ledger = FileLedger(place)
        ledger.claim([Claim(PERSON, _NAME, name.encode()), Claim(PERSON, _IDENTITY, key.reveal())])
        ledger.close()
        return key.public

    def admit(self, admission: Admission) -> None:
        """Remember a count; other terms for the same name are refused."""
        name, value = admission.count.encode(), admission.to_json().encode()
        known = self.ledger.find(ADMITTED, name)
        if known is None:
            self.ledger.claim([Claim(ADMITTED, name, value)])
        elif Admission.from_json(known, str(self.path)).terms != admission.terms:
            raise InputError(
                f"This file was admitted to a count {admission.count!r} with other terms: somebody tells "
                "people different things. Nothing was sent."
            )

    def admission(self, count: str | None = None) -> Admission:
        """Return the count of this name, or the one that there is."""
        found = [Admission.from_json(one, str(self.path)) for one in self.ledger.values(ADMITTED)]
        named = [one for one in found if count in (None, one.count)]
        if len(named) != 1:
            known = ", ".join(one.count for one in found) or "none"
            raise InputError(f"Name one of the counts that this file was admitted to ({known}).")
        return named[0]

    def keep_terms(self, admission: Admission, data: bytes) -> CountTerms:
        """Check the terms that a miner shows against the office's digest, and keep them."""
        try:
            terms = CountTerms.decode(data)
        except DecodingError as error:
            raise InputError(f"The miner shows terms that cannot be read: {error}") from None
        if not symmetric.same(terms.digest, bytes.fromhex(admission.terms)):
            raise InputError("The miner shows other terms than the office gave. Nothing was sent.")
        if terms.members.get(self.name) != self.identity.public:
            raise InputError(f"{self.name!r} is not enrolled in this count with the identity in this file.")
        if self.ledger.find(TERMS, terms.digest) is None:
            self.ledger.claim([Claim(TERMS, terms.digest, data)])
        return terms

    def known_terms(self, admission: Admission) -> bytes | None:
        """Return the terms of a count, if they were kept."""
        return self.ledger.find(TERMS, bytes.fromhex(admission.terms))

    def fix_record(self, terms: CountTerms, codes: Mapping[str, int]) -> None:
        """Refuse another record than the one that this count was begun with; only a keyed mark is kept."""
        text = json.dumps(dict(sorted(codes.items()))).encode()
        mark = symmetric.code(self.identity.reveal(), b"masquerade count record\0" + terms.digest + text)
        try:
            self.ledger.claim([Claim(RECORD, terms.digest, mark)])
        except KeySpent:
            if not symmetric.same(self.ledger.find(RECORD, terms.digest) or b"", mark):
                raise InputError(
                    f"{self.path}: this count was begun with another record, and takes one a person."
                ) from None

    def close(self) -> None:
        """Let go of the file."""
        self.ledger.close()


def read_record(path: str | Path) -> dict[str, Any]:
    """Return the record in a JSON file: an object of labels by variable."""
    try:
        record = parse_json(read_text(Path(path), most=_MOST_JSON))
    except FileError:
        raise
    except InputError:
        record = None
    if not isinstance(record, dict):
        raise FileError(f"{path}: must be one JSON object, a label for each variable.")
    return record
