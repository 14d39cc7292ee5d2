"""Plot of a release ledger: the spent share of one person's limit, by recipient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from masquerade.core.plots.drawing import new_axes, shorten_label
from masquerade.core.plots.palette import INK, MUTED, SERIES
from masquerade.core.plots.style import house_style, open_frame
from masquerade.core.util.formatting import gamma_text, log_gamma
from masquerade.services.common.ledger_totals import person_total
from masquerade.services.common.release_ledger import CLEAR

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from masquerade.channels.privacy_level import PrivacyLimit
    from masquerade.services.common.release_ledger import Release

MOST_BARS = 24  # number of latest releases with a bar of their own; earlier releases share one bar
MOST_EPSILON = 300  # largest ε for which γ is written as a number


def ledger_plot(releases: Sequence[Release], limit: PrivacyLimit, ax: Axes | None = None) -> Axes:
    """Plot the γ that each release adds for one person, against the limit.

    Parameters
    ----------
    releases : sequence of Release
        All releases, oldest first.
    limit : PrivacyLimit
        The limit for one person.
    ax : Axes, optional
        Axes to draw on. By default a new figure.

    Returns
    -------
    Axes
        The plot.
    """
    steps = _steps(releases)
    ends = [end for _, _, end in steps if math.isfinite(end)]
    most = max([log_gamma(limit.gamma), *ends]) * 1.15
    recipients = list(dict.fromkeys(name for name, _, _ in steps))
    with house_style():
        axes = new_axes(6.4, 1.6 + 0.36 * max(len(steps), 2)) if ax is None else ax
        before = 0.0
        for row, (recipient, _, end) in enumerate(steps):
            colour, known = SERIES[recipients.index(recipient) % len(SERIES)], math.isfinite(end)
            left, right = min(before, most), end if known else most
            axes.barh(row, right - left, left=left, color=colour, height=0.62, hatch=None if known else "//")
            if right - left < most / 200:
                axes.plot([left], [row], marker="|", color=colour, markersize=11)
            note = f"γ = {gamma_text(math.exp(end))}" if known and end < MOST_EPSILON else "no bound"
            axes.annotate(note, (right, row), xytext=(4, 0), textcoords="offset points", va="center")
            before = end
        axes.axvline(log_gamma(limit.gamma), color=INK, linewidth=1.6, linestyle=(0, (4, 3)))
        axes.annotate(
            f"limit: γ = {gamma_text(limit.gamma)}",
            (log_gamma(limit.gamma), -0.75),
            ha="center",
            va="bottom",
            annotation_clip=False,
        )
        axes.set_yticks(range(len(steps)), [shorten_label(label, 40) for _, label, _ in steps])
        axes.set(xlim=(0, most * 1.12), ylim=(max(len(steps), 2) - 0.4, -0.6))
        axes.set_xlabel("known about one person so far, ε = ln γ")
        axes.tick_params(axis="y", length=0, colors=MUTED)
        axes.grid(visible=False, axis="y")
        open_frame(axes)
    return axes


def _steps(releases: Sequence[Release]) -> list[tuple[str, str, float]]:
    """Return recipient, label and cumulative ε per release; the earliest releases are one step."""
    first = max(len(releases) - MOST_BARS, 0)
    steps = [("", f"{first} earlier releases", _epsilon(releases[:first]))] if first else []
    for number in range(first, len(releases)):
        release = releases[number]
        what = f"in clear: {', '.join(release.variables)}" if release.kind == CLEAR else release.kind
        label = f"{number + 1}. {release.recipient}: {what}"
        steps.append((release.recipient, label, _epsilon(releases[: number + 1])))
    return steps


def _epsilon(releases: Sequence[Release]) -> float:
    return log_gamma(person_total(releases).bound)
