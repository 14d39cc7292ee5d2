"""Questionnaires of other programs, converted to a first version of a survey and its policy.

`xlsform`, `surveyjs` and `limesurvey` read the files. Questions that a page cannot ask, and conditions that
are not simple, are listed in `left_out`: nothing is dropped silently, and nothing is guessed. An error lists
all problems.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from masquerade.core.errors import InputError
from masquerade.survey.forms.question_types import MOST_ITEMS
from masquerade.survey.forms.survey_file import MOST_QUESTIONS, OWN_LANGUAGES

MOST_CHOICES: Final = 200
MOST_SHOWN: Final = 50  # the most problems in one message
MOST_CONDITION: Final = 2000  # characters; a longer condition is not simple
UNKNOWN_CONTACT: Final = "Write here who runs this survey and how to reach them."
UNKNOWN_CONSENT: Final = (
    "Write here what the questions are about and why, how long it takes, and that answering is voluntary."
)
WORD_FOR_WORD: Final = (
    "what people write cannot be disguised; add it with 'type: text', which sends it word for word"
)
MOST_GROUPS: Final = 4  # most groups into which the numbers of a question are divided
NEITHER: Final = "does not apply"
NEITHER_WORDS: Final = {
    "en": "Does not apply",
    "de": "Trifft nicht zu",
    "fr": "Ne me concerne pas",
    "es": "No corresponde",
}
# names by which forms commonly denote missing answers
MISSING_NAMES: Final = frozenset(
    {"refused", "refuse", "dontknow", "rather_not_say", "prefer_not_to_say", "prefer_not_to_answer",
     "not_stated", "no_answer", "-97", "-98", "-99"}
)  # fmt: skip
NEGATIVE: Final = frozenset({"no", "none", "never", "0", "false", "nein", "non", "n"})
Texts = dict[str, str]
Atom = tuple[str, bool, tuple[str, ...]]  # question, True for "is one of" (False: is not), answers


@dataclass
class ImportedQuestion:
    """A variable to ask: a question, or an item of a question with several items (`item_of`).

    `answers` are the categories. For a question about a number, they are groups of numbers, and `number`
    contains the keys of `number` in a survey file.
    """

    name: str
    text: Texts
    answers: dict[str, Texts]
    help: Texts = field(default_factory=dict)
    condition: str = ""
    type: str = ""
    item_of: str = ""
    intro: Texts = field(default_factory=dict)
    number: dict[str, Any] | None = None
    shown: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Questionnaire:
    """An imported questionnaire: the questions that a page can ask, and a list of what was left out."""

    title: Texts
    languages: list[str]
    questions: list[ImportedQuestion]
    left_out: list[str] = field(default_factory=list)

    def policy_values(self) -> dict[str, Any]:
        """Return the questions as variables of a policy, without channels."""
        return {
            "masquerade": 1,
            "title": next(iter(self.title.values())),
            "variables": {
                question.name: {"categories": list(question.answers)} | _missing_entry(question)
                for question in self.questions
            },
        }

    def survey_values(self, address: str, issuer: str | None) -> dict[str, Any]:
        """Return the survey file."""
        return {
            "masquerade_survey": 1,
            "title": self._translate(self.title),
            "languages": self.languages,
            "policy": "policy.yaml",
            "collector": address,
            **({} if issuer is None else {"issuer": issuer}),
            "contact": UNKNOWN_CONTACT,
            "consent": UNKNOWN_CONSENT,
            "questions": self._entries(),
        }

    def expand(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return names of variables: the name of a question with items is replaced by its items."""
        items: dict[str, list[str]] = {}
        for question in self.questions:
            items.setdefault(question.item_of or question.name, []).append(question.name)
        return tuple(item for name in names for item in items.get(name, [name]))

    def _entries(self) -> list[dict[str, Any]]:
        """Return the questions as the survey file lists them; items of one question share an entry."""
        entries: list[dict[str, Any]] = []
        before = ImportedQuestion("", {}, {})
        for question in self.questions:
            is_same = question.item_of == before.item_of and question.shown == before.shown
            if question.item_of and is_same and len(entries[-1]["items"]) < MOST_ITEMS:
                entries[-1]["items"][question.name] = self._translate(question.text)
            else:
                entries.append(self._question(question))
            before = question
        return entries

    def _question(self, question: ImportedQuestion) -> dict[str, Any]:
        text = self._translate(question.text)
        values: dict[str, Any] = {} if question.item_of else {"variable": question.name}
        if question.type:
            values["type"] = question.type
        values["text"] = self._translate(question.intro) if question.item_of else text
        if any(question.help.values()):
            values["help"] = self._translate(question.help)
        if question.item_of:
            values["items"] = {question.name: text}
        if question.number is not None:
            values["number"] = question.number
        labels = [label for label in question.answers if _has_text(question, label)]
        if labels:
            values["answers"] = {label: self._translate(question.answers[label]) for label in labels}
        if question.shown:
            values |= {"show_if": question.shown, "not_asked": _negative(question)}
        return values

    def _translate(self, texts: Texts) -> str | Texts:
        """Return a text in every language; a missing translation is replaced by the first text."""
        first = next(text for text in texts.values() if text)
        by_language = {language: texts.get(language) or first for language in self.languages}
        return first if len(self.languages) == 1 else by_language


def _has_text(question: ImportedQuestion, label: str) -> bool:
    """Return True if the survey file needs a text for an answer.

    Groups of numbers and the answers of items to tick need none, except for missing answers.
    """
    is_missing = label.lower() in MISSING_NAMES or label == NEITHER
    return is_missing or (question.number is None and question.type != "multiple")


def tick_items(
    name: str, intro: Texts, choices: Mapping[str, Texts], help_texts: Texts, condition: str
) -> Iterator[ImportedQuestion]:
    """Yield one variable with yes and no for each choice that can be ticked.

    Choices such as "refused" become a missing category of every item. Choices such as "none" are not items:
    the page offers "None of these" by itself.
    """
    special = {label: texts for label, texts in choices.items() if label.lower() in MISSING_NAMES}
    for label, texts in choices.items():
        if label in special or label.lower() in NEGATIVE:
            continue
        answers = {"yes": {"en": "Yes"}, "no": {"en": "No"}} | {it: dict(special[it]) for it in special}
        yield ImportedQuestion(
            f"{name}_{label}",
            dict(texts),
            answers,
            dict(help_texts),
            condition,
            "multiple",
            name,
            dict(intro),
        )


def add_number(
    question: ImportedQuestion, low: float, high: float, step: float, *, slider: bool = False
) -> str:
    """Give a question a number with groups of equal width; return a remark that names the groups."""
    size = round((high - low) / step) + 1
    groups = min(MOST_GROUPS, size)
    cuts = [_short(low + step * (size * i // groups)) for i in range(1, groups)]
    question.type = "number"
    question.number = {"min": _short(low), "max": _short(high), "bins": cuts}
    question.number |= ({} if step == 1 else {"step": _short(step)}) | ({"slider": True} if slider else {})
    labels = [f"under {cuts[0]}"]
    labels += [f"{start} to under {end}" for start, end in pairwise(cuts)]
    labels.append(f"{cuts[-1]} or more")
    language = next(iter(question.text))
    question.answers = {label: {language: label} for label in labels}
    listed = ", ".join(map(str, cuts))
    return (
        f"{question.name}: numbers from {_short(low)} to {_short(high)} are in {groups} groups, cut at "
        f"{listed}; for other groups change 'bins' in survey.yaml and the categories in policy.yaml."
    )


def _short(number: float) -> float:
    rounded = round(number, 9)
    return int(rounded) if rounded == int(rounded) else rounded


def _missing_entry(question: ImportedQuestion) -> dict[str, Any]:
    """Return the missing answers of a question as a policy lists them, if other answers remain."""
    names = [label for label in question.answers if label.lower() in MISSING_NAMES or label == NEITHER]
    if not names or len(names) == len(question.answers):
        return {}
    return {"missing": names[0] if len(names) == 1 else names}


def _negative(question: ImportedQuestion) -> str:
    return next(label for label in question.answers if label.lower() in NEGATIVE or label == NEITHER)


def finish_questionnaire(
    form: Questionnaire, problems: Sequence[str], atoms: Callable[[str], Atom | None]
) -> Questionnaire:
    """Check a questionnaire and translate its conditions; raise InputError with all problems."""
    wrong = [*problems, *_problems(form)]
    if wrong:
        more = [f"and {len(wrong) - MOST_SHOWN} more"] if len(wrong) > MOST_SHOWN else []
        raise InputError("\n  ".join(["", *wrong[:MOST_SHOWN], *more]) if len(wrong) > 1 else wrong[0])
    for place, question in enumerate(form.questions):
        if not question.condition:
            continue
        before = {one.name: list(one.answers) for one in form.questions[:place]}
        shown = _translate_condition(question.condition, before, atoms)
        if shown is None:
            condition = question.condition[:120]
            form.left_out.append(
                f"{question.name}: the condition {condition!r} is not translated: all respondents are asked."
            )
            continue
        question.shown = shown
        if not any(label.lower() in NEGATIVE for label in question.answers):
            question.answers[NEITHER] = {one: NEITHER_WORDS.get(one, NEITHER) for one in form.languages}
            form.left_out.append(
                f"{question.name}: has no answer for those who are not asked; {NEITHER!r} is added."
            )
    return form


def _problems(form: Questionnaire) -> Iterator[str]:
    if not form.questions:
        listed = "".join(f"\n    {one}" for one in form.left_out[:MOST_SHOWN])
        yield f"there is no question with answers to choose from.{listed}"
    if len(form.questions) > MOST_QUESTIONS:
        yield f"there are {len(form.questions)} questions; a survey has at most {MOST_QUESTIONS}."
    names: set[str] = set()
    for question in form.questions:
        if question.name in names:
            yield f"{question.name}: two questions have this name."
        names.add(question.name)
        if not any(question.text.values()):
            yield f"{question.name}: has no text."
        if not 2 <= len(question.answers) <= MOST_CHOICES:
            number = len(question.answers)
            yield f"{question.name}: has {number} answers; a question can have from 2 to {MOST_CHOICES}."
        yield from (
            f"{question.name}: the answer {label!r} has no text."
            for label, texts in question.answers.items()
            if not any(texts.values())
        )


def _translate_condition(
    condition: str, before: Mapping[str, list[str]], atoms: Callable[[str], Atom | None]
) -> dict[str, list[str]] | None:
    """Return a condition as admitted answers to earlier questions; None if it is not a simple conjunction."""
    if len(condition) > MOST_CONDITION:
        return None
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
        terms = [part for part in parts if part is not None]
        if len(terms) < len(parts) or len({name for name, _, _ in terms}) != 1:
            return None
        name = terms[0][0] if terms[0][0] in before else terms[0][0].replace(".", "_")  # a row of a matrix
        answers = before.get(name)
        if answers is None or any(value not in answers for _, _, values in terms for value in values):
            return None
        admitted = {it for it in answers if any((it in values) == holds for _, holds, values in terms)}
        shown[name] = [label for label in shown.get(name, answers) if label in admitted]
        if not shown[name]:
            return None
    return shown


def _bare(text: str) -> str:
    """Return a part of a condition without enclosing parentheses."""
    inner = text.strip()
    while inner.startswith("(") and _closes(inner) == len(inner) - 1:
        inner = inner[1:-1].strip()
    return inner


def _closes(text: str) -> int:
    """Return the index at which the opening parenthesis of a text is closed, -1 if it is not."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place
    return -1


def select_languages(languages: Sequence[str], left_out: list[str]) -> list[str]:
    """Return the languages that pages have texts for; list the others in `left_out`."""
    supported = [one for one in dict.fromkeys(languages) if one in OWN_LANGUAGES]
    others = [one for one in dict.fromkeys(languages) if one not in OWN_LANGUAGES]
    if others:
        choices = ", ".join(OWN_LANGUAGES)
        left_out.append(
            f"languages {', '.join(others[:20])}: pages have texts in {choices}; for others give 'words'."
        )
    return supported or ["en"]
