"""The breach curve: how far any belief can rise, variable by variable."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from masquerade.channels.measures import breach_bound
from masquerade.cli.output import write_whole
from masquerade.cli.privacy import name_of
from masquerade.core.words import gamma_text

if TYPE_CHECKING:
    from masquerade.channels.privacy import PolicyPrivacy

# Okabe & Ito's colours, told apart by all kinds of sight; line styles tell them apart in print
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("-", "--", "-.", (0, (1, 1.2)), (0, (5, 1, 1, 1, 1, 1)))
MOST_CURVES = 8
POINTS = 401


def curves(figures: PolicyPrivacy) -> list[tuple[str, Any]]:
    """Return labelled γ, the best protected first; variables of equal γ share a curve."""
    by_gamma: dict[Any, list[str]] = {}
    for item in (*figures.variables, *figures.groups):
        by_gamma.setdefault(item.gamma, []).append(name_of(item))
    rising = sorted(by_gamma.items(), key=lambda pair: float(pair[0]))
    if len(rising) > MOST_CURVES:  # the best and the worst protected say most
        rising = rising[: MOST_CURVES // 2] + rising[-MOST_CURVES // 2 :]
    return [(shortened(names), gamma) for gamma, names in rising]


def shortened(names: list[str]) -> str:
    """Return names for a legend."""
    shown = ", ".join(names[:3])
    shown = shown if len(shown) <= 44 else shown[:43] + "…"
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def breach_plot(figures: PolicyPrivacy, target: Path, *, overwrite: bool) -> None:
    """Draw ρ2* against ρ1 for every variable and for the record."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.ticker import PercentFormatter  # noqa: PLC0415

    figure = Figure(figsize=(5.6, 5.4))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    beliefs = [i / (POINTS - 1) for i in range(POINTS)]
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1.2, label="nothing learned (γ = 1)")
    for place, (name, gamma) in enumerate(curves(figures)):
        axes.plot(
            *line(gamma, beliefs),
            color=COLOURS[place % len(COLOURS)],
            linestyle=STYLES[place % len(STYLES)],
            linewidth=1.8,
            label=f"{name}: {gamma_label(gamma)}",
        )
    axes.plot(
        *line(figures.record_gamma, beliefs),
        color="black",
        linewidth=3.2,
        zorder=1.9,  # a variable as weak as the whole record stays visible on top of it
        label=f"whole record: {gamma_label(figures.record_gamma)}",
    )
    axes.set(xlim=(0, 1), ylim=(0, 1.01), aspect="equal")
    axes.set_xlabel("belief before seeing the report (ρ₁)")
    axes.set_ylabel("highest belief after it (ρ₂*)")
    axes.set_title(
        f"How far can a report raise any belief?  Policy {figures.policy_id[:12]}", fontsize=11, loc="left"
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
        axis.set_ticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.grid(color="0.9", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    legend = axes.legend(
        loc="upper left", bbox_to_anchor=(1.02, 1), borderaxespad=0, frameon=False, fontsize=9
    )
    different = len({item.gamma for item in (*figures.variables, *figures.groups)})
    if different > MOST_CURVES:
        half = MOST_CURVES // 2
        legend.set_title(f"the {half} best and {half} least protected of {different}")
        legend.get_title().set_fontsize(9)
    if figures.clear:
        note = "in clear: " + shortened(list(figures.clear))
        axes.text(1.03, 0.0, note, transform=axes.transAxes, fontsize=9, color="0.35", va="bottom")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=target.suffix[1:].lower(), dpi=160, bbox_inches="tight", pad_inches=0.15)
    write_whole(target, buffer.getvalue(), overwrite=overwrite)


def line(gamma: Any, beliefs: list[float]) -> tuple[list[float], list[float]]:
    """Return the points of a curve; without a bound it stands at certainty."""
    if gamma == math.inf:
        return [0.0, 0.0, 1.0], [0.0, 1.0, 1.0]
    return beliefs, [breach_bound(gamma, belief) for belief in beliefs]


def gamma_label(gamma: Any) -> str:
    """Return γ for a legend."""
    return "no bound" if gamma == math.inf else f"γ = {gamma_text(gamma)}"
