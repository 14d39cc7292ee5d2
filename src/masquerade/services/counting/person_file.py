"""A person's file: their identity, the counts they were admitted to, and the ledger of sent messages.

It is an ordinary ledger (`people.ledger`), in which no entry can be undone. The office creates the file and
hands it to the person.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Self

from masquerade.core.errors import FileError, InputError
from masquerade.core.record_gamma import Gamma
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
    """Public file of a count: address and fingerprints of its miner, and the digest of the terms."""

    count: str
    url: str
    fingerprints: tuple[str, ...]
    authority: str
    terms: str

    @classmethod
    def from_json(cls, data: str | bytes, where: str) -> Self:
        """Parse an admission from JSON; raise FileError if it is not valid."""
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
            raise FileError(f"{where}: is not the public file of a count (count, url, …).")
        return cls(**values | {"fingerprints": tuple(values["fingerprints"])})

    def to_json(self) -> str:
        """Return the text of the public file."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def client(self, patience: float = 60.0) -> DeviceClient:
        """Return a client of the miner, whose certificate must have one of the fingerprints."""
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
            raise FileError(f"{self.path}: does not exist; people get it from the enrolment office.")
        self.ledger = FileLedger(self.path)
        name, seed = (self.ledger.find(PERSON, what) for what in (_NAME, _IDENTITY))
        if name is None or seed is None:
            self.ledger.close()
            raise FileError(f"{self.path}: is a ledger, but not the file of a person.")
        self.name, self.identity = name.decode(), SigningKey.from_seed(seed)

    @classmethod
    def make(cls, path: str | Path, name: str) -> bytes:
        """Create the file of a person with a new identity; return the public key."""
        place, key = Path(path), SigningKey()
        if place.exists():
            raise FileError(f"{place}: exists already; a person keeps one file permanently.")
        ledger = FileLedger(place)
        ledger.claim([Claim(PERSON, _NAME, name.encode()), Claim(PERSON, _IDENTITY, key.reveal())])
        ledger.close()
        return key.public

    def admit(self, admission: Admission) -> None:
        """Store the admission to a count; raise InputError if one with different terms is stored already."""
        name, value = admission.count.encode(), admission.to_json().encode()
        earlier = self.ledger.find(ADMITTED, name)
        if earlier is None:
            self.ledger.claim([Claim(ADMITTED, name, value)])
        elif Admission.from_json(earlier, str(self.path)).terms != admission.terms:
            raise InputError(
                f"This file was admitted to count {admission.count!r} with other terms: people may have "
                "been given different terms. Nothing was sent."
            )

    def admission(self, count: str | None = None) -> Admission:
        """Return the admission to the count of this name, or the only one."""
        admissions = [Admission.from_json(one, str(self.path)) for one in self.ledger.values(ADMITTED)]
        matching = [one for one in admissions if count in (None, one.count)]
        if len(matching) != 1:
            names = ", ".join(one.count for one in admissions) or "none"
            raise InputError(f"Name one of the counts that this file was admitted to ({names}).")
        return matching[0]

    def keep_terms(self, admission: Admission, data: bytes) -> CountTerms:
        """Check that the miner's terms have the digest that the office stated, and store them."""
        try:
            terms = CountTerms.decode(data)
        except DecodingError as error:
            raise InputError(f"The miner's terms cannot be read: {error}") from None
        if not symmetric.same(terms.digest, bytes.fromhex(admission.terms)):
            raise InputError("The miner's terms differ from the office's. Nothing was sent.")
        if terms.members.get(self.name) != self.identity.public:
            raise InputError(f"{self.name!r} is not enrolled in this count with the identity in this file.")
        if self.ledger.find(TERMS, terms.digest) is None:
            self.ledger.claim([Claim(TERMS, terms.digest, data)])
        return terms

    def known_terms(self, admission: Admission) -> bytes | None:
        """Return the stored terms of a count, None if there are none."""
        return self.ledger.find(TERMS, bytes.fromhex(admission.terms))

    def gammas_spent(self) -> dict[str, Gamma]:
        """Return the γ of started counts by policy, since reports under one policy are drawn only once."""
        spent: dict[str, Gamma] = {}
        for data in self.ledger.values(TERMS):
            terms = CountTerms.decode(data)
            if self.ledger.find(RECORD, terms.digest) is not None:
                spent[terms.report_form.id] = terms.report_form.record_gamma
        return spent

    def noise_spent(self) -> dict[str, tuple[Fraction, Fraction]]:
        """Return ε and δ of started counts with noise, by the digest of their terms."""
        spent: dict[str, tuple[Fraction, Fraction]] = {}
        for data in self.ledger.values(TERMS):
            terms = CountTerms.decode(data)
            if terms.noise is not None and self.ledger.find(RECORD, terms.digest) is not None:
                spent[terms.digest.hex()] = terms.noise.privacy
        return spent

    def fix_record(self, terms: CountTerms, codes: Mapping[str, int]) -> None:
        """Bind this count to one record, by a keyed code; raise InputError if it is bound to another one."""
        text = json.dumps(dict(sorted(codes.items()))).encode()
        mark = symmetric.code(self.identity.reveal(), b"masquerade count record\0" + terms.digest + text)
        try:
            self.ledger.claim([Claim(RECORD, terms.digest, mark)])
        except KeySpent:
            if not symmetric.same(self.ledger.find(RECORD, terms.digest) or b"", mark):
                raise InputError(
                    f"{self.path}: this count was started with another record; it accepts one per person."
                ) from None

    def close(self) -> None:
        """Close the file."""
        self.ledger.close()


def read_record(path: str | Path) -> dict[str, Any]:
    """Read a record from a JSON file: an object of labels by variable."""
    try:
        record = parse_json(read_text(Path(path), most=_MOST_JSON))
    except FileError:
        raise
    except InputError:
        record = None
    if not isinstance(record, dict):
        raise FileError(f"{path}: must be one JSON object with a label for each variable.")
    return record
