"""The network as a picture: parents left of children, masks on the nodes that are disguised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Ellipse, FancyArrowPatch, PathPatch
from matplotlib.path import Path

from masquerade.core.words import gamma_text
from masquerade.learn.graph import ancestral_order
from masquerade.report.study import Study
from masquerade.report.style import INK, MASK, MASK_TINT, MUTED, PAPER, canvas

Place = tuple[float, float]
RADIUS = 0.32

# a domino mask, one unit wide: brows, right cheek, nose, left cheek
_MASK: Sequence[Place] = (
    (-0.5, 0.14),
    *((-0.35, 0.25), (-0.14, 0.19), (0.0, 0.12)),
    *((0.14, 0.19), (0.35, 0.25), (0.5, 0.14)),
    *((0.5, -0.1), (0.34, -0.24), (0.2, -0.21)),
    *((0.1, -0.18), (0.07, -0.07), (0.0, -0.07)),
    *((-0.07, -0.07), (-0.1, -0.18), (-0.2, -0.21)),
    *((-0.34, -0.24), (-0.5, -0.1), (-0.5, 0.14)),
)


def network_picture(study: Study) -> Figure:
    """Draw the network of a study; under a mask stands its γ."""
    figure = canvas(5.6, 2.75)
    axes = figure.add_subplot()
    places = layout(study.structure)
    gammas = {item.variables[0]: gamma_text(item.gamma) for item in study.privacy.variables}
    for child, parents in study.structure.items():
        for parent in parents:
            draw_arrow(axes, places[parent], places[child])
    for name, place in places.items():
        draw_node(axes, name, place, gammas.get(name))
    xs, ys = zip(*places.values(), strict=True)
    axes.set_xlim(min(xs) - 0.5, max(xs) + 0.5)
    axes.set_ylim(min(ys) - 0.75, max(ys) + 0.5)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return figure


def layout(structure: Mapping[str, Sequence[str]]) -> dict[str, Place]:
    """Place every node one column right of its last parent, in the order of its parents' heights."""
    column: dict[str, int] = {}
    for name in ancestral_order(structure):
        column[name] = max((column[parent] + 1 for parent in structure[name]), default=0)
    places: dict[str, Place] = {}
    for at in range(max(column.values()) + 1):
        here = [name for name in structure if column[name] == at]
        here.sort(key=lambda name: -mean_height(structure[name], places))
        for row, name in enumerate(here):
            places[name] = (1.1 * at, (len(here) - 1) / 2 - row)
    return places


def mean_height(parents: Sequence[str], places: Mapping[str, Place]) -> float:
    """Return how high the parents stand on average."""
    return sum(places[parent][1] for parent in parents) / len(parents) if parents else 0.0


def draw_arrow(axes: Axes, start: Place, end: Place) -> None:
    """Draw an arrow between the rims of two nodes."""
    length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
    step = ((end[0] - start[0]) / length, (end[1] - start[1]) / length)
    gap = RADIUS + 0.05
    axes.add_patch(
        FancyArrowPatch(
            (start[0] + step[0] * gap, start[1] + step[1] * gap),
            (end[0] - step[0] * gap, end[1] - step[1] * gap),
            arrowstyle="-|>",
            mutation_scale=9,
            shrinkA=0,
            shrinkB=0,
            color=MUTED,
            linewidth=1.1,
        )
    )


def draw_node(axes: Axes, name: str, place: Place, gamma: str | None) -> None:
    """Draw a node: masked with its γ below, or bare."""
    x, y = place
    masked = gamma is not None
    axes.add_patch(
        Circle(
            place,
            RADIUS,
            facecolor=MASK_TINT if masked else PAPER,
            edgecolor=MASK if masked else MUTED,
            linewidth=1.4,
        )
    )
    lower = 0.11 if masked else 0.0
    axes.text(
        x, y - lower, name, ha="center", va="center_baseline", fontsize=10.5, fontweight="bold", color=INK
    )
    if masked:
        draw_mask(axes, (x, y + 0.13), 0.42)
        axes.text(x, y - RADIUS - 0.05, f"γ {gamma}", ha="center", va="top", fontsize=8, color=MASK)


def draw_mask(axes: Axes, centre: Place, width: float) -> None:
    """Draw a domino mask."""
    x, y = centre
    points = [(x + width * dx, y + width * dy) for dx, dy in _MASK]
    codes = [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)]
    axes.add_patch(PathPatch(Path(points, codes), facecolor=MASK, edgecolor="none"))
    for side in (-1, 1):
        eye = (x + side * 0.24 * width, y + 0.02 * width)
        axes.add_patch(Ellipse(eye, 0.2 * width, 0.13 * width, facecolor=MASK_TINT, edgecolor="none"))
