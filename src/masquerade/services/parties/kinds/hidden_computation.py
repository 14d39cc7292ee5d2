"""What kinds have in common whose parties compute on shares: the role, the helper, the carried rounds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from masquerade.core.guarantee import Guarantee
from masquerade.protocols.mpc.computation import Computation, ComputingParty, Continuation, DealingHelper
from masquerade.protocols.mpc.engine import Steps
from masquerade.protocols.wire.codec import tag_of
from masquerade.services.parties.kinds.base import Outflow, Role, SessionKind, Tables

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import Participant
    from masquerade.services.parties.session import SessionSpec

MASKED = "columns under masks of the helper"
COST = "computation"  # of a model: what finding it took, in the convener's words


class Terms(Protocol):
    """What all members know of a computation before it begins."""

    @property
    def owners(self) -> tuple[str, ...]:
        """Return who computes, in their order."""

    @property
    def agreement(self) -> bytes:
        """Return the digest of what all agreed on."""

    def program(self, part: Participant, key: Callable[[str, int], bytes]) -> Steps[str]:
        """Return what a party does with its records; what it finds is the same text at every party."""

    def model(self, found: str) -> dict[str, Any]:
        """Return the model of what was found: whoever has that text comes to the same."""


class ComputationRole(Role):
    """A party takes its turns in a computation that everybody runs."""

    name = "computation"
    fresh = False
    passing = True  # keys live in memory: who is restarted takes no further turn, and deals nothing

    def player(self, part: Participant) -> ComputingParty:
        """Return who takes turns; every computation is burnt on the disk before its first."""
        node, spec = part.node, part.spec
        terms = _hidden(spec).terms(part)

        def program(key: Callable[[str, int], bytes]) -> Steps[str]:
            found = yield from terms.program(part, key)
            part.keep_found(terms.model(found))
            return found

        return ComputingParty(
            node.name,
            node.identity,
            node.identities_of(spec.members),
            parties=terms.owners,
            helper=str(spec.helper),
            agreement=terms.agreement,
            program=program,
            burn=lambda run: node.store.burn_run(spec.session, run),
        )

    def tables(self, message: bytes) -> Tables:  # noqa: ARG002
        """Return that nobody asks about any table: the program is what all agreed on."""
        return []

    def outflows(self, part: Participant, message: bytes) -> tuple[Outflow, ...]:
        """Return what leaves with the rounds, written down once, before the first."""
        if tag_of(message) != Continuation.TAG:
            return ()
        return tuple(_hidden(part.spec).leaves(part.spec, part.data.policy))


class HiddenKind(SessionKind):
    """A kind whose parties compute on shares with a helper; only what was agreed on is opened."""

    why = "one party computes alone"
    helped = True
    hides = True
    roles: ClassVar[tuple[Role, ...]] = (ComputationRole(),)

    @abstractmethod
    def terms(self, part: Participant) -> Terms:
        """Return what is computed, at a party or the helper."""

    @abstractmethod
    def opened(self, spec: SessionSpec) -> list[str]:
        """Return what is opened, in words."""

    def leaves(self, spec: SessionSpec, policy: Policy) -> Iterator[Outflow]:
        """Yield what leaves a party with the rounds."""
        own = policy.schema.names
        if own:
            yield Outflow(MASKED, own, Fraction(1))
            for kind in self.opened(spec):
                yield Outflow(kind, own, None)

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:  # noqa: ARG002
        """Yield masked columns and what is opened, to whoever carries the rounds."""
        for item in self.leaves(spec, policy):
            yield spec.convener, item

    def check_model(self, part: Participant, model: dict[str, Any]) -> None:
        """Refuse another model than this party found itself; one that brings nothing computes nothing."""
        if len(part.data.policy.schema):
            part.check_found({name: value for name, value in model.items() if name != COST})

    def helper(self, part: Participant) -> DealingHelper:
        """Return who deals randomness."""
        node, spec, terms = part.node, part.spec, self.terms(part)
        return DealingHelper(
            node.name,
            node.identity,
            node.identities_of(spec.parties),
            parties=terms.owners,
            agreement=terms.agreement,
        )


def carried(run: Coordinator, terms: Terms, guarantee: Guarantee) -> tuple[str, dict[str, Any]]:
    """Carry the rounds of a computation; return what all parties found, and what that took."""
    run.reveals(guarantee)
    run.note("computing on shares")
    over = run.transport(ComputationRole.name)
    computation = Computation(terms.owners, str(run.spec.helper), over, terms.agreement)
    found, cost = computation.found(), computation.cost
    took = {"rounds": cost.rounds, "bytes_shown": cost.sent, "bytes_dealt": cost.dealt}
    return found, took


def _hidden(spec: SessionSpec) -> HiddenKind:
    kind = spec.kind
    assert isinstance(kind, HiddenKind)  # noqa: S101  (only such kinds have the role)
    return kind
