"""A plan as a self-contained HTML page: expected errors, and the other designs compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from masquerade import __version__
from masquerade.channels.policy import text as policy_text
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.plots.style import svg
from masquerade.core.util.formatting import percent
from masquerade.plan.expected_errors import LEVEL
from masquerade.report.pages import render_template

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from masquerade.plan.result import Plan


def plan_html(plan: Plan) -> str:
    """Return the page."""
    content = {
        "version": __version__,
        "plan": plan,
        "lines": plan.explain().split("\n"),
        "queries": [_query(row) for row in plan.queries.to_dict(orient="records")],
        "designs": [_design(row) for row in plan.alternatives.to_dict(orient="records")],
        "targeted": plan.goal.targeted,
        "floors": plan.task.has_floors,
        "policy": policy_text.write(plan.policy_values(), "yaml"),
        "pictures": _pictures(plan),
    }
    return render_template("masquerade.report", "plan.html.j2", content)


def _query(row: dict[Any, Any]) -> dict[str, str]:
    """Return the expected errors of a table as text."""
    return {
        "name": row["query"],
        "cells": f"{row['cells']:,}",
        "margin": _points(row["margin"]),
        "worst": _points(row["worst_margin"]),
        "floor": _points(two_sided_quantile(LEVEL) * row["floor"]),
    }


def _design(row: dict[Any, Any]) -> dict[str, Any]:
    """Return the properties of a design as text."""
    return {
        "name": row["design"],
        "chosen": row["chosen"],
        "margin": _points(row["margin"]),
        "needed": "never" if math.isinf(row["needed_n"]) else f"{row['needed_n']:,.0f}",
        "variable": f"{row['epsilon_variable']:.3g}",
        "record": f"{row['epsilon_record']:.3g}",
        "central": f"{row['epsilon_central']:.3g}",
        "reports": f"{row['reports']:,.0f}" if row["reports"] < 1e7 else f"{row['reports']:.1e}",
        "bytes": f"{row['bytes']}",
    }


def _points(share: float) -> str:
    return f"±{100 * share:.3g}" if math.isfinite(share) else "–"


def _pictures(plan: Plan) -> list[dict[str, Any]]:
    """Return all plots as SVG with their texts. The SVG is generated here and needs no escaping."""
    drawn = [
        (
            "error",
            "The error of each design",
            "The largest margin of a table against ε. No mechanism can reach the shaded area.",
            plan.plot_error,
        ),
        ("queries", "The error of each table", "Margins at 95%, the widest first.", plan.plot_queries),
    ]
    if plan.goal.targeted:
        shown = (
            "needed",
            "Number of people needed",
            "People against ε, one line per design.",
            plan.plot_needed,
        )
        drawn.insert(1, shown)
    if plan.detectable():
        power = percent(0.8)
        words = f"The smallest association of each pair that a test at 5% detects with probability {power}."
        drawn.append(("detectable", "Detectable associations", words, plan.plot_detectable))
    return [
        {"heading": heading, "caption": caption, "alt": caption, "svg": _draw_svg(draw(), name)}
        for name, heading, caption, draw in drawn
    ]


def _draw_svg(axes: Axes, name: str) -> Markup:
    figure: Any = axes.figure
    figure.set_facecolor("none")
    axes.set_facecolor("none")
    return Markup(svg(figure, name))  # noqa: S704
