"""Protocols run on whole populations in one process: what comes out, what it costs, who is caught.

`users` has people counted by one of three protocols and a model learnt from the counts; `k_anonymity`
and `suppression` have them k-anonymised without a trusted collector (formulations 1 and 2). Every message
passes as bytes. `made_up_people` are records to try them on.
"""

from masquerade.simulation.census_run import PROTOCOLS, Simulation, users
from masquerade.simulation.k_anonymity import KAnonymity, k_anonymity
from masquerade.simulation.misbehaviour import Trouble
from masquerade.simulation.model_comparison import LESSONS, Lesson
from masquerade.simulation.partition import Suppression, suppression
from masquerade.simulation.people import PEOPLE, People, made_up_people, people_from

__all__ = [
    "LESSONS",
    "PEOPLE",
    "PROTOCOLS",
    "KAnonymity",
    "Lesson",
    "People",
    "Simulation",
    "Suppression",
    "Trouble",
    "k_anonymity",
    "made_up_people",
    "people_from",
    "suppression",
    "users",
]
