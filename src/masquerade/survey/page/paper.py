"""What is printed of a survey: the letter with the page's sha256, and sheets for people who draw themselves.

A sheet leads through the very channel of the page: a spinner with its sectors, dice read as digits, or the
day of somebody's birthday. Dice are exact by the page's own rule: of 6^k throws every outcome of weight w
owns w·⌊6^k/D⌋, and who throws one of the rest throws again. Birthdays are only nearly even.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

import jinja2
from markupsafe import Markup

from masquerade.channels.channel import Channel
from masquerade.survey.forms.survey_file import Question, Survey
from masquerade.survey.page.consequences import surest_of_all
from masquerade.survey.page.qr import in_svg
from masquerade.survey.page.script_text import asset

MOST_DICE: Final = 3
DAYS: Final = 30
MOST_SECTORS: Final = 12
_LETTERS: Final = "ABCDEFGHIJKL"


@dataclass(frozen=True)
class Sector:
    """A part of a spinner: its label, its share as a fraction, and the path that draws it."""

    label: str
    share: str
    path: str
    mark: str
    x: float
    y: float


@dataclass(frozen=True)
class Sheet:
    """The rules of one answer to one question."""

    answer: str
    sectors: list[Sector]
    dice: list[tuple[str, str]] | None
    days: list[tuple[str, str]] | None
    throws: int


def letter(survey: Survey, digest: str) -> str:
    """Return the letter to respondents, with the page's sha256, in every language."""
    spec, clear = survey.spec, len(survey.policy.disguised) < len(survey.policy.schema)
    return _template("letter.html.j2").render(
        languages=survey.languages,
        words=survey.words,
        title=survey.text(spec.title),
        consent=survey.text(spec.consent),
        contact=survey.text(spec.contact),
        address=spec.collector,
        digest=[digest[i : i + 8] for i in range(0, 64, 8)],
        closes=spec.closes,
        panel=spec.panel,
        clear=clear,
        surest=surest_of_all(survey.policy),
        code=Markup(in_svg(f"{spec.collector}/")),  # noqa: S704  (an address that was checked)
    )


def sheets(survey: Survey) -> str:
    """Return the printed sheets, of questions that are disguised alone by few outcomes."""
    language = survey.languages[0]
    found = []
    for question in survey.questions:
        group = survey.policy.group(question.name)
        channel = group.channel
        if (
            isinstance(channel, Channel)
            and group.disguised
            and len(group.names) == 1
            and channel.reports <= MOST_SECTORS
            and survey.policy.stratum_variable is None
        ):
            found.append((question.text[language], _sheets(question, channel, language)))
    return _template("sheets.html.j2").render(
        language=language,
        title=survey.text(survey.spec.title)[language],
        questions=found,
        words=survey.words[language],
    )


def _sheets(question: Question, channel: Channel, language: str) -> list[Sheet]:
    given = question.answers[language]
    names = given if channel.labels is None and channel.reports == len(given) else channel.labels
    labels = [str(name) for name in (names or range(1, channel.reports + 1))]
    return [
        _sheet(
            answer,
            [
                (labels[report], share.numerator, share.denominator)
                for report, share in channel.row(code).items()
            ],
        )
        for code, answer in enumerate(given)
    ]


def _sheet(answer: str, row: list[tuple[str, int, int]]) -> Sheet:
    total = math.lcm(*(denominator for _, _, denominator in row))
    weights = [(label, numerator * total // denominator) for label, numerator, denominator in row]
    throws = _dice(total)
    dice = ranges(weights, total, 6**throws) if throws else None
    days = ranges(weights, total, DAYS) if total <= DAYS else None
    return Sheet(
        answer,
        _sectors(weights, total),
        None
        if dice is None
        else [(label, _between(_thrown(a, throws), _thrown(b, throws))) for label, a, b in dice],
        None if days is None else [(label, _between(str(a + 1), str(b + 1))) for label, a, b in days],
        throws,
    )


def ranges(weights: list[tuple[str, int]], total: int, words: int) -> list[tuple[str, int, int]]:
    """Return which of so many equally likely words give which label, the first and the last of each.

    >>> ranges([("yes", 3), ("no", 1)], 4, 36)
    [('yes', 0, 26), ('no', 27, 35)]
    """
    each, start, found = words // total, 0, []
    for label, weight in weights:
        if weight:
            found.append((label, start, start + weight * each - 1))
            start += weight * each
    return found


def _dice(total: int) -> int:
    """Return how many dice to throw: as few as throw again seldom; 0 if there would be too many."""
    enough = [k for k in range(1, MOST_DICE + 1) if 6**k >= total]
    return next((k for k in enough if 6 * (6**k % total) <= 6**k), enough[0] if enough else 0)


def _between(first: str, last: str) -> str:
    return first if first == last else f"{first} – {last}"


def _thrown(word: int, throws: int) -> str:
    return "-".join(str(word // 6**i % 6 + 1) for i in reversed(range(throws)))


def _sectors(weights: list[tuple[str, int]], total: int) -> list[Sector]:
    found, before = [], 0
    for (label, weight), mark in zip(weights, _LETTERS, strict=False):
        if not weight:
            continue
        a, b = 2 * math.pi * before / total, 2 * math.pi * (before + weight) / total
        ends = [(50 + 46 * math.sin(angle), 50 - 46 * math.cos(angle)) for angle in (a, b)]
        begin, end = (f"{x:.3f} {y:.3f}" for x, y in ends)
        path = f"M50 50L{begin}A46 46 0 {int(2 * weight > total)} 1 {end}Z"
        if weight == total:
            path = "M50 4A46 46 0 1 1 49.99 4Z"
        middle = (a + b) / 2
        common = math.gcd(weight, total)
        share = f"{weight // common}/{total // common}"
        found.append(
            Sector(
                label,
                share,
                path,
                mark,
                round(50 + 28 * math.sin(middle), 2),
                round(50 - 28 * math.cos(middle), 2),
            )
        )
        before += weight
    return found


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(asset(name))
