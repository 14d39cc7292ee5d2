"""Meng et al. (2004), §4: the ASIA network with the parameters of Table 5, and the owner of each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np

import masquerade as mq
from masquerade_experiments.experiment import Row

SAMPLES = 2000
OWNERS = {"party I": ("A", "T", "E", "X", "D"), "party II": ("S", "L", "B")}
# parents in the paper's order of nodes, which is also the order of its printed arrays
STRUCTURE = {
    "A": (),
    "S": (),
    "T": ("A",),
    "L": ("S",),
    "B": ("S",),
    "E": ("T", "L"),
    "X": ("E",),
    "D": ("B", "E"),
}
CROSS = ("E", "D")  # nodes whose parents belong to both parties
TABLE_5 = {
    "A": "0.9 0.1",
    "T": "0.9 0.3 0.1 0.7",
    "S": "0.5 0.5",
    "L": "0.9 0.1 0.1 0.9",
    "E": "0.9 0.1 0.1 0.01 0.1 0.9 0.9 0.99",
    "X": "0.95 0.02 0.05 0.98",
    "B": "0.8 0.9 0.2 0.1",
    "D": "0.9 0.2 0.8 0.9 0.1 0.8 0.2 0.1",
}
SIGNS = {-1: "−", 1: "+"}
PARAMETERS_OF_TABLE_5 = (
    "The parameters are those of the paper's Table 5, not those of the ASIA network as it is usually given."
)
PARTIES = (
    "Party I holds A, T, E, X and D, party II holds S, L and B, as in §2. So A, S, T, L, B and X are counted "
    "by one party alone; only E and D need columns of both."
)
ORDERS = (
    "The paper's Equation 2 and its recursion in Equations 4 and 5 put the columns in different orders; "
    "here counts and products have one order throughout."
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """P(node = −1 | a configuration of its parents)."""

    node: str
    given: tuple[int, ...]

    @property
    def label(self) -> str:
        """Return the name of the parameter in the report."""
        conditions = ", ".join(
            f"{parent}{SIGNS[sign]}" for parent, sign in zip(STRUCTURE[self.node], self.given, strict=True)
        )
        return f"P({self.node}− | {conditions})" if conditions else f"P({self.node}−)"

    @property
    def place(self) -> tuple[int, ...]:
        """Return the index of the parameter in an array over the parents and the node."""
        return (*(int(sign > 0) for sign in self.given), 0)


PARAMETERS = tuple(
    Parameter(node, given)
    for node, parents in STRUCTURE.items()
    for given in product((-1, 1), repeat=len(parents))
)


def array(text: str) -> Any:
    """Return printed numbers, in which the first parent varies fastest, as an array over parents and node."""
    values = np.array([float(word) for word in text.split()])
    return values.reshape((2,) * int(np.log2(len(values)))).T


def printed(table: Mapping[str, str]) -> dict[str, float]:
    """Return the values of a printed table by the label of the parameter."""
    return {item.label: float(array(table[item.node])[item.place]) for item in PARAMETERS}


@cache
def network() -> mq.learn.BayesianNetwork:
    """Return ASIA with the parameters of Table 5."""
    variables = {name: mq.Variable(name, (-1, 1)) for name in STRUCTURE}
    tables = []
    for name, parents in STRUCTURE.items():
        values = array(TABLE_5[name])
        tables.append(
            mq.learn.ConditionalTable(
                variables[name],
                tuple(variables[parent] for parent in parents),
                values,
                np.zeros_like(values),
                np.ones(values.shape[:-1], dtype=bool),
            )
        )
    return mq.learn.BayesianNetwork(tuple(tables))


@cache
def sampling_errors() -> dict[str, float]:
    """Return the standard error of every parameter from 2,000 clear records: √(θ(1 − θ)/(n P(parents)))."""
    errors = {}
    for item in PARAMETERS:
        parents = STRUCTURE[item.node]
        theta = float(network()[item.node].probabilities[item.place])
        share = 1.0
        if parents:
            joint = network().query(parents).probabilities
            share = float(joint[item.place[:-1]])
        errors[item.label] = float(np.sqrt(theta * (1 - theta) / (SAMPLES * share)))
    return errors


def rows(source: mq.Tally, clear: mq.Tally) -> Sequence[Row]:
    """Return every parameter learnt from a source, next to its value in the clear records."""
    learnt, known = (mq.learn.bayesian_network(each, STRUCTURE) for each in (source, clear))
    return [
        {
            "parameter": item.label,
            "node": item.node,
            "true": float(network()[item.node].probabilities[item.place]),
            "clear": float(known[item.node].probabilities[item.place]),
            "estimate": float(learnt[item.node].probabilities[item.place]),
            "stderr": float(learnt[item.node].stderr[item.place]),
        }
        for item in PARAMETERS
    ]
