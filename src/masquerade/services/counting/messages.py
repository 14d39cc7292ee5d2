"""Messages of office, miner, leaders and devices, in addition to the messages of the protocols."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self, TypeAlias, cast

from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit
from masquerade.core.errors import InputError
from masquerade.core.util.json_text import parse_json
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
    tag_of,
)

if TYPE_CHECKING:
    from masquerade.protocols.frequency_mining.messages import FrequencyTerms
    from masquerade.protocols.k_anonymity.suppression.messages import PartitionTerms
    from masquerade.protocols.mixnet.messages import MixTerms
    from masquerade.protocols.secure_aggregation.agreement import AggregationTerms, SumNoise

SUPPRESSION: Final = "suppression"
PROTOCOLS: Final = ("frequency", "aggregation", "mix", SUPPRESSION)
MOST_PEOPLE: Final = 100_000
MOST_COMPARED: Final = 300  # people of a suppression
_COMPARISON = 650  # most bytes by which one holder compares one variable of two people, with its proofs
MOST_BYTES: Final = 1 << 26
WAIT, MESSAGE, OVER = "wait", "message", "over"
ASK_TERMS, ASK_LETTER = "terms", "letters"
LETTER_ID: Final = 16
_REQUEST, _REPLY = "count request", "count reply"  # labels of signatures
TAKEN, NOT_TAKEN = b'{"taken": true}', b'{"taken": false}'  # the miner's response to a reply
AnyTerms: TypeAlias = "FrequencyTerms | AggregationTerms | MixTerms | PartitionTerms"


class CountTerms(Message, tag=b"masquerade count terms 1", eq=False):
    """Terms that all roles agree to before anything is counted; `digest` identifies them.

    `name` can be used only once. For secure aggregation and for noise, `colluders` and `dropouts` are shares
    of the people. `server` is the strongest type of miner that the protocol tolerates. For the mix, `leaders`
    are in the order in which they shuffle.
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
    def decode(cls, data: bytes, context: object = None) -> Self:
        """Decode terms; terms with noise, or of a suppression, have different tags and further fields."""
        if cls is CountTerms:
            for further in (NoisyCountTerms, SuppressionCountTerms):
                if tag_of(data) == further.TAG:
                    return cast(Self, further.decode(data, context))
        return super().decode(data, context)

    @property
    def noise(self) -> SumNoise | None:
        """Return the noise that all people add, None without noise."""
        return None

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read terms; raise DecodingError if no protocol can run under them."""
        terms = super().read(reader)
        ReportForm.parse(terms.form)
        if (terms.protocol == SUPPRESSION) != isinstance(terms, SuppressionCountTerms):
            raise DecodingError("Only terms of a suppression state k and its servers.")
        try:
            check_members({"miner": terms.miner}, terms.leaders, terms.members)
        except InputError as error:
            raise DecodingError(str(error)) from None
        return terms

    @cached_property
    def digest(self) -> bytes:
        """Return the SHA-256 digest of the terms."""
        return hashlib.sha256(self.encode()).digest()

    @cached_property
    def report_form(self) -> ReportForm:
        """Return the policy in the form that devices use."""
        return ReportForm.parse(self.form)

    def protocol_terms(
        self, policy: AnyPolicy | None = None, limit: PrivacyLimit = DEFAULT_LIMIT
    ) -> AnyTerms:
        """Return the terms of the protocol, with the full policy if it is available.

        If reports reveal more than `limit`, which the caller chooses, they count as clear records.
        """
        used: AnyPolicy = self.report_form if policy is None else policy
        if self.protocol == "frequency":
            return _frequency_terms(self, used, limit)
        if self.protocol == "aggregation":
            return _aggregation_terms(self, used, limit)
        if isinstance(self, SuppressionCountTerms):
            return _suppression_terms(self)
        return _mix_terms(self, used)


class NoisyCountTerms(CountTerms, tag=b"masquerade count terms 2", eq=False):
    """Terms of a count whose people add noise, or redraw their votes; `epsilon` and `delta` are decimals."""

    epsilon: Annotated[str, Text(32)]
    delta: Annotated[str, Text(32)]
    tables: U32

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read terms; raise DecodingError if the parameters of their noise are not valid."""
        terms = super().read(reader)
        if terms.protocol == "mix":
            raise DecodingError("The records of a mix have no noise.")
        _ = terms.noise  # raises DecodingError if a parameter is not valid
        return terms

    @property
    def noise(self) -> SumNoise:
        """Return the noise that all people add."""
        from masquerade.protocols.secure_aggregation.agreement import SumNoise  # noqa: PLC0415

        return SumNoise(_decimal(self.epsilon, "ε"), int(self.tables), _decimal(self.delta, "δ"))


class SuppressionCountTerms(CountTerms, tag=b"masquerade count terms 3", eq=False):
    """Terms of a table whose values are suppressed in groups of at least `k`; `leaders` are the key holders.

    `box` and `relay` are the keys for which reports are sealed: the miner's, and the first key holder's.
    """

    k: U32
    box: Key
    relay: Key
    randomness: Key

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read terms; raise DecodingError if no table can be made under them."""
        terms = super().read(reader)
        try:
            _suppression_terms(terms)
        except InputError as error:
            raise DecodingError(str(error)) from None
        return terms

    @cached_property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """Return the values of every variable as text, in the order of their codes; or raise InputError."""
        form = self.report_form
        return {one.name: tuple(str(parse_json(label)) for label in one.labels) for one in form.variables}


def _decimal(text: str, what: str) -> float:
    try:
        value = float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        value = -1.0
    if not 0 <= value < 100:
        raise DecodingError(f"The {what} of the noise must be a number of at least 0.")
    return value


def _frequency_terms(terms: CountTerms, policy: AnyPolicy, limit: PrivacyLimit) -> FrequencyTerms:
    from masquerade.protocols.frequency_mining.messages import FrequencyTerms  # noqa: PLC0415  (a device loads one protocol)

    noise, stated = None, terms.noise
    if stated is not None:
        from masquerade.protocols.frequency_mining.vote_noise import VoteNoise  # noqa: PLC0415
        from masquerade.protocols.secure_aggregation.agreement import share  # noqa: PLC0415

        people = len(terms.members)
        colluders = ceil(share(terms.colluders, "colluders") * people)
        noise = VoteNoise(stated.epsilon, stated.tables, colluders, stated.delta)
    return FrequencyTerms(terms.name, policy, terms.members, terms.minimum, limit, noise)


def _aggregation_terms(terms: CountTerms, policy: AnyPolicy, limit: PrivacyLimit) -> AggregationTerms:
    from masquerade.protocols.secure_aggregation.agreement import AggregationTerms, Parameters  # noqa: PLC0415

    parameters = Parameters.of(
        len(terms.members),
        colluders=terms.colluders,
        dropouts=terms.dropouts,
        server=cast(Literal["semi-honest", "malicious"], terms.server),
        minimum=terms.minimum,
        noise=terms.noise,
    )
    return AggregationTerms(Roster(terms.members), parameters, policy, limit)


def _mix_terms(terms: CountTerms, policy: AnyPolicy) -> MixTerms:
    from masquerade.protocols.mixnet.messages import MixTerms, record_width  # noqa: PLC0415

    width, least = record_width(policy), terms.minimum
    return MixTerms(terms.name, terms.miner, terms.leaders, terms.members, width=width, minimum=least)


def _suppression_terms(terms: SuppressionCountTerms) -> PartitionTerms:
    from masquerade.protocols.k_anonymity.suppression.messages import PartitionTerms  # noqa: PLC0415

    form, labels, people = terms.report_form, terms.labels, len(terms.members)
    comparisons = people * (people - 1) // 2 * len(labels) * len(terms.leaders)
    if people > MOST_COMPARED or comparisons * _COMPARISON > MOST_BYTES:
        raise InputError(
            f"{people:,} people, {len(labels)} variables and {len(terms.leaders)} key holders make "
            f"{comparisons:,} comparisons. At most {MOST_BYTES // _COMPARISON:,} fit into a message, of at "
            f"most {MOST_COMPARED} people: take fewer of them."
        )
    if form.disguised:
        raise InputError("Values that are suppressed are not disguised: this policy disguises some.")
    if any(len(set(listed)) < len(listed) for listed in labels.values()):
        raise InputError("Two categories of a variable have the same text, and could not be distinguished.")
    check_members({"miner": terms.miner, "randomness": terms.randomness}, terms.leaders, terms.members)
    return PartitionTerms(
        terms.name,
        int(terms.k),
        tuple(labels),
        terms.miner,
        terms.box,
        terms.leaders,
        terms.randomness,
        terms.members,
        value_size=max(len(label.encode()) for listed in labels.values() for label in listed),
        minimum=int(terms.minimum),
    )


class DeviceRequest(Message, tag=b"masquerade count request 1"):
    """A signed request of a person's device, for the terms or for the pending message."""

    what: Annotated[str, OneOf(Text(16), (ASK_TERMS, ASK_LETTER))]
    person: PersonName
    signature: Signature

    @classmethod
    def make(cls, what: str, person: str, terms: bytes, key: SigningKey) -> DeviceRequest:
        """Sign a request; `terms` is the digest of the terms, from the office."""
        return cls(what, person, key.sign(_REQUEST, terms, what.encode(), person.encode()))

    def is_signed(self, terms: CountTerms) -> bool:
        """Return True if the person named is enrolled and signed this under these terms."""
        fields = (terms.digest, self.what.encode(), self.person.encode())
        return _is_signed(terms, self.person, self.signature, _REQUEST, *fields)


class Letter(Message, tag=b"masquerade count letter 2"):
    """The miner's response to a device: wait for `pause` milliseconds, answer a message, or stop.

    `id` is drawn when the message is handed out, so that a reply to an earlier message is never accepted,
    even if the messages are equal.
    """

    kind: Annotated[str, OneOf(Text(16), (WAIT, MESSAGE, OVER))]
    pause: U32 = 0
    content: Annotated[bytes, Blob(MOST_BYTES)] = b""
    id: Annotated[bytes, Fixed(LETTER_ID)] = bytes(LETTER_ID)


class DeviceReply(Message, tag=b"masquerade count reply 2"):
    """A signed reply of a person's device to a `Letter`; the content is empty if the device refused."""

    person: PersonName
    letter: Annotated[bytes, Fixed(LETTER_ID)]
    content: Annotated[bytes, Blob(MOST_BYTES)]
    signature: Signature

    @classmethod
    def make(cls, person: str, letter: bytes, content: bytes, terms: bytes, key: SigningKey) -> DeviceReply:
        """Sign a reply to the message with the id `letter`; `terms` is the digest of the terms."""
        unsigned = cls(person, letter, content, bytes(SIGNATURE_SIZE))
        return cls(person, letter, content, key.sign(_REPLY, terms, *unsigned._fields()))

    def is_signed(self, terms: CountTerms) -> bool:
        """Return True if the person named is enrolled and signed this under these terms."""
        return _is_signed(terms, self.person, self.signature, _REPLY, terms.digest, *self._fields())

    def _fields(self) -> tuple[bytes, ...]:
        """Return the signed fields; hashing the content first does not block other threads."""
        return self.person.encode(), self.letter, hashlib.sha256(self.content).digest()


def _is_signed(terms: CountTerms, person: str, signature: bytes, label: str, *fields: bytes) -> bool:
    """Return True if an enrolled person signed; names that are not enrolled take the same time to check."""
    identity = terms.members.get(person)
    try:
        verify_signature(terms.miner if identity is None else identity, signature, label, *fields)
    except SealBroken:
        return False
    return identity is not None


class MixBoards(Message, tag=b"masquerade count boards 1"):
    """Boards (signed messages of all roles) of a mix that the miner sends to a leader together."""

    parts: Annotated[tuple[Annotated[bytes, Blob(1 << 30)], ...], Many(4)]
