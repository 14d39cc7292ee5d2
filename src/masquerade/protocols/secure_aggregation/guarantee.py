"""Who learns what when people are counted by secure aggregation."""

from __future__ import annotations

from masquerade.channels.policy import check_policy
from masquerade.channels.policy.privacy import guarantee_of
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.secure_aggregation.agreement import Terms

MINER = "miner"
ENROLMENT = "enrolment gives each person one identity key, and everybody the same roster"
PRIMITIVES = "X25519, Ed25519, SHA-256, AES-256 and ChaCha20-Poly1305 are as hard to break as is thought"
NO_VALIDATION = "votes are not validated: one user can shift any count"
STANDING = "every record was disguised first: γ bounds what sums say even if all other users help the miner"


def aggregation_guarantee(terms: Terms) -> Guarantee:
    """Return what the miner learns: every count over at least the minimum of users, and nothing else.

    Disguised first, the sums are sums of reports: γ bounds what they say about a person even to a miner who
    knows everybody else's report, and no report is ever seen alone.
    """
    parameters = terms.parameters
    own = guarantee_of(check_policy(terms.policy))
    whom = f"over at least {parameters.minimum} users"
    disclosures = tuple(
        Disclosure(MINER, f"sums of {item.kind} {whom}", item.variables, item.gamma)
        for item in own.disclosures
    )
    colluding = f"at most {parameters.colluders} of {parameters.users} users collude with the miner"
    chance = "but for a chance of 2^-40, no neighbourhood and no group of witnesses has too many colluders"
    bounded = (STANDING,) if any(item.gamma is not None for item in own.disclosures) else ()
    return Guarantee(
        disclosures,
        (colluding, chance, ENROLMENT, PRIMITIVES, NO_VALIDATION, *bounded, *own.assumptions),
        {MINER: parameters.server, "user": "malicious"},
        parameters.colluders,
        ((MINER, f"more than {parameters.colluders} users"),),
        parameters.dropouts,
        "none",
    )
