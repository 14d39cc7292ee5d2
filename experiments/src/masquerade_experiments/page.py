"""A reproduction as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from masquerade import __version__
from masquerade.report import render_template
from masquerade_experiments.experiment import MOST_STANDARD_ERRORS, SHOWN_BY, Comparison, Experiment
from masquerade_experiments.summary import AGREES, Outcome, overall_text, table_cells, why
from masquerade_experiments.wording import difference_text, paper_text, with_error

MOST_ROWS = 60  # most rows of a table on the page; the file contains all rows
# a sign next to the word, so that verdicts do not depend on colour alone
SIGNS: dict[str, tuple[str, str]] = {
    "matches": ("✓", "good"),
    **dict.fromkeys(AGREES.values(), ("✓", "good")),
    "undecided": ("?", "quiet"),
    "differs": ("≠", "bad"),
    "nothing to compare": ("○", "quiet"),
    "no figure to compare": ("○", "quiet"),
    "pending": ("…", "quiet"),
    "not run": ("–", "quiet"),
}


def report_html(outcomes: Sequence[Outcome], *, quick: bool) -> str:
    """Return the page."""
    return render_template("masquerade_experiments", "reproduction.html.j2", content(outcomes, quick=quick))


def content(outcomes: Sequence[Outcome], *, quick: bool) -> dict[str, Any]:
    """Return the content of the template: formatted figures, without further arithmetic."""
    papers: dict[str, list[dict[str, Any]]] = {}
    for outcome in outcomes:
        papers.setdefault(outcome.about.paper, []).append(section(outcome))
    return {
        "version": __version__,
        "quick": quick,
        "total": overall_text(outcomes),
        "most": f"{MOST_STANDARD_ERRORS:g}",
        "shown_by": f"{SHOWN_BY:g}",
        "papers": papers,
    }


def section(outcome: Outcome) -> dict[str, Any]:
    """Return the content of one experiment for the page."""
    about, findings = outcome.about, outcome.findings
    shown: dict[str, Any] = {
        "about": about,
        "verdict": badge(outcome.verdict),
        "counts": outcome.counts,
        "repeats": about.repeats if isinstance(about, Experiment) else "",
        "reason": outcome.reason,
        "ran": findings is not None,
    }
    if findings is None or not isinstance(about, Experiment):
        return shown
    head, rows = table_cells(findings.table)
    return (
        shown
        | {
            "picture": Markup(findings.picture.inline),  # noqa: S704  (ours, needs no escaping)
            "comparisons": [row(item) for item in findings.comparisons],
            "head": head,
            "rows": rows[:MOST_ROWS],
            "left_out": max(0, len(rows) - MOST_ROWS),
            "effort": effort(findings.settings, findings.runs, findings.seconds, findings.seed),
        }
    )


def row(comparison: Comparison) -> dict[str, Any]:
    """Return the texts of a comparison on the page."""
    return {
        "what": comparison.what,
        "kind": comparison.kind,
        "read_as": comparison.read_as,
        "paper": paper_text(comparison),
        "ours": with_error(comparison.ours, comparison.stderr),
        "difference": difference_text(comparison),
        "verdict": badge(comparison.verdict),
        "why": why(comparison) if comparison.verdict == "differs" else "",
    }


def badge(verdict: str) -> dict[str, str]:
    """Return a verdict with its sign and its class."""
    sign, kind = SIGNS[verdict]
    return {"words": verdict, "sign": sign, "kind": kind}


def effort(settings: int, runs: int, seconds: float, seed: int) -> str:
    """Return the number of runs, and the first seed."""
    times = f"{runs:,} run{'' if runs == 1 else 's'}"
    where = "" if settings == 1 else f" at each of {settings} settings"
    alone = " One run has no standard error (–)." if runs == 1 else ""
    return f"{times}{where}, {seconds:,.1f} s; the first seed is {seed}.{alone}"
