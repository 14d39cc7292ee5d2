"""Ma (2006), §5.6.2 and §5.6.4: the network of Fig. 5.3, and distances of learnt networks from it.

The copy of the text that we have lacks the arrows and probabilities of the figure. The text states: six
binary nodes; A, B and C at one site and D, E and F at the other; the parents of D at the other site; the
order A … F. We use the probabilities of the nodes with the same names in Fig. 3 of Ma & Sivakumar (2005),
with its node G summed out.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import masquerade as mq
from masquerade_experiments.ma_sivakumar_2005 import seven_nodes

Floats = NDArray[np.float64]

STRUCTURE: dict[str, tuple[str, ...]] = {
    "A": (),
    "B": ("A",),
    "C": ("A",),
    "D": ("B", "C"),
    "E": ("D",),
    "F": ("E",),
}
ORDER = tuple(STRUCTURE)
SITES = (("A", "B", "C"), ("D", "E", "F"))

DECLARED = (
    "The network of Fig. 5.3 is lost in the text. We take A → B, A → C, B → D ← C, D → E → F, with the "
    "probabilities of these nodes in Fig. 3 of Ma & Sivakumar (2005), whose node G is summed out."
)


@cache
def network() -> mq.learn.BayesianNetwork:
    """Return the network that represents Fig. 5.3."""
    larger = seven_nodes.network()
    schema = mq.Schema({name: [1, 2] for name in STRUCTURE})
    tables = {}
    for name, parents in STRUCTURE.items():
        joint = larger.query((*parents, name)).probabilities
        tables[name] = joint / joint.sum(axis=-1, keepdims=True)
    return mq.learn.known_network(schema, STRUCTURE, tables)


class WrongLinks(NamedTuple):
    """Differences of a learnt structure from the true structure."""

    extra: int
    missing: int
    reversed: int

    @property
    def total(self) -> int:
        """Return the number of wrong links; a reversed link counts once."""
        return sum(self)


def wrong_links(learnt: mq.learn.LearnedStructure) -> WrongLinks:
    """Count the extra, the missing and the reversed links."""
    true = {(parent, child) for child, parents in STRUCTURE.items() for parent in parents}
    found = set(learnt.links)
    turned = {(child, parent) for parent, child in found} & true - found
    back = {(child, parent) for parent, child in turned}
    return WrongLinks(len(found - true - back), len(true - found - turned), len(turned))


def kl_from_truth(learnt: mq.learn.BayesianNetwork) -> float:
    """Return the Kullback–Leibler divergence of a learnt joint distribution from the true one, in nats.

    Negative estimates are projected first, as `mq.evaluate.positive_rows` does.
    """
    return mq.evaluate.kl(joint(network()), joint(learnt))


def joint(net: mq.learn.BayesianNetwork) -> Floats:
    """Return the probability of every combination of A … F."""
    factors: list[Any] = []
    for table in net.tables:
        factors += [mq.evaluate.positive_rows(table), [ORDER.index(axis.name) for axis in table.axes]]
    return np.asarray(np.einsum(*factors, list(range(len(ORDER)))))
