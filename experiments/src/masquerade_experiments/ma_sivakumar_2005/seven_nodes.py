"""Ma & Sivakumar (2005), §6.2: the network of Fig. 3, two sites, and the same disguise of all variables."""

from __future__ import annotations

from functools import cache

import masquerade as mq

network = mq.data.seven_nodes
STRUCTURE = network().structure
SITES = (("A", "B", "C"), ("D", "E", "F", "G"))
SHOWN = ("C", "D", "F")

ARROWS = (
    "The arrows of the network are lost in the text. Table sizes say how many parents a node has; "
    "we take A → B, A → C ← G, B → D ← C, D → E → F."
)
PLACES = (
    "The assignment of variables to the two sites is lost too: we take A, B, C at one and D, E, F, G at the "
    "other, so that B, C and G are the cross parents."
)


@cache
def uniform_policy(names: tuple[str, ...], p: float) -> mq.Policy:
    """Return the policy that sends every binary variable through the symmetric channel with `p`."""
    channel = {"channel": {"kind": "binary", "p": str(p)}} if p else {}
    variables = {name: {"categories": [1, 2], **channel} for name in names}
    return mq.Policy.from_dict({"masquerade": 1, "variables": variables})
