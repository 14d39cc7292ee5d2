"""How figures are written, the same in the text and in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Literal

from masquerade.channels.measures import breach_bound
from masquerade.core.words import epsilon_text, gamma_text, log_gamma, percent
from masquerade.report.study import Comparison, Study

FEW = 1000
PRINTED_GAMMA: Mapping[str, int] = {"C": 9, "F": 9}
BELIEF = 0.1
NO_FIGURE = "–"
UNSEEN = "unseen"
RARE = "rare"
VAGUE = 1.0  # a probability with a larger standard error is not known at all


@dataclass(frozen=True, slots=True)
class Row:
    """A comparison, written; `note` says why a figure is missing or not to be trusted."""

    label: str
    truth: str
    naive: str
    naive_off: str
    estimate: str
    stderr: str
    z: str
    note: str


@dataclass(frozen=True, slots=True)
class Bound:
    """What one channel, or the whole record, lets anyone conclude."""

    name: str
    gamma: str
    epsilon: str
    reach: str


def count_row(item: Comparison, n: int) -> Row:
    """Write a count: whole people, with a decimal where there are few of them."""
    digits = 0 if n >= FEW else 1

    def written(value: float) -> str:
        return number(value, digits)

    return Row(
        item.label,
        number(item.truth, 0),
        number(item.naive, 0),
        percent_off(item),
        written(item.estimate),
        written(item.stderr),
        signed(item.z),
        "",
    )


def parameter_row(item: Comparison) -> Row:
    """Write a parameter; an unseen parent configuration has none."""
    given = (item.label, number(item.truth, 3), number(item.naive, 3), percent_off(item))
    if not item.seen:
        return Row(*given, UNSEEN, NO_FIGURE, NO_FIGURE, "")
    if item.stderr > VAGUE:
        return Row(*given, RARE, NO_FIGURE, NO_FIGURE, "")
    note = "" if item.reliable else RARE
    return Row(*given, number(item.estimate, 3), number(item.stderr, 3), signed(item.z), note)


def percent_off(item: Comparison) -> str:
    """Write how far the naive figure is from the truth, in percent of it."""
    if item.naive is None or not item.truth:
        return NO_FIGURE
    return number(100 * (item.naive - item.truth) / item.truth, 0, sign="+") + "%"


def number(value: float | None, digits: int, sign: Literal["+", "-"] = "-") -> str:
    """Write a number with a true minus sign, and no sign for zero."""
    if value is None:
        return NO_FIGURE
    shown = f"{value:{sign},.{digits}f}"
    return shown.lstrip("+-") if not float(shown.replace(",", "")) else shown.replace("-", "−")


def signed(value: float | None) -> str:
    """Write a difference in standard errors."""
    return number(value, 1, sign="+")


def bounds(study: Study) -> list[Bound]:
    """Return γ, ε and how far a belief of 10% can rise, by variable and for the whole record."""
    figures: list[tuple[str, Fraction | float]] = [
        (", ".join(item.variables), item.gamma) for item in study.privacy.variables
    ]
    figures.append(("record", study.privacy.record_gamma))
    return [
        Bound(name, gamma_text(gamma), epsilon_text(log_gamma(gamma)), percent(breach_bound(gamma, BELIEF)))
        for name, gamma in figures
    ]


def printed_note(study: Study) -> str:
    """Say where the paper's Table 1 prints another γ than its channels have."""
    exact = {item.variables[0]: item.gamma for item in study.privacy.variables}
    wrong = [name for name, printed in PRINTED_GAMMA.items() if exact[name] != printed]
    values = {gamma_text(exact[name]) for name in wrong}
    return (
        f"Table 1 of the paper prints γ = {PRINTED_GAMMA[wrong[0]]} for {' and '.join(wrong)}; "
        f"the exact value of these channels is {', '.join(sorted(values))}."
    )


def within(errors: Sequence[float]) -> list[tuple[int, int, float, float]]:
    """Return, for 1, 2 and 3 standard errors: how many errors lie within, their share, the expected share."""
    result = []
    for limit in (1, 2, 3):
        inside = sum(abs(error) <= limit for error in errors)
        expected = NormalDist().cdf(limit) - NormalDist().cdf(-limit)
        result.append((limit, inside, inside / len(errors) if errors else 0.0, expected))
    return result


def verdict(study: Study) -> str:
    """Say in a sentence how the free parameters came out."""
    errors, free = study.judged, len(study.free_parameters)
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
