"""Plots of models and tables: axes, labels that fit, and dots with their intervals.

Matplotlib is imported only when a plot is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.plots.palette import CATEGORIES, ESTIMATE, GRID, LINE, MUTED, PAPER
from masquerade.core.util.formatting import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 60
INCHES_PER_ROW = 0.27
LONGEST_LABEL = 44


class Dots(NamedTuple):
    """Estimates in one colour: a dot and a line from lower to upper limit each; hollow dots where `faint`."""

    values: Floats
    lower: Floats | None = None
    upper: Floats | None = None
    faint: Any = False


def new_axes(width: float, height: float, *, whole: bool = False) -> Axes:
    """Return axes on a new figure of the given size in inches; with `whole` they fill the figure.

    The figure is created without pyplot, so no window opens.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (slow to load)
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout=None if whole else "constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure.add_axes((0.0, 0.0, 1.0, 1.0)) if whole else figure.add_subplot()


def scale_to_fit(axes: Axes, width: float, height: float) -> float:
    """Return the factor that shrinks a drawing of width × height inches to fit on the axes; at most 1."""
    box = axes.get_position()
    across, up = axes.get_figure(root=True).get_size_inches()  # type: ignore[union-attr]
    return float(min(box.width * across / width, box.height * up / height, 1.0))


def shorten_label(label: object, longest: int = LONGEST_LABEL) -> str:
    """Return a label that fits, with invisible characters escaped and dollar signs kept out of math mode."""
    text = visible(str(label))
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text.replace("$", r"\$")


def dot_plot(
    labels: Sequence[object],
    series: Mapping[str, Dots],
    ax: Axes | None = None,
    *,
    xlabel: str,
    title: str = "",
    legend: str = "",
    mark: float | None = None,
) -> Axes:
    """Plot one row per label, from the top, with one dot per series.

    Parameters
    ----------
    labels : sequence
        Labels of the rows. Only the first 60 rows are drawn; a line below states the number of others.
    series : mapping of str to Dots
        Estimates by name, one per label. Intervals with an infinite limit are not drawn.
    ax : Axes, optional
        Axes to draw on. By default a new figure.
    xlabel, title, legend : str
        Texts of the x axis, the plot and the legend.
    mark : float, optional
        Position of a vertical line, for example a threshold.

    Returns
    -------
    Axes
        The axes.
    """
    rows = min(len(labels), MOST_ROWS)
    axes = new_axes(6.4, max(1.1 + INCHES_PER_ROW * max(rows, 1), 1.9)) if ax is None else ax
    places = np.arange(rows, dtype=float)
    step = min(0.7 / max(len(series), 1), 0.2)
    colours = CATEGORIES if len(series) > 1 else (ESTIMATE,)
    for i, (name, dots) in enumerate(series.items()):
        y = places + step * (i - (len(series) - 1) / 2)
        _draw_dots(axes, y, Dots(*(_first(part, rows) for part in dots)), colours[i % len(colours)], name)
    if mark is not None:
        axes.axvline(mark, color=LINE, linewidth=0.9, zorder=1)
    axes.set_yticks(places, [shorten_label(label) for label in labels[:rows]])
    axes.set_ylim(max(rows, 1) - 0.4, -0.6)
    left_out = len(labels) - rows
    axes.set_xlabel(xlabel + (f"\n({left_out:,} more rows are not drawn)" if left_out else ""))
    axes.set_title(shorten_label(title, 80), loc="left", fontsize=10)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,g}".replace("-", "−"))
    axes.tick_params(length=0)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    if len(series) > 1:
        axes.legend(
            title=shorten_label(legend) or None,
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            frameon=False,
            fontsize=9,
        )
    return axes


def chi_square_plot(
    statistic: float, df: float, ax: Axes | None = None, *, xlabel: str, title: str = ""
) -> Axes:
    """Plot the density of χ² and mark a statistic; the tail beyond it is shaded."""
    axes = new_axes(6.4, 2.6) if ax is None else ax
    middle, end = max(df, 0.5), max(statistic * 1.15, df + 5 * np.sqrt(2 * max(df, 0.5)))
    x = np.linspace(end / 400, end, 400)
    logs = (middle / 2 - 1) * np.log(x) - x / 2
    logs -= math.lgamma(middle / 2) + middle / 2 * math.log(2)
    y = np.minimum(np.exp(logs), 0.6)  # with one degree of freedom the density is unbounded at 0
    axes.plot(x, y, color=ESTIMATE, linewidth=1.6)
    axes.fill_between(x, y, where=(x >= statistic).tolist(), color=ESTIMATE, alpha=0.25)
    axes.axvline(statistic, color=LINE, linewidth=1.4)
    axes.set_ylim(bottom=0)
    axes.set_yticks([])
    axes.set_xlabel(xlabel)
    axes.set_title(shorten_label(title, 80), loc="left", fontsize=10)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    return axes


def _first(part: Any, rows: int) -> Any:
    return part if part is None or np.ndim(part) == 0 else np.asarray(part)[:rows]


def _draw_dots(axes: Axes, y: Floats, dots: Dots, colour: str, name: str) -> None:
    """Draw the intervals and dots of one series."""
    if dots.lower is not None and dots.upper is not None:
        known = np.isfinite(dots.lower) & np.isfinite(dots.upper)
        ends = (y[known], dots.lower[known], dots.upper[known])
        axes.hlines(*ends, color=colour, linewidth=1.6, alpha=0.7, zorder=2)
    faint = np.broadcast_to(np.asarray(dots.faint, dtype=bool), y.shape)
    faces = [PAPER if hollow else colour for hollow in faint]
    axes.scatter(dots.values, y, s=24, color=faces, edgecolors=colour, linewidths=1.2, zorder=3)
    axes.scatter([], [], s=24, color=colour, label=shorten_label(name))
