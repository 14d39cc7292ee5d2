"""The disclosures of frequency mining."""

from __future__ import annotations

from collections.abc import Sequence

from masquerade.channels.policy import check_policy
from masquerade.channels.policy.privacy import ASSUMPTIONS, guarantee_of
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.util.formatting import counted
from masquerade.protocols.frequency_mining.messages import MINER, MOST_PROOFS, FrequencyTerms
from masquerade.protocols.frequency_mining.vote_noise import VoteNoise

HARD = "the decisional Diffie–Hellman problem is hard on secp256k1 (hashes as random oracles)"
VERIFIED = "enrolment verified that all {users} members are different people; open enrolment is not enough"
REDRAWN = "each user redraws its answers with OS randomness that nobody records, once for each table"


def frequency_guarantee(
    terms: FrequencyTerms, users: int, *, shared_checks: bool, agreed: Sequence[str] = ()
) -> Guarantee:
    """Return the disclosures when `users` people are counted.

    The miner learns every requested count exactly, and nothing else as long as two users of every roster are
    honest. The miner chooses the roster, with at least the minimum of users, so the bound depends on the
    number of colluders and not on the number of users counted. If users left between two rosters, at least
    the minimum of users left, so the same bound holds for differences of counts.
    `agreed` lists earlier epochs that may differ from this epoch by few people, with the users' agreement.

    A disguise adds a bound: γ limits what can be learnt about one person even if all others reveal their
    votes to the miner, because disguised values are counted.

    With noise, ε and δ bound all tables of the epoch together.
    """
    behind = guarantee_of(check_policy(terms.policy))
    if terms.noise is not None:
        return _noisy_guarantee(terms, terms.noise, shared_checks=shared_checks)
    disclosures = tuple(
        Disclosure(MINER, f"counts over {users:,} users of {item.kind}", item.variables, item.gamma)
        for item in behind.disclosures
    )
    assumptions = [
        f"among any {terms.minimum} users, the fewest that the miner may count, at least two are honest",
        f"enrolment gave each of the {len(terms.members):,} members one identity, and users know them all",
        HARD,
        "the miner learns every count asked for, not only the model learnt from them",
        f"no count is over fewer than {terms.minimum} users",
    ]
    if not terms.bounded_variables.issuperset(terms.sizes):
        assumptions += differences(terms, agreed)
    assumptions.append(_checks(shared_checks=shared_checks))
    if behind.assumptions:
        assumptions += [*ASSUMPTIONS, "γ of a disguised variable holds even if all other users collude"]
    return Guarantee(
        disclosures,
        tuple(assumptions),
        adversaries={MINER: "malicious", "user": "malicious"},
        colluders=terms.colluders,
        excluded_coalitions=((MINER, f"{terms.colluders + 1:,} users"),),
        dropouts=0,
        integrity="identifies",
    )


def _noisy_guarantee(terms: FrequencyTerms, noise: VoteNoise, *, shared_checks: bool) -> Guarantee:
    """Return the disclosures of votes that are redrawn for each table."""
    whom = f"over at least {terms.minimum} users"
    kind = f"{counted(noise.tables, 'table')} of counts with noise that nobody knows, {whom}"
    colluders = counted(noise.colluders, "user")
    assumptions = (
        f"at most {colluders} of any roster reveal their votes to the miner",
        VERIFIED.format(users=f"{len(terms.members):,}"),
        HARD,
        REDRAWN,
        _checks(shared_checks=shared_checks),
    )
    return Guarantee(
        (Disclosure(MINER, kind, tuple(terms.sizes), None, noise.epsilon, noise.delta),),
        assumptions,
        adversaries={MINER: "malicious", "user": "malicious"},
        colluders=noise.colluders,
        excluded_coalitions=((MINER, f"more than {colluders}"),),
        dropouts=0,
        integrity="identifies",
    )


def _checks(*, shared_checks: bool) -> str:
    """Return the statement about who checks keys."""
    if shared_checks:
        return "this is a simulation: keys and endorsements are checked once, for all users of the process"
    return f"every user checks the keys of all others (at most {MOST_PROOFS:,} pairs) before voting"


def differences(terms: FrequencyTerms, agreed: Sequence[str]) -> list[str]:
    """Return the statements about differences of clear counts."""
    said = (
        f"no difference of two clear counts, of one epoch or of two, is about fewer than {terms.minimum} "
        "users while honest users keep their ledgers and agree to no exception"
    )
    changed = "the difference of clear counts of two epochs shows how records changed between them"
    if not agreed:
        return [said, changed]
    exception = (
        f"users agreed to an exception: clear counts of this epoch and of {', '.join(agreed)} may differ by "
        "few users; a miner that falsely states that the earlier counts were never completed learns what "
        "those users answered"
    )
    return [said, exception, changed]
