"""Protocols run on whole populations in one process: what comes out, what it costs, who is caught.

`users` has people counted by one of three protocols and a model learnt from the counts; `k_anonymity`
and `suppression` have them k-anonymized without a trusted collector (formulations 1 and 2). Every message
passes as bytes. `hidden_structure`, `hidden_tree` and `hidden_clusters` have owners learn on shares,
`private_answers` a client ask servers that do not learn what.

`made_up_people` are records to try them on; `ladder` and `timing_plot` are for time against their number.
"""

from masquerade.core.util.formatting import duration
from masquerade.simulation.aggregation import Population as Aggregation
from masquerade.simulation.census import PROTOCOLS, Census, Comparison, Lesson, users
from masquerade.simulation.control import PrivateAnswers, private_answers
from masquerade.simulation.costs import Cost, Culprit, Meter, Spread, ladder, slope, timing_plot
from masquerade.simulation.frequency import Mined, mined
from masquerade.simulation.frequency import Population as FrequencyMining
from masquerade.simulation.hidden import (
    HiddenModel,
    HiddenStructure,
    hidden_clusters,
    hidden_structure,
    hidden_tree,
)
from masquerade.simulation.partition import Population as SuppressionRun
from masquerade.simulation.partition import Suppression, suppression
from masquerade.simulation.people import PEOPLE, People, Trouble, made_up_people, people_from, population
from masquerade.simulation.threshold import KAnonymity, k_anonymity

__all__ = [
    "PEOPLE",
    "PROTOCOLS",
    "Aggregation",
    "Census",
    "Comparison",
    "Cost",
    "Culprit",
    "FrequencyMining",
    "HiddenModel",
    "HiddenStructure",
    "KAnonymity",
    "Lesson",
    "Meter",
    "Mined",
    "People",
    "PrivateAnswers",
    "Spread",
    "Suppression",
    "SuppressionRun",
    "Trouble",
    "duration",
    "hidden_clusters",
    "hidden_structure",
    "hidden_tree",
    "k_anonymity",
    "ladder",
    "made_up_people",
    "mined",
    "people_from",
    "population",
    "private_answers",
    "slope",
    "suppression",
    "timing_plot",
    "users",
]
