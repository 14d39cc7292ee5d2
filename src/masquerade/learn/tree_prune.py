"""Cutting a grown tree back: by pessimistic errors that know about the noise, or by cost and complexity."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.learn.information_gain import entropy
from masquerade.learn.tree_model import DecisionTree, Node

TIE = 1e-9


def pessimistic(tree: DecisionTree, confidence: float = 0.25) -> DecisionTree:
    """Return the tree without the subtrees that are no better than a leaf, errors taken pessimistically.

    Formula: a leaf with error rate e among N records counts with the upper limit p of
    (e − p)² = z²(p(1 − p)/N + s), z the upper `confidence` quantile of the normal distribution, s the
    variance of e beyond that of N clear records; a subtree with the mean of its leaves' limits, weighted
    by their records (negative estimates as none). From the bottom up, a subtree that does not have the
    smaller figure becomes a leaf.
    Reference: Quinlan (1993), chapter 4, with Wilson's limit; without disguise s = 0. No subtree raising.
    Cost: one walk over the nodes.
    Error: a heuristic, as the original: the rates come from the records that the tree was grown from.
    """
    if not 0 < confidence <= 0.5:
        raise InputError(f"The confidence of pruning must be in (0, 0.5]. Got {confidence} instead.")
    z = NormalDist().inv_cdf(1 - confidence)
    rates = [upper_error(node, z) for node in tree.nodes]
    cut: set[int] = set()
    for place in reversed(range(len(tree.nodes))):
        split = tree.nodes[place].split
        if split is None:
            continue
        below = float(shares(tree, place) @ np.array([rates[branch] for branch in split.branches]))
        if below >= rates[place] - TIE:
            cut.add(place)
        else:
            rates[place] = below
    return rebuilt(tree, cut)


def upper_error(node: Node, z: float) -> float:
    """Return the upper limit of the error rate of a node as a leaf, at most 1."""
    best = int(np.argmax(node.probabilities))
    error = 1 - float(node.probabilities[best])
    records = max(node.records, TIE)
    extra = max(float(node.stderr[best]) ** 2 - error * (1 - error) / records, 0.0)
    curve = 1 + z * z / records
    middle = error + z * z / records / 2
    root = max(middle**2 - curve * (error**2 - z * z * extra), 0.0)
    return min((middle + float(np.sqrt(root))) / curve, 1.0)


def cost_complexity(tree: DecisionTree, alpha: float) -> DecisionTree:
    """Return the smallest subtree that minimises entropy + alpha · leaves.

    Formula: with R(t) = the node's share of records × the entropy in bits of its classes, the inner node
    with the least (R(t) − Σ R(leaves below))/(leaves below − 1) becomes a leaf, as long as that is at most
    alpha.
    Reference: Breiman et al. (1984), chapter 3; scikit-learn's `ccp_alpha` with criterion "entropy".
    Cost: O(nodes) for every cut.
    Error: noise lowers the entropy of small leaves, so alpha must exceed what noise gains on average.
    """
    if not alpha >= 0:
        raise InputError(f"The 'alpha' of pruning must not be negative. Got {alpha} instead.")
    share = np.ones(len(tree.nodes))
    for place, node in enumerate(tree.nodes):
        if node.split is not None:
            share[list(node.split.branches)] = share[place] * shares(tree, place)
    own = share * entropy(np.stack([node.probabilities for node in tree.nodes]))
    cut: set[int] = set()
    while True:
        weakest, strength = _weakest_link(tree, own, cut)
        if weakest < 0 or strength > alpha + TIE * TIE:
            return rebuilt(tree, cut)
        cut.add(weakest)


def _weakest_link(tree: DecisionTree, own: Floats, cut: set[int]) -> tuple[int, float]:
    """Return the inner node whose subtree earns least a leaf, and how much that is; −1 if none is left."""
    below = own.copy()
    leaves = np.ones(len(own))
    weakest, strength = -1, np.inf
    for place in reversed(range(len(own))):
        split = tree.nodes[place].split
        if split is None or place in cut:
            continue
        branches = list(split.branches)
        below[place], leaves[place] = below[branches].sum(), leaves[branches].sum()
    for place in _reached(tree, cut):
        if tree.nodes[place].split is not None and place not in cut:
            earned = (own[place] - below[place]) / max(leaves[place] - 1, 1)
            if earned < strength - TIE * TIE:
                weakest, strength = place, float(earned)
    return weakest, strength


def shares(tree: DecisionTree, place: int) -> Floats:
    """Return the shares of records on the branches of an inner node, negative estimates taken as none."""
    split = tree.nodes[place].split
    branches = () if split is None else split.branches
    records = np.maximum([tree.nodes[branch].records for branch in branches], 0.0)
    return np.asarray(records / records.sum())


def rebuilt(tree: DecisionTree, cut: set[int]) -> DecisionTree:
    """Return the tree in which the nodes in `cut` are leaves and what hung below them is gone."""
    kept = _reached(tree, cut)
    new = {old: place for place, old in enumerate(kept)}
    nodes = []
    for old in kept:
        node = tree.nodes[old]
        split = None if node.split is None or old in cut else node.split
        if split is not None:
            split = replace(split, branches=tuple(new[branch] for branch in split.branches))
        nodes.append(replace(node, parent=new.get(node.parent, -1), split=split))
    return replace(tree, nodes=tuple(nodes))


def _reached(tree: DecisionTree, cut: set[int]) -> list[int]:
    """Return the places still in the tree, breadth first."""
    kept = [0]
    for place in kept:  # grows while it is walked
        split = tree.nodes[place].split
        if split is not None and place not in cut:
            kept.extend(split.branches)
    return kept
