"""Anonymity of a table as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from masquerade import __version__
from masquerade.core.plots.drawing import shorten_label
from masquerade.core.plots.palette import ESTIMATE, NAIVE
from masquerade.core.plots.style import canvas, house_style, open_frame, svg
from masquerade.report.pages import render_template

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from masquerade.anonymity.measures import AnonymityReport, SensitiveReport

MOST_BARS = 12


def anonymity_html(report: AnonymityReport, title: str) -> str:
    """Return the page. `title` is the name of the table."""
    content = {
        "version": __version__,
        "title": title,
        "report": report,
        "figures": [
            ("rows", f"{report.rows:,}"),
            ("classes (rows with equal quasi-identifiers)", f"{report.classes:,}"),
            ("k: rows in the smallest class", f"{report.k:,}"),
            ("unique rows", f"{report.unique_rows:,} ({report.uniqueness:.2%})"),
        ],
        "thresholds": [(k, f"{report.rows_below(k):,}") for k in (2, 3, 5, 10, 20, 50, 100)],
        "sensitive": [row(own) for own in report.sensitive],
        "pictures": _pictures(report),
    }
    return render_template("masquerade.report", "anonymity.html.j2", content)


def row(own: SensitiveReport) -> dict[str, str]:
    """Return the metrics of a sensitive column as text."""
    return {
        "name": own.name,
        "values": f"{own.values:,}",
        "distinct": f"{own.distinct_l}",
        "entropy": f"{own.entropy_l:.2f}",
        "recursive": f"{own.recursive_c[2]:.2f}" if 2 in own.recursive_c else "none",
        "equal": f"{own.t_equal:.3f}",
        "ordered": "none" if own.t_ordered is None else f"{own.t_ordered:.3f}",
        "homogeneous": f"{own.homogeneous_classes:,} ({own.homogeneous_rows:,} rows)",
    }


def _pictures(report: AnonymityReport) -> list[dict[str, Any]]:
    """Return all plots as SVG with their texts. The SVG is generated here and needs no escaping."""
    labels, rows = report.size_bins()
    drawn = [
        {
            "heading": "Size of classes",
            "caption": "Rows by the size of their class. The first bar, in orange, shows unique rows.",
            "alt": "Bar chart of rows by class size.",
            "svg": bars(dict(zip(labels, rows, strict=True)), "rows in the class", "classes"),
        }
    ]
    for place, own in enumerate(report.sensitive):
        drawn.append(
            {
                "heading": f"Values of {own.name} in a class",
                "caption": (
                    "Rows by the number of distinct values in their class. The orange bar shows rows whose "
                    "value is disclosed, however large the class."
                ),
                "alt": f"Bar chart of rows by distinct values of {own.name} in their class.",
                "svg": bars(
                    _limit_bars(own.rows_by_distinct), f"distinct values of {own.name}", f"values{place}"
                ),
            }
        )
    return drawn


def _limit_bars(rows: Mapping[int, int]) -> dict[str, int]:
    """Return one bar per number up to a limit. Larger numbers share the last bar.

    >>> _limit_bars({1: 5, 3: 2})
    {'1': 5, '2': 0, '3': 2}
    """
    last = min(max(rows, default=1), MOST_BARS)
    found = {str(number): rows.get(number, 0) for number in range(1, last)}
    more = sum(count for number, count in rows.items() if number >= last)
    return found | {f"{last} and more" if max(rows, default=1) > last else str(last): more}


def bars(heights: Mapping[str, int], label: str, name: str) -> Markup:
    """Draw a bar chart, with the first bar in the colour of disclosed values."""
    with house_style():
        figure: Figure = canvas(6.4, 2.9)
        axes = figure.subplots()
        places = range(len(heights))
        axes.bar(places, list(heights.values()), color=[NAIVE if i == 0 else ESTIMATE for i in places])
        axes.set_xticks(places, list(heights), rotation=45 if len(heights) > 8 else 0)
        axes.set_xlabel(shorten_label(label, 80))
        axes.set_ylabel("rows")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))  # rows are integers, also on small tables
        axes.yaxis.set_major_formatter("{x:,.0f}")
        open_frame(axes)
        axes.grid(visible=False, axis="x")
        return Markup(svg(figure, name))  # noqa: S704
