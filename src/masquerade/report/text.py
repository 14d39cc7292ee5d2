"""The demo's result as plain text, 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill

from masquerade.report.study import Study
from masquerade.report.words import NO_FIGURE, Row, bounds, count_row, parameter_row, printed_note, verdict

WIDTH = 100
SHOWN_NODES = ("B", "E", "C")
TITLES = Row("", "truth", "naive", "naive off", "estimate", "std. error", "off, in s.e.", "")


def demo_text(study: Study, files: Iterable[str]) -> str:
    """Return the whole result."""
    hidden, clear = study.policy.disguised, study.privacy.clear
    masks = f"{len(hidden)} of the answers wear a mask, {len(clear)} do not ({', '.join(clear)})"
    blocks = [
        [
            f"MASQUERADE DEMO   {study.n:,} people, {len(study.policy.schema)} questions; {masks}",
            "Everything below is estimated from the disguised records alone.",
        ],
        count_lines(study),
        parameter_lines(study),
        guarantee_lines(study),
        list(files),
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def count_lines(study: Study) -> list[str]:
    """Return the table of counts, against the sample's own truth."""
    return [
        "COUNTS   truth: these very people; naive: the disguised records as they are; ± given the records",
        line(TITLES),
        *(line(count_row(item, study.n)) for item in study.counts),
    ]


def parameter_lines(study: Study) -> list[str]:
    """Return the parameters of some nodes, against the network's, and the verdict over all of them."""
    shown = [node for name in SHOWN_NODES for node in study.nodes if node.name == name]
    rows = [parameter_row(item) for node in shown for item in node.parameters if item.free]
    return [
        f"PARAMETERS of {', '.join(node.label for node in shown)}   truth: the network; ± for the population",
        line(TITLES),
        *(line(row) for row in rows),
        fill(verdict(study), WIDTH),
    ]


def line(row: Row) -> str:
    """Return one row of either table."""
    error = f"± {row.stderr}" if row.stderr != NO_FIGURE else ""
    left = f"  {row.label:<16}{row.truth:>11}{row.naive:>11}{row.naive_off:>12}"
    return f"{left}{row.estimate:>13} {error:<13}{row.z:>12}  {row.note}".rstrip()


def guarantee_lines(study: Study) -> list[str]:
    """Return who learns what, and how much of it."""
    guarantee, columns = study.privacy.guarantee, bounds(study)
    roles = list(dict.fromkeys(item.role for item in guarantee.disclosures))
    clear = [name for item in guarantee.disclosures if item.gamma is None for name in item.variables]
    cells = [
        ("", [item.name for item in columns]),
        ("γ", [item.gamma for item in columns]),
        ("ε = ln γ", [item.epsilon for item in columns]),
        ("belief of 10% → at most", [item.reach for item in columns]),
    ]
    assumed = "; ".join(guarantee.assumptions)
    return [
        fill(
            f"GUARANTEE   {' and '.join(roles)} learns {', '.join(clear)} in clear; "
            "the others only through masks that bound what a report reveals about its variable:",
            WIDTH,
        ),
        *(
            f"  {title:<25}" + "".join(f"{cell:>7}" for cell in row[:-1]) + f"{row[-1]:>11}"
            for title, row in cells
        ),
        "(record: whatever is concluded from all the reports of one person together)",
        fill(f"Assuming that {assumed}.", WIDTH),
        fill(printed_note(study), WIDTH),
    ]
