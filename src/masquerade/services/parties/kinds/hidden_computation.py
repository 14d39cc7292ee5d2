"""Common parts of MPC session types: the role of a party, the helper (dealer), and the relayed rounds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from masquerade.core.errors import InputError
from masquerade.core.guarantee import Guarantee
from masquerade.protocols.mpc.computation import Computation, ComputingParty, Continuation, DealingHelper
from masquerade.protocols.mpc.dealer_engine import MOST_RECORDS
from masquerade.protocols.mpc.engine import Steps
from masquerade.protocols.wire.codec import tag_of
from masquerade.services.parties.kinds.base import Outflow, Role, SessionKind, Tables

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.services.parties.coordinator import Coordinator
    from masquerade.services.parties.participant import SessionParticipant
    from masquerade.services.parties.session import JointSchema, SessionSpec

MASKED = "columns under masks of the helper"
COST = "computation"  # key of the cost in a model, stated by the convener alone: parties do not compare it


class ComputationTerms(Protocol):
    """Public parameters of a computation, known to all members before it starts."""

    @property
    def owners(self) -> tuple[str, ...]:
        """Return the parties that compute, in order."""

    @property
    def agreement(self) -> bytes:
        """Return the digest of all parameters that the members agreed on."""

    def program(self, part: SessionParticipant, key: Callable[[str, int], bytes]) -> Steps[str]:
        """Return the program of a party; its result is the same text at every party."""

    def model(self, found: str) -> dict[str, Any]:
        """Return the model for the result of a program, the same at every party."""


class ComputationRole(Role):
    """A party's rounds in a computation that all parties run."""

    name = "computation"
    fresh = False
    passing = True  # keys are in memory only: a restarted member cannot continue a computation

    def player(self, part: SessionParticipant) -> ComputingParty:
        """Return the party of the computation; each run is recorded durably before its first round.

        A run is never started twice, so its masks are never used for a second set of inputs.
        """
        node, spec = part.node, part.spec
        terms = _hidden_kind(spec).terms(part)

        def program(key: Callable[[str, int], bytes]) -> Steps[str]:
            found = yield from terms.program(part, key)
            part.store_model_digest(terms.model(found))
            return found

        return ComputingParty(
            node.name,
            node.identity,
            node.identities_of(spec.members),
            parties=terms.owners,
            helper=str(spec.helper),
            agreement=terms.agreement,
            program=program,
            burn=part.burn_run,
        )

    def tables(self, message: bytes) -> Tables:  # noqa: ARG002
        """Return no tables: the program was agreed on in advance."""
        return []

    def question(self, part: SessionParticipant, message: bytes) -> str:  # noqa: ARG002
        """Return the id of the computation, since each computation has its own lines in the ledger."""
        return bytes(part.player(self.name).session or b"").hex()

    def outflows(self, part: SessionParticipant, message: bytes) -> tuple[Outflow, ...]:
        """Return the outflows of a computation, which are recorded once, before its first round."""
        if tag_of(message) != Continuation.TAG:
            return ()
        return tuple(_hidden_kind(part.spec).leaves(part.spec, part.data.policy))


class HiddenKind(SessionKind):
    """An MPC session type: parties compute on shares dealt by a helper, and open only the agreed results."""

    why = "one party computes alone"
    helped = True
    hides = True
    roles: ClassVar[tuple[Role, ...]] = (ComputationRole(),)
    too_few = "Hidden counts need columns of at least two parties: a single party counts alone."

    def faults(self, spec: SessionSpec, joint: JointSchema) -> Iterator[str]:
        """Yield problems: too few parties that bring variables, or variables outside the limits."""
        yield from super().faults(spec, joint)
        if len(joint.policies) < 2:
            yield self.too_few
        try:
            self.check(spec, joint)
        except InputError as error:
            yield str(error)

    def check(self, spec: SessionSpec, joint: JointSchema) -> None:
        """Raise InputError if the variables exceed limits of the session type; by default no limits apply."""

    @abstractmethod
    def terms(self, part: SessionParticipant) -> ComputationTerms:
        """Return the parameters of the computation, at a party or the helper."""

    @abstractmethod
    def describe_openings(self, spec: SessionSpec) -> list[str]:
        """Return a description of each result that is opened, for the ledger."""

    def leaves(self, spec: SessionSpec, policy: Policy) -> Iterator[Outflow]:
        """Yield the outflows of a party's rounds."""
        own = policy.schema.names
        if own:
            yield Outflow(MASKED, own, Fraction(1))
            for kind in self.describe_openings(spec):
                yield Outflow(kind, own, None)

    def sends(self, spec: SessionSpec, party: str, policy: Policy) -> Iterator[tuple[str, Outflow]]:  # noqa: ARG002
        """Yield masked columns and opened results, both sent to the convener, which relays the rounds."""
        for item in self.leaves(spec, policy):
            yield spec.convener, item

    def check_model(self, part: SessionParticipant, model: dict[str, Any]) -> None:
        """Raise RoundAborted if the model is not the one that this party computed.

        A party that brings no variables computes nothing, and cannot check.
        """
        if len(part.data.policy.schema):
            part.check_model_digest({name: value for name, value in model.items() if name != COST})

    def helper(self, part: SessionParticipant) -> DealingHelper:
        """Return the dealer of correlated randomness."""
        node, spec, terms = part.node, part.spec, self.terms(part)
        return DealingHelper(
            node.name,
            node.identity,
            node.identities_of(spec.parties),
            parties=terms.owners,
            agreement=terms.agreement,
        )


def run_computation(
    run: Coordinator, terms: ComputationTerms, guarantee: Guarantee
) -> tuple[str, dict[str, Any]]:
    """Relay the rounds of a computation; return the parties' result and its cost.

    Parameters
    ----------
    run : Coordinator
        The session.
    terms : ComputationTerms
        Parameters of the computation.
    guarantee : Guarantee
        Disclosures of the computation.

    Returns
    -------
    str
        The result, the same at all parties.
    dict
        Number of rounds, and bytes exchanged and dealt.
    """
    run.add_guarantee(guarantee)
    run.note("computing on shares")
    over = run.transport(ComputationRole.name)
    computation = Computation(terms.owners, str(run.spec.helper), over, terms.agreement)
    found, cost = computation.compute(), computation.cost
    took = {"rounds": cost.rounds, "bytes_shown": cost.sent, "bytes_dealt": cost.dealt}
    return found, took


def count_records(run: Coordinator) -> int:
    """Return the number of records; raise InputError if it is 0 or too large for shares of counts."""
    n = run.records or 0
    if not 0 < n < MOST_RECORDS:
        raise InputError(f"Hidden counts need at least one record, and fewer than {MOST_RECORDS:,}.")
    return n


def _hidden_kind(spec: SessionSpec) -> HiddenKind:
    kind = spec.kind
    assert isinstance(kind, HiddenKind)  # noqa: S101  (only such kinds have the role)
    return kind
