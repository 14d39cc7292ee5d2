"""The disclosures of secure aggregation."""

from __future__ import annotations

from masquerade.channels.policy import check_policy
from masquerade.channels.policy.privacy import guarantee_of
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.util.formatting import counted
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms

MINER = "miner"
ENROLMENT = "enrolment gives each person one identity key, and all people the same roster"
PRIMITIVES = "X25519, Ed25519, SHA-256, AES-256 and ChaCha20-Poly1305 are secure"
NO_VALIDATION = "votes are not validated: one user can shift any count"
VERIFIED = "enrolment verified that all {users} members are different people; open enrolment is not enough"
DRAWN_ONCE = "each user draws its noise with OS randomness that nobody records, once for each table"
STANDING = "every record was disguised first: γ bounds what sums say even if all other users help the miner"


def aggregation_guarantee(terms: AggregationTerms) -> Guarantee:
    """Return the disclosures: the miner learns every count over at least the minimum number of users.

    If records are disguised first, the sums are sums of reports: γ bounds what they reveal about a person
    even to a miner who knows all other reports, and no report is ever seen alone. With noise, ε and δ bound
    all tables together.
    """
    parameters, noise = terms.parameters, terms.noise
    own = guarantee_of(check_policy(terms.policy))
    whom = f"over at least {parameters.minimum} users"
    disclosures = tuple(
        Disclosure(MINER, f"sums of {item.kind} {whom}", item.variables, item.gamma)
        for item in own.disclosures
    )
    noisy: tuple[str, ...] = ()
    if noise is not None:
        kind = f"{counted(noise.number, 'table')} of sums with noise that nobody knows, {whom}"
        delta = noise.delta if noise.delta > 0 else noise.sampler_delta
        names = tuple(terms.sizes)
        disclosures = (Disclosure(MINER, kind, names, None, noise.epsilon, delta),)
        noisy = (VERIFIED.format(users=f"{parameters.users:,}"), DRAWN_ONCE)
    colluding = f"at most {parameters.colluders} of {parameters.users} users collude with the miner"
    chance = (
        "no neighbourhood and no group of witnesses has too many colluders, except with probability 2^-40"
    )
    bounded = (STANDING,) if any(item.gamma is not None for item in own.disclosures) else ()
    return Guarantee(
        disclosures,
        (colluding, chance, ENROLMENT, PRIMITIVES, NO_VALIDATION, *noisy, *bounded, *own.assumptions),
        {MINER: parameters.server, "user": "malicious"},
        parameters.colluders,
        ((MINER, f"more than {parameters.colluders} users"),),
        parameters.dropouts,
        "none",
    )
