"""Breach curves: the largest posterior belief after a report, by variable and for the whole record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import PercentFormatter

from masquerade.channels.measures import breach_bound
from masquerade.core.plots.drawing import new_axes, shorten_label
from masquerade.core.plots.palette import INK, MUTED, SERIES, STYLES
from masquerade.core.plots.style import house_style, open_frame
from masquerade.core.util.formatting import gamma_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from masquerade.channels.policy.privacy import PolicyPrivacy

MOST_CURVES = 8
WIDEST_LABEL = 32  # most characters of labels in two columns


def breach_plot(
    figures: PolicyPrivacy, ax: Axes | None = None, *, rare: bool = False, title: str = ""
) -> Axes:
    """Plot the largest belief after a report against the belief before it.

    Parameters
    ----------
    figures : PolicyPrivacy
        γ of every variable and of the record. Variables of equal γ share a curve.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Without it, a new figure.
    rare : bool, optional
        Use a logarithmic axis for beliefs, which starts at one in a million.
    title : str, optional
        Title of the plot.

    Returns
    -------
    matplotlib.axes.Axes
        The plot.
    """
    beliefs = np.logspace(-6, 0, 241) if rare else np.linspace(0, 1, 401)
    shown, left_out = curves(figures)
    if left_out:
        half, title = MOST_CURVES // 2, f"{title}\n" if title else ""
        title += f"the {half} best and {half} least protected of {left_out + MOST_CURVES}"
    with house_style():
        axes = new_axes(5.6, 5.6) if ax is None else ax
        # first in the legend, and drawn first: the curve of a variable with the same γ stays visible on top
        record = f"one person, whole record: {_gamma_label(figures.record_gamma)}"
        axes.plot(*_curve(figures.record_gamma, beliefs), color=INK, linewidth=3.2, zorder=1.9, label=record)
        axes.plot(beliefs, beliefs, color=MUTED, linewidth=1, label="nothing learnt: γ = 1")
        for place, (name, gamma) in enumerate(shown):
            colour, style = SERIES[place % len(SERIES)], STYLES[(place + place // len(SERIES)) % len(STYLES)]
            axes.plot(*_curve(gamma, beliefs), color=colour, linestyle=style, linewidth=1.9, label=name)
        if rare:
            axes.set_xscale("log")
            axes.set_xticks([1e-6, 1e-4, 1e-2, 1e-1, 1], ["1 in 10⁶", "1 in 10⁴", "1%", "10%", "100%"])
            axes.minorticks_off()
        else:
            axes.set(xlim=(0, 1), ylim=(0, 1.01), aspect="equal")
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
            axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        clear = f"\nin clear: {_names_in(figures.clear)}" if figures.clear and not rare else ""
        axes.set_xlabel(f"belief before seeing the report{clear}")
        axes.set_ylabel("largest belief after")
        open_frame(axes)
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-0.02, 1.0),
            ncols=2 if max(len(str(line.get_label())) for line in axes.lines) <= WIDEST_LABEL else 1,
            handlelength=2.6,
            columnspacing=1.2,
            title=title or None,
            alignment="left",
        )
    return axes


def curves(figures: PolicyPrivacy) -> tuple[list[tuple[str, Any]], int]:
    """Return a label and a γ per curve, smallest γ first, and the number of curves omitted.

    Variables with equal γ share a curve.
    """
    by_gamma: dict[Any, list[str]] = {}
    for item in (*figures.variables, *figures.groups):
        by_gamma.setdefault(item.gamma, []).append(item.title)
    rising = sorted(by_gamma.items(), key=lambda pair: float(pair[0]))
    left_out = max(len(rising) - MOST_CURVES, 0)
    if left_out:  # the best and the least protected are the most informative
        rising = rising[: MOST_CURVES // 2] + rising[-MOST_CURVES // 2 :]
    return [(f"{_names_in(names)}: {_gamma_label(gamma)}", gamma) for gamma, names in rising], left_out


def _curve(gamma: Any, beliefs: Any) -> tuple[Any, Any]:
    """Return the points of a curve. Without a bound it is constant at 1."""
    if gamma == math.inf:
        return [beliefs[0], beliefs[0], 1.0], [beliefs[0], 1.0, 1.0]
    return beliefs, [breach_bound(gamma, float(belief)) for belief in beliefs]


def _names_in(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return shorten_label(", ".join(names[:3]), 34) + more


def _gamma_label(gamma: Any) -> str:
    return "no bound" if gamma == math.inf else f"γ = {gamma_text(gamma)}"
