"""The demo's result as one HTML page that needs nothing from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from masquerade import __version__
from masquerade.core.guarantee import Guarantee
from masquerade.core.words import gamma_text
from masquerade.report.graph import network_picture
from masquerade.report.page import filled
from masquerade.report.pictures import (
    Z95,
    breach_picture,
    counts_picture,
    errors_picture,
    parameters_picture,
)
from masquerade.report.study import Study
from masquerade.report.style import house_style, svg
from masquerade.report.words import bounds, count_row, parameter_row, printed_note, verdict


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with the words that belong to it: a heading, what to see, and what it shows if unseen."""

    name: str
    heading: str
    caption: str
    alt: str
    draw: Callable[[Study], Figure]


def demo_html(study: Study, files: Mapping[str, str]) -> str:
    """Return the page; `files` are the names of the policy and the disguised records beside it."""
    return filled("masquerade.report", "demo.html.j2", content(study, files))


def content(study: Study, files: Mapping[str, str]) -> dict[str, Any]:
    """Return what the template shows: written figures, no arithmetic left."""
    guarantee = study.privacy.guarantee
    return {
        "version": __version__,
        "n": f"{study.n:,}",
        "questions": len(study.policy.schema),
        "masked": study.policy.disguised,
        "clear": study.privacy.clear,
        "policy_id": study.policy.id,
        "files": files,
        "pictures": drawn(study),
        "verdict": verdict(study),
        "counts": [count_row(item, study.n) for item in study.counts],
        "pairs": [
            (" × ".join(name for name, _ in pair[0].cell), [count_row(item, study.n) for item in pair])
            for pair in study.pairs
        ],
        "nodes": [(node.label, [parameter_row(item) for item in node.parameters]) for node in study.nodes],
        "bounds": bounds(study),
        "record_gamma": gamma_text(study.privacy.record_gamma),
        "disclosures": told(guarantee),
        "assumptions": guarantee.assumptions,
        "printed_note": printed_note(study),
        "structure": study.structure,
    }


def told(guarantee: Guarantee) -> list[tuple[str, str, str]]:
    """Return who learns what kind of values, and of which variables with which bound."""
    lines: dict[tuple[str, str], list[str]] = {}
    for item in guarantee.disclosures:
        bound = "no bound" if item.gamma is None else f"γ = {gamma_text(item.gamma)}"
        lines.setdefault((item.role, item.kind), []).append(f"{', '.join(item.variables)} ({bound})")
    return [(role, kind, "; ".join(items)) for (role, kind), items in lines.items()]


def drawn(study: Study) -> list[tuple[Picture, Markup]]:
    """Return every picture with its SVG, which is ours and needs no escaping."""
    with house_style():
        return [
            (picture, Markup(svg(picture.draw(study), picture.name)))  # noqa: S704
            for picture in pictures(study)
        ]


def pictures(study: Study) -> tuple[Picture, ...]:
    """Return the report's pictures; captions say what to see, with this run's figures."""
    covered = sum(abs(item.estimate - item.truth) <= Z95 * item.stderr for item in study.counts)
    masked, clear = ", ".join(study.policy.disguised), ", ".join(study.privacy.clear)
    return (
        Picture(
            "network",
            "Who wears a mask",
            "The network that the people are drawn from; an arrow means that one answer depends on another. "
            "A masked answer is reported through a random channel; γ says how much its report can give away "
            f"(1: nothing). {clear} are reported as they are.",
            f"Directed graph of {len(study.structure)} nodes; {masked} carry masks, {clear} do not.",
            network_picture,
        ),
        Picture(
            "counts",
            "Counting the masked",
            "Upright bar: how many people it truly is. Orange cross: what the disguised records say at face "
            "value, often far off. Blue: the estimate from the same records, with its 95% interval. "
            f"{covered} of {len(study.counts)} intervals contain the truth; 19 of 20 do in the long run.",
            "Dot plot of counts: naive counts are far from the truth, estimates with intervals are at it.",
            counts_picture,
        ),
        Picture(
            "parameters",
            "All parameters of the network",
            "Across: a probability in the network. Upwards: the same probability learnt from the disguised "
            "records. Blue points should lie on the diagonal, and their 95% bars cross it; orange crosses "
            "show that disguised records at face value flatten everything towards the middle.",
            "Scatter plot of estimated against true probabilities: estimates along the diagonal, naive "
            "values on a flatter line.",
            parameters_picture,
        ),
        Picture(
            "errors",
            "Are the error bars honest?",
            "Errors divided by their standard errors. If the error bars are right, the columns follow the "
            "normal curve: two thirds within ±1, nearly all within ±3. Left: parameters against the network. "
            "Right: all counts of one and two answers against the people's own; they share the same people, "
            "so they scatter together.",
            "Two histograms of standardised errors beside the standard normal curve.",
            errors_picture,
        ),
        Picture(
            "breach",
            "What a report can give away",
            "Across: how sure somebody is of a statement before seeing a report. Upwards: how sure they can "
            "be at most afterwards. Each answer's own report moves beliefs little. All reports of one person "
            "together could move them far more, at worst: the purple curve is the price of asking eight "
            "questions of the same person.",
            "Curves of the largest posterior belief against the prior belief, one for each γ and one for the "
            "whole record.",
            breach_picture,
        ),
    )
