"""Two example networks of Ma & Sivakumar (2005), built in, with the paper's probabilities.

Our copy of the paper lacks the arrows of both figures. The sizes of the conditional tables give the number of
parents of each node; the parents themselves are a plausible choice. With eleven nodes: E from T and L, X from
E, D from E and B, C from X and D, F from D, G from C. With seven: B from A, C
from A and G, D from B and C, E from D, F from E, so that C and D have a parent at the other of the two sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.schema import Schema
from masquerade.learn.networks.network import BayesianNetwork, known_network

ELEVEN_NODES: Mapping[str, tuple[str, ...]] = {
    "A": (),
    "S": (),
    "T": ("A",),
    "L": ("S",),
    "B": ("S",),
    "E": ("T", "L"),
    "X": ("E",),
    "D": ("E", "B"),
    "C": ("X", "D"),
    "F": ("D",),
    "G": ("C",),
}
SEVEN_NODES: Mapping[str, tuple[str, ...]] = {
    "A": (),
    "G": (),
    "B": ("A",),
    "C": ("A", "G"),
    "D": ("B", "C"),
    "E": ("D",),
    "F": ("E",),
}

# as printed: the probabilities of the first value given every parent configuration, then of the second, …
_ELEVEN: dict[str, tuple[float, ...]] = {
    "A": (0.7, 0.3),
    "S": (0.5, 0.5),
    "T": (0.1, 0.9, 0.9, 0.1),
    "L": (0.3, 0.7, 0.4, 0.15, 0.3, 0.15),
    "B": (0.8, 0.15, 0.1, 0.5, 0.1, 0.35),
    "E": (0.25, 0.8, 0.15, 0.5, 0.3, 0.4, 0.75, 0.2, 0.85, 0.5, 0.7, 0.6),
    "X": (0.2, 0.6, 0.8, 0.4),
    "D": (0.7, 0.65, 0.1, 0.4, 0.8, 0.35, 0.3, 0.35, 0.9, 0.6, 0.2, 0.65),
    "C": (0.9, 0.4, 0.6, 0.25, 0.1, 0.6, 0.4, 0.75),
    "F": (0.25, 0.9, 0.75, 0.1),
    "G": (0.2, 0.4, 0.8, 0.6),
}
_SIZES = {name: 3 if name in "LB" else 2 for name in ELEVEN_NODES}
_CHANNELS: dict[str, dict[str, Any]] = {
    "A": {"kind": "binary", "p": "0.25"},
    "D": {"kind": "binary", "p": "0.25"},
    "L": {"kind": "ternary", "p": "0.15"},
    "B": {"kind": "ternary", "p": "0.15"},
    "E": {"kind": "binary", "p": "0.2"},
    "X": {"kind": "binary", "p": "0.2"},
    "C": {"kind": "binary", "p1": "0.1", "p2": "0.25"},
    "F": {"kind": "binary", "p1": "0.1", "p2": "0.25"},
}

# P(first value | parents), as printed; the second value has the rest
_SEVEN: dict[str, tuple[float, ...]] = {
    "A": (0.5,),
    "G": (0.3,),
    "B": (0.8, 0.2),
    "C": (0.5, 0.9, 0.7, 0.35),
    "D": (0.95, 0.15, 0.75, 0.1),
    "E": (0.8, 0.2),
    "F": (0.8, 0.2),
}


@cache
def eleven_nodes() -> BayesianNetwork:
    """Return the network of Fig. 2 in Ma & Sivakumar (2005), §6.1.

    L and B have three values, all other nodes two.

    Returns
    -------
    BayesianNetwork
        The network.

    Examples
    --------
    >>> network = mq.data.eleven_nodes()
    >>> network.structure["E"], network["E"].probabilities.shape
    (('T', 'L'), (2, 3, 2))
    """
    schema = Schema({name: list(range(1, size + 1)) for name, size in _SIZES.items()})
    tables = {}
    for name, parents in ELEVEN_NODES.items():
        by_value = np.array(_ELEVEN[name]).reshape(_SIZES[name], *schema.shape(parents))
        tables[name] = np.moveaxis(by_value, 0, -1)
    return known_network(schema, ELEVEN_NODES, tables)


@cache
def eleven_nodes_policy() -> Policy:
    """Return the policy of Table 1 in Ma & Sivakumar (2005), for the network of eleven nodes.

    T, S and G are not sensitive and stay clear.

    Returns
    -------
    Policy
        The policy.

    Examples
    --------
    >>> sorted(set(mq.data.eleven_nodes().schema) - set(mq.data.eleven_nodes_policy().disguised))
    ['G', 'S', 'T']
    """
    return Policy.from_dict(
        {
            "masquerade": 1,
            "title": "Ma & Sivakumar (2005), Table 1",
            "variables": {
                name: {"categories": list(range(1, size + 1))}
                | ({"channel": _CHANNELS[name]} if name in _CHANNELS else {})
                for name, size in _SIZES.items()
            },
        }
    )


@cache
def seven_nodes() -> BayesianNetwork:
    """Return the network of Fig. 3 in Ma & Sivakumar (2005), §6.2.

    All seven variables have two values.

    Returns
    -------
    BayesianNetwork
        The network.

    Examples
    --------
    >>> mq.data.seven_nodes().structure["C"]
    ('A', 'G')
    """
    schema = Schema({name: [1, 2] for name in SEVEN_NODES})
    tables = {}
    for name, parents in SEVEN_NODES.items():
        first = np.array(_SEVEN[name]).reshape(schema.shape(parents))
        tables[name] = np.stack([first, 1 - first], axis=-1)
    return known_network(schema, SEVEN_NODES, tables)
