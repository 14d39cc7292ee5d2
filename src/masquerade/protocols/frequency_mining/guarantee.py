"""Who learns what when people are counted by frequency mining."""

from __future__ import annotations

from collections.abc import Sequence

from masquerade.channels.policy import check_policy
from masquerade.channels.policy.privacy import ASSUMPTIONS, guarantee_of
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.frequency_mining.messages import MINER, MOST_PROOFS, Terms


def frequency_guarantee(
    terms: Terms, users: int, *, shared_checks: bool, agreed: Sequence[str] = ()
) -> Guarantee:
    """Return who learns what when `users` people are counted.

    The miner learns every count it asks for, exactly, and nothing else while two users of every roster are
    honest. It chooses the roster, of no fewer than the minimum: so what matters is how many collude, not how
    many are counted. What left between two rosters has the minimum too, so the same number holds for that.
    `agreed` are earlier epochs that users agreed this one may differ from by few people.

    What a disguise adds: its γ bounds what anybody can learn about one person even if all others tell the
    miner their votes, since the count itself is of disguised values.
    """
    behind = guarantee_of(check_policy(terms.policy))
    disclosures = tuple(
        Disclosure(MINER, f"counts over {users:,} users of {item.kind}", item.variables, item.gamma)
        for item in behind.disclosures
    )
    assumptions = [
        f"of any {terms.minimum} users, as many as the miner may choose to count, at least two are honest",
        f"enrolment gave each of the {len(terms.members):,} members one identity, and users know them all",
        "the decisional Diffie–Hellman problem is hard on secp256k1 (hashes as random oracles)",
        "the miner learns every count asked for, not only the model learnt from them",
        f"no count is over fewer than {terms.minimum} users",
    ]
    if len(terms.bounded) < len(terms.sizes):
        assumptions += differences(terms, agreed)
    if shared_checks:
        assumptions.append(
            "this is a simulation: keys and endorsements are checked once for all users of the process"
        )
    else:
        assumptions.append(
            f"every user checks the keys of all others (at most {MOST_PROOFS:,} pairs) before voting"
        )
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


def differences(terms: Terms, agreed: Sequence[str]) -> list[str]:
    """Return what the differences of clear counts may show."""
    said = (
        f"no difference of two clear counts is over fewer than {terms.minimum} users, be they of one epoch "
        "or of two, while honest users keep their ledgers and agree to no exception"
    )
    changed = "what changes in a record from one epoch to another shows in the difference of clear counts"
    if not agreed:
        return [said, changed]
    exception = (
        f"users agreed to an exception: clear counts of this epoch and of {', '.join(agreed)} may differ by "
        "few users; a miner that says falsely that the earlier ones never came out has what those answered"
    )
    return [said, exception, changed]
