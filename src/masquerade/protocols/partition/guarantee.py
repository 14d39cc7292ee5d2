"""Who learns what when a table is anonymized by those whose rows it has, computed from the terms."""

from __future__ import annotations

from fractions import Fraction

from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.partition.agreement import PartitionTerms

NOTHING = Fraction(1)
EVERYBODY, MINER, HOLDER, SERVER, PERSON = (
    "everybody",
    "miner",
    "key holder",
    "randomness server",
    "person of the same group",
)


def partition_guarantee(terms: PartitionTerms) -> Guarantee:
    """Return who learns what, from whom protected, and on what that rests."""
    names, holders, relay = tuple(terms.attributes), len(terms.holders), next(iter(terms.holders))
    return Guarantee(
        (
            Disclosure(EVERYBODY, "in how many attributes every two people differ, by name,", names, None),
            Disclosure(
                EVERYBODY, f"the values that all of a group of at least {terms.k} share,", names, None
            ),
            Disclosure(
                MINER, "how many in a group agree on a suppressed value, not who or on what,", names, None
            ),
            Disclosure(HOLDER, "beyond what everybody learns, nothing", names, NOTHING),
            Disclosure(SERVER, "beyond what everybody learns, nothing", names, NOTHING),
        ),
        (
            f"at least one of the {holders} key holders is honest",
            (
                "enrolment gives each person one identity, and people enter their true rows: whoever enters "
                "a made-up row learns its distance to everybody, two such rows (or one that is false in all "
                "attributes but one) test a value of everybody's, and colluding people add up their tests"
            ),
            (
                "the miner and the randomness server do not collude: together they can try values on all "
                "reports until the epoch's keys are destroyed"
            ),
            (
                f"the miner and {relay!r} do not collude: together they see who of a group share a "
                "suppressed value, and a person of that group who has it, or guesses it, can tell them which"
            ),
            "k-anonymity hides a row among k, not what all of a group have in common",
            "the decisional Diffie–Hellman problem is hard on secp256k1 (hashes as random oracles)",
        ),
        {HOLDER: "malicious", MINER: "malicious", SERVER: "malicious", "person": "malicious"},
        holders - 1,
        ((f"all {holders} key holders",), (MINER, SERVER), (MINER, relay), (MINER, PERSON)),
        0,
        "detects",
    )
