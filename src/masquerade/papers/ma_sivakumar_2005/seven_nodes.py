"""Ma & Sivakumar (2005), §6.2: the network of Fig. 3, two sites, every variable disguised alike.

The figure's arrows are lost in the text that we have. The sizes of the conditional tables say that A and G
have no parents, B, E and F one, C and D two; the choice declared here keeps the order of the letters and
gives C and D a parent at the other site.
"""

from __future__ import annotations

from functools import cache

import numpy as np

import masquerade as mq

STRUCTURE: dict[str, tuple[str, ...]] = {
    "A": (),
    "G": (),
    "B": ("A",),
    "C": ("A", "G"),
    "D": ("B", "C"),
    "E": ("D",),
    "F": ("E",),
}
SITES = (("A", "B", "C"), ("D", "E", "F", "G"))
SHOWN = ("C", "D", "F")

# P(first value | parents), as printed; the second value has the rest
FIRST: dict[str, tuple[float, ...]] = {
    "A": (0.5,),
    "G": (0.3,),
    "B": (0.8, 0.2),
    "C": (0.5, 0.9, 0.7, 0.35),
    "D": (0.95, 0.15, 0.75, 0.1),
    "E": (0.8, 0.2),
    "F": (0.8, 0.2),
}

ARROWS = (
    "The arrows of the network are lost in the text. Table sizes say how many parents a node has; "
    "we take A → B, A → C ← G, B → D ← C, D → E → F."
)
PLACES = (
    "Which variable lies at which of the two sites is lost too: we take A, B, C at one and D, E, F, G at the "
    "other, so that B, C and G are the cross parents."
)


@cache
def network() -> mq.learn.BayesianNetwork:
    """Return the network of Fig. 3."""
    schema = mq.Schema({name: [1, 2] for name in STRUCTURE})
    tables = {}
    for name, parents in STRUCTURE.items():
        first = np.array(FIRST[name]).reshape(schema.shape(parents))
        tables[name] = np.stack([first, 1 - first], axis=-1)
    return mq.learn.known_network(schema, STRUCTURE, tables)


@cache
def uniform_policy(names: tuple[str, ...], p: float) -> mq.Policy:
    """Return the policy that sends every binary variable through the symmetric channel with `p`."""
    channel = {"channel": {"kind": "binary", "p": str(p)}} if p else {}
    variables = {name: {"categories": [1, 2], **channel} for name in names}
    return mq.Policy.from_dict({"masquerade": 1, "variables": variables})
