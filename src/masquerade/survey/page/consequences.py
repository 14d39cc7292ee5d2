"""Bounds on what the reports of a survey reveal, in sentences that are selected by the computed numbers.

The first screen of the page, the letter and the dossier show the same sentences: `say_bound` states how sure
a reader can become, and `say_views` who sees true answers and who sees what was sent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

from masquerade.channels.policy import Group, Policy
from masquerade.channels.privacy_level import DEFAULT_LIMIT
from masquerade.core.record_gamma import Gamma
from masquerade.survey.forms.survey_file import Survey

BEFORE: Final = DEFAULT_LIMIT.stated[0]
EVEN: Final = Fraction(1, 2)
MOST_DIGITS: Final = 2
SERVER_SIDE: Final = ("who_team", "who_hacker", "who_court")
DEVICE_SIDE: Final = ("who_screen", "who_device")
Level = Literal["no", "weak", "none"]


@dataclass(frozen=True)
class View:
    """What one role sees: its name, the lines about true answers, and whether it sees what was sent."""

    who: str
    true_answers: tuple[str, ...]
    sent: str
    level: str


def percent_after(gamma: Gamma, before: Fraction = BEFORE) -> str | None:
    """Return the largest posterior probability, in percent, of a fact with prior probability `before`.

    Formula: a report multiplies the odds of any fact about the person by at most γ. The result is rounded up
    to whole percent, or to up to two decimals if whole percent would be 100. None means (almost) certain.
    Reference: Evfimievski, Gehrke & Srikant (2003).

    >>> percent_after(Fraction(19)), percent_after(Fraction(3)), percent_after(Fraction(10**5))
    ('50', '14', '99.99')
    """
    if math.isinf(gamma):
        return None
    factor = Fraction(gamma)
    share = factor * before / (1 + (factor - 1) * before) * 100
    for digits in range(MOST_DIGITS + 1):
        rounded = math.ceil(share * 10**digits)
        if rounded < 100 * 10**digits:
            return str(Decimal(rounded).scaleb(-digits))
    return None


def is_weak(gamma: Gamma) -> bool:
    """Return True if a record reveals more than the default limit, 5%:50%."""
    return gamma > DEFAULT_LIMIT.gamma


def protection_level(gamma: Gamma) -> Level:
    """Return "no" within the default limit, "weak" above it, and "none" if a reader may become certain.

    Certain means that an even belief (50%) rounds up to 100%.
    """
    if percent_after(gamma, EVEN) is None:
        return "none"
    return "weak" if is_weak(gamma) else "no"


def percent_of_answers(policy: Policy) -> dict[str, str | None]:
    """Return, for each disguised variable, the largest belief after seeing its report, in percent."""
    groups = [group for label in policy.strata or (None,) for group in policy.groups_of(label)]
    return {
        name: percent_after(max(gamma_of(group) for group in groups if name in group.names))
        for name in policy.disguised
    }


def say_bound(survey: Survey, language: str) -> list[str]:
    """Return the sentences that state the bound on everything that a person sends, in one language."""
    words, gamma = survey.words[language], survey.record_gamma
    level = protection_level(gamma)
    if level == "none":
        return [words["bound_none"]]
    first = "bound_all_clear" if survey.sends_clear else "bound_all"
    bound = [
        _fill_belief(words, first, BEFORE, gamma),
        _fill_belief(words, "bound_even", EVEN, gamma),
    ]
    if level == "weak":
        bound.append(_fill_belief(words, "bound_weak", BEFORE, DEFAULT_LIMIT.gamma))
    return bound


def say_views(survey: Survey, language: str) -> list[View]:
    """Return the view of each role, in one language; the texts depend on the γ of the record."""
    words, level = survey.words[language], protection_level(survey.record_gamma)
    rest = words[f"true_{level}"]
    clear = (words["true_clear"], words["true_rest"].replace("{x}", rest))
    behind = clear if survey.sends_clear else (rest,)
    return [
        *(View(words[who], behind, words["yes"], level) for who in SERVER_SIDE),
        *(View(words[who], (words["yes"],), words["yes"], "true") for who in DEVICE_SIDE),
    ]


def say_clear(survey: Survey, language: str) -> list[str]:
    """Return the texts of all questions sent in clear, with a note if only the group of a number is sent."""
    groups = {
        it.text[language]: it.answers[language][it.number.codes[0]]
        for it in survey.questions
        if it.number is not None
    }
    note = survey.words[language]["clear_group"]
    texts = [text[language] for text in survey.clear_texts]
    return [f"{it} ({note.replace('{g}', groups[it])})" if it in groups else it for it in texts]


def say_percent(words: dict[str, str], number: str) -> str:
    """Format a percentage in the style of a language."""
    return words["percent"].replace("{n}", number.replace(".", words["decimal"]))


def say_cases(words: dict[str, str], number: str, like: str | None = None) -> str:
    """Format a percentage as cases of 100, or of more if its decimals (or those of `like`) need it.

    >>> words = {"cases": "{k} of {m} cases", "thousands": ","}
    >>> say_cases(words, "50"), say_cases(words, "5", like="99.99")
    ('50 of 100 cases', '500 of 10,000 cases')
    """
    scale = 10 ** len((like or number).partition(".")[2])
    cases = words["cases"].replace("{k}", say_number(words, int(Decimal(number) * scale)))
    return cases.replace("{m}", say_number(words, 100 * scale))


def say_day(words: dict[str, str], day: str) -> str:
    """Format an ISO date in the style of a language.

    >>> say_day({"date_style": "{d}. {m} {y}", "date_months": "Januar Februar"}, "2027-02-09")
    '9. Februar 2027'
    """
    year, month, number = day.split("-")
    name = words["date_months"].split()[int(month) - 1]
    return words["date_style"].replace("{d}", str(int(number))).replace("{m}", name).replace("{y}", year)


def say_number(words: dict[str, str], number: int) -> str:
    """Format a whole number in the style of a language.

    >>> say_number({"thousands": "."}, 12500)
    '12.500'
    """
    return f"{number:,}".replace(",", words["thousands"])


def gamma_of(group: Group) -> Gamma:
    """Return the γ of a group of variables that are disguised together; infinite for clear variables."""
    if group.response is not None:
        return group.response.gamma
    return group.matrix_channel.gamma if group.disguised else math.inf


def _fill_belief(words: dict[str, str], key: str, before: Fraction, gamma: Gamma) -> str:
    after = percent_after(gamma, before)
    assert after is not None  # noqa: S101  (the caller has checked the level)
    belief = say_cases(words, str(int(before * 100)), like=after)
    return words[key].replace("{b}", belief).replace("{p}", say_cases(words, after))
