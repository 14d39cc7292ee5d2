"""A decision tree as a value: what it predicts and how surely; cut back, printed, written and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.distributions import normal_quantile
from masquerade.core.errors import InputError
from masquerade.core.intervals import count_interval
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import counted, printable
from masquerade.learn import model_file
from masquerade.learn.classifiers._information_gain import entropy
from masquerade.learn.classifiers.prediction_rows import labels_of, row_codes
from masquerade.learn.model_file import Saved, part_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Criterion = Literal["gain", "gain_ratio"]
CRITERIA: tuple[Criterion, ...] = ("gain", "gain_ratio")
KIND = "decision_tree"
# of a node in a file: where it hangs follows from the splits
KEPT = ("counts", "records_stderr", "probabilities", "stderr", "borrowed", "split")
FEWEST_SIGMAS = 5.0
BLOCK = 1 << 14  # rows whose codes fit the cache together
SUMMARY_DEPTH = 3
LEGEND = "      * leaf   ~ fewer than five standard errors of records   ! too few records: parent's classes"
TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Split:
    """What an inner node asks: one branch (a place among the tree's nodes) for every category of `feature`.

    `gain` is in bits, `ratio` the gain ratio. `statistic` (the deviance) and `p_value`, corrected for the
    number of features that were tried, are None if nothing was tested. Trees of earlier versions have G² of
    estimated counts and its `design_effect`.
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

    @property
    def best(self) -> int:
        """Return the code of the most probable class; the first of equals."""
        return int(np.argmax(self.probabilities))


@dataclass(frozen=True, slots=True, eq=False)
class DecisionTree(Printed, Saved):
    """A tree of questions about one categorical variable each, one branch per category.

    `nodes` stand in breadth-first order, the root first, the branches of a node side by side.

    >>> tree = mq.learn.decision_tree(mq.tally(mq.data.students()), "sleep")
    >>> print(tree.to_text())
    n = 600
    <BLANKLINE>
    node) condition, records ± stderr, sleep, P(bad, good) ± stderr
          * leaf   ~ fewer than five standard errors of records   ! too few records: parent's classes
    <BLANKLINE>
    0) root  600 ± 0  good  (0.337 ± 0.019  0.663 ± 0.019)
      1) pills=no  474 ± 10  good  (0.249 ± 0.020  0.751 ± 0.020) *
      2) pills=yes  126 ± 10  bad  (0.667 ± 0.042  0.333 ± 0.042) *
    >>> tree.predict(mq.data.students()[:3]).tolist()
    ['bad', 'bad', 'bad']
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

    def shares(self, node: int) -> Floats:
        """Return the shares of records on the branches of an inner node, negative estimates taken as none."""
        split = self.nodes[node].split
        branches = () if split is None else split.branches
        records = np.maximum([self.nodes[branch].records for branch in branches], 0.0)
        return np.asarray(records / records.sum())

    def apply(self, frame: Any) -> NDArray[np.intp]:
        """Return the leaf (its place among the nodes) that each row of clear labels falls into.

        `frame` is anything with columns `frame[name]`, or a mapping of arrays; only the features that the
        tree asks about are looked at. Cost: one look-up a row and level.
        """
        splits = [node.split for node in self.nodes]
        return reached_leaves(
            frame, self.features, [None if it is None else (it.feature, it.branches) for it in splits]
        )

    def predict_proba(self, frame: Any) -> Floats:
        """Return the probability of each category of the target (columns) for each row."""
        return np.stack([node.probabilities for node in self.nodes])[self.apply(frame)]

    def predict_stderr(self, frame: Any) -> Floats:
        """Return the standard errors of the probabilities of `predict_proba`."""
        return np.stack([node.stderr for node in self.nodes])[self.apply(frame)]

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the most probable category of the target for each row; the first of equals."""
        best = np.array([node.best for node in self.nodes])
        return labels_of(self.target, best[self.apply(frame)])

    def pruned(self, confidence: float = 0.25) -> DecisionTree:
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
        z = normal_quantile(1 - confidence)
        rates = [_upper_error(node, z) for node in self.nodes]
        cut: set[int] = set()
        for place in reversed(range(len(self.nodes))):
            split = self.nodes[place].split
            if split is None:
                continue
            below = float(self.shares(place) @ np.array([rates[branch] for branch in split.branches]))
            if below >= rates[place] - TIE:
                cut.add(place)
            else:
                rates[place] = below
        return self._without(cut)

    def cost_pruned(self, alpha: float) -> DecisionTree:
        """Return the smallest subtree that minimises entropy + alpha · leaves.

        Formula: with R(t) = the node's share of records × the entropy in bits of its classes, the inner node
        with the least (R(t) − Σ R(leaves below))/(leaves below − 1) becomes a leaf, as long as that is at
        most alpha.
        Reference: Breiman et al. (1984), chapter 3; scikit-learn's `ccp_alpha` with criterion "entropy".
        Cost: O(nodes) for every cut.
        Error: noise lowers the entropy of small leaves, so alpha must exceed what noise gains on average.
        """
        if not alpha >= 0:
            raise InputError(f"The 'alpha' of pruning must not be negative. Got {alpha} instead.")
        share = np.ones(len(self.nodes))
        for place, node in enumerate(self.nodes):
            if node.split is not None:
                share[list(node.split.branches)] = share[place] * self.shares(place)
        own = share * entropy(np.stack([node.probabilities for node in self.nodes]))
        cut: set[int] = set()
        while True:
            weakest, strength = self._weakest_link(own, cut)
            if weakest < 0 or strength > alpha + TIE * TIE:
                return self._without(cut)
            cut.add(weakest)

    @printable
    def to_text(self, max_depth: int | None = None) -> str:
        """Return the tree depth first, a line each: number, condition, records, class, its probabilities.

        Nodes keep the numbers of their places among the tree's nodes. A star marks a leaf.
        """
        classes = ", ".join(str(label) for label in self.target.categories)
        lines = [
            f"n = {self.n:,}",
            "",
            f"node) condition, records ± stderr, {self.target.name}, P({classes}) ± stderr",
            LEGEND,
            "",
        ]
        open_places = [0]
        while open_places:
            place = open_places.pop()
            node = self.nodes[place]
            hidden = node.split is not None and max_depth is not None and node.depth >= max_depth
            lines.append(self._line(place) + (" …" if hidden else ""))
            if node.split is not None and not hidden:
                open_places += reversed(node.split.branches)
        return "\n".join(lines)

    @printable
    def summary(self) -> str:
        """Return what the tree is, which features it asks about, what to doubt, and its first levels."""
        leaves = [self.nodes[place] for place in self.leaves]
        borrowed = sum(node.borrowed for node in leaves)
        doubtful = sum(not node.reliable and not node.borrowed for node in leaves)
        test = "not tested" if self.significance is None else f"significant at {self.significance:g}"
        size = f"{counted(len(leaves), 'leaf', 'leaves')}, depth {self.depth}"
        lines = [
            f"Decision tree for {self.target.name}: {size}, n = {self.n:,}",
            f"criterion {self.criterion.replace('_', ' ')}, splits {test}",
            f"features used: {', '.join(self._importances()) or 'none'}",
        ]
        if borrowed:
            lines.append(f"leaves with too few records by estimate (parent's classes): {borrowed:,}")
        if doubtful:
            lines.append(f"leaves with fewer than five standard errors of records: {doubtful:,}")
        return "\n".join([*lines, "", self.to_text(SUMMARY_DEPTH)])

    def plot(self, ax: Axes | None = None, max_depth: int | None = None, *, grouped: bool = False) -> Axes:
        """Draw the first levels (without `max_depth` those that fit a page): boxes with bars of classes.

        Leaves of one node with the same most probable class share a box if they are `grouped`.
        """
        from masquerade.learn.classifiers._tree_plot import tree_plot  # noqa: PLC0415  (matplotlib is slow to load)

        return tree_plot(self, ax, max_depth, grouped=grouped)

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as plain JSON values; nodes in their order, branches by place."""
        return {
            **model_file.header(KIND),
            **part_values(self, "target", "features", "n", "criterion", "significance"),
            "nodes": [part_values(node, *KEPT) for node in self.nodes],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DecisionTree:
        """Return the tree that `to_dict` wrote; anything else is an `InputError` that says what is wrong."""
        target, features = model_file.target_and_features(values, KIND)
        nodes = _nodes_of(model_file.entry(values, "nodes", list), target, features)
        tree = model_file.part_of(cls, values, {}, target=target, features=features, nodes=nodes)
        if tree.n < 0 or tree.criterion not in CRITERIA:
            raise InputError("'n' is negative, or 'criterion' is none.")
        return tree

    @printable
    def __repr__(self) -> str:
        """Show the size."""
        leaves = counted(len(self.leaves), "leaf", "leaves")
        return f"DecisionTree({self.target.name}: {leaves}, depth {self.depth})"

    def _weakest_link(self, own: Floats, cut: set[int]) -> tuple[int, float]:
        """Return the inner node whose subtree earns least a leaf, and how much; −1 if none is left."""
        below = own.copy()
        leaves = np.ones(len(own))
        weakest, strength = -1, np.inf
        for place in reversed(range(len(own))):
            split = self.nodes[place].split
            if split is None or place in cut:
                continue
            branches = list(split.branches)
            below[place], leaves[place] = below[branches].sum(), leaves[branches].sum()
        for place in self._reached(cut):
            if self.nodes[place].split is not None and place not in cut:
                earned = (own[place] - below[place]) / max(leaves[place] - 1, 1)
                if earned < strength - TIE * TIE:
                    weakest, strength = place, float(earned)
        return weakest, strength

    def _without(self, cut: set[int]) -> DecisionTree:
        """Return the tree in which the nodes in `cut` are leaves and what hung below them is gone."""
        kept = self._reached(cut)
        new = {old: place for place, old in enumerate(kept)}
        nodes = []
        for old in kept:
            node = self.nodes[old]
            split = None if node.split is None or old in cut else node.split
            if split is not None:
                split = replace(split, branches=tuple(new[branch] for branch in split.branches))
            nodes.append(replace(node, parent=new.get(node.parent, -1), split=split))
        return replace(self, nodes=tuple(nodes))

    def _reached(self, cut: set[int]) -> list[int]:
        """Return the places that are left if the nodes in `cut` are leaves, breadth first."""
        kept = [0]
        for place in kept:  # grows while it is walked
            split = self.nodes[place].split
            if split is not None and place not in cut:
                kept.extend(split.branches)
        return kept

    def _line(self, place: int) -> str:
        """Return the line of one node, with the signs of a leaf and of doubt."""
        node = self.nodes[place]
        condition = "root" if place == 0 else "{}={}".format(*self.path(place)[-1])
        chances = "  ".join(
            f"{p:.3f} ± {error:.3f}" for p, error in zip(node.probabilities, node.stderr, strict=True)
        )
        records = f"{node.records:,.0f} ± {node.records_stderr:,.0f}"
        doubt = " !" if node.borrowed else ("" if node.reliable else " ~")
        marks = (" *" if node.split is None else "") + doubt
        label = self.target.categories[node.best]
        return f"{'  ' * node.depth}{place}) {condition}  {records}  {label}  ({chances}){marks}"

    def _importances(self) -> list[str]:
        """Return the features with their shares of all gain, the largest first."""
        gains: dict[str, float] = {}
        for node in self.nodes:
            if node.split is not None:
                told = node.split.gain * max(node.records, 0.0)
                gains[node.split.feature] = gains.get(node.split.feature, 0.0) + told
        total = sum(gains.values()) or 1.0
        order = sorted(gains.items(), key=lambda pair: -pair[1])
        return [f"{name} {gain / total:.0%}" for name, gain in order]


def reached_leaves(
    frame: Any, features: tuple[Variable, ...], splits: Sequence[tuple[str, tuple[int, ...]] | None]
) -> NDArray[np.intp]:
    """Return the leaf that each row of clear labels falls into.

    `splits` are what nodes ask, breadth first, and the places of their branches, None of leaves; only
    features that some node asks about are looked at.
    """
    asked = {split[0] for split in splits if split is not None}
    used = [feature.name for feature in features if feature.name in asked]
    if not used:
        return np.zeros(_rows(frame, features), dtype=np.intp)
    codes = row_codes(frame, Schema(features), used)
    asks = np.zeros(len(splits), dtype=np.intp)
    first = np.full(len(splits), -1, dtype=np.intp)
    for place, split in enumerate(splits):
        if split is not None:
            asks[place], first[place] = used.index(split[0]), split[1][0]
    leaf = np.empty(len(codes[used[0]]), dtype=np.intp)
    for start in range(0, leaf.size, BLOCK):
        block = slice(start, min(start + BLOCK, leaf.size))
        table = np.stack([codes[name][block] for name in used])
        columns = np.arange(table.shape[1])
        at = np.zeros(table.shape[1], dtype=np.intp)
        while (first[at] >= 0).any():
            below = first[at]
            at = np.where(below >= 0, below + table[asks[at], columns], at)
        leaf[block] = at
    return leaf


def _rows(frame: Any, features: tuple[Variable, ...]) -> int:
    """Return the number of rows, for a tree that looks at none of their columns."""
    for feature in features:
        try:
            return len(frame[feature.name])
        except (KeyError, TypeError, ValueError):
            continue
    raise InputError("The rows to predict have no column of the tree's features: their number is unknown.")


def _upper_error(node: Node, z: float) -> float:
    """Return the upper limit of the error rate of a node as a leaf, at most 1."""
    error = np.asarray(1 - float(node.probabilities[node.best]))
    records = max(node.records, TIE)
    variance = np.asarray(float(node.stderr[node.best]) ** 2)
    return min(float(count_interval(error, variance, records, z, 1 / records).upper), 1.0)


def _nodes_of(listed: Sequence[Any], target: Variable, features: Sequence[Variable]) -> tuple[Node, ...]:
    """Return nodes with their places worked out anew: breadth first, every node but the root hung once."""
    sizes = {feature.name: len(feature) for feature in features}
    places: list[tuple[int, int, int]] = [(-1, -1, 0)]
    nodes: list[Node] = []
    for place, values in enumerate(listed):
        if place >= len(places):
            raise InputError(f"node {place} hangs nowhere.")
        if not isinstance(values, Mapping):
            raise InputError(f"node {place} must be an object.")
        try:
            split = _split_of(model_file.entry(values, "split", dict, type(None)), sizes, len(places))
            nodes.append(_node_of(values, len(target), places[place], split))
        except InputError as error:
            raise InputError(f"node {place}: {error}") from None
        if split is not None:
            places += [(place, code, nodes[-1].depth + 1) for code in range(len(split.branches))]
    if len(nodes) != len(places):
        raise InputError(f"{len(places)} nodes are named, {len(nodes)} are there.")
    check_questions(
        [None if node.split is None else (node.split.feature, node.split.branches) for node in nodes]
    )
    return tuple(nodes)


def check_questions(questions: Sequence[tuple[str, Sequence[int]] | None]) -> None:
    """Raise InputError if a node asks about a feature that was asked about on the way to it.

    Questions are features and branches of nodes that form a tree, None of leaves. One path is held at a time:
    sets of all paths would take the square of the length of a file.
    """
    path: set[str] = set()
    open_places = [(0, False)] if questions else []
    while open_places:
        place, leaves = open_places.pop()
        question = questions[place]
        if question is None:
            continue
        feature, branches = question
        if leaves:
            path.discard(feature)
            continue
        if feature in path:
            raise InputError(f"node {place} asks about {feature!r} a second time.")
        path.add(feature)
        open_places.append((place, True))
        open_places += [(branch, False) for branch in branches]


def _node_of(
    values: Mapping[str, Any], classes: int, hangs: tuple[int, int, int], split: Split | None
) -> Node:
    shapes = dict.fromkeys(("counts", "probabilities", "stderr"), (classes,))
    parent, branch, depth = hangs
    node = model_file.part_of(
        Node, values, shapes, parent=parent, branch=branch, depth=depth, records=0.0, split=split
    )
    for name in shapes:
        if not np.isfinite(getattr(node, name)).all():
            raise InputError(f"{name!r} must hold finite numbers.")
    chances = node.probabilities
    if chances.min() < 0 or abs(chances.sum() - 1) > 1e-6 or node.stderr.min() < 0 or node.records_stderr < 0:
        raise InputError("probabilities do not add up to 1, or an error is negative.")
    return replace(node, records=float(node.counts.sum()))


def _split_of(values: Mapping[str, Any] | None, sizes: Mapping[str, int], following: int) -> Split | None:
    """Return a split, or None for a leaf; its branches must be the next places in line."""
    if values is None:
        return None
    feature = model_file.entry(values, "feature", str)
    if feature not in sizes:
        raise InputError(f"a split asks about {feature!r}, which is no feature.")
    places = list(range(following, following + sizes[feature]))
    if model_file.entry(values, "branches", list) != places:
        raise InputError(f"a split by {feature!r} must have the branches {places}.")
    return model_file.part_of(Split, values, {}, branches=tuple(places))
