"""Plots of networks: parents above children, in layers, with few crossings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.plots import drawing
from masquerade.core.plots.palette import ESTIMATE, ESTIMATE_TINT, INK, LINE, MASK, MASK_TINT, MUTED, NAIVE
from masquerade.learn.networks.graph import Link, Parents, ancestral_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# in inches, the unit of the axes
BOX_HEIGHT, LAYER, GAP, MARGIN = 0.46, 0.98, 0.24, 0.2
LETTER, SMALL_LETTER, MASK_WIDTH = 0.093, 0.068, 0.32
BEND = 0.12
LONGEST_NAME = 22
SWEEPS = 24
# a domino mask, one unit wide: brows, right cheek, nose, left cheek
DOMINO: Sequence[tuple[float, float]] = (
    (-0.5, 0.14),
    *((-0.35, 0.25), (-0.14, 0.19), (0.0, 0.12)),
    *((0.14, 0.19), (0.35, 0.25), (0.5, 0.14)),
    *((0.5, -0.1), (0.34, -0.24), (0.2, -0.21)),
    *((0.1, -0.18), (0.07, -0.07), (0.0, -0.07)),
    *((-0.07, -0.07), (-0.1, -0.18), (-0.2, -0.21)),
    *((-0.34, -0.24), (-0.5, -0.1), (-0.5, 0.14)),
)

# a node, or the bend of a link that passes through a layer: (parent, child, layer)
Spot = str | tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Box:
    """A node in a plot: its name, a note, a dashed frame if doubtful, and a mask if disguised."""

    name: str
    note: str = ""
    doubtful: bool = False
    masked: bool = False

    @property
    def width(self) -> float:
        """Return the width of the box, in inches."""
        letters = LETTER * len(self.title) + (MASK_WIDTH if self.masked else 0.0)
        return max(letters, SMALL_LETTER * len(self.note), BOX_HEIGHT) + 0.2

    @property
    def title(self) -> str:
        """Return the name, shortened to fit the box."""
        return drawing.shorten_label(self.name, LONGEST_NAME)


def network_plot(
    structure: Parents,
    boxes: Mapping[str, Box] | None = None,
    ax: Axes | None = None,
    *,
    weights: Mapping[Link, float] | None = None,
    labels: Mapping[Link, str] | None = None,
    note: str = "",
) -> Axes:
    """Draw a structure and return the axes. On given axes, the plot is shrunk to fit.

    `boxes` describe the nodes, by default with names only. The width of a link shows its weight in `weights`,
    from 0 to 1. `labels` are written on the links, `note` below.
    """
    drawn = {name: Box(name) for name in structure} | dict(boxes or {})
    widths = {name: box.width for name, box in drawn.items()}
    layers, segments = assign_layers(structure)
    across = coordinates(order_layers(layers, segments), segments, widths)
    spots = {spot: (across[spot], -LAYER * level) for level, layer in enumerate(layers) for spot in layer}
    left = min(x - widths.get(str(spot), 0.0) / 2 for spot, (x, _) in spots.items()) - MARGIN
    right = max(x + widths.get(str(spot), 0.0) / 2 for spot, (x, _) in spots.items()) + MARGIN
    right = max(right, left + SMALL_LETTER * len(note) + 2 * MARGIN)
    bottom = -LAYER * (len(layers) - 1) - BOX_HEIGHT / 2 - MARGIN - (0.2 if note else 0.0)
    top = BOX_HEIGHT / 2 + MARGIN
    axes = drawing.new_axes(right - left, top - bottom, whole=True) if ax is None else ax
    size = 1.0 if ax is None else drawing.scale_to_fit(ax, right - left, top - bottom)
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    axes.set_axis_off()
    for child, parents in structure.items():
        for parent in parents:
            weight = 0.2 if weights is None else weights.get((parent, child), 0.0)
            bends = [spot for spot in spots if isinstance(spot, tuple) and spot[:2] == (parent, child)]
            stops: list[Spot] = [parent, *sorted(bends, key=lambda bend: bend[2]), child]
            _draw_link(axes, [spots[spot] for spot in stops], size, 0.5 + 2.5 * weight)
            if labels is not None and (parent, child) in labels:
                _write_on_link(axes, [spots[spot] for spot in stops], size, labels[parent, child])
    for name, box in drawn.items():
        _draw_box(axes, box, spots[name], size)
    if note:
        axes.text(left + MARGIN, bottom + 0.08, note, fontsize=7 * size, color=MUTED, va="bottom")
    return axes


def assign_layers(structure: Parents) -> tuple[list[list[Spot]], list[tuple[Spot, Spot]]]:
    """Return the layers from the top, and the links cut into segments between adjacent layers.

    A node is one layer below its lowest parent; a node without parents is just above its highest child.
    """
    level: dict[str, int] = {}
    order = ancestral_order(structure)
    children: dict[str, list[str]] = {name: [] for name in structure}
    for name in order:
        level[name] = max((level[parent] + 1 for parent in structure[name]), default=0)
        for parent in structure[name]:
            children[parent].append(name)
    for name in order:
        if not structure[name] and children[name]:
            level[name] = min(level[child] for child in children[name]) - 1
    layers: list[list[Spot]] = [[] for _ in range(max(level.values()) + 1)]
    for name in structure:
        layers[level[name]].append(name)
    segments: list[tuple[Spot, Spot]] = []
    for child, parents in structure.items():
        for parent in parents:
            bends: list[Spot] = [(parent, child, at) for at in range(level[parent] + 1, level[child])]
            for at, bend in enumerate(bends, start=level[parent] + 1):
                layers[at].append(bend)
            stops: list[Spot] = [parent, *bends, child]
            segments += pairwise(stops)
    return layers, segments


def _neighbours(
    segments: Sequence[tuple[Spot, Spot]],
) -> tuple[dict[Spot, list[Spot]], dict[Spot, list[Spot]]]:
    """Return the neighbours of each spot in the layer above and in the layer below."""
    above: dict[Spot, list[Spot]] = {}
    below: dict[Spot, list[Spot]] = {}
    for upper, lower in segments:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    return above, below


def order_layers(layers: Sequence[Sequence[Spot]], segments: Sequence[tuple[Spot, Spot]]) -> list[list[Spot]]:
    """Order every layer by the mean position of neighbours, down and up; return the best order found.

    Reference: Sugiyama, Tagawa & Toda (1981), the barycentre method.
    """
    above, below = _neighbours(segments)
    best = [list(layer) for layer in layers]
    fewest = crossings(best, below)
    current = [list(layer) for layer in best]
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for level in range(1, len(current)) if down else range(len(current) - 2, -1, -1):
            fixed = {spot: i for i, spot in enumerate(current[level - 1 if down else level + 1])}
            here = {spot: i for i, spot in enumerate(current[level])}
            mean = {
                spot: float(np.mean([fixed[other] for other in near[spot]])) if spot in near else float(i)
                for spot, i in here.items()
            }
            current[level].sort(key=mean.__getitem__)
        found = crossings(current, below)
        if found < fewest:
            best, fewest = [list(layer) for layer in current], found
    return best


def crossings(layers: Sequence[Sequence[Spot]], below: Mapping[Spot, Sequence[Spot]]) -> int:
    """Return the number of crossings of segments."""
    total = 0
    for upper, lower in pairwise(layers):
        place = {spot: i for i, spot in enumerate(lower)}
        ends = np.array([e for spot in upper for e in sorted(place[other] for other in below.get(spot, ()))])
        starts = np.array([i for i, spot in enumerate(upper) for _ in below.get(spot, ())])
        turned = (ends[:, None] > ends[None, :]) & (starts[:, None] < starts[None, :])
        total += int(turned.sum())
    return total


def coordinates(
    layers: Sequence[Sequence[Spot]], segments: Sequence[tuple[Spot, Spot]], widths: Mapping[str, float]
) -> dict[Spot, float]:
    """Return the horizontal positions of spots: close to their neighbours, without overlap."""
    above, below = _neighbours(segments)
    half = {spot: (widths[spot] if isinstance(spot, str) else BEND) / 2 for layer in layers for spot in layer}
    across: dict[Spot, float] = {}
    for layer in layers:
        wanted = np.zeros(len(layer))
        across.update(zip(layer, _separate(wanted, [half[spot] for spot in layer]), strict=True))
    for sweep in range(SWEEPS):
        # centre on the layer above and the layer below alternately, at the end on both
        sides = (above, below) if sweep >= SWEEPS - 2 else ((above, below)[sweep % 2],)
        for layer in layers if sweep % 2 == 0 else list(reversed(layers)):
            near = [[across[other] for side in sides for other in side.get(spot, ())] for spot in layer]
            wanted = np.array(
                [np.mean(pull) if pull else across[spot] for spot, pull in zip(layer, near, strict=True)]
            )
            across.update(zip(layer, _separate(wanted, [half[spot] for spot in layer]), strict=True))
    return across


def _separate(targets: np.ndarray[tuple[int], np.dtype[np.float64]], half: Sequence[float]) -> list[float]:
    """Return the positions nearest to `targets` that keep their order and a minimum gap.

    Formula: least squares under x[i+1] − x[i] ≥ distance: pool adjacent violators of targets − offsets.
    """
    offsets = np.concatenate([[0.0], np.cumsum([a + b + GAP for a, b in pairwise(half)])])
    pools: list[tuple[float, int]] = []
    for value in targets - offsets:
        mean, size = float(value), 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    level = np.concatenate([np.full(size, mean) for mean, size in pools])
    places: list[float] = (level + offsets).tolist()
    return places


def _write_on_link(axes: Axes, stops: Sequence[tuple[float, float]], size: float, label: str) -> None:
    """Write a label in the middle of the first segment of a link, where links to one child are apart."""
    (x0, y0), (x1, y1) = stops[0], stops[1]
    frame = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"}
    axes.text(
        (x0 + x1) / 2, (y0 + y1) / 2, label, fontsize=7 * size, color=INK, ha="center", va="center",
        bbox=frame, zorder=2,
    )  # fmt: skip


def _draw_link(axes: Axes, stops: Sequence[tuple[float, float]], size: float, width: float) -> None:
    """Draw a smooth arrow from the lower edge of the parent to the upper edge of the child."""
    from matplotlib.patches import FancyArrowPatch  # noqa: PLC0415  (slow to load)
    from matplotlib.path import Path as Curve  # noqa: PLC0415

    (x0, y0), (x1, y1) = stops[0], stops[-1]
    points = [(x0, y0 - BOX_HEIGHT / 2), *stops[1:-1], (x1, y1 + BOX_HEIGHT / 2 + 0.02)]
    # a Catmull–Rom spline through every bend, vertical at both ends
    slopes = [0.0, *((c - a) / (d - b) for (a, b), (c, d) in zip(points, points[2:], strict=False)), 0.0]
    corners, codes = [points[0]], [Curve.MOVETO]
    for (start, end), (leaving, coming) in zip(pairwise(points), pairwise(slopes), strict=True):
        third = (end[1] - start[1]) / (2 if len(points) == 2 else 3)
        corners += [
            (start[0] + leaving * third, start[1] + third),
            (end[0] - coming * third, end[1] - third),
            end,
        ]
        codes += [Curve.CURVE4] * 3
    head = f"-|>,head_length={4 * size:.2f},head_width={2.2 * size:.2f}"
    axes.add_patch(
        FancyArrowPatch(
            path=Curve(corners, codes), arrowstyle=head, color=LINE, linewidth=width * size, zorder=1
        )
    )


def _draw_box(axes: Axes, box: Box, place: tuple[float, float], size: float) -> None:
    from matplotlib.patches import FancyBboxPatch  # noqa: PLC0415  (slow to load)

    (x, y), width = place, box.width
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - BOX_HEIGHT / 2),
            width,
            BOX_HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.09",
            facecolor=MASK_TINT if box.masked else ESTIMATE_TINT,
            edgecolor=NAIVE if box.doubtful else MASK if box.masked else ESTIMATE,
            linestyle=(0, (4, 2)) if box.doubtful else "-",
            linewidth=1.2 * size,
            zorder=2,
        )
    )
    common: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 3}
    aside, up = (MASK_WIDTH / 2 if box.masked else 0.0), (0.08 if box.note else 0.0)
    axes.text(x + aside, y + up, box.title, fontsize=9 * size, fontweight="bold", color=INK, **common)
    if box.note:
        axes.text(x, y - 0.115, box.note, fontsize=6.5 * size, color=MUTED, **common)
    if box.masked:
        _draw_mask(axes, (x + aside - LETTER * len(box.title) / 2 - MASK_WIDTH / 2, y + up))


def _draw_mask(axes: Axes, centre: tuple[float, float]) -> None:
    from matplotlib.patches import Ellipse, PathPatch  # noqa: PLC0415  (slow to load)
    from matplotlib.path import Path as Curve  # noqa: PLC0415

    (x, y), width = centre, 0.85 * MASK_WIDTH
    points = [(x + width * dx, y + width * dy) for dx, dy in DOMINO]
    codes = [Curve.MOVETO, *[Curve.CURVE4] * (len(points) - 1)]
    axes.add_patch(PathPatch(Curve(points, codes), facecolor=MASK, edgecolor="none", zorder=3))
    for side in (-1, 1):
        eye = (x + side * 0.24 * width, y + 0.02 * width)
        axes.add_patch(
            Ellipse(eye, 0.2 * width, 0.13 * width, facecolor=MASK_TINT, edgecolor="none", zorder=4)
        )
