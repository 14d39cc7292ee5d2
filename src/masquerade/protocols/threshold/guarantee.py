"""Who learns what in formulation 1, computed from the terms."""

from __future__ import annotations

from fractions import Fraction

from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.threshold.messages import Terms
from masquerade.protocols.threshold.row_schema import Form

NOTHING = Fraction(1)
COLLECTOR, SERVER, MEMBER, DEALER = "collector", "randomness server", "user of the same class", "dealer"


def production_guarantee(terms: Terms, form: Form) -> Guarantee:
    """Return who learns what with a randomness server."""
    everything = (*form.quasi, *form.sensitive)
    disclosures = [
        Disclosure(COLLECTOR, f"the rows whose quasi-identifier {_often(terms.k)}", everything, None),
        Disclosure(COLLECTOR, f"the sizes of classes below {terms.k}, unnamed,", form.quasi, None),
        Disclosure(SERVER, "who takes part, and nothing", everything, NOTHING),
    ]
    if terms.shown:
        disclosures[1] = Disclosure(COLLECTOR, "the clear values, in all rows,", form.quasi, None)
    return Guarantee(
        tuple(disclosures),
        (
            "collector and randomness server do not collude, and a closed epoch's key is destroyed",
            (
                "each person is enrolled once, and the collector holds no credential: each opens the class "
                "of one quasi-identifier of its holder's choice to whoever has the reports"
            ),
            (
                "each person sends one report: whoever belongs to a class knows its secret and can open it "
                "for the collector with reports it made up"
            ),
            "reports reach the collector through something that hides their senders",
            "k-anonymity hides a row among k, not what all of a class have in common",
        ),
        {COLLECTOR: "malicious", SERVER: "malicious", "user": "semi-honest"},
        0,
        ((COLLECTOR, SERVER), (COLLECTOR, MEMBER)),
        None,
        "detects",  # reports carry no names, and bad shares in classes that stay closed are unseen
    )


def faithful_guarantee(k: int, quasi: tuple[str, ...], sensitive: tuple[str, ...]) -> Guarantee:
    """Return who learns what with a dealer: colluding users lower k for every class, not only their own."""
    enough = -(-k // 2)
    return Guarantee(
        (
            Disclosure(COLLECTOR, f"the rows whose quasi-identifier {_often(k)}", (*quasi, *sensitive), None),
            Disclosure(COLLECTOR, "the clear values, in all rows,", quasi, None),
            Disclosure(DEALER, "nothing, but with the collector's reports everything", sensitive, NOTHING),
        ),
        (
            "the dealer draws a fresh polynomial for each epoch, forgets it and colludes with nobody",
            (
                f"c users who collude with the collector lower k to {k} − 2c for every class, since each "
                f"holds two points; {enough} such users know the whole polynomial and open everything"
            ),
            "k-anonymity hides a row among k, not what all of a class have in common",
        ),
        {COLLECTOR: "malicious", DEALER: "semi-honest", "user": "malicious"},
        0,
        ((COLLECTOR, DEALER), (COLLECTOR, "user"), (COLLECTOR, f"{enough} user{'' if enough == 1 else 's'}")),
        None,
        "identifies",
    )


def _often(k: int) -> str:
    return f"occurs at least {k} times,"
