"""The survey file: policy, questions in every language and their order, consent and contact.

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

A text is one text for all languages, or one per language. A category that the policy calls `missing` is
offered as "I would rather not say", and goes through the channel like any answer; one that is `not_asked` is
not offered, unless it has a text. For a question that is not shown, the page reports `not_asked`, also
through the channel: the report does not show that a question was skipped, though response time may. Variables
that the policy deals in blocks are asked only of respondents to whom the page deals them; a follow-up must
then be in one unit with its question. An error lists all problems. `question_types` describes types other
than a single choice, `information` the parts around the questions.
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
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field, ValidationError

from masquerade.channels.policy import Policy
from masquerade.channels.policy import text as policy_text
from masquerade.channels.policy.record import record_gamma
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.record_gamma import FollowUp, Gamma, deciding_variables
from masquerade.core.schema import Category, Variable
from masquerade.core.util import validation
from masquerade.core.util.json_text import read_text
from masquerade.core.util.private_file import is_file_inside
from masquerade.survey.forms.free_text import FreeText, free_text_problems, longest_of, text_entries
from masquerade.survey.forms.information import (
    ClosingSpec,
    InformationSpec,
    ScreeningSpec,
    information_problems,
)
from masquerade.survey.forms.own_chance import own_chance_problems
from masquerade.survey.forms.parts import Plain, SurveyPart, Text, text_problems
from masquerade.survey.forms.question_types import (
    NumberInput,
    QuestionEntry,
    QuestionSpec,
    answered_categories,
    bin_texts,
    list_entries,
    number_input,
    shape_problems,
    type_of,
    type_problems,
)

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MOST_QUESTIONS: Final = 500
MOST_LANGUAGES: Final = 40
MOST_SHOWN: Final = 20  # the most problems in one message
MISSING_WORDS: Final = frozenset({"rather_not", "not_asked"})  # optional: by default the label is shown
OWN_LANGUAGES: Final = ("de", "en", "es", "fr")
URL: Final = re.compile(r"https://[A-Za-z0-9.-]+(?::\d{1,5})?|http://(?:localhost|127\.0\.0\.1)(?::\d{1,5})?")

Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]


class SurveySpec(SurveyPart):
    """The contents of a survey file."""

    masquerade_survey: Literal[1]
    title: Text
    policy: str
    collector: str
    languages: list[Language] = Field(default=["en"], min_length=1, max_length=MOST_LANGUAGES)
    contact: Text
    consent: Text
    agree: Text | None = None
    information: InformationSpec | None = None
    screening: ScreeningSpec | None = None
    closing: ClosingSpec | None = None
    questions: list[QuestionSpec] = Field(min_length=1, max_length=MOST_QUESTIONS)
    order: Literal["fixed", "random"] = "fixed"
    closes: str | None = None
    delete_after: str | None = None
    panel: bool = False
    own_chance: bool = False
    issuer: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    words: dict[str, dict[str, Plain]] = Field(default_factory=dict)


SENTENCES: Final = {**validation.SENTENCES, "string_pattern_mismatch": "does not have the right form."}


@dataclass(frozen=True)
class SurveyQuestion:
    """A question with its texts in every language; `shown` lists the codes that each condition admits.

    Codes of `not_offered` represent people who are not asked: they cannot be chosen. Questions with the same
    `screen` are shown together, below the text `intro`. `refused` is the code of people who would rather not
    say. A `number` is converted to a code; for an item to tick, `ticked` contains the codes for yes and no.
    """

    name: str
    text: Mapping[str, str]
    help: Mapping[str, str] | None
    answers: Mapping[str, tuple[str, ...]]
    shown: Mapping[str, tuple[int, ...]]
    not_asked: int | None
    not_offered: tuple[int, ...] = ()
    type: str = "choice"
    screen: int = 0
    intro: Mapping[str, str] | None = None
    caution: Mapping[str, str] | None = None
    required: bool = True
    refused: int | None = None
    number: NumberInput | None = None
    ticked: tuple[int, int] | None = None


@dataclass(frozen=True)
class Survey:
    """A survey: the contents of its file, and its policy.

    Examples
    --------
    >>> survey = mq.survey.Survey.load("survey.yaml")  # doctest: +SKIP
    >>> mq.survey.build(survey).write("public")  # doctest: +SKIP
    """

    spec: SurveySpec
    policy: Policy

    @classmethod
    def load(cls, path: str | Path) -> Survey:
        """Load a survey from a YAML file.

        Parameters
        ----------
        path : str or Path
            The survey file. Its policy is a file in or below the same folder.

        Returns
        -------
        Survey
            The survey, after all checks.

        Raises
        ------
        InputError
            If the file is not valid. The message lists all problems, one per line.
        """
        file = Path(path)
        try:
            values = policy_text.parse(read_text(file, most=policy_text.MOST_YAML), "yaml")
            return cls.from_values(values, file.absolute().parent)
        except InputError as error:
            message = str(error)
            raise InputError(message if message.startswith(f"{path}:") else f"{path}: {message}") from None

    @classmethod
    def from_values(cls, values: Any, folder: Path) -> Survey:
        """Make a survey from the parsed contents of a file.

        Parameters
        ----------
        values : object
            Parsed YAML.
        folder : Path
            Folder of the survey file; the policy must be in or below it.

        Returns
        -------
        Survey
            The survey, after all checks.

        Raises
        ------
        InputError
            If the contents are not valid. The message lists all problems.
        """
        if not isinstance(values, Mapping) or values.get("masquerade_survey") != 1:
            raise InputError("not a survey: it must start with 'masquerade_survey: 1'.")
        try:
            spec = SurveySpec.model_validate(values)
        except ValidationError as error:
            raise InputError(_together(_explain(error, values))) from None
        place = folder / spec.policy
        if not is_file_inside(place, folder):  # the survey may come from an untrusted author
            raise InputError("policy: must be a file in or below the folder of the survey.")
        survey = cls(spec, Policy.load(place))
        problems = list(_problems(survey))
        if problems:
            raise InputError(_together(problems))
        return survey

    @property
    def languages(self) -> tuple[str, ...]:
        """Return the languages; the first is the default."""
        return tuple(self.spec.languages)

    def text(self, value: Text) -> dict[str, str]:
        """Return a text in every language."""
        return {language: value if isinstance(value, str) else value[language] for language in self.languages}

    @cached_property
    def words(self) -> dict[str, dict[str, str]]:
        """The page's own texts in every language: the built-in texts, or their replacements in the file."""
        return {
            language: own_words(language) | self.spec.words.get(language, {}) for language in self.languages
        }

    @cached_property
    def questions(self) -> tuple[SurveyQuestion, ...]:
        """The questions, in the order of the file."""
        return tuple(self._question(entry) for entry in self.entries)

    @cached_property
    def entries(self) -> tuple[QuestionEntry, ...]:
        """The variables that are asked, in the order of the file."""
        return list_entries(self.spec.questions)

    @cached_property
    def free_texts(self) -> tuple[FreeText, ...]:
        """The questions that people answer in their own words, which are sent as written."""
        return tuple(
            FreeText(
                entry.name,
                self.text(entry.spec.text),
                None if entry.spec.help is None else self.text(entry.spec.help),
                None if entry.spec.caution is None else self.text(entry.spec.caution),
                self._shown_codes(entry.spec),
                entry.screen,
                longest_of(entry.spec),
            )
            for entry in text_entries(self.spec.questions)
        )

    @cached_property
    def follow_ups(self) -> tuple[FollowUp, ...]:
        """The questions that depend on earlier answers, which the γ of a record takes into account."""
        return tuple(
            FollowUp(question.name, question.shown, question.not_asked)
            for question in self.questions
            if question.not_asked is not None
        )

    @cached_property
    def record_gamma(self) -> Gamma:
        """The γ of everything that one person sends, given the answers in clear."""
        return record_gamma(self.policy, self.follow_ups)

    @cached_property
    def revealed_variables(self) -> tuple[str, ...]:
        """The disguised variables that a follow-up in clear reveals, because it shows who was asked."""
        conditions = _conditions(self)
        names = [name for one in conditions for name in _revealed_variables(self, one, conditions)]
        return tuple(dict.fromkeys(names))

    @property
    def clear_variables(self) -> tuple[str, ...]:
        """Return the variables that are sent in clear, or that variables in clear reveal."""
        return (*self.policy.clear_variables, *self.revealed_variables)

    @property
    def sends_clear(self) -> bool:
        """Return True if people send anything in clear: variables, or texts in their own words."""
        return bool(self.clear_variables or self.free_texts)

    @property
    def clear_texts(self) -> tuple[Mapping[str, str], ...]:
        """Return the texts of all questions whose answers are sent in clear, in the order of the file."""
        clear = set(self.clear_variables)
        questions: list[SurveyQuestion | FreeText] = [*self.free_texts]
        questions += [it for it in self.questions if it.name in clear]
        return tuple(it.text for it in sorted(questions, key=lambda it: it.screen))

    def _question(self, entry: QuestionEntry) -> SurveyQuestion:
        variable, spec = self.policy.schema[entry.name], entry.spec
        answers = spec.answers or {}
        unit = None if spec.number is None or spec.number.unit is None else self.text(spec.number.unit)
        number = number_input(entry, self.policy, unit)
        kind = type_of(entry, self.policy)
        ticked = _ticked_codes(variable, spec) if kind == "multiple" else None
        defaults = self._missing_texts(variable, spec) | self._bin_texts(variable, number)
        for code, key in zip(ticked or (), ("yes", "no"), strict=False):
            defaults[variable.categories[code]] = {it: self.words[it][key] for it in self.languages}
        texts = [
            self.text(answers.get(label, defaults.get(label, _label_text(label))))
            for label in variable.categories
        ]
        is_missing = spec.not_asked in variable.missing and spec.not_asked not in answers
        refusing = [label for label in variable.missing if label != spec.not_asked]
        return SurveyQuestion(
            entry.name,
            self.text(spec.text if entry.item is None else entry.item),
            None if spec.help is None else self.text(spec.help),
            {language: tuple(text[language] for text in texts) for language in self.languages},
            self._shown_codes(spec),
            None if spec.not_asked is None else variable.code(spec.not_asked),
            (variable.code(spec.not_asked),) if is_missing else (),
            kind,
            entry.screen,
            None if entry.item is None else self.text(spec.text),
            None if spec.caution is None else self.text(spec.caution),
            spec.required,
            variable.code(refusing[0]) if refusing else None,
            number,
            ticked,
        )

    def _shown_codes(self, spec: QuestionSpec) -> dict[str, tuple[int, ...]]:
        """Return the codes that each condition of a question admits."""
        return {
            name: tuple(self.policy.schema[name].code(label) for label in labels)
            for name, labels in (spec.show_if or {}).items()
        }

    def _bin_texts(self, variable: Variable, number: NumberInput | None) -> dict[Category, dict[str, str]]:
        """Return the groups of a number in words, by category."""
        if number is None:
            return {}
        texts = {language: bin_texts(number, self.words[language]) for language in self.languages}
        return {
            variable.categories[code]: {language: texts[language][i] for language in self.languages}
            for i, code in enumerate(number.codes)
        }

    def _missing_texts(self, variable: Variable, entry: QuestionSpec) -> dict[Category, dict[str, str]]:
        """Return the page's texts for missing answers (refused, not asked) that the file has no text for."""
        untold = [label for label in variable.missing if label not in (entry.answers or {})]
        refused = [label for label in untold if label != entry.not_asked][:1]
        keys = dict.fromkeys(refused, "rather_not") | (
            {entry.not_asked: "not_asked"} if entry.not_asked in untold else {}
        )
        return {
            label: {
                language: self.words[language].get(key, _label_text(label)) for language in self.languages
            }
            for label, key in keys.items()
        }


def _revealed_variables(survey: Survey, name: str, conditions: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the disguised variables that are revealed since they decide who is asked a question in clear."""
    policy = survey.policy
    if name not in policy.clear_variables and name in policy.schema:  # other names are those of free texts
        return []
    parents = deciding_variables(name, conditions)
    return [one for one in parents if one in policy.schema and one not in policy.clear_variables]


def _ticked_codes(variable: Variable, spec: QuestionSpec) -> tuple[int, int]:
    """Return the codes of a ticked and of an unticked item; by default the first category means ticked."""
    labels = answered_categories(variable)
    ticked = labels[0] if spec.ticked is None else spec.ticked
    [other] = [label for label in labels if label != ticked]
    return variable.code(ticked), variable.code(other)


def own_words(language: str) -> dict[str, str]:
    """Return the built-in texts of pages in a language; empty if the file must contain all of them."""
    if language not in OWN_LANGUAGES:
        return {}
    text = (files("masquerade.survey.page") / "words" / f"{language}.json").read_text(encoding="utf-8")
    words: dict[str, str] = json.loads(text)
    return words


def _label_text(label: Category) -> str:
    return json.dumps(label) if isinstance(label, bool) else str(label)


def _together(problems: Iterable[str]) -> str:
    lines = list(dict.fromkeys(problems))
    more = f"\n  and {len(lines) - MOST_SHOWN} more" if len(lines) > MOST_SHOWN else ""
    return lines[0] if len(lines) == 1 else "\n  ".join(["", *lines[:MOST_SHOWN]]).rstrip() + more


def _explain(error: ValidationError, values: object) -> list[str]:
    """Return one line per invalid key of a file."""

    def describe(problem: ErrorDetails) -> tuple[validation.KeyPath, str]:
        path, around = validation.find_key(problem["loc"], values, SurveySpec)
        allowed = validation.list_keys(around, None)
        return path, validation.describe_error(problem, path[-1] if path else "", allowed, SENTENCES)

    problems = validation.describe_errors(error, describe)
    return [f"{'.'.join(path)}: {sentence}" for path, sentence in problems.items()]


def _problems(survey: Survey) -> Iterator[str]:
    """Yield the problems of a survey that checks of single keys cannot find."""
    spec = survey.spec
    if not URL.fullmatch(spec.collector):
        yield (
            "collector: must be an address such as https://survey.example.org, without a path; http is "
            "allowed only for this machine."
        )
    yield from _day_problems(spec)
    if len(set(spec.languages)) < len(spec.languages):
        yield "languages: contains a language twice."
    if spec.panel and spec.own_chance:
        yield "own_chance: a panel repeats its draws, and a person's own spinner cannot; choose one of them."
    if spec.own_chance:
        conditions = {it.name: it.spec.show_if for it in survey.entries if it.spec.show_if}
        if all(it.name in survey.policy.schema for it in survey.entries):
            yield from own_chance_problems(survey.policy, conditions)
            yield from (
                f"own_chance: {it.name}: a sheet needs a question of the type choice or scale."
                for it in survey.entries
                if type_of(it, survey.policy) not in ("choice", "scale")
            )
    for language in spec.languages:
        keys = own_words("en")
        words = spec.words.get(language, {})
        lacking = sorted(keys.keys() - own_words(language).keys() - words.keys() - MISSING_WORDS)
        if lacking:
            yield f"words.{language}: these texts are missing: {', '.join(lacking)}."
        yield from (
            f"words.{language}.{key}: is not a known text.{did_you_mean(key, keys)}"
            for key in words
            if key not in keys
        )
    yield from information_problems(spec)
    if not survey.policy.disguised:
        yield "policy: disguises nothing, but the page promises that answers are disguised."
    yield from (
        f"policy: variables.{name}.clear_missing: a survey sends missing answers through the channel."
        for name in survey.policy.clear_missing
    )
    yield from _question_problems(survey)


def _day_problems(spec: SurveySpec) -> Iterator[str]:
    if spec.closes is not None and not _is_day(spec.closes):
        yield 'closes: must be a day in quotes, such as "2027-01-31".'
    if spec.delete_after is not None and not _is_day(spec.delete_after):
        yield 'delete_after: must be a day in quotes, such as "2027-12-31".'
    elif (spec.delete_after or "9") < (spec.closes or ""):
        yield "delete_after: must not be before 'closes'."


def _question_problems(survey: Survey) -> Iterator[str]:
    spec, policy = survey.spec, survey.policy
    before: list[str] = []
    units = _dealt_units(policy)
    yield from shape_problems(spec.questions)
    yield from free_text_problems(spec.questions, policy, spec.languages)
    for i, question in enumerate(spec.questions):
        yield from text_problems(question.text, f"questions.{i}.text", spec.languages)
        if question.help is not None:
            yield from text_problems(question.help, f"questions.{i}.help", spec.languages)
    for entry in survey.entries:
        where, name = entry.where, entry.name
        if name not in policy.schema:
            hint = did_you_mean(name, policy.schema)
            yield f"{where}.variable: the policy has no variable {name!r}.{hint}"
            continue
        if name in before:
            yield f"{where}.variable: {name!r} is asked twice."
        categories = policy.schema[name].categories
        for label, text in (entry.spec.answers or {}).items():
            if label not in categories:
                hint = did_you_mean(label, categories)
                yield f"{where}.answers: {label!r} is not a category of {name!r}.{hint}"
            yield from text_problems(text, f"{where}.answers.{label}", spec.languages)
        yield from type_problems(entry, policy, spec.languages)
        yield from _condition_problems(survey, entry, before, units)
        before.append(name)
    for entry in text_entries(spec.questions):
        earlier = [it.name for it in survey.entries if it.screen < entry.screen]
        yield from _show_if_problems(survey, entry, earlier, units)
        yield from _revealing_problems(survey, entry)
    missing = [name for name in policy.schema if name not in before]
    if missing:
        yield f"questions: every variable of the policy needs one; these have none: {', '.join(missing)}."


def _dealt_units(policy: Policy) -> dict[str, int]:
    """Return the number of the unit of every variable that is dealt in blocks."""
    units: dict[str, int] = {}
    for group in policy.groups:
        if group.response is not None:
            for unit in group.response.units:
                number = len(units)
                units |= {group.names[place]: number for place in unit}
    return units


def _conditions(survey: Survey) -> dict[str, list[str]]:
    """Return for every question the variables that decide who is asked it."""
    entries = (*survey.entries, *text_entries(survey.spec.questions))
    return {entry.name: list(entry.spec.show_if or ()) for entry in entries}


def _condition_problems(
    survey: Survey, entry: QuestionEntry, before: list[str], units: Mapping[str, int]
) -> Iterator[str]:
    policy, spec, where = survey.policy, entry.spec, entry.where
    if (spec.show_if is None) != (spec.not_asked is None):
        yield (
            f"{where}: 'show_if' and 'not_asked' need each other: a respondent who is not asked reports "
            "'not_asked', through the channel."
        )
    if spec.not_asked is not None and spec.not_asked not in policy.schema[entry.name].categories:
        yield f"{where}.not_asked: is not a category of {entry.name!r}."
    yield from _show_if_problems(survey, entry, before, units)
    yield from _revealing_problems(survey, entry)
    by = policy.stratum_variable
    if by is not None and entry.name in policy.disguised and by not in before:
        yield f"{where}: {by!r} determines the channel of this variable: ask it earlier."


def _show_if_problems(
    survey: Survey, entry: QuestionEntry, before: list[str], units: Mapping[str, int]
) -> Iterator[str]:
    policy, where = survey.policy, entry.where
    for name, labels in (entry.spec.show_if or {}).items():
        if name not in before:
            yield f"{where}.show_if.{name}: must be an earlier question."
            continue
        answers = policy.schema[name].categories
        yield from (
            f"{where}.show_if.{name}: {it!r} is not one of its answers." for it in labels if it not in answers
        )
        if name in units and entry.type == "text":
            yield f"{where}.show_if: not everyone is asked {name!r}: ask this of all people."
        elif name in units and units[name] != units.get(entry.name):
            yield (
                f"{where}.show_if: not everyone is asked {name!r}. Deal both together: in 'blocks', write "
                f"[{name}, {entry.name}] instead of the two names."
            )
        if survey.spec.order == "random":
            yield f"{where}.show_if: needs 'order: fixed'."


def _revealing_problems(survey: Survey, entry: QuestionEntry) -> Iterator[str]:
    """Yield disguised variables that a question in clear reveals, unless its entry accepts them by name."""
    where, accepted = entry.where, entry.spec.reveals
    revealed = _revealed_variables(survey, entry.name, _conditions(survey))
    for name in revealed:
        if name not in accepted:
            yield (
                f"{where}: {entry.name!r} is sent in clear, and reveals the answer to {name!r}, which is "
                f"disguised. Disguise {entry.name!r} too; or accept that {name!r} counts as clear: "
                f"'reveals: [{name}]'."
            )
    for name in accepted:
        if name not in revealed:
            yield f"{where}.reveals: {name!r} is not revealed by this question; leave it out."


def _is_day(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
