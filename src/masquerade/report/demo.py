"""The demo on built-in data, from a population to a report: `run_demo`, its text and its page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from textwrap import fill
from typing import Any, Literal

import pyarrow as pa
from markupsafe import Markup
from matplotlib.figure import Figure

from masquerade import __version__
from masquerade.core.errors import FileError
from masquerade.core.plots.style import house_style, svg
from masquerade.core.record_gamma import describe_gamma
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.formatting import gamma_text
from masquerade.disguising.columns import policy_metadata
from masquerade.frames.file_writer import AtomicWriter
from masquerade.report import pictures
from masquerade.report.guarantee_words import bounds, list_disclosures
from masquerade.report.pages import render_template
from masquerade.report.study import VAGUE, Study, StudyFigure, run_study

REPORT, POLICY, RECORDS = "report.html", "policy.yaml", "disguised.parquet"
WIDTH = 100
SHOWN_NODES = ("B", "E", "C")
FEW = 1000
PRINTED_GAMMA: Mapping[str, int] = {"C": 9, "F": 9}
NO_FIGURE = "–"
UNSEEN = "unseen"
RARE = "rare"


@dataclass(frozen=True, slots=True, eq=False)
class DemoResult:
    """Result of the demo as text, and the paths of its files."""

    text: str
    report: Path
    policy: Path
    records: Path
    study: Study


@dataclass(frozen=True, slots=True)
class _Row:
    """A comparison as text. `note` explains a missing or unreliable number."""

    label: str
    truth: str
    naive: str
    naive_off: str
    estimate: str
    stderr: str
    z: str
    note: str


@dataclass(frozen=True, slots=True)
class _Picture:
    """A plot with its texts: heading, caption, and description for screen readers."""

    name: str
    heading: str
    caption: str
    alt: str
    draw: Callable[[Study], Figure]


TITLES = _Row("", "truth", "naive", "naive off", "estimate", "std. error", "off, in s.e.", "")


def run_demo(out: Path, n: int = 20_000, *, overwrite: bool = False) -> DemoResult:
    """Disguise `n` simulated people, estimate from the disguised records, and write three files into `out`.

    The population is always the same. The disguise uses the operating system's randomness, so that results
    vary slightly between runs. The files (report, policy, disguised records) are written atomically after
    everything has been computed. Existing files are replaced only with `overwrite`.
    """
    out = Path(out)
    for name in (REPORT, POLICY, RECORDS):
        if (out / name).exists() and not overwrite:
            raise FileError(f"{out / name}: already exists. Name a new folder, or use --overwrite.")
    study = run_study(n)
    page = render_template("masquerade.report", "demo.html.j2", _content(study))
    report, policy, records = out / REPORT, out / POLICY, out / RECORDS
    text = _demo_text(
        study, [f"Report with pictures: {report}", f"Policy: {policy}", f"Disguised records: {records}"]
    )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{out}: cannot create this directory ({error.strerror}).") from None
    study.policy.save(policy)
    batch = pa.RecordBatch.from_pandas(study.disguised, preserve_index=False)
    schema, said = batch.schema.remove_metadata(), {"policy": study.policy.id} | policy_metadata(study.policy)
    with AtomicWriter(records, schema, said, overwrite=overwrite) as writer:
        writer.write(batch)
    write_whole(report, page)
    return DemoResult(text, report, policy, records, study)


def _demo_text(study: Study, files: Iterable[str]) -> str:
    hidden, clear = study.policy.disguised, study.privacy.clear
    masks = f"{len(hidden)} of the answers wear a mask, {len(clear)} do not ({', '.join(clear)})"
    heading = "COUNTS   truth: these people; naive: the disguised records at face value; ± given the records"
    blocks = [
        [
            f"MASQUERADE DEMO   {study.n:,} people, {len(study.policy.schema)} questions; {masks}",
            "Everything below is estimated from the disguised records alone.",
        ],
        [
            heading,
            line(TITLES),
            *(line(count_row(item, study.n)) for item in study.counts),
        ],
        _parameter_lines(study),
        _guarantee_lines(study),
        list(files),
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _parameter_lines(study: Study) -> list[str]:
    """Return the estimates of selected parameters next to their true values, and a summary of all errors."""
    shown = [node for name in SHOWN_NODES for node in study.nodes if node.name == name]
    rows = [parameter_row(item) for node in shown for item in node.parameters if item.free]
    return [
        f"PARAMETERS of {', '.join(node.label for node in shown)}   truth: the network; ± for the population",
        line(TITLES),
        *(line(row) for row in rows),
        fill(_verdict(study), WIDTH),
    ]


def line(row: _Row) -> str:
    """Return one row of a table."""
    error = f"± {row.stderr}" if row.stderr != NO_FIGURE else ""
    left = f"  {row.label:<16}{row.truth:>11}{row.naive:>11}{row.naive_off:>12}"
    return f"{left}{row.estimate:>13} {error:<13}{row.z:>12}  {row.note}".rstrip()


def _guarantee_lines(study: Study) -> list[str]:
    guarantee, columns = study.privacy.guarantee, bounds(study.privacy)
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
            f"GUARANTEE   {' and '.join(roles)} learns {', '.join(clear)} in clear, and the other "
            "variables only through masks that bound what a report reveals about its variable:",
            WIDTH,
        ),
        *(
            f"  {title:<25}" + "".join(f"{cell:>7}" for cell in row[:-1]) + f"{row[-1]:>11}"
            for title, row in cells
        ),
        "(record: anything concluded from all reports of one person together)",
        fill(f"Assuming that {assumed}.", WIDTH),
        fill(_printed_note(study), WIDTH),
    ]


def _content(study: Study) -> dict[str, Any]:
    """Return the content of the template as text."""
    guarantee = study.privacy.guarantee
    return {
        "version": __version__,
        "n": f"{study.n:,}",
        "questions": len(study.policy.schema),
        "masked": study.policy.disguised,
        "clear": study.privacy.clear,
        "policy_id": study.policy.id,
        "files": {"policy": POLICY, "records": RECORDS},
        "pictures": _draw_svg(study),
        "verdict": _verdict(study),
        "counts": [count_row(item, study.n) for item in study.counts],
        "pairs": [
            (" × ".join(name for name, _ in pair[0].cell), [count_row(item, study.n) for item in pair])
            for pair in study.pairs
        ],
        "nodes": [(node.label, [parameter_row(item) for item in node.parameters]) for node in study.nodes],
        "bounds": bounds(study.privacy),
        "person": describe_gamma(study.privacy.record_gamma),
        "record_gamma": gamma_text(study.privacy.record_gamma),
        "disclosures": list_disclosures(guarantee),
        "assumptions": guarantee.assumptions,
        "printed_note": _printed_note(study),
        "structure": study.structure,
    }


def _draw_svg(study: Study) -> list[tuple[_Picture, Markup]]:
    with house_style():
        return [
            (picture, Markup(svg(picture.draw(study), picture.name)))  # noqa: S704
            for picture in _shown_pictures(study)
        ]


def _shown_pictures(study: Study) -> tuple[_Picture, ...]:
    """Return the report's plots. Captions contain the numbers of this run."""
    covered = sum(abs(item.estimate - item.truth) <= pictures.Z95 * item.stderr for item in study.counts)
    masked, clear = ", ".join(study.policy.disguised), ", ".join(study.privacy.clear)
    return (
        _Picture(
            "network",
            "Who wears a mask",
            "The network that the people are drawn from; an arrow means that one answer depends on another. "
            "A masked answer is reported through a random channel; γ bounds how much its report can reveal "
            f"(1: nothing). {clear} are reported unchanged.",
            f"Directed graph of {len(study.structure)} nodes; {masked} carry masks, {clear} do not.",
            pictures.network_picture,
        ),
        _Picture(
            "counts",
            "Counting the masked",
            "Upright bar: the true number of people. Orange cross: the count of the disguised records at "
            "face "
            "value, often far off. Blue: the estimate from the same records, with its 95% interval. "
            f"{covered} of {len(study.counts)} intervals contain the truth; 19 of 20 do in the long run.",
            "Dot plot of counts: naive counts are far from the truth, estimates are close to it.",
            pictures.counts_picture,
        ),
        _Picture(
            "parameters",
            "All parameters of the network",
            "Across: a probability in the network. Upwards: the same probability learnt from the disguised "
            "records. Blue points should lie on the diagonal, and their 95% bars cross it; orange crosses "
            "show that disguised records at face value flatten everything towards the middle.",
            "Scatter plot of estimated against true probabilities: estimates along the diagonal, naive "
            "values on a flatter line.",
            pictures.parameters_picture,
        ),
        _Picture(
            "errors",
            "Are the error bars honest?",
            "Errors divided by their standard errors. If the error bars are right, the columns follow the "
            "normal curve: two thirds within ±1, nearly all within ±3. Left: parameters against the network. "
            "Right: all counts of one and two answers against the true counts of these people; all counts "
            "are about the same people, so their errors are correlated.",
            "Two histograms of standardised errors with the standard normal curve.",
            pictures.errors_picture,
        ),
        _Picture(
            "breach",
            "What a report can reveal",
            "Across: how sure an observer is of a statement before seeing a report. Upwards: how sure they "
            "can "
            "be at most afterwards. Each answer's own report moves beliefs little. All reports of one person "
            "together could move them far more, at worst: the thick curve is the cost of asking eight "
            "questions of the same person.",
            "Curves of the largest posterior belief against the prior belief, one for each γ and one for the "
            "whole record.",
            pictures.breach_picture,
        ),
    )


def count_row(item: StudyFigure, n: int) -> _Row:
    """Format a count: integers, with a decimal for small counts."""
    digits = 0 if n >= FEW else 1

    def format_people(value: float) -> str:
        return number(value, digits)

    return _Row(
        item.label,
        number(item.truth, 0),
        number(item.naive, 0),
        _percent_off(item),
        format_people(item.estimate),
        format_people(item.stderr),
        format_z(item.z),
        "",
    )


def parameter_row(item: StudyFigure) -> _Row:
    """Format a parameter. It is missing for an unseen parent configuration."""
    given = (item.label, number(item.truth, 3), number(item.naive, 3), _percent_off(item))
    if not item.seen:
        return _Row(*given, UNSEEN, NO_FIGURE, NO_FIGURE, "")
    if item.stderr > VAGUE:
        return _Row(*given, RARE, NO_FIGURE, NO_FIGURE, "")
    note = "" if item.reliable else RARE
    return _Row(*given, number(item.estimate, 3), number(item.stderr, 3), format_z(item.z), note)


def _percent_off(item: StudyFigure) -> str:
    if item.naive is None or not item.truth:
        return NO_FIGURE
    return number(100 * (item.naive - item.truth) / item.truth, 0, sign="+") + "%"


def number(value: float | None, digits: int, sign: Literal["+", "-"] = "-") -> str:
    """Format a number with a true minus sign, and no sign for zero."""
    if value is None:
        return NO_FIGURE
    shown = f"{value:{sign},.{digits}f}"
    return shown.lstrip("+-") if not float(shown.replace(",", "")) else shown.replace("-", "−")


def format_z(value: float | None) -> str:
    """Format a difference in standard errors."""
    return number(value, 1, sign="+")


def _printed_note(study: Study) -> str:
    """Return a note where Table 1 of the paper prints a γ that differs from its channels."""
    exact = {item.variables[0]: item.gamma for item in study.privacy.variables}
    wrong = [name for name, printed in PRINTED_GAMMA.items() if exact[name] != printed]
    values = {gamma_text(exact[name]) for name in wrong}
    return (
        f"Table 1 of the paper prints γ = {PRINTED_GAMMA[wrong[0]]} for {' and '.join(wrong)}; "
        f"the exact value of these channels is {', '.join(sorted(values))}."
    )


def within(errors: Sequence[float]) -> list[tuple[int, int, float, float]]:
    """Return, for 1, 2 and 3 standard errors, the number, share and expected share of errors within them."""
    result = []
    for limit in (1, 2, 3):
        inside = sum(abs(error) <= limit for error in errors)
        expected = NormalDist().cdf(limit) - NormalDist().cdf(-limit)
        result.append((limit, inside, inside / len(errors) if errors else 0.0, expected))
    return result


def _verdict(study: Study) -> str:
    """Summarize the errors of the free parameters in a sentence."""
    errors, free = study.reliable_errors, len(study.free_parameters)
    if not errors:
        return f"None of the {free} free parameters can be judged: the records are too few."
    judged = f"Of {len(errors)} free parameters"
    if len(errors) < free:
        left_out = free - len(errors)
        judged = f"{left_out} of {free} free parameters are too rarely seen; of the other {len(errors)}"
    rows = within(errors)
    found = ", ".join(f"{inside} ({part:.0%}) within {limit}" for limit, inside, part, _ in rows)
    expected = ", ".join(f"{100 * part:.3g}%" for *_, part in rows)
    return f"{judged}: {found} standard errors (expected {expected})."
