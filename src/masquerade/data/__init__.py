"""Public data by name: from a directory, the cache, a package or their origin; examples."""

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
