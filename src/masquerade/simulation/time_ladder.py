"""Time against the number of people: a ladder of simulations, and its picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from masquerade.core.palette import MUTED, NAIVE, SERIES
from masquerade.core.plots import new_axes
from masquerade.simulation.costs import Cost

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HALVINGS = 4
FEW_DECADES = 100  # from the largest to the smallest time
LABEL = 26  # points from one label of two lines to the next


@dataclass(frozen=True, slots=True)
class Rung:
    """One simulation of a ladder: how many people, and what it cost."""

    n: int
    cost: Cost


def ladder(n: int, least: int) -> list[int]:
    """Return n/16, n/8, …, n, those that are at least so many.

    >>> ladder(1000, 100)
    [125, 250, 500, 1000]
    """
    sizes = [n // 2**step for step in range(HALVINGS, -1, -1)]
    return [size for size in sizes if size >= least] or [n]


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return by which power of n a time grows: the slope of a straight line on logarithmic axes.

    >>> round(slope([10, 100, 1000], [2, 20, 200]), 6)
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def timing_plot(rungs: Iterable[Rung], title: str, note: str = "", ax: Axes | None = None) -> Axes:
    """Draw processor time against the number of people, one person's beside that of every other role."""
    from masquerade.report.style import house_style, open_frame  # noqa: PLC0415  (loads matplotlib)

    points = sorted(rungs, key=lambda rung: rung.n)
    sizes = [rung.n for rung in points]
    roles = merged_roles(points)
    lines = [("one person", NAIVE, "o", [rung.cost.client_seconds.mean for rung in points])]
    lines += [
        (role, colour, mark, seconds)
        for (role, seconds), colour, mark in zip(roles.items(), SERIES, "sD^vP", strict=False)
    ]
    with house_style():
        axes = new_axes(6.4, 4.4) if ax is None else ax
        for name, colour, mark, seconds in lines:
            axes.plot(sizes, seconds, f"{mark}-", color=colour, markersize=6, linewidth=2, zorder=3)
            tell(axes, (sizes[-1], seconds[-1]), f"{name}\n{duration(seconds[-1])}", colour)
        axes.set_xscale("log")
        axes.set_yscale("log")
        readable_axes(axes, sizes, [s for *_, seconds in lines for s in seconds])
        spread_labels(axes)
        axes.set_xlabel("people")
        axes.set_title(title, loc="left", fontsize=11, weight="bold", pad=24 if note else 12)
        axes.text(0, 1.03, note, transform=axes.transAxes, color=MUTED, fontsize=9, va="bottom")
        open_frame(axes)
        axes.grid(visible=False, axis="x")
    return axes


def merged_roles(points: Sequence[Rung]) -> dict[str, list[float]]:
    """Return the seconds of every role, leaders as one: they all do the same work."""
    found: dict[str, list[float]] = {}
    for role in points[-1].cost.roles:
        if role.startswith("leader"):
            alike = [name for name in points[-1].cost.roles if name.startswith("leader")]
            found["one leader"] = [
                float(np.mean([rung.cost.roles[name] for name in alike])) for rung in points
            ]
        else:
            found[role] = [rung.cost.roles[role] for rung in points]
    return found


def tell(axes: Axes, at: tuple[float, float], text: str, colour: str) -> None:
    """Write a line's name at its end."""
    axes.annotate(
        text, at, xytext=(10, 0), textcoords="offset points", color=colour, va="center", annotation_clip=False
    )


def spread_labels(axes: Axes) -> None:
    """Move the names at the ends of lines apart where they would overlap."""
    from matplotlib.text import Annotation  # noqa: PLC0415

    low, high = np.log(axes.get_ylim())
    inches = axes.get_window_extent().height / axes.figure.dpi
    step = LABEL / (72 * inches) * (high - low)
    place = -np.inf
    labels = [label for label in axes.texts if isinstance(label, Annotation)]
    for label in sorted(labels, key=lambda label: label.xy[1]):
        wanted = np.log(label.xy[1])
        place = max(wanted, place + step)
        label.set_position((10, (place - wanted) / (high - low) * 72 * inches))


def readable_axes(axes: Axes, sizes: Sequence[int], seconds: Sequence[float]) -> None:
    """Mark the numbers of people that were run, and times in words."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415

    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda s, _: duration(s)))
    low, high = min(seconds), max(seconds)
    # whole half decades, with room for the labels at the ends
    axes.set_ylim(
        10 ** (np.floor(2 * np.log10(low / 1.3)) / 2), 10 ** (np.ceil(2 * np.log10(high * 1.3)) / 2)
    )
    if high / low < FEW_DECADES:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("processor time")


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it.

    >>> duration(0.0002), duration(0.25), duration(10), duration(7200)
    ('0.2 ms', '250 ms', '10 s', '2 h')
    """
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= (size if unit == "s" else 2 * size):
            return f"{seconds / size:.3g} {unit}"
    return f"{1000 * seconds:.3g} ms"
