"""Base classes of session types: rules, roles, outflows of a party, and how the model is learnt.

A session type has no state. Its methods receive the state of the session: a `SessionParticipant` at a party
or helper, a `Coordinator` at the convener. Their docstrings list the attributes that a session type may use.
The session does everything else: consent, linking, signed policies and records, the rule that exact
results are about the same people, the ledger, restarts, and sharing the model.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from masquerade.core.errors import InputError
from masquerade.learn.catalogue import EM

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.core.query import Query
    from masquerade.core.schema import Schema
    from masquerade.protocols.secure_sum import CountRequest
    from masquerade.protocols.wire.codec import Message
    from masquerade.protocols.wire.session import Proposal, Transport
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.messages import Learn
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import JointSchema, SessionSpec, SessionText

Tables = list[tuple[str, ...]]


class Partition(Enum):
    """Partition of the records among the parties.

    Examples
    --------
    >>> mq.parties.Partition.COLUMNS.value
    'the same people, each party with its own columns; people known to all parties take part'
    """

    ROWS = "different people at each party, all with the same columns; nobody is linked"
    COLUMNS = "the same people, each party with its own columns; people known to all parties take part"
    CELLS = "any party may hold any cell; all people take part"


class Convener(Enum):
    """Rule for which node may convene a session.

    Examples
    --------
    >>> mq.parties.Convener.OUTSIDER.value
    'a node that is not a party'
    """

    ANYBODY = "a party or a node outside"
    OUTSIDER = "a node that is not a party"
    ONE_OF_TWO = "one of exactly two parties"


@dataclass(frozen=True, slots=True)
class Outflow:
    """Data that leaves a party, as its release ledger records it.

    Parameters
    ----------
    kind : str
        Description of the data.
    variables : tuple of str
        Variables that the data is about.
    gamma : Fraction or None
        Largest factor by which the data can change the odds of a guess about a person; None if unbounded.
    policy : str, optional
        Id of the policy under which reports were drawn.
    epsilon, delta : Fraction, optional
        Privacy parameters of the noise added to counts, for all tables of the session together. `gamma`
        bounds everything else that the data reveals.

    Examples
    --------
    >>> mq.parties.Outflow("counts of clear values", ("pills",), gamma=None).variables
    ('pills',)
    """

    kind: str
    variables: tuple[str, ...]
    gamma: Fraction | None
    policy: str | None = None
    epsilon: Fraction | None = None
    delta: Fraction | None = None


class Player(Protocol):
    """Object that answers the messages of a role, as bytes; its keys exist only while the session runs."""

    def receive(self, message: bytes) -> bytes:
        """Return the reply to a message of the role."""


class LocalLearner(Protocol):
    """A party that learns its own nodes of a network."""

    def check(self, message: Learn) -> None:
        """Raise QueryRefused if the message requests data that the session's model does not need."""

    def questions(self, message: Learn) -> list[Query]:
        """Return queries for all counts that the reply reveals; the rules of the consent apply to them."""

    def learn(self, message: Learn, members: Callable[[str], Transport]) -> tuple[dict[str, Any], Outflow]:
        """Return the result for this party's nodes, and the outflow of sending it."""


def no_tables(_message: object) -> Tables:
    """Return no tables, for messages that request none."""
    return []


class RoleStep(NamedTuple):
    """A message type of a role: the tables it requests and the outflows of its reply.

    Parameters
    ----------
    message : type
        Class of the message.
    tables : callable, optional
        Returns, for a message, the variables of every table that it requests.
    outflows : callable, optional
        Returns, for a participant and a message, the outflows of the reply.

    Examples
    --------
    >>> [step.message.__name__ for role in mq.parties.find("pooled-counts").roles for step in role.steps]
    ['Proposal', 'CountRequest']
    """

    message: type[Message]
    tables: Callable[[Any], Tables] = no_tables
    outflows: Callable[[SessionParticipant, Any], Iterable[Outflow]] = lambda _part, _message: ()


class Role(ABC):
    """Messages that a party answers in a session: who may send them, and what their replies reveal.

    A party refuses a message if its sender is not among `askers`, if `check` raises, if it requests `tables`
    that the model does not need, or if the people counted differ from those counted earlier, in this order.

    Examples
    --------
    >>> [role.name for role in mq.parties.find("pooled-counts").roles]
    ['pooling']
    """

    name: ClassVar[str]
    """Last part of the path of its messages, `sessions/SESSION/NAME`."""
    fresh: ClassVar[bool] = True
    """Whether each query counts as a new release. False for reports, which are drawn and released once."""
    passing: ClassVar[bool] = False
    """Whether replies are useless after a crash, because the role cannot resume; then they are not stored."""
    steps: ClassVar[tuple[RoleStep, ...]] = ()
    """The messages that request tables or reveal data; other messages only prepare the protocol."""

    @abstractmethod
    def player(self, part: SessionParticipant) -> Player:
        """Return the object that answers this role at a party; created when the first message arrives."""

    def askers(self, spec: SessionSpec, name: str) -> Collection[str]:  # noqa: ARG002
        """Return the nodes that may send messages of this role to a party.

        Parameters
        ----------
        spec : SessionSpec
            The session.
        name : str
            The party.

        Returns
        -------
        collection of str
            Names of nodes; only the convener, unless a role overrides this.
        """
        return (spec.convener,)

    def check(self, part: SessionParticipant, peer: str, message: bytes) -> None:  # noqa: B027
        """Raise an error if a peer may not send this message; accepts all messages unless overridden.

        Parameters
        ----------
        part : SessionParticipant
            The party in the session.
        peer : str
            The sender, one of `askers`.
        message : bytes
            The message.

        Returns
        -------
        None

        Raises
        ------
        QueryRefused
            If the message is refused.
        """

    def tables(self, message: bytes) -> Tables:
        """Return the variables of every table that a message requests, including other parties' variables."""
        return [
            names
            for step in self._matching_steps(message)
            for names in step.tables(step.message.decode(message))
        ]

    def questions(self, message: bytes) -> list[Query]:
        """Return queries for the counts that a message requests; by default, of whole tables."""
        from masquerade.core.query import Query  # noqa: PLC0415  (commands that list kinds load no numpy)

        return [Query(by=tuple(dict.fromkeys(names))) for names in self.tables(message)]

    def question(self, part: SessionParticipant, message: bytes) -> str:  # noqa: ARG002
        """Return the name of a reply in the ledger; replies of the same name count as one release.

        Parameters
        ----------
        part : SessionParticipant
            The party in the session.
        message : bytes
            The message that is answered.

        Returns
        -------
        str
            The digest of the message; empty if replies are drawn only once.
        """
        return hashlib.sha256(message).hexdigest() if self.fresh else ""

    def outflows(self, part: SessionParticipant, message: bytes) -> tuple[Outflow, ...]:
        """Return the outflows of the reply to a message; empty if the message only prepares the protocol.

        Parameters
        ----------
        part : SessionParticipant
            The party in the session.
        message : bytes
            The message that is answered.

        Returns
        -------
        tuple of Outflow
            Entries for the release ledger.
        """
        steps = self._matching_steps(message)
        return tuple(item for step in steps for item in step.outflows(part, step.message.decode(message)))

    def _matching_steps(self, message: bytes) -> list[RoleStep]:
        from masquerade.protocols.wire.codec import tag_of  # noqa: PLC0415  (listing kinds does not load it)

        return [step for step in self.steps if tag_of(message) == step.message.TAG]


def list_batch_tables(message: Proposal | CountRequest) -> Tables:
    """Return the variables of each table in a batch of queries."""
    return [query.names for query in message.batch.queries]


class SessionKind(ABC):
    """A session type: the protocol by which parties count or learn together.

    `protocol:` in a session file names it.

    Examples
    --------
    >>> kind = mq.parties.find("vertical-with-miner")
    >>> kind.name, kind.partition.name
    ('vertical-with-miner', 'COLUMNS')
    """

    name: ClassVar[str]
    """Its name in session files."""
    why: ClassVar[str]
    """The reason for its rules, as the end of a sentence that refuses a session."""
    partition: ClassVar[Partition]
    """How records are partitioned; unless by rows, they are linked."""
    least_parties: ClassVar[int] = 2
    """The least number of parties."""
    convener: ClassVar[Convener] = Convener.ANYBODY
    """Which node may convene."""
    helped: ClassVar[bool] = False
    """Whether there is a helper, a node that is neither a party nor the convener; see `helper`."""
    hides: ClassVar[bool] = False
    """Whether only a model is opened, and no counts except those that `open_counts` names."""
    opens: ClassVar[str | None] = None
    """If only a model is opened, the name of its learner."""
    pooled: ClassVar[bool] = False
    """Whether results are sums over parties; pools that differ by few parties are then refused."""
    roles: ClassVar[tuple[Role, ...]]
    """The roles of a party, without linking."""
    answers_tables: ClassVar[bool] = False
    """Whether parties answer queries for tables, which rules can restrict; derived from the roles' steps."""
    rules_kept: ClassVar[str] = ""
    """How a party enforces the rules of its own consent; empty if it cannot: then rules are refused."""
    rules_unkept: ClassVar[str] = "this kind does not state how a party sees what it answers"
    """Why a party that answers tables cannot enforce rules, as the end of a sentence."""
    em: ClassVar[tuple[str, ...]] = tuple(EM)
    """Values of the option `missing` with which EM learns networks from incomplete records."""
    sends_columns: ClassVar[bool] = False
    """Whether a party also sends reports of columns, from which the recipient can count any table."""

    def __init_subclass__(cls) -> None:
        """Set `answers_tables` if a message of a role requests tables."""
        super().__init_subclass__()
        steps = [step for role in getattr(cls, "roles", ()) for step in role.steps]
        cls.answers_tables = cls.answers_tables or any(step.tables is not no_tables for step in steps)

    @property
    def linked(self) -> bool:
        """Return True if records of the same people are linked."""
        return self.partition is not Partition.ROWS

    @property
    def same_records(self) -> bool:
        """Return True if the records that take part are the same at every party."""
        return self.partition is Partition.COLUMNS

    def rules_problem(self, text: SessionText) -> str | None:
        """Return the reason why a consent must not have rules, None if the party can enforce them.

        A rule that is not enforced is worse than no rule: it is refused when the settings file is read.
        """
        if not self.answers_tables:
            return f"a session of {self.name} answers no tables of counts"
        if not self.rules_kept:
            return f"no party can enforce them in a session of {self.name}: {self.rules_unkept}"
        if self.hides and not text.open_counts:
            return "no counts are opened in this session, since open_counts names none"
        return None

    def problems(self, spec: SessionSpec) -> Iterator[str]:
        """Yield problems in the specification of a session of this type, the most important first."""
        parties = len(spec.parties)
        if parties < self.least_parties:
            yield f"{self.name} needs at least {self.least_parties} parties: {self.why}"
        if (spec.linking is not None) != self.linked:
            yield f"{self.name} {'needs linking: intersection or keyed' if self.linked else 'links nothing'}"
        if (spec.helper is not None) != self.helped:
            yield f"{self.name} {'needs a' if self.helped else 'has no'} helper"
        if (spec.hide_order or spec.open_counts) and not self.hides:
            yield f"{self.name} hides no counts: hide_order and open_counts are for kinds that do"
        if spec.noise is not None:
            yield f"{self.name} adds no noise: noise is for pooled-counts"
        if spec.clusters is not None and self.opens != "k-means":
            yield f"{self.name} finds no clusters: clusters is for kinds that do"
        yield from self._problems_of_members(spec)

    def _problems_of_members(self, spec: SessionSpec) -> Iterator[str]:
        """Yield problems with the convener, and with tables that no member can count."""
        parties, outsider = len(spec.parties), spec.convener not in spec.parties
        if spec.learn.options.get("missing") in {*EM} - {*self.em}:
            yield f"{self.name} counts no table of all variables: use missing: {self.em[0]}"
        if self.convener is Convener.OUTSIDER and not outsider:
            yield f"the convener of {self.name} must not be a party: {self.why}"
        if self.convener is Convener.ONE_OF_TWO and (parties != 2 or outsider):
            yield f"{self.name} has exactly two parties, one of which convenes: {self.why}"
        if spec.linking == "intersection" and parties > 2 and not outsider:
            yield (
                "a party that convenes would learn its overlap with each of the others: let a node outside "
                "convene, or use linking: keyed"
            )

    def schema(self, spec: SessionSpec, joint: JointSchema) -> Schema:  # noqa: ARG002
        """Return all variables of a session.

        Parameters
        ----------
        spec : SessionSpec
            The session.
        joint : JointSchema
            The policies of all parties.

        Returns
        -------
        Schema
            The variables of all parties.

        Raises
        ------
        InputError
            If the policies of the parties contradict each other.
        """
        if self.partition is Partition.ROWS and joint.policies:  # all parties have the same schema
            return next(iter(joint.policies.values())).schema
        return joint.schema

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield problems of the parties' policies; called before any data leaves a party.

        Parameters
        ----------
        spec : SessionSpec
            The session.
        joint : JointSchema
            The policies of all parties.

        Yields
        ------
        str
            A sentence per problem.
        """
        if spec.learn.options.get("missing") in EM:
            disguised = [party for party, policy in joint.policies.items() if policy.disguised]
            if disguised or spec.noise is not None:
                whose = f"party {disguised[0]!r} disguises its values" if disguised else "noise is added here"
                yield f"EM on missing answers needs exact counts, but {whose}."
        if self.convener is Convener.ONE_OF_TWO:
            for party in spec.parties:
                if party not in joint.policies:
                    yield f"Party {party!r} brings none of the variables to learn: {self.why}."

    def exact(self, policy: Policy) -> bool:  # noqa: ARG002
        """Return True if results are exact, so that their differences reveal values of single people.

        `policy` is the policy of one party. Where reports are released record by record they are drawn once,
        and a difference of results reveals nothing beyond the reports.
        """
        return True

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:  # noqa: ARG002
        """Yield upper bounds on what a party sends, apart from linking; shown before it consents.

        Unless overridden, the convener may receive anything about the variables.

        Parameters
        ----------
        spec : SessionSpec
            The session.
        party : str
            The party.
        policy : Policy
            The policy of the variables that it brings.

        Yields
        ------
        tuple of str and Outflow
            Recipient and data.
        """
        if len(policy.schema):
            yield spec.convener, Outflow("anything about what it brings", policy.schema.names, None)

    @abstractmethod
    def model(self, run: Coordinator) -> dict[str, Any]:
        """Return the model as plain values; runs at the convener.

        Most types make a source of counts, a `Tally`, and ``return run.learn_from(source)``.
        """

    def check_model(self, part: SessionParticipant, model: dict[str, Any]) -> None:  # noqa: B027
        """Raise an error if a shared model is not the one that a party computed itself.

        Accepts any model unless overridden: in most types only the convener computes it.

        Parameters
        ----------
        part : SessionParticipant
            The party in the session.
        model : dict
            The model that the convener shares.

        Returns
        -------
        None

        Raises
        ------
        RoundAborted
            If the model differs.
        """

    def learner(self, part: SessionParticipant) -> LocalLearner:  # noqa: ARG002
        """Return the object that learns a party's own nodes, in session types without a miner."""
        raise InputError(
            "Only parties without a miner learn their own nodes, and only after the session is arranged."
        )

    def helper(self, part: SessionParticipant) -> Player:
        """Return the object that answers at the helper, in session types that have a helper."""
        raise InputError(f"There is no helper in a session of {part.spec.protocol}.")
