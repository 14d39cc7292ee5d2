"""k-anonymity of tables, and grouping of numbers, before data is disguised or published."""

from masquerade.anonymity.anonymize import Anonymized, Utility, anonymize
from masquerade.anonymity.hierarchy import Hierarchy, as_hierarchies, load_hierarchies
from masquerade.anonymity.measures import AnonymityReport, SensitiveReport, check
from masquerade.anonymity.mgas import Bins, RecordGroups, mgas, mgas_groups
from masquerade.anonymity.requirements import (
    Closeness,
    DistinctDiversity,
    EntropyDiversity,
    RecursiveDiversity,
)
from masquerade.anonymity.risk import RiskReport, risk
from masquerade.anonymity.suppression import (
    SuppressionResult,
    ball_cover,
    lean_cover,
    open_repeated,
    subset_cover,
    suppress,
)

__all__ = [
    "AnonymityReport",
    "Anonymized",
    "Bins",
    "Closeness",
    "DistinctDiversity",
    "EntropyDiversity",
    "Hierarchy",
    "RecordGroups",
    "RecursiveDiversity",
    "RiskReport",
    "SensitiveReport",
    "SuppressionResult",
    "Utility",
    "anonymize",
    "as_hierarchies",
    "ball_cover",
    "check",
    "lean_cover",
    "load_hierarchies",
    "mgas",
    "mgas_groups",
    "open_repeated",
    "risk",
    "subset_cover",
    "suppress",
]
