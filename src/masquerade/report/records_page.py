"""A page about records: shares, associations, cross-tables, tests and the guarantee."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from masquerade import __version__, stats
from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import privacy
from masquerade.core.errors import InputError
from masquerade.core.plots.drawing import new_axes, shorten_label
from masquerade.core.plots.palette import ESTIMATE, INK, MASK, MASK_TINT, PAPER
from masquerade.core.plots.style import house_style, svg
from masquerade.core.query import Query
from masquerade.core.record_gamma import describe_person
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import Shown, format_rows, heading_of, p_text
from masquerade.core.util.formatting import gamma_text
from masquerade.learn.classifiers.performance import Performance
from masquerade.report.breach_plot import breach_plot
from masquerade.report.guarantee_words import bounds, list_disclosures
from masquerade.report.pages import render_template

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_VARIABLES = 20  # most variables whose pairs are tested, unless variables are named
MOST_TABLES = 6
MOST_CELLS = 400  # largest cross-table on the page
DOUBTFUL, BAD = 0.05, 0.001


@dataclass(frozen=True, slots=True)
class Association:
    """Association of two variables: the adjusted p-value, and Cramér's V of the most likely table."""

    first: str
    second: str
    p_adjusted: float
    strength: float

    @property
    def beyond_chance(self) -> bool:
        """True if it is significant at 5%, adjusted for all pairs."""
        return self.p_adjusted < DOUBTFUL


@dataclass(frozen=True, slots=True)
class SurveyFindings:
    """Content of a report: displayable results, and warnings."""

    n: int
    policy: Policy
    disguised: bool
    shares: Mapping[str, stats.Estimates]
    associations: Sequence[Association]
    tests: stats.TestResults | None
    cross: Sequence[tuple[Association, stats.Estimates]]
    warnings: Sequence[str]
    left_out: Sequence[str]
    performance: Performance | None = None


def survey_findings(
    source: Tally,
    policy: Policy,
    variables: Sequence[str] = (),
    level: float = 0.95,
    *,
    disguised: bool = True,
) -> SurveyFindings:
    """Query a source for the contents of a report about the named variables, or about the first twenty.

    Cost: one query per variable and per pair, in two batches, and one test per pair.
    """
    for name in variables:
        policy.schema[name]
    chosen = tuple(variables) or tuple(policy.schema)[:MOST_VARIABLES]
    asked = [name for name in chosen if not source.check([Query(by=(name,))])]
    if not asked:
        raise InputError("No share of any of these variables can be estimated from these reports.")
    doubts = _warnings(source, asked) if disguised else []
    if doubts and hasattr(source, "unmarked"):
        source.unmarked = False  # the report has one warning for all variables
    tables = dict(zip(asked, source.answer([Query(by=(name,)) for name in asked]), strict=True))
    pairs = [(a, b) for place, a in enumerate(asked) for b in asked[place + 1 :]]
    pairs = [pair for pair in pairs if not source.check([Query(by=pair)])]
    joint = dict(zip(pairs, source.answer([Query(by=pair) for pair in pairs]), strict=True))
    tests = stats.associations(source, pairs) if pairs else None
    adjusted = [] if tests is None else tests.p_adjusted.tolist()
    found = [
        Association(*pair, p, cramers_v(joint[pair].drop_missing()))
        for pair, p in zip(pairs, adjusted, strict=True)
    ]
    found.sort(key=lambda item: (not item.beyond_chance, -item.strength))
    shown = [item for item in found if item.beyond_chance][:MOST_TABLES]
    cross = []
    for item in shown:
        table = joint[item.first, item.second]
        if table.values.size <= MOST_CELLS:
            cross.append((item, stats.shares(table, item.second, by=item.first, level=level)))
    return SurveyFindings(
        max((table.n for table in tables.values()), default=0),
        policy,
        disguised,
        {name: stats.shares(table, name, level=level) for name, table in tables.items()},
        found,
        tests,
        cross,
        doubts,
        [name for name in policy.schema if name not in asked],
    )


def survey_page(found: SurveyFindings, title: str, files: Mapping[str, str | None]) -> str:
    """Return the page. `files` names the policy and the records, for readers who want to query them."""
    figures = privacy(found.policy)
    with house_style():
        content: dict[str, Any] = {
            "title": title,
            "version": __version__,
            "n": f"{found.n:,}",
            "variables": len(found.policy.schema),
            "masked": found.policy.disguised if found.disguised else (),
            "clear": figures.clear,
            "disguised": found.disguised,
            "warnings": found.warnings,
            "left_out": found.left_out,
            "shares": [
                (name, _draw_svg(item.plot(), f"share-{i}"), _rows(item))
                for i, (name, item) in enumerate(found.shares.items())
            ],
            "associations": found.associations,
            "network": _draw_svg(association_plot(list(found.shares), found), "network"),
            "undecided": describe_undecided(found.tests),
            "strongest": [item for item in found.associations if item.beyond_chance],
            "cross": [
                (item, _draw_svg(shown.plot(), f"cross-{i}"), _rows(shown))
                for i, (item, shown) in enumerate(found.cross)
            ],
            "tests": None if found.tests is None else _rows(found.tests),
            "performance": None if found.performance is None else _performance(found.performance),
            "p_text": p_text,
            "bounds": bounds(figures),
            "person": describe_person(figures.record_gamma, figures.clear_missing),
            "record_gamma": gamma_text(figures.record_gamma),
            "breach": _draw_svg(breach_plot(figures, new_axes(7.2, 4.4), rare=True), "breach")
            if found.policy.disguised
            else "",
            "disclosures": list_disclosures(figures.guarantee),
            "assumptions": figures.guarantee.assumptions,
            "policy_id": found.policy.id,
            "files": files,
        }
    return render_template("masquerade.report", "survey.html.j2", content)


def describe_undecided(tests: stats.TestResults | None) -> str:
    """Return the decision and its rule as text, for pairs of which none is significant."""
    if tests is None:
        return "No pair was tested."
    smallest = int(np.nanargmin([*tests.p_values, 2.0]))
    if smallest >= len(tests):
        return "No test can be computed from these records."
    p = p_text(float(tests.p_values[smallest]))
    return (
        f"Decided by Pearson's test of each pair, with Holm's correction for {len(tests)} pairs: no adjusted "
        f"p-value is below 5%. The smallest without the correction is {p} ({tests.names[smallest]}). That "
        "does not show that there is no link: these records may be too few to show one."
    )


def cramers_v(table: CountTable) -> float:
    """Return Cramér's V of the most likely table: 0 for independence, 1 for full dependence."""
    counts = table.nonnegative("mle").values
    total = counts.sum()
    if total <= 0:
        return math.nan
    shares = counts / total
    expected = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    seen = expected > 0
    chi_square = float(((shares - expected)[seen] ** 2 / expected[seen]).sum())
    return math.sqrt(chi_square / max(min(counts.shape) - 1, 1))


def association_plot(names: Sequence[str], found: SurveyFindings, ax: Axes | None = None) -> Axes:
    """Draw variables on a circle; lines connect significantly associated variables, wider if stronger."""
    axes = new_axes(6.4, 4.6) if ax is None else ax
    turn = 2 * np.pi * np.arange(len(names)) / max(len(names), 1) + np.pi / 2
    place = {name: (1.5 * np.cos(t), np.sin(t)) for name, t in zip(names, turn, strict=True)}
    for item in found.associations:
        if item.beyond_chance:
            (x0, y0), (x1, y1) = place[item.first], place[item.second]
            axes.plot(
                [x0, x1], [y0, y1], color=ESTIMATE, linewidth=0.8 + 9 * item.strength, alpha=0.55, zorder=1
            )
            axes.text(
                (x0 + x1) / 2,
                (y0 + y1) / 2,
                f"{item.strength:.2f}",
                fontsize=7.5,
                color=INK,
                ha="center",
                va="center",
                zorder=2,
                bbox={"boxstyle": "round,pad=0.15", "facecolor": PAPER, "edgecolor": "none"},
            )
    masked = set(found.policy.disguised) if found.disguised else set()
    for name, (x, y) in place.items():
        axes.text(
            x,
            y,
            shorten_label(name, 18),
            ha="center",
            va="center",
            fontsize=9,
            color=INK,
            zorder=3,
            bbox={
                "boxstyle": "round,pad=0.45",
                "facecolor": MASK_TINT if name in masked else PAPER,
                "edgecolor": MASK if name in masked else ESTIMATE,
            },
        )
    axes.set(xlim=(-2.1, 2.1), ylim=(-1.3, 1.3))
    axes.set_axis_off()
    return axes


def _warnings(source: Tally, names: Sequence[str]) -> list[str]:
    """Return warnings about variables whose reports cannot come from this policy."""
    if not hasattr(source, "misfit"):
        return []
    wrong = []
    for name in names:
        try:
            found = source.misfit([name])
        except InputError:
            return []  # there is no such test with strata or weights
        if found.degrees and found.p_value < BAD:
            wrong.append(name)
    if not wrong:
        return []
    told = (
        f"No truth explains the reports of {', '.join(wrong)}. These records are not disguised, or were "
        "disguised under a different policy, or people did not follow it: do not trust their numbers."
    )
    return [told]


def _performance(tested: Performance) -> dict[str, Any]:
    """Return the test of a classifier: its tables and plots."""
    parts = []
    for i, part in enumerate(tested.parts):
        names, rows = format_rows(part)
        title = heading_of(part)
        parts.append((title, _draw_svg(part.plot(), f"classifier-{i}"), {"names": names, "rows": rows}))
    return {"rows": _rows(tested), "drawing": _draw_svg(tested.plot(), "classifier"), "parts": parts}


def _draw_svg(axes: Axes, name: str) -> Markup:
    return Markup(svg(axes.figure, name))  # type: ignore[arg-type]  # noqa: S704  (generated here)


def _rows(result: Shown) -> dict[str, Any]:
    """Return a result as text cells."""
    frame = result.format_frame()
    return {
        "heading": result.heading,
        "names": [str(name).replace("_", " ") for name in frame.columns],
        "rows": frame.to_numpy().tolist(),
        "remarks": result.remarks,
    }
