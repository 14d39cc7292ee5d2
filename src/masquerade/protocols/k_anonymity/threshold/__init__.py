"""Formulation 1 of distributed k-anonymity: a row opens when its quasi-identifier occurs at least k times.

Two forms. The faithful one (`faithful`) is the talk's: a dealer's polynomial, shares in the exponent. The
other, for production, follows STAR: a separate `RandomnessServer` evaluates an oblivious pseudo-random
function (`crypto.oprf`) once for each enrolled `Client`; a `Collector` groups reports by tag and opens the
classes that reached k.

Who learns what, production form. The randomness server learns who takes part, and nothing about any row: what
it is sent is uniformly random. The collector learns the rows of classes with at least k reports; of all
others how many reports each class has, and nothing else, unless the terms say that quasi-identifiers are
shown (as in the talk, where only the sensitive part is hidden). They are hidden by default because a class
that opens shows its quasi-identifier anyway, and one that does not open has no use for it. Clients learn
nothing.

What it rests on. The two servers do not collude while an epoch is open; afterwards the key is gone. Enrolment
gives each person one credential: whoever has a credential, a quasi-identifier in mind and the collector's
reports opens the class of that quasi-identifier, whatever k is. Reports reach the collector through something
that hides the sender (a proxy, a mix): otherwise it sees whose report each row was.
"""

from masquerade.protocols.k_anonymity.threshold.class_opening import Opening, Verdict, open_reports
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.generalisation import GeneralisedForm
from masquerade.protocols.k_anonymity.threshold.messages import Closing, Notice, Terms
from masquerade.protocols.k_anonymity.threshold.report_store import ReportStore
from masquerade.protocols.k_anonymity.threshold.roles import Client, Collector, RandomnessServer
from masquerade.protocols.k_anonymity.threshold.row_schema import (
    Form,
    faithful_guarantee,
    production_guarantee,
)

__all__ = [
    "Client",
    "Closing",
    "Collector",
    "EvaluationLedger",
    "Form",
    "GeneralisedForm",
    "Notice",
    "Opening",
    "RandomnessServer",
    "ReportStore",
    "Terms",
    "Verdict",
    "faithful_guarantee",
    "open_reports",
    "production_guarantee",
]
