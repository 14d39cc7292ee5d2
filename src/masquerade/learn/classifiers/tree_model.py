"""The model of a decision tree: prediction, pruning, text, plots and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from masquerade.core.answered_tally import MissingAnswers
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
# fields of a node in a file: its parent follows from the splits
KEPT = ("counts", "records_stderr", "probabilities", "stderr", "borrowed", "split")
FEWEST_SIGMAS = 5.0  # least number of records, in its standard errors, for which errors are reliable
BLOCK = 1 << 14  # rows whose codes fit the CPU cache together
SUMMARY_DEPTH = 3
LEGEND = "      * leaf   ~ fewer than five standard errors of records   ! too few records: parent's classes"
ABOUT_ERRORS = "± takes the splits as given: it does not cover the choice of splits from the same records"
TIE = 1e-9


@dataclass(frozen=True, slots=True)
class TreeSplit:
    """The split of an inner node: one branch (an index of a node) for every category of `feature`.

    `gain` is in bits, `ratio` is the gain ratio. `statistic` (Pearson's X² of the reports), `df` and
    `p_value` describe the test of the split; they are None if nothing was tested. `p_value` is the p-value of
    χ² multiplied by `tried`, the number of features tried, and at most 1. In trees of earlier versions,
    `statistic` is a deviance, or G² of estimated counts with its `design_effect`, and there is no `df`.
    """

    feature: str
    branches: tuple[int, ...]
    gain: float
    ratio: float
    statistic: float | None = None
    design_effect: float | None = None
    p_value: float | None = None
    df: float | None = None
    tried: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DecisionNode:
    """A node: its position in the tree, its estimated number of records, and their classes.

    `counts` are the unbiased class counts, possibly negative. `probabilities` are computed from them with
    negatives set to zero. `stderr` are the delta method's errors of the unbiased shares. A `borrowed` node
    has too few estimated records: its probabilities and errors are its parent's.
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
    split: TreeSplit | None = None

    @property
    def reliable(self) -> bool:
        """Return True if the records are at least five standard errors, so that the errors are reliable."""
        return not self.borrowed and self.records >= FEWEST_SIGMAS * self.records_stderr

    @property
    def best(self) -> int:
        """Return the code of the most probable class; ties go to the first."""
        return int(np.argmax(self.probabilities))


@dataclass(frozen=True, slots=True, eq=False)
class DecisionTree(Printed, Saved):
    """A decision tree with one branch per category of the splitting feature.

    Attributes
    ----------
    target : Variable
        The predicted variable.
    features : tuple of Variable
        Variables to predict from.
    nodes : tuple of DecisionNode
        Nodes in breadth-first order, the root first, the branches of a node next to each other.
    n : int
        Number of records.
    criterion : str
        Criterion of splits.
    significance : float or None
        Level of the tests of splits.
    missing : MissingAnswers or None
        Shares of missing answers, and how they were treated.

    Examples
    --------
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
    ± takes the splits as given: it does not cover the choice of splits from the same records
    >>> tree.predict(mq.data.students()[:3]).tolist()
    ['bad', 'bad', 'bad']
    """

    target: Variable
    features: tuple[Variable, ...]
    nodes: tuple[DecisionNode, ...]
    n: int
    criterion: str
    significance: float | None
    missing: MissingAnswers | None = None

    @property
    def leaves(self) -> tuple[int, ...]:
        """Return the indices of the leaves."""
        return tuple(i for i, node in enumerate(self.nodes) if node.split is None)

    @property
    def depth(self) -> int:
        """Return the number of splits on the longest path."""
        return max(node.depth for node in self.nodes)

    @property
    def used_features(self) -> tuple[str, ...]:
        """Return the features that the tree splits by, in the order of `features`."""
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
        """Return the shares of records in the branches of an inner node; negative estimates count as zero."""
        split = self.nodes[node].split
        branches = () if split is None else split.branches
        records = np.maximum([self.nodes[branch].records for branch in branches], 0.0)
        return np.asarray(records / records.sum())

    def apply(self, frame: Any) -> NDArray[np.intp]:
        """Return the index of the leaf of each row of clear labels.

        `frame` is anything with columns `frame[name]`, or a mapping of arrays. Only features that the tree
        splits by are read. A row whose answer is missing stays at the node that asks for it. Cost: one
        look-up per row and level.
        """
        splits = [node.split for node in self.nodes]
        asked = [None if it is None else (it.feature, it.branches) for it in splits]
        absent = None if self.missing is None else self.missing.labels()
        return find_leaves(frame, self.features, asked, absent)

    def predict_proba(self, frame: Any) -> Floats:
        """Return the probability of each category of the target (columns) for each row."""
        return np.stack([node.probabilities for node in self.nodes])[self.apply(frame)]

    def predict_stderr(self, frame: Any) -> Floats:
        """Return the standard errors of the probabilities of `predict_proba`."""
        return np.stack([node.stderr for node in self.nodes])[self.apply(frame)]

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the most probable category of the target for each row; ties go to the first."""
        best = np.array([node.best for node in self.nodes])
        return labels_of(self.target, best[self.apply(frame)])

    def prune(self, confidence: float = 0.25) -> DecisionTree:
        """Return the tree without subtrees that are not better than a leaf, by pessimistic errors.

        Formula: a leaf with error rate e among N records counts with the upper limit p of (e − p)² = z²(p(1 −
        p)/N + s), where z is the upper `confidence` quantile of the normal distribution and s the variance of
        e beyond the variance that N clear records would give. A subtree counts with the mean of its leaves'
        limits, weighted by their records (negative estimates as zero). From the bottom up, a subtree becomes
        a leaf unless its limit is smaller than the limit of the leaf.
        Reference: Quinlan (1993), chapter 4, with Wilson's limit; without disguise s = 0. No subtree raising.
        Cost: one pass over the nodes.
        Error: a heuristic, like the original: error rates are measured on the training records.
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

    def prune_by_cost(self, alpha: float) -> DecisionTree:
        """Return the smallest subtree that minimises entropy + alpha · leaves.

        Formula: with R(t) = the node's share of records × the entropy in bits of its classes, the inner node
        with the smallest (R(t) − Σ R(leaves below))/(leaves below − 1) becomes a leaf, while that is at most
        alpha.
        Reference: Breiman et al. (1984), chapter 3; scikit-learn's `ccp_alpha` with criterion "entropy".
        Cost: O(nodes) per cut.
        Error: noise lowers the entropy of small leaves, so alpha must exceed the average gain from noise.
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
        """Return the tree depth first, one line per node: number, condition, records, class, probabilities.

        The number of a node is its index in `nodes`. A star marks a leaf.
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
        return "\n".join([*lines, ABOUT_ERRORS] if self.depth else lines)

    @printable
    def summary(self) -> str:
        """Return size, features used, unreliable leaves and the first levels, as text."""
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
        lines += model_file.missing_lines(self.missing)
        return "\n".join([*lines, "", self.to_text(SUMMARY_DEPTH)])

    def plot(self, ax: Axes | None = None, max_depth: int | None = None, *, grouped: bool = False) -> Axes:
        """Draw the first levels as boxes with bars of class probabilities.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. By default a new figure.
        max_depth : int, optional
            Number of levels to draw. By default as many as fit a page.
        grouped : bool, default False
            Draw leaves of one node with the same most probable class in one box.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        from masquerade.learn.classifiers._tree_plot import tree_plot  # noqa: PLC0415  (matplotlib is slow to load)

        return tree_plot(self, ax, max_depth, grouped=grouped)

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as plain JSON values; branches are indices of nodes."""
        return {
            **model_file.header(KIND),
            **part_values(self, "target", "features", "n", "criterion", "significance"),
            "nodes": [_node_values(node) for node in self.nodes],
            **model_file.missing_values(self.missing),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DecisionTree:
        """Return the tree that `to_dict` described; raise InputError if the values are not valid."""
        target, features = model_file.target_and_features(values, KIND)
        nodes = _nodes_of(model_file.entry(values, "nodes", list), target, features)
        tree = model_file.part_of(
            cls,
            values,
            {},
            target=target,
            features=features,
            nodes=nodes,
            missing=model_file.missing_of(values),
        )
        if tree.n < 0 or tree.criterion not in CRITERIA:
            raise InputError("'n' must not be negative, and 'criterion' must be 'gain' or 'gain_ratio'.")
        return tree

    @printable
    def __repr__(self) -> str:
        """Show the size."""
        leaves = counted(len(self.leaves), "leaf", "leaves")
        return f"DecisionTree({self.target.name}: {leaves}, depth {self.depth})"

    def _weakest_link(self, own: Floats, cut: set[int]) -> tuple[int, float]:
        """Return the inner node whose subtree gains least per leaf, and this gain; −1 if there is none."""
        below = own.copy()
        leaves = np.ones(len(own))
        weakest, strength = -1, np.inf
        for place in reversed(range(len(own))):
            split = self.nodes[place].split
            if split is None or place in cut:
                continue
            branches = list(split.branches)
            below[place], leaves[place] = below[branches].sum(), leaves[branches].sum()
        for place in self._remaining_nodes(cut):
            if self.nodes[place].split is not None and place not in cut:
                earned = (own[place] - below[place]) / max(leaves[place] - 1, 1)
                if earned < strength - TIE * TIE:
                    weakest, strength = place, float(earned)
        return weakest, strength

    def _without(self, cut: set[int]) -> DecisionTree:
        """Return the tree in which the nodes in `cut` are leaves."""
        remaining = self._remaining_nodes(cut)
        new = {old: place for place, old in enumerate(remaining)}
        nodes = []
        for old in remaining:
            node = self.nodes[old]
            split = None if node.split is None or old in cut else node.split
            if split is not None:
                split = replace(split, branches=tuple(new[branch] for branch in split.branches))
            nodes.append(replace(node, parent=new.get(node.parent, -1), split=split))
        return replace(self, nodes=tuple(nodes))

    def _remaining_nodes(self, cut: set[int]) -> list[int]:
        """Return the indices of the nodes that remain if the nodes in `cut` are leaves, breadth first."""
        kept = [0]
        for place in kept:  # grows while it is walked
            split = self.nodes[place].split
            if split is not None and place not in cut:
                kept.extend(split.branches)
        return kept

    def _line(self, place: int) -> str:
        """Return the line of one node, with the marks of leaves and of unreliable numbers."""
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
        """Return the features with their shares of the total gain, the largest first."""
        gains: dict[str, float] = {}
        for node in self.nodes:
            if node.split is not None:
                gain = node.split.gain * max(node.records, 0.0)
                gains[node.split.feature] = gains.get(node.split.feature, 0.0) + gain
        total = sum(gains.values()) or 1.0
        order = sorted(gains.items(), key=lambda pair: -pair[1])
        return [f"{name} {gain / total:.0%}" for name, gain in order]


def find_leaves(
    frame: Any,
    features: tuple[Variable, ...],
    splits: Sequence[tuple[str, tuple[int, ...]] | None],
    absent: Mapping[str, tuple[Category, ...]] | None = None,
) -> NDArray[np.intp]:
    """Return the index of the leaf of each row of clear labels.

    `splits` contains the feature and the branches of every node, breadth first, or None for a leaf. Only
    features that occur in it are read. A row whose answer to a feature in `absent` is missing stays at the
    node that splits by it.
    """
    asked = {split[0] for split in splits if split is not None}
    used = [feature.name for feature in features if feature.name in asked]
    if not used:
        return np.zeros(_rows(frame, features), dtype=np.intp)
    codes = row_codes(frame, Schema(features), used, absent=absent)
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
        while True:
            below, branch = first[at], table[asks[at], columns]
            moves = (below >= 0) & (branch >= 0)
            if not moves.any():
                break
            at = np.where(moves, below + branch, at)
        leaf[block] = at
    return leaf


def _rows(frame: Any, features: tuple[Variable, ...]) -> int:
    """Return the number of rows, for a tree that reads none of their columns."""
    for feature in features:
        try:
            return len(frame[feature.name])
        except (KeyError, TypeError, ValueError):
            continue
    raise InputError("The rows to predict have no column of the tree's features: their number is unknown.")


def _upper_error(node: DecisionNode, z: float) -> float:
    """Return the upper limit of the error rate of a node as a leaf, at most 1."""
    error = np.asarray(1 - float(node.probabilities[node.best]))
    records = max(node.records, TIE)
    variance = np.asarray(float(node.stderr[node.best]) ** 2)
    return min(float(count_interval(error, variance, records, z, 1 / records).upper), 1.0)


def _nodes_of(
    listed: Sequence[Any], target: Variable, features: Sequence[Variable]
) -> tuple[DecisionNode, ...]:
    """Return the nodes, with their positions recomputed; every node but the root must be a branch once."""
    sizes = {feature.name: len(feature) for feature in features}
    places: list[tuple[int, int, int]] = [(-1, -1, 0)]
    nodes: list[DecisionNode] = []
    for place, values in enumerate(listed):
        if place >= len(places):
            raise InputError(f"node {place} is not a branch of another node.")
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
        raise InputError(f"the branches name {len(places)} nodes. Got {len(nodes)} instead.")
    check_splits(
        [None if node.split is None else (node.split.feature, node.split.branches) for node in nodes]
    )
    return tuple(nodes)


def check_splits(splits: Sequence[tuple[str, Sequence[int]] | None]) -> None:
    """Raise InputError if a feature occurs twice on a path.

    `splits` contains the feature and the branches of every node of a tree, or None for a leaf. Only one
    path is stored at a time: the sets of all paths would take space quadratic in the length of a file.
    """
    path: set[str] = set()
    open_places = [(0, False)] if splits else []
    while open_places:
        place, leaves = open_places.pop()
        split = splits[place]
        if split is None:
            continue
        feature, branches = split
        if leaves:
            path.discard(feature)
            continue
        if feature in path:
            raise InputError(f"node {place} splits by {feature!r} a second time on its path.")
        path.add(feature)
        open_places.append((place, True))
        open_places += [(branch, False) for branch in branches]


def _node_of(
    values: Mapping[str, Any], classes: int, hangs: tuple[int, int, int], split: TreeSplit | None
) -> DecisionNode:
    shapes = dict.fromkeys(("counts", "probabilities", "stderr"), (classes,))
    parent, branch, depth = hangs
    node = model_file.part_of(
        DecisionNode, values, shapes, parent=parent, branch=branch, depth=depth, records=0.0, split=split
    )
    for name in shapes:
        if not np.isfinite(getattr(node, name)).all():
            raise InputError(f"{name!r} must contain finite numbers.")
    chances = node.probabilities
    if chances.min() < 0 or abs(chances.sum() - 1) > 1e-6 or node.stderr.min() < 0 or node.records_stderr < 0:
        raise InputError("probabilities must add up to 1, and errors must not be negative.")
    return replace(node, records=float(node.counts.sum()))


def _split_of(values: Mapping[str, Any] | None, sizes: Mapping[str, int], following: int) -> TreeSplit | None:
    """Return a split, or None for a leaf; its branches must be the next indices."""
    if values is None:
        return None
    feature = model_file.entry(values, "feature", str)
    if feature not in sizes:
        raise InputError(f"a split is by {feature!r}, which is not a feature.")
    places = list(range(following, following + sizes[feature]))
    if model_file.entry(values, "branches", list) != places:
        raise InputError(f"a split by {feature!r} must have the branches {places}.")
    tried = model_file.entry(values, "tried", int, type(None)) if "tried" in values else None
    df = None if values.get("df") is None else model_file.number(values, "df")
    return model_file.part_of(TreeSplit, values, {}, branches=tuple(places), df=df, tried=tried)


def _node_values(node: DecisionNode) -> dict[str, Any]:
    """Return a node as plain values; a split without a test has no degrees of freedom."""
    values = part_values(node, *KEPT)
    if values.get("split") is not None:
        values["split"] = {
            name: value
            for name, value in values["split"].items()
            if value is not None or name not in {"df", "tried"}
        }
    return values
