"""Printed parts of a survey: the letter with the page's sha256, and sheets for drawing reports by hand.

A sheet implements the same channel as the page: a spinner with sectors, dice read as digits, or the day of an
acquaintance's birthday. Dice are exact by the page's rule: of the 6^k results of k dice, an outcome of weight
w gets w·⌊6^k/D⌋, where D is the sum of the weights, and the remaining results are rolled again. Birthdays are
only roughly uniform.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

import jinja2
from markupsafe import Markup

from masquerade.channels.channel import Channel
from masquerade.survey.forms.information import information_values
from masquerade.survey.forms.own_chance import (
    MOST_DICE,
    MOST_SECTORS,
    is_together,
    own_weights,
    sheet_channels,
    sheet_problem,
)
from masquerade.survey.forms.survey_file import Survey, SurveyQuestion
from masquerade.survey.page.consequences import say_bound, say_clear, say_day, say_views
from masquerade.survey.page.qr import in_svg
from masquerade.survey.page.script_text import asset

DAYS: Final = 30
_LETTERS: Final = "ABCDEFGHIJKLM"[: MOST_SECTORS + 1]  # one more for "your own number"


@dataclass(frozen=True)
class Sector:
    """A sector of a spinner: its label, its share as odds, its SVG path, and its letter with position."""

    label: str
    share: str
    path: str
    mark: str
    x: float
    y: float


@dataclass(frozen=True)
class Sheet:
    """The spinner, dice and days for one answer to one question."""

    answer: str
    sectors: list[Sector]
    dice: list[tuple[str, str]] | None
    days: list[tuple[str, str]] | None
    throws: int


def letter(survey: Survey, digest: str) -> str:
    """Return the letter to respondents, with the page's sha256, in every language."""
    spec = survey.spec
    return _template("letter.html.j2").render(
        languages=survey.languages,
        words=survey.words,
        title=survey.text(spec.title),
        consent=survey.text(spec.consent),
        contact=survey.text(spec.contact),
        address=spec.collector,
        digest=[digest[i : i + 8] for i in range(0, 64, 8)],
        closes=spec.closes and {it: say_day(survey.words[it], spec.closes) for it in survey.languages},
        deleted=spec.delete_after
        and {it: say_day(survey.words[it], spec.delete_after) for it in survey.languages},
        information=information_values(survey).get("information", []),
        panel=spec.panel,
        clear={language: say_clear(survey, language) for language in survey.languages},
        free=bool(survey.free_texts),
        bound={language: say_bound(survey, language) for language in survey.languages},
        views={language: say_views(survey, language) for language in survey.languages},
        code=Markup(in_svg(f"{spec.collector}/")),  # noqa: S704  (an address that was checked)
    )


def sheets(survey: Survey) -> str:
    """Return the printed sheets.

    There is one per question or, for questions answered together, one per number of answer combinations.
    """
    language, policy = survey.languages[0], survey.policy
    words = survey.words[language]
    by_name = {question.name: question for question in survey.questions}
    alone: list[tuple[str, str, list[Sheet]]] = []
    together: dict[int, tuple[str, str, list[Sheet]]] = {}
    has_sheets = policy.stratum_variable is None
    for group in policy.groups:
        if not has_sheets or not group.disguised or sheet_problem(group) is not None:
            continue
        for size, channel in sheet_channels(group).items():
            if is_together(group):
                title = words["sheet_together"].replace("{n}", str(size))
                together[size] = title, words["sheet_together_rule"], [_sheet_of_numbers(channel, words)]
            else:
                question = by_name[group.names[0]]
                by_answer = _sheets(question, channel, language, words)
                alone.append((question.text[language], words["sheet_rule"], by_answer))
    return _template("sheets.html.j2").render(
        language=language,
        title=survey.text(survey.spec.title)[language],
        questions=[*alone, *(together[size] for size in sorted(together))],
        words=words,
    )


def _sheet_of_numbers(channel: Channel, words: dict[str, str]) -> Sheet:
    """Return the sheet of a symmetric channel, the same for every combination of answers."""
    weights = own_weights(channel)
    assert weights is not None  # noqa: S101  (for the type checker: only such channels have a sheet)
    numbers = [
        (words["sheet_mark"].replace("{r}", str(code + 1)), weights[1]) for code in range(channel.truths)
    ]
    return _sheet("", [(words["sheet_own"], weights[0]), *numbers], words)


def _sheets(question: SurveyQuestion, channel: Channel, language: str, words: dict[str, str]) -> list[Sheet]:
    answers = question.answers[language]
    names = answers if channel.labels is None and channel.reports == len(answers) else channel.labels
    labels = [
        words["sheet_mark"].replace("{r}", str(name)) for name in (names or range(1, channel.reports + 1))
    ]
    by_answer = []
    for code, answer in enumerate(answers):
        if code in question.not_offered:
            continue
        row = channel.row(code)
        total = math.lcm(*(share.denominator for share in row.values()))
        weights = [(labels[report], int(share * total)) for report, share in row.items()]
        by_answer.append(_sheet(words["sheet_answer"].replace("{a}", answer), weights, words))
    return by_answer


def _sheet(answer: str, weights: list[tuple[str, int]], words: dict[str, str]) -> Sheet:
    total = sum(weight for _, weight in weights)
    throws = _dice(total)
    dice = ranges(weights, total, 6**throws) if throws else None
    days = ranges(weights, total, DAYS) if total <= DAYS else None
    return Sheet(
        answer,
        _sectors(weights, total, words["of"]),
        None
        if dice is None
        else [(label, _between(_thrown(a, throws), _thrown(b, throws))) for label, a, b in dice],
        None if days is None else [(label, _between(str(a + 1), str(b + 1))) for label, a, b in days],
        throws,
    )


def ranges(weights: list[tuple[str, int]], total: int, words: int) -> list[tuple[str, int, int]]:
    """Divide the numbers below `words` among labels; return the first and the last number of each label.

    >>> ranges([("yes", 3), ("no", 1)], 4, 36)
    [('yes', 0, 26), ('no', 27, 35)]
    """
    each, start, shares = words // total, 0, []
    for label, weight in weights:
        if weight:
            shares.append((label, start, start + weight * each - 1))
            start += weight * each
    return shares


def _dice(total: int) -> int:
    """Return the fewest dice that seldom need a second roll, else the fewest that suffice; 0 if none do."""
    enough = [k for k in range(1, MOST_DICE + 1) if 6**k >= total]
    return next((k for k in enough if 6 * (6**k % total) <= 6**k), enough[0] if enough else 0)


def _between(first: str, last: str) -> str:
    return first if first == last else f"{first} – {last}"


def _thrown(word: int, throws: int) -> str:
    return "-".join(str(word // 6**i % 6 + 1) for i in reversed(range(throws)))


def _sectors(weights: list[tuple[str, int]], total: int, of: str) -> list[Sector]:
    sectors, before = [], 0
    for (label, weight), mark in zip(weights, _LETTERS, strict=False):
        if not weight:
            continue
        a, b = 2 * math.pi * before / total, 2 * math.pi * (before + weight) / total
        ends = [(50 + 46 * math.sin(angle), 50 - 46 * math.cos(angle)) for angle in (a, b)]
        begin, end = (f"{x:.3f} {y:.3f}" for x, y in ends)
        path = f"M50 50L{begin}A46 46 0 {int(2 * weight > total)} 1 {end}Z"
        if weight == total:
            path = "M50 4A46 46 0 1 1 49.99 4Z"
        middle, out = (
            (a + b) / 2,
            28 if 8 * weight > total else 41,
        )  # narrow sectors have room at the rim
        share = of.replace("{k}", str(weight)).replace("{m}", str(total))
        sectors.append(
            Sector(
                label,
                share,
                path,
                mark,
                round(50 + out * math.sin(middle), 2),
                round(50 - out * math.cos(middle), 2),
            )
        )
        before += weight
    return sectors


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(asset(name))
