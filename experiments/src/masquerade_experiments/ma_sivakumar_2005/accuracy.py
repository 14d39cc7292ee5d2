"""Distances of learnt parameters in the network of Fig. 3, simulated and predicted by Theorem 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

import masquerade as mq
from masquerade.report import ESTIMATE, NAIVE, SERIES
from masquerade_experiments.experiment import Row
from masquerade_experiments.ma_sivakumar_2005.distance import Expected, clipped, expected_ckl
from masquerade_experiments.ma_sivakumar_2005.seven_nodes import (
    SHOWN,
    SITES,
    STRUCTURE,
    network,
    uniform_policy,
)
from masquerade_experiments.ma_sivakumar_2005.two_models import (
    learnt,
    taken_for_clear,
    with_miner,
    without_miner,
)

if TYPE_CHECKING:
    import pandas as pd

LINES = (
    ("ckl", "with a miner (Model II)", ESTIMATE, "-"),
    ("ckl_without_miner", "without a miner (Model I)", SERIES[1], "--"),
    ("ckl_naive", "disguised records taken for clear ones", NAIVE, "-."),
)


def distances(p: float, sizes: Sequence[int], seed: int) -> list[Row]:
    """Return the distances of the shown nodes in one run, at each of the sizes.

    The largest data set is drawn and disguised once; smaller data sets are its first records.
    """
    policy = uniform_policy(tuple(STRUCTURE), p)
    drawing, disguising = np.random.default_rng(seed).spawn(2)
    clear = network().sample(max(sizes), drawing)
    disguised = mq.simulate(clear, policy, disguising)
    return [row for n in sizes for row in distances_at(n, clear.head(n), disguised.head(n), policy)]


def distances_at(n: int, clear: pd.DataFrame, disguised: pd.DataFrame, policy: mq.Policy) -> list[Row]:
    """Return the distances between the networks learned from clear and from disguised records."""
    reference = learnt(mq.tally(clear, schema=policy), STRUCTURE)
    miner = with_miner(disguised, policy, STRUCTURE)
    parties = without_miner(clear, disguised, policy, STRUCTURE, SITES)
    naive = taken_for_clear(disguised, policy, STRUCTURE)

    def row(node: str) -> Row:
        return {
            "n": n,
            "node": node,
            "ckl": mq.evaluate.ckl(reference[node], miner[node]),
            "ckl_without_miner": mq.evaluate.ckl(reference[node], parties[node]),
            "ckl_naive": mq.evaluate.ckl(reference[node], naive[node]),
            "clipped_rows": clipped(miner[node]),
            "clipped_rows_without_miner": clipped(parties[node]),
        }

    return [row(node) for node in SHOWN]


def predicted(node: str, p: float, n: int) -> Expected:
    """Return the expected distance of a node, with a miner, by Theorem 2 to first order."""
    family = (*STRUCTURE[node], node)
    counts = n * network().query(family).probabilities
    return expected_ckl(counts, [mq.channels.binary(str(p)).matrix] * len(family))
