"""Plots of the demo. One of them is in the README.

``python -m masquerade.report.pictures docs/images/demo.png`` draws it again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from masquerade.core.distributions import two_sided_quantile
from masquerade.core.plots.palette import ESTIMATE, INK, MUTED, NAIVE, PAPER
from masquerade.core.plots.style import canvas, house_style, open_frame, png
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.formatting import gamma_text
from masquerade.learn.networks.network_plot import Box, network_plot
from masquerade.report.breach_plot import breach_plot
from masquerade.report.study import VAGUE, Study, StudyFigure, run_study

PEOPLE = 20_000
Z95 = two_sided_quantile(0.95)
WIDTH = 5.6
FARTHEST = 4.0
AS_IT_IS = "disguised, at face value"
ESTIMATED = "estimate, 95% interval"


def counts_picture(study: Study, width: float = WIDTH, height: float = 4.6, title: str = "") -> Figure:
    """Plot counts: the truth, the naive count of disguised records, and the estimate with a 95% interval."""
    figure = canvas(width, height)
    axes = figure.add_subplot()
    items = study.counts
    rows = np.arange(len(items))[::-1]
    truth, naive = [item.truth for item in items], [item.naive or 0.0 for item in items]
    axes.hlines(rows, truth, naive, color=NAIVE, linewidth=1.2, alpha=0.5)
    axes.plot(truth, rows, "|", color=INK, markersize=15, markeredgewidth=2, label="truth", zorder=2.5)
    axes.plot(naive, rows, "X", color=NAIVE, markersize=7.5, markeredgewidth=0, label=AS_IT_IS)
    axes.errorbar(
        [item.estimate for item in items],
        rows,
        xerr=[Z95 * item.stderr for item in items],
        fmt="o",
        color=ESTIMATE,
        markersize=4,
        elinewidth=2,
        zorder=3,
        label=ESTIMATED,
    )
    axes.set_yticks(rows, [item.label for item in items])
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_xlabel(f"people out of {study.n:,}")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}".replace("-", "−")))
    open_frame(axes)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    _head(figure, axes, title)
    return figure


def _head(figure: Figure, axes: Axes, title: str) -> None:
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside upper left",
        ncols=3,
        handletextpad=0.4,
        columnspacing=1.4,
        title=title or None,
        title_fontproperties={"weight": "bold", "size": 11},
        alignment="left",
    )


def parameters_picture(study: Study) -> Figure:
    """Plot the estimate of every free parameter, with a 95% interval, against its value in the network."""
    figure = canvas(WIDTH, 4.6)
    axes = figure.add_subplot()
    known = [item for item in study.free_parameters if item.seen and item.stderr <= VAGUE]
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, zorder=1)
    across = spread_equal([item.truth for item in known])
    axes.plot(
        across,
        [math.nan if item.naive is None else item.naive for item in known],
        "X",
        color=NAIVE,
        markersize=6,
        markeredgewidth=0,
        alpha=0.75,
        label=AS_IT_IS,
    )
    for reliable, label, face in ((True, ESTIMATED, ESTIMATE), (False, "too rarely seen", PAPER)):
        items = [(x, item) for x, item in zip(across, known, strict=True) if item.reliable is reliable]
        if items:
            axes.errorbar(
                [x for x, _ in items],
                [item.estimate for _, item in items],
                yerr=[Z95 * item.stderr for _, item in items],
                fmt="o",
                color=ESTIMATE,
                markerfacecolor=face,
                markersize=4.5,
                elinewidth=1.3,
                alpha=0.9,
                label=label,
                zorder=3,
            )
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(*reach([item for item in known if item.reliable]))
    axes.set_xlabel("probability in the network")
    axes.set_ylabel("probability from the disguised records")
    open_frame(axes)
    _head(figure, axes, "")
    return figure


def spread_equal(values: Sequence[float], step: float = 0.011) -> list[float]:
    """Move equal values slightly apart, so that their error bars do not overlap."""
    alike = {value: [i for i, other in enumerate(values) if other == value] for value in values}
    places = [alike[value].index(i) - (len(alike[value]) - 1) / 2 for i, value in enumerate(values)]
    return [value + step * place for value, place in zip(values, places, strict=True)]


def reach(items: Sequence[StudyFigure]) -> tuple[float, float]:
    """Return the range of the reliable error bars, at least from 0 to 1."""
    ends = [item.estimate + side * Z95 * item.stderr for item in items for side in (-1, 1)]
    return min(0.0, *ends, 0.0) - 0.02, max(1.0, *ends, 1.0) + 0.02


def errors_picture(study: Study) -> Figure:
    """Plot the errors of parameters and counts, in standard errors, against the normal curve."""
    figure = canvas(WIDTH, 2.9)
    counted = [item.z for item in study.cells if item.z is not None]
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_errors(left, study.reliable_errors, f"{len(study.reliable_errors)} parameters")
    _draw_errors(right, counted, f"{len(counted)} counts")
    left.set_ylabel("share per standard error")
    figure.supxlabel("(estimate − truth) / standard error", fontsize=9.5)
    return figure


def _draw_errors(axes: Axes, errors: Sequence[float], title: str) -> None:
    """Draw a histogram of errors with the normal curve. Errors beyond the axes are drawn at the edge."""
    bins = np.linspace(-FARTHEST, FARTHEST, 17)
    if errors:
        shown = np.clip(errors, -FARTHEST, FARTHEST)
        axes.hist(shown, bins=bins.tolist(), density=True, color=ESTIMATE, alpha=0.55, rwidth=0.92)
    grid = np.linspace(-FARTHEST, FARTHEST, 161)
    axes.plot(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), color=INK, linewidth=1.5)
    axes.set_title(title, fontsize=9.5)
    axes.set_xticks([-3, -2, -1, 0, 1, 2, 3], ["−3", "−2", "−1", "0", "1", "2", "3"])
    open_frame(axes)
    axes.grid(visible=False, axis="x")


def breach_picture(study: Study) -> Figure:
    """Plot the largest belief after a report against the belief before it."""
    figure = canvas(WIDTH, 4.4)
    breach_plot(study.privacy, figure.add_subplot(), rare=True)
    return figure


def network_picture(study: Study) -> Figure:
    """Draw the network of a study, with masks on disguised answers and their γ below."""
    gammas = {item.variables[0]: f"γ = {gamma_text(item.gamma)}" for item in study.privacy.variables}
    boxes = {name: Box(name, note, masked=True) for name, note in gammas.items()}
    figure = Figure(figsize=(WIDTH, 5.2))
    network_plot(study.structure, boxes, figure.add_axes((0.0, 0.0, 1.0, 1.0)))
    return figure


def story_picture(study: Study) -> bytes:
    """Return the main plot as PNG: naive counts are wrong, estimates are not."""
    title = f"{study.n:,} people behind masks: counted naively, and estimated by masquerade"
    with house_style():
        return png(counts_picture(study, width=7.6, height=4.3, title=title))


def main(arguments: Sequence[str]) -> int:
    """Write the plot of the README to the given path."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m masquerade.report.pictures TARGET.png\n")
        return 2
    write_whole(Path(arguments[0]), story_picture(run_study(PEOPLE)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
