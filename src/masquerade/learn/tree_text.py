"""A decision tree as text: one indented line a node, the way R prints trees."""

from __future__ import annotations

import numpy as np

from masquerade.core.words import counted
from masquerade.learn.tree_model import DecisionTree, Node

SUMMARY_DEPTH = 3


def tree_text(tree: DecisionTree, max_depth: int | None = None) -> str:
    """Return the tree depth first: number, condition, records ± error, class, class probabilities ± errors.

    Nodes keep the numbers of their places among the tree's nodes. A star marks a leaf.
    """
    classes = ", ".join(str(label) for label in tree.target.categories)
    lines = [
        f"n = {tree.n:,}",
        "",
        f"node) condition, records ± stderr, {tree.target.name}, P({classes}) ± stderr",
        "      * leaf   ~ fewer than five standard errors of records   ! too few records: parent's classes",
        "",
    ]
    open_places = [0]
    while open_places:
        place = open_places.pop()
        node = tree.nodes[place]
        hidden = node.split is not None and max_depth is not None and node.depth >= max_depth
        lines.append(node_line(tree, place) + (" …" if hidden else ""))
        if node.split is not None and not hidden:
            open_places += reversed(node.split.branches)
    return "\n".join(lines)


def node_line(tree: DecisionTree, place: int) -> str:
    """Return the line of one node."""
    node = tree.nodes[place]
    condition = "root" if place == 0 else "{}={}".format(*tree.path(place)[-1])
    label = tree.target.categories[int(np.argmax(node.probabilities))]
    chances = "  ".join(
        f"{p:.3f} ± {error:.3f}" for p, error in zip(node.probabilities, node.stderr, strict=True)
    )
    counted = f"{node.records:,.0f} ± {node.records_stderr:,.0f}"
    return f"{'  ' * node.depth}{place}) {condition}  {counted}  {label}  ({chances}){marks(node)}"


def marks(node: Node) -> str:
    """Return the signs behind a node: leaf, doubtful, borrowed."""
    doubt = " !" if node.borrowed else ("" if node.reliable else " ~")
    return (" *" if node.split is None else "") + doubt


def tree_summary(tree: DecisionTree) -> str:
    """Return what the tree is, which features it asks about, what to doubt, and its first levels."""
    leaves = [tree.nodes[place] for place in tree.leaves]
    borrowed = sum(node.borrowed for node in leaves)
    doubtful = sum(not node.reliable and not node.borrowed for node in leaves)
    test = "not tested" if tree.significance is None else f"significant at {tree.significance:g}"
    size = f"{counted(len(leaves), 'leaf', 'leaves')}, depth {tree.depth}"
    lines = [
        f"Decision tree for {tree.target.name}: {size}, n = {tree.n:,}",
        f"criterion {tree.criterion.replace('_', ' ')}, splits {test}",
        f"features used: {', '.join(importance_words(tree)) or 'none'}",
    ]
    if borrowed:
        lines.append(f"leaves with too few records by estimate (parent's classes): {borrowed:,}")
    if doubtful:
        lines.append(f"leaves with fewer than five standard errors of records: {doubtful:,}")
    return "\n".join([*lines, "", tree_text(tree, SUMMARY_DEPTH)])


def importance_words(tree: DecisionTree) -> list[str]:
    """Return the features with their shares of all gain, the largest first."""
    gains: dict[str, float] = {}
    for node in tree.nodes:
        if node.split is not None:
            told = node.split.gain * max(node.records, 0.0)
            gains[node.split.feature] = gains.get(node.split.feature, 0.0) + told
    total = sum(gains.values()) or 1.0
    order = sorted(gains.items(), key=lambda pair: -pair[1])
    return [f"{name} {gain / total:.0%}" for name, gain in order]
