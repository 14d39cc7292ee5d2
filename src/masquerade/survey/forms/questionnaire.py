"""Questionnaires of other programs: their questions as a survey and a policy to begin with.

`xlsform` and `surveyjs` read the files. What a page of ours cannot ask, and conditions that are not simple,
are named in `left_out`: nothing is dropped in silence, and nothing is guessed. All errors are said at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from masquerade.core.errors import InputError
from masquerade.survey.forms.survey_file import MOST_QUESTIONS, OWN_LANGUAGES

MOST_CHOICES: Final = 200
MOST_SAID: Final = 50
GAMMA: Final = 3  # of every question, until the policy is edited
UNKNOWN_CONTACT: Final = "Put here who asks, and how they can be reached."
UNKNOWN_CONSENT: Final = "Put here what is asked and why, how long it takes, and that nobody has to answer."
NEITHER: Final = "does not apply"
NEITHER_WORDS: Final = {
    "en": "Does not apply",
    "de": "Trifft nicht zu",
    "fr": "Ne me concerne pas",
    "es": "No corresponde",
}
NEGATIVE: Final = frozenset({"no", "none", "never", "0", "false", "nein", "non", "n"})
Texts = dict[str, str]
Atom = tuple[str, bool, tuple[str, ...]]  # a question, whether it is (or is not) one of these answers


@dataclass
class ImportedQuestion:
    """A question with answers to choose from, as it stood in the file."""

    name: str
    text: Texts
    answers: dict[str, Texts]
    help: Texts = field(default_factory=dict)
    condition: str = ""
    shown: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Questionnaire:
    """What a file asks: questions that a page can ask, and what was left out of it, line by line."""

    title: Texts
    languages: list[str]
    questions: list[ImportedQuestion]
    left_out: list[str] = field(default_factory=list)

    def policy_values(self) -> dict[str, Any]:
        """Return a policy that disguises every question alone, with γ = 3: to be edited."""
        return {
            "masquerade": 1,
            "title": next(iter(self.title.values())),
            "variables": {
                question.name: {
                    "categories": list(question.answers),
                    "channel": {"kind": "symmetric", "p": _chance(len(question.answers))},
                }
                for question in self.questions
            },
        }

    def survey_values(self, address: str, issuer: str | None) -> dict[str, Any]:
        """Return the survey file."""
        return {
            "masquerade_survey": 1,
            "title": self._told(self.title),
            "languages": self.languages,
            "policy": "policy.yaml",
            "collector": address,
            **({} if issuer is None else {"issuer": issuer}),
            "contact": UNKNOWN_CONTACT,
            "consent": UNKNOWN_CONSENT,
            "questions": [self._question(question) for question in self.questions],
        }

    def _question(self, question: ImportedQuestion) -> dict[str, Any]:
        found: dict[str, Any] = {"variable": question.name, "text": self._told(question.text)}
        if any(question.help.values()):
            found["help"] = self._told(question.help)
        found["answers"] = {label: self._told(texts) for label, texts in question.answers.items()}
        if question.shown:
            found |= {"show_if": question.shown, "not_asked": _negative(question)}
        return found

    def _told(self, texts: Texts) -> str | Texts:
        """Return a text in every language; where one is missing, that of the first that is there."""
        first = next(text for text in texts.values() if text)
        told = {language: texts.get(language) or first for language in self.languages}
        return first if len(self.languages) == 1 else told


def _chance(size: int) -> str:
    """Return p of a symmetric channel of this size with γ = 3, exactly."""
    return f"{size - 1}/{size - 1 + GAMMA}"


def _negative(question: ImportedQuestion) -> str:
    return next(label for label in question.answers if label.lower() in NEGATIVE or label == NEITHER)


def finished(
    found: Questionnaire, problems: Sequence[str], atoms: Callable[[str], Atom | None]
) -> Questionnaire:
    """Return a questionnaire with its conditions translated, or say everything that is wrong with it."""
    wrong = [*problems, *_wrong(found)]
    if wrong:
        more = [f"and {len(wrong) - MOST_SAID} more"] if len(wrong) > MOST_SAID else []
        raise InputError("\n  ".join(["", *wrong[:MOST_SAID], *more]) if len(wrong) > 1 else wrong[0])
    for place, question in enumerate(found.questions):
        if not question.condition:
            continue
        before = {one.name: list(one.answers) for one in found.questions[:place]}
        shown = _translated(question.condition, before, atoms)
        if shown is None:
            condition = question.condition[:120]
            found.left_out.append(
                f"{question.name}: the condition {condition!r} is not translated: everybody is asked."
            )
            continue
        question.shown = shown
        if not any(label.lower() in NEGATIVE for label in question.answers):
            question.answers[NEITHER] = {one: NEITHER_WORDS.get(one, NEITHER) for one in found.languages}
            found.left_out.append(
                f"{question.name}: has no answer for those who are not asked; {NEITHER!r} is added."
            )
    return found


def _wrong(found: Questionnaire) -> Iterator[str]:
    if not found.questions:
        listed = "".join(f"\n    {one}" for one in found.left_out[:MOST_SAID])
        yield f"there is no question with answers to choose from.{listed}"
    if len(found.questions) > MOST_QUESTIONS:
        yield f"there are {len(found.questions)} questions; a survey has at most {MOST_QUESTIONS}."
    names: set[str] = set()
    for question in found.questions:
        if question.name in names:
            yield f"{question.name}: two questions have this name."
        names.add(question.name)
        if not any(question.text.values()):
            yield f"{question.name}: has no text."
        if not 2 <= len(question.answers) <= MOST_CHOICES:
            number = len(question.answers)
            yield f"{question.name}: has {number} answers; from 2 to {MOST_CHOICES} can be asked."
        yield from (
            f"{question.name}: the answer {label!r} has no text."
            for label, texts in question.answers.items()
            if not any(texts.values())
        )


def _translated(
    condition: str, before: Mapping[str, list[str]], atoms: Callable[[str], Atom | None]
) -> dict[str, list[str]] | None:
    """Return a condition as answers of earlier questions that all have to hold; None if it is not simple."""
    shown: dict[str, list[str]] = {}
    conjuncts = re.split(r"\s+and\s+", condition.strip(), flags=re.IGNORECASE)
    for conjunct in conjuncts:
        if (
            len(conjuncts) > 1
            and _bare(conjunct) == conjunct.strip()
            and re.search(r"\sor\s", conjunct, re.IGNORECASE)
        ):
            return None  # "and" binds tighter: without parentheses it means something else
        parts = [atoms(_bare(part)) for part in re.split(r"\s+or\s+", _bare(conjunct), flags=re.IGNORECASE)]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts) or len({name for name, _, _ in found}) != 1:
            return None
        name = found[0][0]
        known = before.get(name)
        if known is None or any(value not in known for _, _, values in found for value in values):
            return None
        admitted = [label for label in known if any((label in values) == holds for _, holds, values in found)]
        shown[name] = [label for label in shown.get(name, known) if label in admitted]
        if not shown[name]:
            return None
    return shown


def _bare(text: str) -> str:
    """Return a part of a condition without parentheses around all of it."""
    told = text.strip()
    while told.startswith("(") and _closes(told) == len(told) - 1:
        told = told[1:-1].strip()
    return told


def _closes(text: str) -> int:
    """Return where the parenthesis closes that opens a text; -1 if nowhere."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    return -1


def spoken(languages: Sequence[str], left_out: list[str]) -> list[str]:
    """Return the languages that our pages speak; the others are left out, and said."""
    ours = [one for one in dict.fromkeys(languages) if one in OWN_LANGUAGES]
    others = [one for one in dict.fromkeys(languages) if one not in OWN_LANGUAGES]
    if others:
        known = ", ".join(OWN_LANGUAGES)
        left_out.append(f"languages {', '.join(others[:20])}: pages speak {known}; for others give 'words'.")
    return ours or ["en"]
