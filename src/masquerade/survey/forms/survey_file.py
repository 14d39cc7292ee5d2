"""The survey file: which policy, what is asked in which words, in what order, and who asks.

::

    masquerade_survey: 1
    title: {en: Health at work, de: Gesundheit bei der Arbeit}
    languages: [en, de]
    policy: policy.yaml
    collector: https://survey.example.org
    contact: {en: "Dr A. Weber, +49 30 1234", de: "Dr. A. Weber, +49 30 1234"}
    consent: {en: "We ask ...", de: "Wir fragen ..."}
    questions:
    - variable: drugs
      text: {en: "Did you take ...?", de: "Haben Sie ...?"}
      answers: {"yes": {en: "Yes", de: Ja}, "no": {en: "No", de: Nein}}
    - variable: injected
      text: ...
      show_if: {drugs: ["yes"]}
      not_asked: "no"

A text is one for all languages or one for each. Whoever is not shown a question answers it with `not_asked`,
through the channel as well: what is sent does not show that a question was skipped, though the time until it
is sent may. Variables that the policy deals in blocks are asked of those to whom the page deals them. All
problems are named at once.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from masquerade.channels.policy import Policy
from masquerade.channels.policy import text as policy_text
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.schema import Category
from masquerade.core.util.json_text import read_text

MOST_QUESTIONS: Final = 500
MOST_LANGUAGES: Final = 40
LONGEST_TEXT: Final = 10_000
MOST_SHOWN: Final = 20  # problems in one message
OWN_LANGUAGES: Final = ("de", "en", "es", "fr")
URL: Final = re.compile(r"https://[A-Za-z0-9.-]+(?::\d{1,5})?|http://(?:localhost|127\.0\.0\.1)(?::\d{1,5})?")

Plain = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
Text = Plain | dict[str, Plain]
Label = bool | int | str
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class QuestionSpec(_Part):
    """One question: the variable it is about, its words, and when it is asked."""

    variable: str
    text: Text
    help: Text | None = None
    answers: dict[Label, Text] | None = None
    show_if: dict[str, list[Label]] | None = None
    not_asked: Label | None = None


class SurveySpec(_Part):
    """A survey file, as it stands."""

    masquerade_survey: Literal[1]
    title: Text
    policy: str
    collector: str
    languages: list[Language] = Field(default=["en"], min_length=1, max_length=MOST_LANGUAGES)
    contact: Text
    consent: Text
    questions: list[QuestionSpec] = Field(min_length=1, max_length=MOST_QUESTIONS)
    order: Literal["fixed", "random"] = "fixed"
    closes: str | None = None
    delete_after: str | None = None
    panel: bool = False
    own_chance: bool = False
    issuer: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    words: dict[str, dict[str, Plain]] = Field(default_factory=dict)


WORDS: Final = {
    "missing": "is missing.",
    "extra_forbidden": "is not a known key.",
    "string_type": "must be text; quote it.",
    "string_too_short": "must not be empty.",
    "string_too_long": "is too long.",
    "string_pattern_mismatch": "is not of the right form.",
    "list_type": "must be a list, such as [a, b].",
    "dict_type": "must be keys with values.",
    "model_type": "must be keys with values.",
    "bool_type": "must be true or false.",
    "too_short": "must not be empty.",
    "too_long": "has too many entries.",
    "literal_error": "must be {expected}.",
}


@dataclass(frozen=True)
class Question:
    """A question with its words in every language; `shown` lists the codes that each condition admits."""

    name: str
    text: Mapping[str, str]
    help: Mapping[str, str] | None
    answers: Mapping[str, tuple[str, ...]]
    shown: Mapping[str, tuple[int, ...]]
    not_asked: int | None


@dataclass(frozen=True)
class Survey:
    """A survey that can be built: its file, its policy, and its words in every language."""

    spec: SurveySpec
    policy: Policy

    @classmethod
    def load(cls, path: str | Path) -> Survey:
        """Return the survey in a YAML file; an error says everything that is wrong, line by line."""
        file = Path(path)
        try:
            values = policy_text.parse(read_text(file, most=policy_text.MOST_YAML), "yaml")
            return cls.from_values(values, file.absolute().parent)
        except InputError as error:
            told = str(error)
            raise InputError(told if told.startswith(f"{path}:") else f"{path}: {told}") from None

    @classmethod
    def from_values(cls, values: Any, folder: Path) -> Survey:
        """Return the survey that plain values describe; the policy's file lies in or below `folder`."""
        if not isinstance(values, Mapping) or values.get("masquerade_survey") != 1:
            raise InputError("not a survey: it must start with 'masquerade_survey: 1'.")
        try:
            spec = SurveySpec.model_validate(values)
        except ValidationError as error:
            raise InputError(_together(_explained(error))) from None
        place = folder / spec.policy
        if not place.resolve().is_relative_to(folder.resolve()):  # a survey may come from somebody else
            raise InputError("policy: must be a file in or below the folder of the survey.")
        survey = cls(spec, Policy.load(place))
        problems = list(_problems(survey))
        if problems:
            raise InputError(_together(problems))
        return survey

    @property
    def languages(self) -> tuple[str, ...]:
        """Return the languages, the first being the one that is shown if nobody chooses."""
        return tuple(self.spec.languages)

    def text(self, given: Text) -> dict[str, str]:
        """Return a text in every language."""
        return {language: given if isinstance(given, str) else given[language] for language in self.languages}

    @cached_property
    def words(self) -> dict[str, dict[str, str]]:
        """What the page itself says, in every language: ours, and those that the file gives instead."""
        return {
            language: own_words(language) | self.spec.words.get(language, {}) for language in self.languages
        }

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The questions, in the order of the file."""
        return tuple(self._question(entry) for entry in self.spec.questions)

    def _question(self, entry: QuestionSpec) -> Question:
        variable = self.policy.schema[entry.variable]
        given = entry.answers or {}
        texts = [self.text(given.get(label, _shown(label))) for label in variable.categories]
        shown = {
            name: tuple(self.policy.schema[name].code(label) for label in labels)
            for name, labels in (entry.show_if or {}).items()
        }
        return Question(
            entry.variable,
            self.text(entry.text),
            None if entry.help is None else self.text(entry.help),
            {language: tuple(text[language] for text in texts) for language in self.languages},
            shown,
            None if entry.not_asked is None else variable.code(entry.not_asked),
        )


def own_words(language: str) -> dict[str, str]:
    """Return what pages say in a language that we speak; in others the file has to say it all."""
    if language not in OWN_LANGUAGES:
        return {}
    text = (files("masquerade.survey.page") / "words" / f"{language}.json").read_text(encoding="utf-8")
    words: dict[str, str] = json.loads(text)
    return words


def _shown(label: Category) -> str:
    return json.dumps(label) if isinstance(label, bool) else str(label)


def _together(problems: Iterable[str]) -> str:
    found = list(dict.fromkeys(problems))
    more = f"\n  and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return found[0] if len(found) == 1 else "\n  ".join(["", *found[:MOST_SHOWN]]).rstrip() + more


def _explained(error: ValidationError) -> list[str]:
    """Return what pydantic found, one line for each place in the file."""
    found: dict[str, str] = {}
    tried = ("dict[", "constrained-str", "bool", "int", "str", "function-")
    for problem in error.errors(include_url=False, include_input=False):
        path = [
            str(part)
            for i, part in enumerate(problem["loc"])
            if not (i and isinstance(part, str) and part.startswith(tried))
        ]
        told = WORDS.get(problem["type"], problem["msg"].rstrip(".") + ".")
        if problem["type"] == "extra_forbidden":
            told += did_you_mean(
                path[-1], (QuestionSpec if path[0] == "questions" else SurveySpec).model_fields
            )
        found.setdefault(".".join(path), told.format(**problem.get("ctx", {})))
    return [f"{place}: {told}" for place, told in found.items()]


def _problems(survey: Survey) -> Iterator[str]:
    """Yield everything about a survey that its parts alone do not show."""
    spec = survey.spec
    if not URL.fullmatch(spec.collector):
        yield (
            "collector: must be an address such as https://survey.example.org, without a path; http only of "
            "this machine."
        )
    yield from _day_problems(spec)
    if len(set(spec.languages)) < len(spec.languages):
        yield "languages: one is named twice."
    if spec.panel and spec.own_chance:
        yield "own_chance: a panel repeats its draws, which a person's own spinner does not; choose one."
    if spec.own_chance:
        yield from _own_chance_problems(survey)
    for language in spec.languages:
        known = own_words("en")
        given = spec.words.get(language, {})
        lacking = sorted(known.keys() - own_words(language).keys() - given.keys())
        if lacking:
            yield f"words.{language}: these texts are missing: {', '.join(lacking)}."
        yield from (
            f"words.{language}.{key}: is not a known text.{did_you_mean(key, known)}"
            for key in given
            if key not in known
        )
    for place in ("title", "contact", "consent"):
        yield from _untold(getattr(spec, place), place, spec.languages)
    if not survey.policy.disguised:
        yield "policy: nothing is disguised, and the page promises that answers are."
    yield from _question_problems(survey)


def _day_problems(spec: SurveySpec) -> Iterator[str]:
    if spec.closes is not None and not _is_day(spec.closes):
        yield "closes: must be a day, such as 2027-01-31; quote it."
    if spec.delete_after is not None and not _is_day(spec.delete_after):
        yield "delete_after: must be a day, such as 2027-12-31; quote it."
    elif (spec.delete_after or "9") < (spec.closes or ""):
        yield "delete_after: must not be before 'closes'."


def _own_chance_problems(survey: Survey) -> Iterator[str]:
    policy = survey.policy
    if policy.stratum_variable is not None or any(g.disguised and len(g.names) > 1 for g in policy.groups):
        yield "own_chance: sheets are for questions that are disguised alone, and alike for everybody."
    if any(entry.show_if for entry in survey.spec.questions):
        yield "own_chance: a page that is told the sheet's word cannot follow show_if; ask everybody all."


def _question_problems(survey: Survey) -> Iterator[str]:
    spec, policy = survey.spec, survey.policy
    before: list[str] = []
    dealt = {name for group in policy.groups if group.response is not None for name in group.names}
    for i, entry in enumerate(spec.questions):
        where = f"questions.{i}"
        yield from _untold(entry.text, f"{where}.text", spec.languages)
        if entry.help is not None:
            yield from _untold(entry.help, f"{where}.help", spec.languages)
        if entry.variable not in policy.schema:
            hint = did_you_mean(entry.variable, policy.schema)
            yield f"{where}.variable: the policy has no variable {entry.variable!r}.{hint}"
            continue
        if entry.variable in before:
            yield f"{where}.variable: {entry.variable!r} is asked twice."
        categories = policy.schema[entry.variable].categories
        for label, text in (entry.answers or {}).items():
            if label not in categories:
                hint = did_you_mean(label, categories)
                yield f"{where}.answers: {label!r} is not a category of {entry.variable!r}.{hint}"
            yield from _untold(text, f"{where}.answers.{label}", spec.languages)
        yield from _condition_problems(survey, entry, where, before, dealt)
        before.append(entry.variable)
    missing = [name for name in policy.schema if name not in before]
    if missing:
        yield f"questions: the policy's variables are all asked; these are not: {', '.join(missing)}."


def _condition_problems(
    survey: Survey, entry: QuestionSpec, where: str, before: list[str], dealt: set[str]
) -> Iterator[str]:
    policy = survey.policy
    if (entry.show_if is None) != (entry.not_asked is None):
        yield (
            f"{where}: 'show_if' and 'not_asked' go together: whoever is not asked answers with 'not_asked', "
            "through the channel."
        )
    if entry.not_asked is not None and entry.not_asked not in policy.schema[entry.variable].categories:
        yield f"{where}.not_asked: is not a category of {entry.variable!r}."
    for name, labels in (entry.show_if or {}).items():
        if name not in before:
            yield f"{where}.show_if.{name}: must be a question before this one."
            continue
        known = policy.schema[name].categories
        yield from (
            f"{where}.show_if.{name}: {it!r} is not one of its answers." for it in labels if it not in known
        )
        if {name, entry.variable} & dealt:
            yield f"{where}.show_if: questions that are dealt in blocks have no conditions, and are none."
        if survey.spec.order == "random":
            yield f"{where}.show_if: needs 'order: fixed'."
    by = policy.stratum_variable
    if by is not None and entry.variable in policy.disguised and by not in before:
        yield f"{where}: {by!r} decides by which channel this is disguised: ask it before."


def _untold(text: Text, where: str, languages: Iterable[str]) -> Iterator[str]:
    if isinstance(text, dict):
        yield from (
            f"{where}: has no text in {language!r}." for language in languages if language not in text
        )
        yield from (
            f"{where}.{it}: is not one of the survey's languages." for it in text if it not in languages
        )


def _is_day(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
