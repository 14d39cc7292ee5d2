"""Who learns what when formulation 1 runs as services, and what must hold for that."""

from __future__ import annotations

from dataclasses import replace

from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.threshold.guarantee import COLLECTOR, NOTHING, production_guarantee
from masquerade.protocols.threshold.messages import Terms
from masquerade.protocols.threshold.row_schema import Form

OFFICE = "enrolment office"


def service_guarantee(terms: Terms, form: Form) -> Guarantee:
    """Return the guarantee of the protocol with what the office and the network add."""
    protocol = production_guarantee(terms, form)
    everything = (*form.quasi, *form.sensitive)
    return replace(
        protocol,
        disclosures=(
            *protocol.disclosures,
            Disclosure(OFFICE, "who is enrolled, and nothing", everything, NOTHING),
        ),
        assumptions=(
            *protocol.assumptions,
            (
                "the enrolment office makes sure who asks, gives nobody a second credential, uses none "
                "itself and does not collude with the collector: with c credentials they open c classes of "
                f"fewer than {terms.k}"
            ),
            (
                "nobody reports twice: whoever takes part in a class makes it open by sending "
                f"{terms.k} reports of its own; more reports than evaluations show that somebody did, "
                "not where"
            ),
            (
                "nobody keeps the network addresses that reports came from: the collector's service stores "
                "none, but its machine and every proxy before it sees them"
            ),
        ),
        adversaries={**protocol.adversaries, OFFICE: "semi-honest"},
        excluded_coalitions=(*protocol.excluded_coalitions, (COLLECTOR, OFFICE)),
    )
