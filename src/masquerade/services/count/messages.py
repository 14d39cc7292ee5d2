"""What the office, the miner, leaders and people's devices send each other beyond the protocols' messages."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, cast

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.codec import U32, Blob, Key, Many, Message, OneOf, Reader, Text
from masquerade.protocols.people.report_form import AnyPolicy, ReportForm
from masquerade.protocols.people.roster import Members, PersonName, Roster, check_members

if TYPE_CHECKING:
    from masquerade.protocols.aggregation.agreement import Terms as AggregationTerms
    from masquerade.protocols.frequency.messages import Terms as FrequencyTerms
    from masquerade.protocols.mix.messages import MixTerms

PROTOCOLS: Final = ("frequency", "aggregation", "mix")
MOST_PEOPLE: Final = 100_000
MOST_BYTES: Final = 1 << 26
WAIT, MESSAGE, OVER = "wait", "message", "over"
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
    from masquerade.protocols.frequency.messages import Terms  # noqa: PLC0415  (a device loads one protocol)

    return Terms(terms.name, policy, terms.members, terms.minimum)


def _aggregation_terms(terms: CountTerms, policy: AnyPolicy) -> AggregationTerms:
    from masquerade.protocols.aggregation.agreement import Parameters, Terms  # noqa: PLC0415

    parameters = Parameters.of(
        len(terms.members),
        colluders=terms.colluders,
        dropouts=terms.dropouts,
        server=cast(Literal["semi-honest", "malicious"], terms.server),
        minimum=terms.minimum,
    )
    return Terms(Roster(terms.members), parameters, policy)


def _mix_terms(terms: CountTerms, policy: AnyPolicy) -> MixTerms:
    from masquerade.protocols.mix.messages import MixTerms, record_width  # noqa: PLC0415

    width, least = record_width(policy), terms.minimum
    return MixTerms(terms.name, terms.miner, terms.leaders, terms.members, width=width, minimum=least)


class Letter(Message, tag=b"masquerade count letter 1"):
    """What a device is told: to wait so many milliseconds, a message to answer, or that counting is over."""

    kind: Annotated[str, OneOf(Text(16), (WAIT, MESSAGE, OVER))]
    pause: U32 = 0
    content: Annotated[bytes, Blob(MOST_BYTES)] = b""


class Reply(Message, tag=b"masquerade count reply 1"):
    """What a person's device says to a letter; empty where it has nothing to say, or refuses to go on."""

    person: PersonName
    letter: Annotated[bytes, Blob(32)]
    content: Annotated[bytes, Blob(MOST_BYTES)] = b""


class Boards(Message, tag=b"masquerade count boards 1"):
    """Boards of a mix that the miner shows a leader together."""

    parts: Annotated[tuple[Annotated[bytes, Blob(1 << 30)], ...], Many(4)]


def letter_id(content: bytes) -> bytes:
    """Return what a reply names the message by that it answers."""
    return hashlib.sha256(content).digest()
