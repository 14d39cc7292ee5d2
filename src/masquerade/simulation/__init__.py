"""Protocols run on whole populations in one process: what comes out, what it costs, who is caught.

`users` has people counted by one of three protocols and a model learnt from the counts; `k_anonymity`
and `suppression` have them k-anonymised without a trusted collector (formulations 1 and 2). Every message
passes as bytes. `made_up_people` are records to try them on.
"""

from masquerade.simulation.k_anonymity import KAnonymity, k_anonymity
from masquerade.simulation.learning import LESSONS, Lesson
from masquerade.simulation.partitioning import Suppression, suppression
from masquerade.simulation.people import PEOPLE, People, made_up_people, people_from
from masquerade.simulation.running import PROTOCOLS, Simulation, users
from masquerade.simulation.trouble import Trouble

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
