"""What the office, the miner, leaders and people's devices send each other beyond the protocols' messages."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, cast

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import SIGNATURE_SIZE, SigningKey, verify_signature
from masquerade.protocols.people.report_form import AnyPolicy, ReportForm
from masquerade.protocols.people.roster import Members, PersonName, Roster, check_members
from masquerade.protocols.wire.codec import (
    U32,
    Blob,
    Fixed,
    Key,
    Many,
    Message,
    OneOf,
    Reader,
    Signature,
    Text,
)

if TYPE_CHECKING:
    from masquerade.protocols.frequency_mining.messages import Terms as FrequencyTerms
    from masquerade.protocols.mixnet.messages import MixTerms
    from masquerade.protocols.secure_aggregation.agreement import Terms as AggregationTerms

PROTOCOLS: Final = ("frequency", "aggregation", "mix")
MOST_PEOPLE: Final = 100_000
MOST_BYTES: Final = 1 << 26
WAIT, MESSAGE, OVER = "wait", "message", "over"
ASK_TERMS, ASK_LETTER = "terms", "letters"
LETTER_ID: Final = 16
_REQUEST, _REPLY = "count request", "count reply"  # what signatures are about
TAKEN, NOT_TAKEN = b'{"taken": true}', b'{"taken": false}'  # what is said to a reply
AnyTerms: TypeAlias = "FrequencyTerms | AggregationTerms | MixTerms"


class CountTerms(Message, tag=b"masquerade count terms 1", eq=False):
    """What everybody agrees to before anything is counted; `digest` stands for all of it.

    `name` is used once. `colluders` and `dropouts` are shares, and `server` says against which miner it
    protects; they are for secure aggregation. `leaders` are for the mix, in the order in which they shuffle.
    """

    protocol: Annotated[str, OneOf(Text(32), PROTOCOLS)]
    name: Annotated[str, Text(63)]
    form: Annotated[bytes, Blob(MOST_BYTES)]
    minimum: U32
    colluders: Annotated[str, Text(32)]
    dropouts: Annotated[str, Text(32)]
    server: Annotated[str, OneOf(Text(32), ("semi-honest", "malicious"))]
    miner: Key
    leaders: Annotated[Members, Many(64)]
    members: Annotated[Members, Many(MOST_PEOPLE)]

    @classmethod
    def read(cls, reader: Reader) -> CountTerms:
        """Read terms; those that no protocol can be run by are refused."""
        terms = super().read(reader)
        ReportForm.decode(terms.form)
        try:
            check_members({"miner": terms.miner}, terms.leaders, terms.members)
        except InputError as error:
            raise DecodingError(str(error)) from None
        return terms

    @cached_property
    def digest(self) -> bytes:
        """Return 32 bytes that stand for all of the terms."""
        return hashlib.sha256(self.encode()).digest()

    @cached_property
    def report_form(self) -> ReportForm:
        """Return the policy as devices have it."""
        return ReportForm.decode(self.form)

    def agreed(self, policy: AnyPolicy | None = None) -> AnyTerms:
        """Return the terms of the protocol, under the whole policy where it is at hand."""
        used: AnyPolicy = self.report_form if policy is None else policy
        if self.protocol == "frequency":
            return _frequency_terms(self, used)
        if self.protocol == "aggregation":
            return _aggregation_terms(self, used)
        return _mix_terms(self, used)


def _frequency_terms(terms: CountTerms, policy: AnyPolicy) -> FrequencyTerms:
    from masquerade.protocols.frequency_mining.messages import Terms  # noqa: PLC0415  (a device loads one protocol)

    return Terms(terms.name, policy, terms.members, terms.minimum)


def _aggregation_terms(terms: CountTerms, policy: AnyPolicy) -> AggregationTerms:
    from masquerade.protocols.secure_aggregation.agreement import Parameters, Terms  # noqa: PLC0415

    parameters = Parameters.of(
        len(terms.members),
        colluders=terms.colluders,
        dropouts=terms.dropouts,
        server=cast(Literal["semi-honest", "malicious"], terms.server),
        minimum=terms.minimum,
    )
    return Terms(Roster(terms.members), parameters, policy)


def _mix_terms(terms: CountTerms, policy: AnyPolicy) -> MixTerms:
    from masquerade.protocols.mixnet.messages import MixTerms, record_width  # noqa: PLC0415

    width, least = record_width(policy), terms.minimum
    return MixTerms(terms.name, terms.miner, terms.leaders, terms.members, width=width, minimum=least)


class DeviceRequest(Message, tag=b"masquerade count request 1"):
    """A signed request of a person's device, for the terms or for the pending message."""

    what: Annotated[str, OneOf(Text(16), (ASK_TERMS, ASK_LETTER))]
    person: PersonName
    signature: Signature

    @classmethod
    def make(cls, what: str, person: str, terms: bytes, key: SigningKey) -> DeviceRequest:
        """Return a signed request; `terms` is their digest, which the office gave."""
        return cls(what, person, key.sign(_REQUEST, terms, what.encode(), person.encode()))

    def is_signed(self, terms: CountTerms) -> bool:
        """Return True if the person named is enrolled and signed this under these terms."""
        fields = (terms.digest, self.what.encode(), self.person.encode())
        return _is_signed(terms, self.person, self.signature, _REQUEST, *fields)


class Letter(Message, tag=b"masquerade count letter 2"):
    """The miner's answer to a device: wait for `pause` milliseconds, a message to answer, or the end.

    `id` is drawn when the message is handed out, so that no reply to an earlier one, however equal, fits it.
    """

    kind: Annotated[str, OneOf(Text(16), (WAIT, MESSAGE, OVER))]
    pause: U32 = 0
    content: Annotated[bytes, Blob(MOST_BYTES)] = b""
    id: Annotated[bytes, Fixed(LETTER_ID)] = bytes(LETTER_ID)


class DeviceReply(Message, tag=b"masquerade count reply 2"):
    """A signed reply of a person's device to a letter; empty if there is nothing to say, or it refuses."""

    person: PersonName
    letter: Annotated[bytes, Fixed(LETTER_ID)]
    content: Annotated[bytes, Blob(MOST_BYTES)]
    signature: Signature

    @classmethod
    def make(cls, person: str, letter: bytes, content: bytes, terms: bytes, key: SigningKey) -> DeviceReply:
        """Return a signed reply to the letter of this id; `terms` is their digest."""
        unsigned = cls(person, letter, content, bytes(SIGNATURE_SIZE))
        return cls(person, letter, content, key.sign(_REPLY, terms, *unsigned._fields()))

    def is_signed(self, terms: CountTerms) -> bool:
        """Return True if the person named is enrolled and signed this under these terms."""
        return _is_signed(terms, self.person, self.signature, _REPLY, terms.digest, *self._fields())

    def _fields(self) -> tuple[bytes, ...]:
        """Return the fields that are signed; of the content a digest: hashing it stops no other thread."""
        return self.person.encode(), self.letter, hashlib.sha256(self.content).digest()


def _is_signed(terms: CountTerms, person: str, signature: bytes, label: str, *fields: bytes) -> bool:
    """Return True if an enrolled person signed; that nobody of the name is enrolled takes as long to say."""
    identity = terms.members.get(person)
    try:
        verify_signature(terms.miner if identity is None else identity, signature, label, *fields)
    except SealBroken:
        return False
    return identity is not None


class Boards(Message, tag=b"masquerade count boards 1"):
    """Boards of a mix that the miner shows a leader together."""

    parts: Annotated[tuple[Annotated[bytes, Blob(1 << 30)], ...], Many(4)]
