"""Ma & Sivakumar (2005), §6.1: the 11-node network of Fig. 2 and the policy of Table 1.

The figure's arrows are lost in the text that we have. The sizes of the conditional tables fix the parents
of A, T, S, L and B; for the others a plausible ASIA-like choice is declared here: E from T and L, X from E,
D from E and B, C from X and D, F from D, G from C.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from masquerade.channels.policy import Policy
from masquerade.core.schema import Schema
from masquerade.learn.network import BayesianNetwork, known_network

STRUCTURE: dict[str, tuple[str, ...]] = {
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

# as printed: the probabilities of the first value given every parent configuration, then of the second, …
PRINTED: dict[str, tuple[float, ...]] = {
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

SIZES = {name: 3 if name in "LB" else 2 for name in STRUCTURE}

CHANNELS: dict[str, dict[str, Any]] = {
    "A": {"kind": "binary", "p": "0.25"},
    "D": {"kind": "binary", "p": "0.25"},
    "L": {"kind": "ternary", "p": "0.15"},
    "B": {"kind": "ternary", "p": "0.15"},
    "E": {"kind": "binary", "p": "0.2"},
    "X": {"kind": "binary", "p": "0.2"},
    "C": {"kind": "binary", "p1": "0.1", "p2": "0.25"},
    "F": {"kind": "binary", "p1": "0.1", "p2": "0.25"},
}


@cache
def network() -> BayesianNetwork:
    """Return the network of Fig. 2."""
    schema = Schema({name: list(range(1, size + 1)) for name, size in SIZES.items()})
    tables = {}
    for name, parents in STRUCTURE.items():
        by_value = np.array(PRINTED[name]).reshape(SIZES[name], *schema.shape(parents))
        tables[name] = np.moveaxis(by_value, 0, -1)
    return known_network(schema, STRUCTURE, tables)


@cache
def table_1() -> Policy:
    """Return the policy of Table 1: T, S and G are not sensitive and stay as they are."""
    return Policy.from_dict(
        {
            "masquerade": 1,
            "title": "Ma & Sivakumar (2005), Table 1",
            "variables": {
                name: {"categories": list(range(1, size + 1))}
                | ({"channel": CHANNELS[name]} if name in CHANNELS else {})
                for name, size in SIZES.items()
            },
        }
    )
