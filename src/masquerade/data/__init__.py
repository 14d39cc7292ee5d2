"""Public data sets and example networks, by name.

Data come from a directory, the cache, an installed package or their origin.
"""

from masquerade.data.example_networks import eleven_nodes, eleven_nodes_policy, seven_nodes
from masquerade.data.load import describe, load, names, network, path
from masquerade.data.students import students, students_policy

__all__ = [
    "describe",
    "eleven_nodes",
    "eleven_nodes_policy",
    "load",
    "names",
    "network",
    "path",
    "seven_nodes",
    "students",
    "students_policy",
]
