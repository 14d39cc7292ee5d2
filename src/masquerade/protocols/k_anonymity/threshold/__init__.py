"""Formulation 1 of distributed k-anonymity: a row opens when its quasi-identifier occurs at least k times.

There are two forms. `faithful` follows Wright's talk of 2005: a dealer's polynomial, with shares in the
exponent. The other, for production, follows STAR: a separate `RandomnessServer` evaluates an oblivious
pseudo-random function (`crypto.oprf`) once for each enrolled `Client`; a `Collector` groups reports by tag
and opens the classes that reached k.

Disclosures of the production form. The randomness server learns who participates, and nothing about any row:
it receives uniformly random points. The collector learns the rows of classes with at least k reports; of all
other classes it learns the number of reports, and nothing else, unless the terms state that quasi-identifiers
are shown (as in the talk, where only the sensitive part is hidden). They are hidden by default because a
class that opens shows its quasi-identifier anyway, and one that does not open has no use for it. Clients
learn nothing.

Assumptions. The two servers do not collude while an epoch is open; afterwards the key is deleted. Enrolment
gives each person one credential: anyone who has a credential and the collector's reports can open the class
of one chosen quasi-identifier, whatever k is. Reports reach the collector through an anonymous channel (a
proxy or a mixnet): otherwise it sees who sent each row.
"""

from masquerade.protocols.k_anonymity.threshold.class_opening import Opening, Verdict, open_reports
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.generalisation import GeneralisedForm
from masquerade.protocols.k_anonymity.threshold.messages import Closing, Notice, ThresholdTerms
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
    "ThresholdTerms",
    "Verdict",
    "faithful_guarantee",
    "open_reports",
    "production_guarantee",
]
