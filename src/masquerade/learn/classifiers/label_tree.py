"""Decision trees without counts: the splits and the classes of leaves that an MPC tree opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError
from masquerade.core.schema import Variable
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable
from masquerade.learn import model_file
from masquerade.learn.classifiers.prediction_rows import labels_of
from masquerade.learn.classifiers.tree_model import DecisionTree, check_splits, find_leaves
from masquerade.learn.model_file import Saved, part_values

KIND = "label_tree"


@dataclass(frozen=True, slots=True)
class LabelNode:
    """A feature and the indices of the branches, one per category; or the class of a leaf."""

    feature: str | None
    branches: tuple[int, ...]
    label: int | None
    """Code of a leaf's class; None for an inner node."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelTree(Printed, Saved):
    """A decision tree without counts, hence without probabilities and errors.

    Attributes
    ----------
    target : Variable
        The predicted variable.
    features : tuple of Variable
        Variables to predict from.
    nodes : tuple of LabelNode
        Nodes in breadth-first order, the root first.
    n : int
        Number of records.

    Examples
    --------
    >>> tree = mq.learn.decision_tree(mq.tally(mq.data.students()), "sleep")
    >>> mq.learn.LabelTree.of(tree).predict(mq.data.students()[:3]).tolist()
    ['bad', 'bad', 'bad']
    """

    target: Variable
    features: tuple[Variable, ...]
    nodes: tuple[LabelNode, ...]
    n: int

    @classmethod
    def of(cls, tree: DecisionTree) -> LabelTree:
        """Return a decision tree without its counts."""
        nodes = tuple(
            LabelNode(None, (), node.best)
            if node.split is None
            else LabelNode(node.split.feature, node.split.branches, None)
            for node in tree.nodes
        )
        return cls(tree.target, tree.features, nodes, tree.n)

    @property
    def leaves(self) -> tuple[int, ...]:
        """Return the indices of the leaves."""
        return tuple(place for place, node in enumerate(self.nodes) if node.feature is None)

    @property
    def depth(self) -> int:
        """Return the number of splits on the longest path."""
        depths = [0] * len(self.nodes)
        for place, node in enumerate(self.nodes):
            for branch in node.branches:
                depths[branch] = depths[place] + 1
        return max(depths)

    def apply(self, frame: Any) -> NDArray[np.intp]:
        """Return the index of the leaf of each row of clear labels."""
        splits = [None if node.feature is None else (node.feature, node.branches) for node in self.nodes]
        return find_leaves(frame, self.features, splits)

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the class of each row's leaf."""
        codes = np.array([-1 if node.label is None else node.label for node in self.nodes])
        return labels_of(self.target, codes[self.apply(frame)])

    @printable
    def to_text(self) -> str:
        """Return the tree depth first, one line per node: its condition and the class of a leaf."""
        lines, names = [], {feature.name: feature for feature in self.features}
        open_places = [(0, 0, "root")]
        while open_places:
            place, depth, condition = open_places.pop()
            node = self.nodes[place]
            label = "" if node.label is None else f"  {self.target.categories[node.label]} *"
            lines.append(f"{'  ' * depth}{place}) {condition}{label}")
            if node.feature is not None:
                labels = names[node.feature].categories
                open_places += [
                    (branch, depth + 1, f"{node.feature}={label}")
                    for branch, label in reversed(list(zip(node.branches, labels, strict=True)))
                ]
        return "\n".join(lines)

    @printable
    def summary(self) -> str:
        """Return the size of the tree and all of its nodes, as text."""
        size = f"{counted(len(self.leaves), 'leaf', 'leaves')}, depth {self.depth}"
        head = f"Decision tree for {self.target.name}: {size}, n = {self.n:,}, no counts known"
        return f"{head}\n\n{self.to_text()}"

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as plain JSON values; branches are indices of nodes."""
        return {**model_file.header(KIND), **part_values(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LabelTree:
        """Return the tree that `to_dict` described; raise InputError if the values are not valid."""
        target, features = model_file.target_and_features(values, KIND)
        n = model_file.entry(values, "n", int)
        if n < 0:
            raise InputError("'n' is negative.")
        return cls(target, features, _nodes_of(model_file.entry(values, "nodes", list), target, features), n)


def _nodes_of(listed: Sequence[Any], target: Variable, features: Sequence[Variable]) -> tuple[LabelNode, ...]:
    """Return nodes that form a tree: every node but the root is a branch once; features differ on a path."""
    sizes = {feature.name: len(feature) for feature in features}
    named = 1  # the root and all branches so far
    nodes: list[LabelNode] = []
    for place, values in enumerate(listed):
        if place >= named:
            raise InputError(f"node {place} is not a branch of another node.")
        feature = model_file.entry(values, "feature", str, type(None))
        label = model_file.entry(values, "label", int, type(None))
        branches = model_file.entry(values, "branches", list)
        if feature is None:
            if branches or label is None or not 0 <= label < len(target):
                raise InputError(
                    f"node {place} is a leaf: it must have a class of the target and no branches."
                )
        else:
            expected = list(range(named, named + sizes.get(feature, 0)))
            if feature not in sizes or branches != expected or label is not None:
                raise InputError(f"node {place} must split by a feature, with one branch per category.")
            named += len(expected)
        nodes.append(LabelNode(feature, tuple(branches), label))
    if len(nodes) != named:
        raise InputError(f"the branches name {named} nodes. Got {len(nodes)} instead.")
    check_splits([None if node.feature is None else (node.feature, node.branches) for node in nodes])
    return tuple(nodes)
