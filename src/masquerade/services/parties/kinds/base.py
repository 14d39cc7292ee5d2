"""What a session kind states, in one class: its rules, its roles, what leaves a party, and how one learns.

A kind has no state of its own. What goes on lies in the objects that its methods are given: at a party (or
a helper) the `Participant`, at whoever convenes the `Coordinator`; both say in their docstrings what they
offer. Everything around a kind is done for it: consent, linking, policies and records that all parties sign,
the rule that exact results are about the same people, the ledger, restarts, and sharing the model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.core.query import Query
    from masquerade.core.schema import Schema
    from masquerade.protocols.secure_sum import CountRequest
    from masquerade.protocols.wire.codec import Message
    from masquerade.protocols.wire.session import Proposal, Transport
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.messages import Learn
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import JointSchema, SessionSpec, SessionText

Tables = list[tuple[str, ...]]


class Partition(Enum):
    """How the records of all people lie at the parties.

    >>> mq.parties.Partition.COLUMNS.value
    'the same people, each party with columns of its own; those take part whom all have'
    """

    ROWS = "different people at each party, all with the same columns; nobody is linked"
    COLUMNS = "the same people, each party with columns of its own; those take part whom all have"
    CELLS = "any cell at any party; everybody takes part"


class Convener(Enum):
    """Who may convene a session.

    >>> mq.parties.Convener.OUTSIDER.value
    'a node that is none of the parties'
    """

    ANYBODY = "a party or a node outside"
    OUTSIDER = "a node that is none of the parties"
    ONE_OF_TWO = "one of exactly two parties"


@dataclass(frozen=True, slots=True)
class Outflow:
    """Something that leaves a party: what kind, about which variables, how far it can shift a belief.

    A `gamma` of None says: without bound. Reports name the `policy` under which they were drawn.

    >>> mq.parties.Outflow("counts of clear values", ("pills",), gamma=None).variables
    ('pills',)
    """

    kind: str
    variables: tuple[str, ...]
    gamma: Fraction | None
    policy: str | None = None


class Player(Protocol):
    """Somebody who plays a role: bytes in, bytes out. Its keys live as long as the session runs."""

    def receive(self, message: bytes) -> bytes:
        """Return the reply to a message of the role."""


class Learner(Protocol):
    """A party that learns about its own nodes of a network."""

    def check(self, message: Learn) -> None:
        """Refuse what the session is not to learn."""

    def questions(self, message: Learn) -> list[Query]:
        """Return the counts that a reply tells, others' variables included: rules are about these."""

    def learn(self, message: Learn, members: Callable[[str], Transport]) -> tuple[dict[str, Any], Outflow]:
        """Return what was found out about own nodes, and what telling it gives away."""


def no_tables(_message: object) -> Tables:
    """Return that a message asks about no table."""
    return []


class Step(NamedTuple):
    """A message of a role: the variables of every table it asks about, and what its reply gives away.

    >>> [step.message.__name__ for role in mq.parties.find("pooled-counts").roles for step in role.steps]
    ['Proposal', 'CountRequest']
    """

    message: type[Message]
    tables: Callable[[Any], Tables] = no_tables
    outflows: Callable[[Participant, Any], Iterable[Outflow]] = lambda _part, _message: ()


class Role(ABC):
    """What a party answers in a session, at a place of its own: to whom, about what, what leaves with it.

    A party refuses a message in this order: by `askers`, by `check`, if it asks for `tables` that what is to
    be learnt does not need, and if records of other people would take part than before.

    >>> [role.name for role in mq.parties.find("pooled-counts").roles]
    ['pooling']
    """

    name: ClassVar[str]
    """Where its messages go: `sessions/SESSION/NAME` at a party's address."""
    fresh: ClassVar[bool] = True
    """Whether every question makes a release of its own; reports that are drawn once leave once."""
    passing: ClassVar[bool] = False
    """Whether replies are of no use after a crash, as nothing is taken up: then they are not on the disk."""
    steps: ClassVar[tuple[Step, ...]] = ()
    """The messages that ask about tables or give anything away; others only prepare."""

    @abstractmethod
    def player(self, part: Participant) -> Player:
        """Return who answers the messages of this role at a party; made when the first one comes."""

    def askers(self, spec: SessionSpec, name: str) -> Collection[str]:  # noqa: ARG002
        """Return who may send messages of this role to the party of some name."""
        return (spec.convener,)

    def check(self, part: Participant, peer: str, message: bytes) -> None:  # noqa: B027
        """Refuse what a peer may not ask for; nothing is refused here unless a role says so."""

    def tables(self, message: bytes) -> Tables:
        """Return the variables of every table that a message asks about, others' variables included."""
        return [names for step in self._taken(message) for names in step.tables(step.message.decode(message))]

    def questions(self, message: bytes) -> list[Query]:
        """Return the counts that a message asks for: whole tables, unless a role knows better."""
        from masquerade.core.query import Query  # noqa: PLC0415  (commands that list kinds load no numpy)

        return [Query(by=tuple(dict.fromkeys(names))) for names in self.tables(message)]

    def outflows(self, part: Participant, message: bytes) -> tuple[Outflow, ...]:
        """Return what the reply to a message gives away; nothing for messages that only prepare."""
        taken = self._taken(message)
        return tuple(item for step in taken for item in step.outflows(part, step.message.decode(message)))

    def _taken(self, message: bytes) -> list[Step]:
        from masquerade.protocols.wire.codec import tag_of  # noqa: PLC0415  (names of kinds are known without it)

        return [step for step in self.steps if tag_of(message) == step.message.TAG]


def proposed(message: Proposal | CountRequest) -> Tables:
    """Return the tables of a batch of questions."""
    return [query.names for query in message.batch.queries]


class SessionKind(ABC):
    """A way in which parties work together; `protocol:` in a session's file names it.

    >>> kind = mq.parties.find("vertical-with-miner")
    >>> kind.name, kind.partition.name
    ('vertical-with-miner', 'COLUMNS')
    """

    name: ClassVar[str]
    """What it is called in session files."""
    why: ClassVar[str]
    """Why its rules are as they are, as the end of a sentence that refuses a session."""
    partition: ClassVar[Partition]
    """How records lie at the parties; unless by rows, they are linked."""
    least_parties: ClassVar[int] = 2
    """How many parties there are at least."""
    convener: ClassVar[Convener] = Convener.ANYBODY
    """Who may convene."""
    helped: ClassVar[bool] = False
    """Whether there is a helper, a node that is neither a party nor the convener; see `helper`."""
    hides: ClassVar[bool] = False
    """Whether only a model is opened and no count, but for those that `open_counts` names."""
    opens: ClassVar[str | None] = None
    """Where only a model is opened, the learner whose model it is, by name."""
    pooled: ClassVar[bool] = False
    """Whether results are sums over parties: then pools that differ by few parties are told apart."""
    roles: ClassVar[tuple[Role, ...]]
    """The roles of a party; linking is not among them."""
    answers_tables: ClassVar[bool] = False
    """Whether parties are asked for tables of counts, which rules can be about; follows from steps."""
    rules_kept: ClassVar[str] = ""
    """How a party keeps the rules of its own consent; empty where it cannot, and rules are refused."""
    rules_unkept: ClassVar[str] = "this kind does not state how a party sees what it answers"
    """Why a party that answers tables cannot keep rules, as the end of a sentence."""

    def __init_subclass__(cls) -> None:
        """Take a kind whose messages ask for tables as one that answers them."""
        super().__init_subclass__()
        steps = [step for role in getattr(cls, "roles", ()) for step in role.steps]
        cls.answers_tables = cls.answers_tables or any(step.tables is not no_tables for step in steps)

    @property
    def linked(self) -> bool:
        """Tell whether records of the same people are linked."""
        return self.partition is not Partition.ROWS

    @property
    def same_records(self) -> bool:
        """Tell whether the records that take part are the same at every party."""
        return self.partition is Partition.COLUMNS

    def rules_problem(self, text: SessionText) -> str | None:
        """Return the reason against rules in a consent, None if the party itself keeps them.

        A rule that nobody keeps is worse than none: it is refused when a node's file is read.
        """
        if not self.answers_tables:
            return f"a session of {self.name} answers no tables of counts"
        if not self.rules_kept:
            return f"nobody could keep them in a session of {self.name}: {self.rules_unkept}"
        if self.hides and not text.open_counts:
            return "no counts open in this session, open_counts names none"
        return None

    def problems(self, spec: SessionSpec) -> Iterator[str]:
        """Yield what is wrong with a session of this kind, the most important first."""
        parties, outsider = len(spec.parties), spec.convener not in spec.parties
        if parties < self.least_parties:
            yield f"{self.name} needs at least {self.least_parties} parties: {self.why}"
        if (spec.linking is not None) != self.linked:
            yield f"{self.name} {'needs linking: intersection or keyed' if self.linked else 'links nothing'}"
        if (spec.helper is not None) != self.helped:
            yield f"{self.name} {'needs a' if self.helped else 'has no'} helper"
        if (spec.hide_order or spec.open_counts) and not self.hides:
            yield f"{self.name} hides no counts: hide_order and open_counts are for kinds that do"
        if spec.clusters is not None and self.opens != "k-means":
            yield f"{self.name} finds no clusters: clusters is for kinds that do"
        if self.convener is Convener.OUTSIDER and not outsider:
            yield f"the convener of {self.name} must be none of the parties: {self.why}"
        if self.convener is Convener.ONE_OF_TWO and (parties != 2 or outsider):
            yield f"{self.name} has exactly two parties, one of which convenes: {self.why}"
        if spec.linking == "intersection" and parties > 2 and not outsider:
            yield (
                "a party that convenes would learn its overlap with each of the others: let a node outside "
                "convene, or use linking: keyed"
            )

    def schema(self, spec: SessionSpec, joint: JointSchema) -> Schema:  # noqa: ARG002
        """Return all variables of a session; parties that do not fit together are refused."""
        if self.partition is Partition.ROWS and joint.policies:  # all have the same
            return next(iter(joint.policies.values())).schema
        return joint.schema

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield what parties bring that this kind cannot work with; asked before anything leaves them."""
        if self.convener is Convener.ONE_OF_TWO:
            for party in spec.parties:
                if party not in joint.policies:
                    yield f"Party {party!r} brings nothing that is to be learnt: {self.why}."

    def exact(self, policy: Policy) -> bool:  # noqa: ARG002
        """Tell whether results are exact, so that two of them differ by what is true of whom they differ in.

        `policy` is a party's own. Where somebody sees reports record by record, reports are drawn once, and
        a difference shows nothing new.
        """
        return True

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:  # noqa: ARG002
        """Yield what a party would send, at most, and to whom, beside linking; told before consent.

        `policy` is that of the variables that it brings. A kind that does not say may send anything.
        """
        if len(policy.schema):
            yield spec.convener, Outflow("anything about what it brings", policy.schema.names, None)

    @abstractmethod
    def model(self, run: Coordinator) -> dict[str, Any]:
        """Return what the session is to learn, as plain values, at whoever convenes.

        Most kinds come to a source of counts, a `Tally`: ``return run.learnt_from(source)``.
        """

    def check_model(self, part: Participant, model: dict[str, Any]) -> None:  # noqa: B027
        """Refuse a model that whoever convenes shows a party, where that party knows better."""

    def learner(self, part: Participant) -> Learner:  # noqa: ARG002
        """Return who learns about own nodes at a party; only for kinds whose parties do."""
        raise InputError("Parties learn for themselves without a miner, once a session is arranged.")

    def helper(self, part: Participant) -> Player:
        """Return who answers at the helper; only for kinds that have one."""
        raise InputError(f"There is no helper in a session of {part.spec.protocol}.")
