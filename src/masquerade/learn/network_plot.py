"""A drawn network: parents above children, in layers, with as few crossings as a few sweeps find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.learn.network import BayesianNetwork, ancestral_order
from masquerade.learn.parameters import ConditionalTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, LINE, PAPER, DOUBT = "#1d2733", "#65717f", "#8b97a5", "#f3f7fb", "#d2541b"
BLUE = "#1a6fb5"
# in inches, as the axes are
BOX_HEIGHT, LAYER, GAP, MARGIN = 0.46, 0.98, 0.24, 0.2
LETTER, SMALL_LETTER = 0.093, 0.068
BEND = 0.12
LONGEST_NAME = 22
SWEEPS = 24

Structure = Mapping[str, Sequence[str]]
# a node, or a bend of a link that passes a layer: (parent, child, layer)
Spot = str | tuple[str, str, int]


def network_figure(network: BayesianNetwork, path: str | Path | None = None) -> Figure:
    """Draw a network; with a `path`, save it there.

    Under the name of a node stand its number of categories and the largest standard error among its reliable
    rows; a dashed frame marks a node with rows that are not reliable.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (slow to load)
    from matplotlib.figure import Figure  # noqa: PLC0415

    widths = {table.child.name: box_width(table) for table in network.tables}
    layers, segments = layered(network.structure)
    across = coordinates(ordered(layers, segments), segments, widths)
    spots = {spot: (across[spot], -LAYER * level) for level, layer in enumerate(layers) for spot in layer}
    left = min(x - widths.get(str(spot), 0.0) / 2 for spot, (x, _) in spots.items()) - MARGIN
    right = max(x + widths.get(str(spot), 0.0) / 2 for spot, (x, _) in spots.items()) + MARGIN
    doubtful = any(not table.reliable.all() for table in network.tables)
    bottom = -LAYER * (len(layers) - 1) - BOX_HEIGHT / 2 - MARGIN - (0.2 if doubtful else 0.0)
    top = BOX_HEIGHT / 2 + MARGIN
    figure = Figure(figsize=(right - left, top - bottom))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(left, right), ylim=(bottom, top))
    axes.set_axis_off()
    for child, parents in network.structure.items():
        for parent in parents:
            draw_link(axes, [spots[spot] for spot in route(parent, child, spots)])
    for table in network.tables:
        draw_node(axes, table, spots[table.child.name], widths[table.child.name])
    if doubtful:
        note = "dashed: has parameters from too few records"
        axes.text(left + MARGIN, bottom + 0.08, note, fontsize=7, color=DOUBT, va="bottom")
    if path is not None:
        figure.savefig(path, dpi=160)
    return figure


def layered(structure: Structure) -> tuple[list[list[Spot]], list[tuple[Spot, Spot]]]:
    """Return the layers from the top and the links cut into pieces from one layer to the next.

    A node stands one layer below its lowest parent; one without parents just above its highest child.
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


def neighbours(
    segments: Sequence[tuple[Spot, Spot]],
) -> tuple[dict[Spot, list[Spot]], dict[Spot, list[Spot]]]:
    """Return what each spot is linked to in the layer above and in the layer below."""
    above: dict[Spot, list[Spot]] = {}
    below: dict[Spot, list[Spot]] = {}
    for upper, lower in segments:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    return above, below


def ordered(layers: Sequence[Sequence[Spot]], segments: Sequence[tuple[Spot, Spot]]) -> list[list[Spot]]:
    """Order every layer by the mean places of the neighbours, down and up; keep the best order seen.

    Reference: Sugiyama, Tagawa & Toda (1981), the barycentre method.
    """
    above, below = neighbours(segments)
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
    """Return how many pieces of links cross."""
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
    """Return where the spots stand, left to right: close to their neighbours, without overlap."""
    above, below = neighbours(segments)
    half = {spot: (widths[spot] if isinstance(spot, str) else BEND) / 2 for layer in layers for spot in layer}
    across: dict[Spot, float] = {}
    for layer in layers:
        wanted = np.zeros(len(layer))
        across.update(zip(layer, apart(wanted, [half[spot] for spot in layer]), strict=True))
    for sweep in range(SWEEPS):
        last = sweep >= SWEEPS - 2
        for layer in layers if sweep % 2 == 0 else list(reversed(layers)):
            wanted = np.array([pulled(spot, across, above, below, sweep, both=last) for spot in layer])
            across.update(zip(layer, apart(wanted, [half[spot] for spot in layer]), strict=True))
    return across


def pulled(
    spot: Spot,
    across: Mapping[Spot, float],
    above: Mapping[Spot, Sequence[Spot]],
    below: Mapping[Spot, Sequence[Spot]],
    sweep: int,
    *,
    both: bool,
) -> float:
    """Return where a spot would stand best: amid those above it and those below it, in turns."""
    near = [*above.get(spot, ())] if both or sweep % 2 == 0 else []
    near += [*below.get(spot, ())] if both or sweep % 2 == 1 else []
    return float(np.mean([across[other] for other in near])) if near else across[spot]


def apart(wanted: np.ndarray[tuple[int], np.dtype[np.float64]], half: Sequence[float]) -> list[float]:
    """Return the places nearest to those wanted that keep the order and a gap.

    Formula: least squares under x[i+1] − x[i] ≥ distance: pool adjacent violators of wanted − offsets.
    """
    offsets = np.concatenate([[0.0], np.cumsum([a + b + GAP for a, b in pairwise(half)])])
    pools: list[tuple[float, int]] = []
    for value in wanted - offsets:
        mean, size = float(value), 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    level = np.concatenate([np.full(size, mean) for mean, size in pools])
    places: list[float] = (level + offsets).tolist()
    return places


def route(parent: str, child: str, spots: Mapping[Spot, tuple[float, float]]) -> list[Spot]:
    """Return the spots that a link passes, from parent to child."""
    bends = [spot for spot in spots if isinstance(spot, tuple) and spot[:2] == (parent, child)]
    return [parent, *sorted(bends, key=lambda spot: spot[2]), child]


def draw_link(axes: Axes, stops: Sequence[tuple[float, float]]) -> None:
    """Draw a smooth arrow from the lower rim of the parent to the upper rim of the child."""
    from matplotlib.patches import FancyArrowPatch  # noqa: PLC0415  (slow to load)
    from matplotlib.path import Path as Curve  # noqa: PLC0415

    (x0, y0), (x1, y1) = stops[0], stops[-1]
    points = [(x0, y0 - BOX_HEIGHT / 2), *stops[1:-1], (x1, y1 + BOX_HEIGHT / 2 + 0.02)]
    # through every bend in the direction of its neighbours, straight down at both ends (Catmull & Rom)
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
    axes.add_patch(
        FancyArrowPatch(
            path=Curve(corners, codes),
            arrowstyle="-|>,head_length=4,head_width=2.2",
            color=LINE,
            linewidth=1.0,
            zorder=1,
        )
    )


def draw_node(axes: Axes, table: ConditionalTable, place: tuple[float, float], width: float) -> None:
    """Draw the box of a node."""
    from matplotlib.patches import FancyBboxPatch  # noqa: PLC0415  (slow to load)

    x, y = place
    sure = bool(table.reliable.all())
    axes.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - BOX_HEIGHT / 2),
            width,
            BOX_HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.09",
            facecolor=PAPER,
            edgecolor=BLUE if sure else DOUBT,
            linestyle="-" if sure else (0, (4, 2)),
            linewidth=1.2,
            zorder=2,
        )
    )
    common: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 3}
    axes.text(x, y + 0.08, shortened(table.child.name), fontsize=9, fontweight="bold", color=INK, **common)
    axes.text(x, y - 0.115, small_print(table), fontsize=6.5, color=MUTED, **common)


def small_print(table: ConditionalTable) -> str:
    """Return what stands under the name of a node."""
    text = f"{len(table.child)} categories"
    if table.evidence is None or not table.reliable.any():
        return text
    return f"{text}, ±{table.stderr[table.reliable].max():.2g}"


def box_width(table: ConditionalTable) -> float:
    """Return how wide the box of a node is."""
    letters = LETTER * len(shortened(table.child.name))
    return max(letters, SMALL_LETTER * len(small_print(table)), BOX_HEIGHT) + 0.2


def shortened(name: str) -> str:
    """Return a name that fits a box; a dollar sign is one, not the start of a formula."""
    text = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    return text.replace("$", r"\$")
