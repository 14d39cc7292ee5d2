"""Plots of a plan: error and people by ε, the error of every table, detectable associations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import FuncFormatter, NullFormatter

from masquerade.core.distributions import two_sided_quantile
from masquerade.core.plots.drawing import INCHES_PER_ROW, MOST_ROWS, new_axes, shorten_label
from masquerade.core.plots.palette import ESTIMATE, GRID, INK, LINE, MUTED, NAIVE, SERIES, STYLES, TYPE
from masquerade.plan.expected_errors import LEVEL
from masquerade.plan.questions import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from masquerade.plan.result import Plan

MOST_NAMES = 30  # most names on an axis of a matrix


def error_curves(plan: Plan, ax: Axes | None = None) -> Axes:
    """Plot the largest margin by ε, one line per design; no mechanism reaches the shaded area."""
    curve = plan.curve()
    with mpl.rc_context(TYPE):  # type: ignore[arg-type]
        axes = _log_axes(ax)
        if plan.task.has_floors:
            floor = curve.drop_duplicates("epsilon")
            bottom = 0.5 * min(floor["floor"].min(), curve["margin"].min())
            axes.fill_between(floor["epsilon"], floor["floor"], bottom, color=GRID, linewidth=0, zorder=0)
            axes.plot([], [], color=GRID, linewidth=7, label="out of reach of any mechanism")
        _lines(axes, plan, curve, "margin")
        top = min(
            float(curve["margin"].max()) * 1.1, 1.0
        )  # an error beyond ±100 points carries no information
        axes.set_ylim(bottom if plan.task.has_floors else None, top)
        axes.plot(plan.epsilon, plan.error, "o", color=NAIVE, markersize=8, zorder=5, label="this plan")
        if plan.goal.error is not None:
            axes.axhline(plan.goal.error, color=LINE, linewidth=1, linestyle=":")
            axes.annotate(
                f"wanted: ±{100 * plan.goal.error:g} points",
                (0, plan.goal.error),  # in the left corner, where the lines of all designs are far above
                xycoords=("axes fraction", "data"),
                xytext=(4, 3),
                textcoords="offset points",
                color=MUTED,
                fontsize=8.5,
            )
        _points_axis(axes)
        axes.set_ylabel("± points, worst table")
        _finish(axes, plan, f"95% margin of a cell's share with {plan.n:,} people")
    return axes


def needed_curves(plan: Plan, ax: Axes | None = None) -> Axes:
    """Plot the number of people needed for the goal by ε, one line per design."""
    if not plan.goal.targeted:
        return error_curves(plan, ax)
    curve = plan.curve()
    with mpl.rc_context(TYPE):  # type: ignore[arg-type]
        axes = _log_axes(ax)
        _lines(axes, plan, curve, "needed_n")
        axes.plot(plan.epsilon, plan.n, "o", color=NAIVE, markersize=8, zorder=5, label="this plan")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _people(y)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        what = plan.goal.detect.words() if plan.goal.detect else f"±{100 * (plan.goal.error or 0):g} points"
        axes.set_ylabel("people needed")
        _finish(axes, plan, shorten_label(f"People needed for {what}", 84))
    return axes


def query_bars(plan: Plan, ax: Axes | None = None) -> Axes:
    """Plot the margin of every table, largest first; a tick marks the least possible margin."""
    ranked = sorted(
        zip(plan.errors, plan.task.floor(plan.epsilon), strict=True), key=lambda pair: -pair[0].variance
    )
    shown = ranked[:MOST_ROWS]
    with mpl.rc_context(TYPE):  # type: ignore[arg-type]
        axes = new_axes(6.4, max(1.2 + INCHES_PER_ROW * len(shown), 1.9)) if ax is None else ax
        places = np.arange(len(shown))
        margins = [item.margin(plan.n) for item, _ in shown]
        axes.barh(places, margins, color=ESTIMATE, height=0.62)
        if plan.task.has_floors:
            floors = [two_sided_quantile(LEVEL) * math.sqrt(floor / plan.n) for _, floor in shown]
            axes.vlines(floors, places - 0.36, places + 0.36, color=INK, linewidth=1.6)
        axes.set_yticks(places, [shorten_label(title(item.table)) for item, _ in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        left_out = len(ranked) - len(shown)
        more = f"\n({left_out:,} more tables have smaller margins)" if left_out else ""
        axes.set_xlabel(f"± points at 95%, {plan.n:,} people; the line is the least possible{more}")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:g}"))
        _quiet(axes, "x")
    return axes


def detectable_matrix(plan: Plan, ax: Axes | None = None) -> Axes:
    """Plot the least association φ of each pair that a test at 5% detects with power 0.8."""
    found = plan.detectable()
    names = [name for name in plan.task.variables if any(name in pair for pair in found)][:MOST_NAMES]
    size = len(names)
    values = np.full((size, size), np.nan)
    for (first, second), phi in found.items():
        if first in names and second in names:
            values[names.index(second), names.index(first)] = min(phi, 1.0)
    with mpl.rc_context(TYPE):  # type: ignore[arg-type]
        side = max(2.6 + 0.42 * size, 3.6)
        axes = new_axes(side + 0.6, side) if ax is None else ax
        image = axes.imshow(values[1:, :-1], cmap="cividis", vmin=0, vmax=max(np.nanmax(values), 0.1))
        axes.set_xticks(
            range(size - 1), [shorten_label(name, 18) for name in names[:-1]], rotation=45, ha="right"
        )
        axes.set_yticks(range(size - 1), [shorten_label(name, 18) for name in names[1:]])
        if size <= 14:
            middle = 0.55 * max(float(np.nanmax(values)), 0.1)
            for row in range(1, size):
                for column in range(row):
                    phi = values[row, column]
                    if not np.isnan(phi):
                        text = "–" if phi >= 1.0 else f"{phi:.2g}".removeprefix("0")
                        dark = phi < middle
                        axes.text(
                            column,
                            row - 1,
                            text,
                            ha="center",
                            va="center",
                            fontsize=8,
                            color="w" if dark else "k",
                        )
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        bar = axes.figure.colorbar(image, ax=axes, shrink=0.7)
        bar.outline.set_visible(False)
        heading = f"Smallest association φ detected with {plan.n:,} people\n(power 0.8; –: not detectable)"
        axes.set_title(heading, loc="left", fontsize=10)
    return axes


def _lines(axes: Axes, plan: Plan, curve: DataFrame, column: str) -> None:
    for place, way in enumerate(plan.ways):
        own = curve[curve["design"] == way.title]
        finite = own[np.isfinite(own[column])]
        chosen = way is plan.way
        axes.plot(
            finite["epsilon"],
            finite[column],
            color=SERIES[place % len(SERIES)],
            linestyle=STYLES[place % len(STYLES)],
            linewidth=2.6 if chosen else 1.6,
            label=way.title,
        )


def _log_axes(ax: Axes | None) -> Axes:
    axes = new_axes(6.6, 4.8) if ax is None else ax
    axes.set_xscale("log")
    axes.set_yscale("log")
    return axes


def _finish(axes: Axes, plan: Plan, heading: str) -> None:
    ticks = [
        tick for tick in (0.1, 0.25, 0.5, 1, 2, 4, 8, 16) if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]
    ]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("ε of a whole record" if plan.task.per == "record" else "ε of each variable")
    _quiet(axes, "both")
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=2,
        handlelength=2.6,
        alignment="left",
        title=heading,
    )


def _points_axis(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda y, _: _leading(y)))
    axes.tick_params(axis="y", which="minor", labelsize=8)


def _leading(value: float) -> str:
    """Return the label of a tick at 2 or 5 times a power of ten, and no label for other ticks."""
    lead = value / 10 ** math.floor(math.log10(value)) if value > 0 else 0
    return f"{100 * value:g}" if round(lead, 6) in {2.0, 5.0} else ""


def _people(number: float) -> str:
    return f"{number:,.0f}" if number < 1e6 else f"{number / 1e6:,.0f} m"


def _quiet(axes: Any, which: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, axis=which)
    axes.tick_params(length=0, which="both")
