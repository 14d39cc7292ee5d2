"""What frequency mining guarantees, computed from its terms and from who takes part."""

from __future__ import annotations

from masquerade.channels.privacy import ASSUMPTIONS, guarantee_of
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.frequency.terms import MOST_PROOFS, Terms

MINER = "miner"


def frequency_guarantee(terms: Terms, users: int, *, shared_checks: bool) -> Guarantee:
    """Return who learns what when `users` people are counted.

    The miner learns every count it asks for, exactly, and nothing else while at least two users are honest.
    What a disguise adds: its γ bounds what anybody can learn about one person even if all others tell the
    miner their votes, since the count itself is of disguised values.
    """
    behind = guarantee_of(terms.policy)
    disclosures = tuple(
        Disclosure(MINER, f"counts over {users:,} users of {item.kind}", item.variables, item.gamma)
        for item in behind.disclosures
    )
    assumptions = [
        "at least two of the users counted are honest: an honest one hides among the honest ones",
        f"enrolment gave each of the {len(terms.members):,} members one identity, and users know them all",
        "the decisional Diffie–Hellman problem is hard on secp256k1 (hashes as random oracles)",
        "the miner learns every count asked for, not only the model learnt from them",
        f"no count is over fewer than {terms.minimum} users, nor the difference of two clear counts",
    ]
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
        colluders=max(users - 2, 0),
        excluded_coalitions=((MINER, "all users but one"),),
        dropouts=0,
        integrity="identifies",
    )
