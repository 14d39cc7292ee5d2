"""A decision tree of which only splits and leaves' classes are known: what a tree on shares opens."""

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
from masquerade.learn.classifiers.tree_model import DecisionTree, check_questions, reached_leaves
from masquerade.learn.model_file import Saved, part_values

KIND = "label_tree"


@dataclass(frozen=True, slots=True)
class LabelNode:
    """What a node asks and the places of its branches, one for every category; or the class of a leaf."""

    feature: str | None
    branches: tuple[int, ...]
    label: int | None
    """The code of a leaf's class, None of a node that asks."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelTree(Printed, Saved):
    """A tree of questions about one categorical variable each; nodes breadth first, the root first.

    It has no counts, hence no probabilities and no errors.

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
        """Return what is left of a tree without its counts."""
        nodes = tuple(
            LabelNode(None, (), node.best)
            if node.split is None
            else LabelNode(node.split.feature, node.split.branches, None)
            for node in tree.nodes
        )
        return cls(tree.target, tree.features, nodes, tree.n)

    @property
    def leaves(self) -> tuple[int, ...]:
        """Return the places of the leaves among the nodes."""
        return tuple(place for place, node in enumerate(self.nodes) if node.feature is None)

    @property
    def depth(self) -> int:
        """Return the number of questions on the longest way down."""
        depths = [0] * len(self.nodes)
        for place, node in enumerate(self.nodes):
            for branch in node.branches:
                depths[branch] = depths[place] + 1
        return max(depths)

    def apply(self, frame: Any) -> NDArray[np.intp]:
        """Return the leaf (its place among the nodes) that each row of clear labels falls into."""
        splits = [None if node.feature is None else (node.feature, node.branches) for node in self.nodes]
        return reached_leaves(frame, self.features, splits)

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the class of each row's leaf."""
        codes = np.array([-1 if node.label is None else node.label for node in self.nodes])
        return labels_of(self.target, codes[self.apply(frame)])

    @printable
    def to_text(self) -> str:
        """Return the tree depth first, a line each: the condition, and the class of a leaf."""
        lines, names = [], {feature.name: feature for feature in self.features}
        open_places = [(0, 0, "root")]
        while open_places:
            place, depth, condition = open_places.pop()
            node = self.nodes[place]
            told = "" if node.label is None else f"  {self.target.categories[node.label]} *"
            lines.append(f"{'  ' * depth}{place}) {condition}{told}")
            if node.feature is not None:
                labels = names[node.feature].categories
                open_places += [
                    (branch, depth + 1, f"{node.feature}={label}")
                    for branch, label in reversed(list(zip(node.branches, labels, strict=True)))
                ]
        return "\n".join(lines)

    @printable
    def summary(self) -> str:
        """Return what the tree is, and all of it."""
        size = f"{counted(len(self.leaves), 'leaf', 'leaves')}, depth {self.depth}"
        head = f"Decision tree for {self.target.name}: {size}, n = {self.n:,}, no counts known"
        return f"{head}\n\n{self.to_text()}"

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as plain JSON values; nodes in their order, branches by place."""
        return {**model_file.header(KIND), **part_values(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LabelTree:
        """Return the tree that `to_dict` wrote; anything else is an `InputError` that says what is wrong."""
        target, features = model_file.target_and_features(values, KIND)
        n = model_file.entry(values, "n", int)
        if n < 0:
            raise InputError("'n' is negative.")
        return cls(target, features, _nodes_of(model_file.entry(values, "nodes", list), target, features), n)


def _nodes_of(listed: Sequence[Any], target: Variable, features: Sequence[Variable]) -> tuple[LabelNode, ...]:
    """Return nodes that hang together: every node but the root is a branch once, no feature asked twice."""
    sizes = {feature.name: len(feature) for feature in features}
    named = 1  # the root, and all branches so far
    nodes: list[LabelNode] = []
    for place, values in enumerate(listed):
        if place >= named:
            raise InputError(f"node {place} hangs nowhere.")
        feature = model_file.entry(values, "feature", str, type(None))
        label = model_file.entry(values, "label", int, type(None))
        branches = model_file.entry(values, "branches", list)
        if feature is None:
            if branches or label is None or not 0 <= label < len(target):
                raise InputError(f"node {place} is a leaf: it has a class of the target and no branches.")
        else:
            expected = list(range(named, named + sizes.get(feature, 0)))
            if feature not in sizes or branches != expected or label is not None:
                raise InputError(f"node {place} asks about a feature, with a branch for each category.")
            named += len(expected)
        nodes.append(LabelNode(feature, tuple(branches), label))
    if len(nodes) != named:
        raise InputError(f"{named} nodes are named, {len(nodes)} are there.")
    check_questions([None if node.feature is None else (node.feature, node.branches) for node in nodes])
    return tuple(nodes)
