"""Simulations: protocols run on whole populations in one process, with their results and costs.

`users` counts people by one of three protocols and learns a model from the counts. `k_anonymity` and
`suppression` k-anonymize them without a trusted collector (formulations 1 and 2). `hidden_structure`,
`hidden_tree` and `hidden_clusters` learn on secret shares of several owners (MPC). `private_answers` queries
servers that do not learn the query. Every message is encoded as bytes.

`synthetic_people` makes records for all of them. `ladder` lists numbers of people, and `timing_plot`
shows time against that number.
"""

from masquerade.core.util.formatting import duration
from masquerade.simulation.aggregation import Aggregation
from masquerade.simulation.census import PROTOCOLS, Census, CensusComparison, Lesson, users
from masquerade.simulation.costs import (
    Culprit,
    MeanAndWorst,
    Meter,
    PopulationCost,
    ladder,
    slope,
    timing_plot,
)
from masquerade.simulation.frequency import FrequencyMining, Mined, mine_frequencies
from masquerade.simulation.mpc import (
    HiddenModel,
    HiddenStructureResult,
    hidden_clusters,
    hidden_structure,
    hidden_tree,
)
from masquerade.simulation.people import PEOPLE, People, Trouble, people_from, population, synthetic_people
from masquerade.simulation.private_queries import PrivateAnswers, private_answers
from masquerade.simulation.suppression_run import SuppressionRun, SuppressionRunResult, suppression
from masquerade.simulation.threshold import KAnonymity, k_anonymity

__all__ = [
    "PEOPLE",
    "PROTOCOLS",
    "Aggregation",
    "Census",
    "CensusComparison",
    "Culprit",
    "FrequencyMining",
    "HiddenModel",
    "HiddenStructureResult",
    "KAnonymity",
    "Lesson",
    "MeanAndWorst",
    "Meter",
    "Mined",
    "People",
    "PopulationCost",
    "PrivateAnswers",
    "SuppressionRun",
    "SuppressionRunResult",
    "Trouble",
    "duration",
    "hidden_clusters",
    "hidden_structure",
    "hidden_tree",
    "k_anonymity",
    "ladder",
    "mine_frequencies",
    "people_from",
    "population",
    "private_answers",
    "slope",
    "suppression",
    "synthetic_people",
    "timing_plot",
    "users",
]
