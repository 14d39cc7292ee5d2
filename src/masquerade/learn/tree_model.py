"""A decision tree as a value: nodes in breadth-first order, each with what it predicts and how surely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.words import counted
from masquerade.learn import model_file
from masquerade.learn.prediction_rows import labels_of, row_codes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST_SIGMAS = 5.0
BLOCK = 1 << 14  # rows whose codes fit the cache together


@dataclass(frozen=True, slots=True)
class Split:
    """What an inner node asks: one branch (a place among the tree's nodes) for every category of `feature`.

    `gain` is in bits, `ratio` the gain ratio. `statistic` (G²), `design_effect` and `p_value`, the latter
    corrected for the number of features that were tried, are None if nothing was tested.
    """

    feature: str
    branches: tuple[int, ...]
    gain: float
    ratio: float
    statistic: float | None = None
    design_effect: float | None = None
    p_value: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node: where it hangs, how many records it holds by estimate, and the classes among them.

    `counts` are the unbiased class counts, perhaps negative; `probabilities` come from them with negatives
    set to zero; `stderr` are the delta method's errors of the unbiased shares. A `borrowed` node holds too
    few records by estimate: probabilities and errors are its parent's.
    """

    parent: int
    branch: int
    depth: int
    counts: Floats
    records: float
    records_stderr: float
    probabilities: Floats
    stderr: Floats
    borrowed: bool
    split: Split | None = None

    @property
    def reliable(self) -> bool:
        """Tell whether the number of records is at least five standard errors, so that errors hold."""
        return not self.borrowed and self.records >= FEWEST_SIGMAS * self.records_stderr


@dataclass(frozen=True, slots=True, eq=False)
class DecisionTree:
    """A tree of questions about one categorical variable each, one branch per category.

    `nodes` stand in breadth-first order, the root first, the branches of a node side by side.
    """

    target: Variable
    features: tuple[Variable, ...]
    nodes: tuple[Node, ...]
    n: int
    criterion: str
    significance: float | None

    @property
    def leaves(self) -> tuple[int, ...]:
        """Return the places of the leaves among the nodes."""
        return tuple(i for i, node in enumerate(self.nodes) if node.split is None)

    @property
    def depth(self) -> int:
        """Return the number of questions on the longest way down."""
        return max(node.depth for node in self.nodes)

    @property
    def used(self) -> tuple[str, ...]:
        """Return the features that the tree asks about, in the order of the features."""
        asked = {node.split.feature for node in self.nodes if node.split is not None}
        return tuple(feature.name for feature in self.features if feature.name in asked)

    def path(self, node: int) -> tuple[tuple[str, Category], ...]:
        """Return the conditions that lead from the root to a node."""
        steps: list[tuple[str, Category]] = []
        while (here := self.nodes[node]).parent >= 0:
            split = self.nodes[here.parent].split
            assert split is not None  # noqa: S101  (a parent is an inner node)
            steps.append((split.feature, self.variable(split.feature).categories[here.branch]))
            node = here.parent
        return tuple(reversed(steps))

    def variable(self, feature: str) -> Variable:
        """Return a feature by its name."""
        return Schema(self.features)[feature]

    def apply(self, frame: Any) -> NDArray[np.intp]:
        """Return the leaf (its place among the nodes) that each row of clear labels falls into.

        `frame` is anything with columns `frame[name]`, or a mapping of arrays; only the features that the
        tree asks about are looked at. Cost: one look-up a row and level.
        """
        used = self.used
        if not used:
            return np.zeros(_rows(frame, self.features), dtype=np.intp)
        codes = row_codes(frame, Schema(self.features), used)
        asks = np.zeros(len(self.nodes), dtype=np.intp)
        first = np.full(len(self.nodes), -1, dtype=np.intp)
        for i, node in enumerate(self.nodes):
            if node.split is not None:
                asks[i], first[i] = used.index(node.split.feature), node.split.branches[0]
        leaf = np.empty(len(codes[used[0]]), dtype=np.intp)
        for start in range(0, leaf.size, BLOCK):
            block = slice(start, min(start + BLOCK, leaf.size))
            table = np.stack([codes[name][block] for name in used])
            columns = np.arange(table.shape[1])
            at = np.zeros(table.shape[1], dtype=np.intp)
            for _ in range(self.depth):
                below = first[at]
                at = np.where(below >= 0, below + table[asks[at], columns], at)
            leaf[block] = at
        return leaf

    def predict_proba(self, frame: Any) -> Floats:
        """Return the probability of each category of the target (columns) for each row."""
        return np.stack([node.probabilities for node in self.nodes])[self.apply(frame)]

    def predict_stderr(self, frame: Any) -> Floats:
        """Return the standard errors of the probabilities of `predict_proba`."""
        return np.stack([node.stderr for node in self.nodes])[self.apply(frame)]

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the most probable category of the target for each row; the first of equals."""
        best = np.array([int(np.argmax(node.probabilities)) for node in self.nodes])
        return labels_of(self.target, best[self.apply(frame)])

    def pruned(self, confidence: float = 0.25) -> DecisionTree:
        """Return the tree cut back by pessimistic errors; see `masquerade.learn.tree_prune`."""
        from masquerade.learn.tree_prune import pessimistic  # noqa: PLC0415  (it builds on this module)

        return pessimistic(self, confidence)

    def cost_pruned(self, alpha: float) -> DecisionTree:
        """Return the tree cut back by cost and complexity; see `masquerade.learn.tree_prune`."""
        from masquerade.learn.tree_prune import cost_complexity  # noqa: PLC0415  (it builds on this module)

        return cost_complexity(self, alpha)

    def to_text(self, max_depth: int | None = None) -> str:
        """Return the tree as indented lines, a node each."""
        from masquerade.learn.tree_text import tree_text  # noqa: PLC0415  (it builds on this module)

        return tree_text(self, max_depth)

    def summary(self) -> str:
        """Return the size of the tree, its doubtful branches and its first levels."""
        from masquerade.learn.tree_text import tree_summary  # noqa: PLC0415  (it builds on this module)

        return tree_summary(self)

    def plot(self, path: str | Path | None = None, max_depth: int = 4) -> Figure:
        """Draw the tree and return the figure; with a path, save it there too."""
        from masquerade.learn.tree_plot import tree_plot  # noqa: PLC0415  (matplotlib is slow to load)

        return tree_plot(self, path, max_depth)

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as plain JSON values."""
        from masquerade.learn.tree_file import tree_to_dict  # noqa: PLC0415  (it builds on this module)

        return tree_to_dict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> DecisionTree:
        """Return the tree that `to_dict` wrote; anything else is an `InputError`."""
        from masquerade.learn.tree_file import tree_from_dict  # noqa: PLC0415  (it builds on this module)

        return tree_from_dict(data)

    def save(self, path: str | Path) -> None:
        """Write the tree as a JSON file."""
        model_file.save(self, path)

    def __repr__(self) -> str:
        """Show the size."""
        leaves = counted(len(self.leaves), "leaf", "leaves")
        return f"DecisionTree({self.target.name}: {leaves}, depth {self.depth})"


def _rows(frame: Any, features: tuple[Variable, ...]) -> int:
    """Return the number of rows, for a tree that looks at none of their columns."""
    for feature in features:
        try:
            return len(frame[feature.name])
        except (KeyError, TypeError, ValueError):
            continue
    raise InputError("The rows to predict have no column of the tree's features: their number is unknown.")
