"""Plot of a decision tree: boxes with bars of class probabilities, branches labelled with categories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.plots import drawing
from masquerade.core.plots.palette import CATEGORIES, INK, LINE, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from masquerade.learn.classifiers.tree_model import DecisionNode, DecisionTree

BOX_WIDTH, BOX_HEIGHT, BAR_HEIGHT = 0.88, 0.52, 0.085
INCHES_PER_LEAF, INCHES_PER_LEVEL = 1.45, 1.35
WIDEST, NARROWEST = 11.0, 5.5  # inches; the widest fits a page in landscape
LONGEST_LABEL = 18


Groups = Mapping[int, tuple[int, ...]]  # all branches that share a box, by the first of them


def tree_plot(tree: DecisionTree, ax: Axes | None, max_depth: int | None, *, grouped: bool) -> Axes:
    """Draw the first `max_depth` levels; a dashed frame marks a node with hidden branches.

    Without `max_depth`, as many levels as fit a page, and at least one. A plot that is wider than a page is
    shrunk.

    Every box shows the estimated number of records and the most probable class, both with standard errors,
    and a bar of all class probabilities. If `grouped`, leaves of one node with the same most probable class
    share a box. Cost: one box per node drawn.
    """
    if max_depth is not None and max_depth < 0:
        raise InputError(f"The 'max_depth' of a drawing must not be negative. Got {max_depth} instead.")
    groups = _groups(tree, grouped=grouped)
    across, shown = _positions(tree, _fitting(tree, groups) if max_depth is None else max_depth, groups)
    levels = 1 + max(tree.nodes[place].depth for place in shown)
    width = max(INCHES_PER_LEAF * (1 + max(across.values())), NARROWEST)
    height = INCHES_PER_LEVEL * (levels - 0.4) + 0.7
    shrunk = min(WIDEST / width, 1.0)
    axes = drawing.new_axes(width * shrunk, max(height * shrunk, 2.0)) if ax is None else ax
    size = shrunk if ax is None else drawing.scale_to_fit(ax, width, height)
    for place in shown:
        _draw_branches(axes, tree, place, across, size, groups=groups)
    for place in shown:
        _draw_node(axes, tree, place, across, size, members=groups[place])
    _draw_legend(axes, tree)
    middle, half = max(across.values()) / 2, max(width / INCHES_PER_LEAF / 2, max(across.values()) / 2 + 0.5)
    axes.set(xlim=(middle - half, middle + half), ylim=(-(levels - 1) - 0.3, 0.3))
    if ax is not None:
        axes.set_aspect(INCHES_PER_LEVEL / INCHES_PER_LEAF)
    axes.set_axis_off()
    return axes


def _groups(tree: DecisionTree, *, grouped: bool) -> Groups:
    """Return the nodes that have a box, each with all branches it represents."""
    found: dict[int, tuple[int, ...]] = {0: (0,)}
    for node in tree.nodes:
        first: dict[int, int] = {}
        for branch in () if node.split is None else node.split.branches:
            leaf = tree.nodes[branch].split is None
            place = first.setdefault(tree.nodes[branch].best, branch) if grouped and leaf else branch
            found[place] = (*found.get(place, ()), branch)
    return found


def _fitting(tree: DecisionTree, groups: Groups) -> int:
    """Return the number of levels that fit the width of a page, at least one."""
    depth = 1
    while depth < tree.depth:
        across, _ = _positions(tree, depth + 1, groups)
        if INCHES_PER_LEAF * (1 + max(across.values())) > WIDEST:
            break
        depth += 1
    return depth


def _positions(tree: DecisionTree, max_depth: int, groups: Groups) -> tuple[dict[int, float], list[int]]:
    """Return the horizontal positions of the drawn nodes, and their indices, breadth first.

    Leaves are one unit apart; an inner node is above the middle of its branches.
    """
    across: dict[int, float] = {}
    order: list[int] = []
    stack = [(0, False)]
    drawn_leaves = 0
    while stack:
        place, done = stack.pop()
        split = tree.nodes[place].split
        branches = [] if split is None else [branch for branch in split.branches if branch in groups]
        if not branches or tree.nodes[place].depth >= max_depth:
            across[place] = float(drawn_leaves)
            drawn_leaves += 1
        elif done:
            across[place] = (across[branches[0]] + across[branches[-1]]) / 2
        else:
            stack += [(place, True), *((branch, False) for branch in reversed(branches))]
            continue
        order.append(place)
    return across, sorted(order)


def _has_hidden(tree: DecisionTree, place: int, across: dict[int, float]) -> bool:
    """Return True if a node has branches that are not drawn."""
    split = tree.nodes[place].split
    return split is not None and split.branches[0] not in across


def _draw_branches(
    axes: Axes, tree: DecisionTree, place: int, across: dict[int, float], size: float, *, groups: Groups
) -> None:
    """Draw labelled lines to the branches; the width of a line shows the branch's share of the records."""
    split = tree.nodes[place].split
    if split is None or _has_hidden(tree, place, across):
        return
    x, y = across[place], -float(tree.nodes[place].depth)
    labels = tree.variable(split.feature).categories
    shares = dict(zip(split.branches, tree.shares(place).tolist(), strict=True))
    top, knee, bottom = y - BOX_HEIGHT / 2, y - BOX_HEIGHT / 2 - 0.14, y - 1 + BOX_HEIGHT / 2
    for branch in [branch for branch in split.branches if branch in groups]:
        to, share = across[branch], sum(shares[member] for member in groups[branch])
        label = ", ".join(str(labels[tree.nodes[member].branch]) for member in groups[branch])
        axes.plot(
            [x, x, to, to],
            [top, knee, knee, bottom],
            color=LINE,
            linewidth=size * (0.8 + 3.2 * share),
            solid_joinstyle="round",
            zorder=1,
        )
        axes.text(
            to,
            (knee + bottom) / 2 - 0.01,
            drawing.shorten_label(label, LONGEST_LABEL),
            ha="center",
            va="center",
            fontsize=8.5 * size,
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2 * size},
            zorder=2,
        )


def _draw_node(
    axes: Axes,
    tree: DecisionTree,
    place: int,
    across: dict[int, float],
    size: float,
    *,
    members: tuple[int, ...],
) -> None:
    from matplotlib.patches import FancyBboxPatch, Rectangle  # noqa: PLC0415  (slow to load)

    node, x = tree.nodes[place], across[place]
    left, low = x - BOX_WIDTH / 2, -node.depth - BOX_HEIGHT / 2
    axes.add_patch(
        FancyBboxPatch(
            (left, low),
            BOX_WIDTH,
            BOX_HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.05",
            facecolor="white" if not node.borrowed else "0.95",
            edgecolor=MUTED,
            linewidth=0.9 * size,
            linestyle="--" if _has_hidden(tree, place, across) else "-",
            zorder=3,
        )
    )
    start = left + 0.05
    for code, share in enumerate(_mean_probabilities(tree, members)):
        extent = (BOX_WIDTH - 0.1) * float(share)
        bar = Rectangle((start, low + 0.04), extent, BAR_HEIGHT, color=_colour(code), linewidth=0, zorder=4)
        axes.add_patch(bar)
        start += extent
    for line, text in enumerate(
        _box_lines(tree, node) if len(members) == 1 else _shared_box_lines(tree, members)
    ):
        axes.text(
            x,
            low + BOX_HEIGHT - 0.085 - 0.12 * line,
            text,
            ha="center",
            va="center",
            fontsize=size * (8.5 if line == 0 else 7),
            fontweight="bold" if line == 0 else "normal",
            color=INK if line == 0 else MUTED,
            zorder=5,
        )


def _mean_probabilities(tree: DecisionTree, members: tuple[int, ...]) -> Floats:
    """Return the class probabilities of several leaves, weighted by their records."""
    weights = np.array([max(tree.nodes[member].records, 0.0) for member in members])
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(len(members), 1 / len(members))
    return np.asarray(weights @ np.stack([tree.nodes[member].probabilities for member in members]))


def _shared_box_lines(tree: DecisionTree, members: tuple[int, ...]) -> tuple[str, str, str]:
    """Return the lines in a box of several leaves, without errors: their estimates are dependent."""
    best = tree.nodes[members[0]].best
    label = drawing.shorten_label(tree.target.categories[best], LONGEST_LABEL)
    records = sum(tree.nodes[member].records for member in members)
    return label, f"{_mean_probabilities(tree, members)[best]:.3f}, {len(members)} leaves", f"{records:,.0f}"


def _box_lines(tree: DecisionTree, node: DecisionNode) -> tuple[str, str, str]:
    """Return the lines in a box: the feature or the class, the most probable class, the records."""
    label = drawing.shorten_label(tree.target.categories[node.best], LONGEST_LABEL)
    chance = f"{node.probabilities[node.best]:.3f} ± {node.stderr[node.best]:.3f}"
    records = f"{node.records:,.0f} ± {node.records_stderr:,.0f}"
    if node.borrowed:
        records = f"too few: {node.records:,.0f}"
    if node.split is None:
        return label, chance, records
    return drawing.shorten_label(node.split.feature, LONGEST_LABEL) + "?", f"{label} {chance}", records


def _draw_legend(axes: Axes, tree: DecisionTree) -> None:
    """Draw a legend of the class colours above the tree."""
    from matplotlib.patches import Patch  # noqa: PLC0415  (slow to load)

    labels = tree.target.categories
    axes.legend(
        handles=[
            Patch(color=_colour(code), label=drawing.shorten_label(label, LONGEST_LABEL))
            for code, label in enumerate(labels)
        ],
        title=drawing.shorten_label(tree.target.name, LONGEST_LABEL),
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=min(len(labels), 8),
        frameon=False,
        fontsize=8.5,
        title_fontsize=9.5,
        handlelength=1.0,
    )


def _colour(code: int) -> str:
    """Return the colour of a class; colours repeat after eight."""
    return CATEGORIES[code % len(CATEGORIES)]
