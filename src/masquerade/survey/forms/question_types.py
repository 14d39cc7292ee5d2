"""Types of questions: how people answer, and the policy's category of each answer.

::

    - {variable: smokes, text: ..., answers: {...}}                       # type: choice
    - {variable: mood, type: scale, text: ..., answers: {...}}            # choices side by side
    - {variable: age, type: number, text: ..., number: {min: 16, max: 99, bins: [20, 30, 50]}}
    - {variable: born, type: date, text: ..., date: {as: age, bins: [20, 30, 50], from: 1920, to: 2012}}
    - {type: multiple, text: ..., items: {beer: ..., wine: ...}}          # each item is a variable
    - {type: matrix, text: ..., items: {q1: ..., q2: ...}, answers: {...}}
    - {variable: remarks, type: text, clear: accepted, text: ...}         # see `free_text`

On the device, a number or date becomes the category of its bin. The bins are those of the policy's variable,
or follow from cut points in the file: `bins: [20, 30]` means "under 20", "20 to under 30" and "30 or more".
People see these groups in words, never as intervals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from masquerade.core.schema import Category, Variable
from masquerade.survey.forms.parts import Label, Plain, SurveyPart, Text, text_problems

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy

QuestionType = Literal["choice", "scale", "number", "date", "multiple", "matrix", "text"]
MOST_BINS: Final = 100
MOST_ITEMS: Final = 50
MOST_LONGEST: Final = 4_000
MOST_POSITIONS: Final = 1000  # most positions of a slider
WITH_ITEMS: Final = ("multiple", "matrix")
LARGEST: Final = 10**15  # largest number in a survey file
Number = (
    Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
    | Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
)


class NumberSpec(SurveyPart):
    """A number that people type or choose with a slider."""

    min: Number | None = None
    max: Number | None = None
    step: Annotated[Number, Field(gt=0)] = 1
    bins: list[Number] | None = Field(default=None, min_length=1, max_length=MOST_BINS)
    slider: bool = False
    unit: Text | None = None


class DateSpec(SurveyPart):
    """A month and year, used as completed years until today (`age`) or as the year alone (`year`)."""

    as_: Literal["age", "year"] = Field(default="age", alias="as")
    from_: int = Field(alias="from", ge=1800, le=2200)
    to: int = Field(ge=1800, le=2200)
    bins: list[Number] | None = Field(default=None, min_length=1, max_length=MOST_BINS)


class QuestionSpec(SurveyPart):
    """One question of the file: its variable or items, its texts, and when it is asked."""

    variable: str | None = None
    items: dict[str, Text] | None = Field(default=None, min_length=1, max_length=MOST_ITEMS)
    type: QuestionType | None = None
    text: Text
    help: Text | None = None
    caution: Text | None = None
    answers: dict[Label, Text] | None = None
    number: NumberSpec | None = None
    date: DateSpec | None = None
    ticked: Label | None = None
    required: bool = True
    show_if: dict[str, list[Label]] | None = None
    not_asked: Label | None = None
    reveals: list[str] = Field(default_factory=list)
    clear: Literal["accepted"] | None = None
    longest: int | None = Field(default=None, ge=1, le=MOST_LONGEST)


@dataclass(frozen=True)
class QuestionEntry:
    """A variable that is asked: its place in the file, the question, and the text of its item, if any."""

    where: str
    screen: int
    name: str
    spec: QuestionSpec
    item: Text | None = None

    @property
    def type(self) -> QuestionType | None:
        """Return the type that the file states."""
        return self.spec.type


@dataclass(frozen=True)
class NumberInput:
    """Conversion of a number or date to a category: `codes[i]` if it is in [`cuts[i - 1]`, `cuts[i]`)."""

    cuts: tuple[Number, ...]
    codes: tuple[int, ...]
    low: Number
    high: Number
    step: Number
    slider: bool = False
    unit: Mapping[str, str] | None = None
    date: str | None = None

    def values(self) -> dict[str, Any]:
        """Return the input as the page's script receives it."""
        values: dict[str, Any] = {
            "cuts": self.cuts,
            "codes": self.codes,
            "min": self.low,
            "max": self.high,
            "step": self.step,
        }
        more = {"slider": self.slider or None, "unit": self.unit, "date": self.date}
        return values | {key: value for key, value in more.items() if value is not None}


def list_entries(questions: Sequence[QuestionSpec]) -> tuple[QuestionEntry, ...]:
    """Return one entry per variable, in the order of the file; free text is not among them.

    Items share the screen of their question.
    """
    entries = []
    for i, spec in enumerate(questions):
        where = f"questions.{i}"
        if spec.items is not None:
            entries += [
                QuestionEntry(f"{where}.items.{name}", i, name, spec, text)
                for name, text in spec.items.items()
            ]
        elif spec.variable is not None and spec.type != "text":
            entries.append(QuestionEntry(where, i, spec.variable, spec))
    return tuple(entries)


def type_of(entry: QuestionEntry, policy: Policy) -> QuestionType:
    """Return the type of a question; without one in the file, a variable with bins is asked as a number."""
    if entry.type is not None:
        return entry.type
    if entry.spec.items is not None:
        return "multiple"
    return "choice" if bin_edges(entry.name, policy) is None or entry.spec.answers else "number"


def bin_edges(name: str, policy: Policy) -> tuple[float, ...] | None:
    """Return the edges of the bins of a variable, None if it has none."""
    return next((field.edges for field in policy.fields if field.variable.name == name), None)


def answered_categories(variable: Variable) -> tuple[Category, ...]:
    """Return the categories that are not missing."""
    return tuple(label for label in variable.categories if label not in variable.missing)


def number_input(entry: QuestionEntry, policy: Policy, unit: Mapping[str, str] | None) -> NumberInput | None:
    """Return the input of a number or date question, None for other types or if its bins do not fit."""
    kind = type_of(entry, policy)
    if kind not in ("number", "date"):
        return None
    variable = policy.schema[entry.name]
    codes = tuple(variable.code(label) for label in answered_categories(variable))
    edges = bin_edges(entry.name, policy)
    number, date = entry.spec.number or NumberSpec(), entry.spec.date
    stated = date.bins if date is not None else number.bins
    cuts = tuple(edges[1:-1]) if stated is None and edges is not None else tuple(stated or ())
    if len(cuts) + 1 != len(codes):
        return None
    plain = tuple(_plain(cut) for cut in cuts)
    if date is not None:
        return NumberInput(plain, codes, date.from_, date.to, 1, date=date.as_)
    bounds = edges if edges is not None and stated is None else (-math.inf, math.inf)
    low = number.min if number.min is not None else bounds[0]
    high = number.max if number.max is not None else bounds[-1]
    return NumberInput(plain, codes, _plain(low), _plain(high), number.step, number.slider, unit)


def bin_texts(number: NumberInput, words: Mapping[str, str]) -> tuple[str, ...]:
    """Return the groups of a number in words, such as "under 20", "20 to 29" and "30 or more".

    >>> words = {"number_under": "under {b}", "number_to": "{a} to {b}", "number_more": "{a} or more",
    ...          "number_below": "{a} to under {b}", "decimal": ".", "thousands": ","}
    >>> bin_texts(NumberInput((20, 30), (0, 1, 2), 16, 99, 1), words)
    ('under 20', '20 to 29', '30 or more')
    >>> bin_texts(NumberInput((1, 4), (0, 1, 2), 0, 7, 1), words)
    ('0', '1 to 3', '4 or more')
    """

    def say(value: Number) -> str:
        # years have no separator of thousands
        text = f"{value:.15g}" if number.date == "year" else f"{value:,.15g}".replace(",", "\0")
        return text.replace(".", words["decimal"]).replace("\0", words["thousands"])

    is_whole = number.date is not None or (
        number.step == 1 and all(isinstance(it, int) for it in number.cuts)
    )
    # the groups at the ends may contain a single number: with 0 as the least, "0" instead of "under 1"
    has_ends = is_whole and number.date is None
    texts = []
    if number.cuts:
        is_single = has_ends and number.cuts[0] - number.low == 1
        texts = [say(number.low) if is_single else words["number_under"].replace("{b}", say(number.cuts[0]))]
    for low, high in pairwise(number.cuts):
        if is_whole and high - low == 1:
            texts.append(say(low))
            continue
        last = high - 1 if is_whole else high
        key = "number_to" if is_whole else "number_below"
        texts.append(words[key].replace("{a}", say(low)).replace("{b}", say(last)))
    if number.cuts:
        is_single = has_ends and number.cuts[-1] == number.high
        last_text = (
            say(number.high) if is_single else words["number_more"].replace("{a}", say(number.cuts[-1]))
        )
        texts.append(last_text)
    return tuple(texts)


def type_problems(entry: QuestionEntry, policy: Policy, languages: Sequence[str]) -> Iterator[str]:
    """Yield the problems of the type of a question; the policy must contain its variable."""
    spec, where = entry.spec, entry.where
    kind, variable = type_of(entry, policy), policy.schema[entry.name]
    if spec.caution is not None:
        yield from text_problems(spec.caution, f"{where}.caution", languages)
    if entry.item is not None:
        yield from text_problems(entry.item, where, languages)
    if not spec.required and not variable.missing:
        yield (
            f"{where}.required: a question that may be left out needs a category for it: write 'missing' "
            f"for {entry.name!r} in the policy."
        )
    if kind in WITH_ITEMS and len(answered_categories(variable)) < 2:
        yield f"{where}: {entry.name!r} needs at least two categories that are not missing."
    if kind == "multiple" and len(answered_categories(variable)) != 2:
        yield f"{where}: an item to tick needs two categories, such as yes and no, in the policy."
    if kind == "multiple" and spec.ticked is not None and spec.ticked not in answered_categories(variable):
        yield f"{where}: ticked: {spec.ticked!r} is not a category of {entry.name!r}."
    if kind in ("number", "date"):
        yield from _number_problems(entry, policy, languages)


def shape_problems(questions: Sequence[QuestionSpec]) -> Iterator[str]:
    """Yield questions whose keys do not fit their type."""
    for i, spec in enumerate(questions):
        where = f"questions.{i}"
        if (spec.variable is None) == (spec.items is None):
            yield f"{where}: needs either a 'variable' or 'items'."
        elif spec.items is None and spec.type in WITH_ITEMS:
            yield f"{where}.type: {spec.type!r} needs 'items', a text for each variable."
        elif spec.items is not None and spec.type not in (None, *WITH_ITEMS):
            yield f"{where}.type: 'items' need the type multiple or matrix."
        if (spec.type == "date") != (spec.date is not None):
            yield f"{where}: the type date and 'date: {{from: 1920, to: 2010}}' need each other."
        if spec.number is not None and spec.type not in (None, "number"):
            yield f"{where}.number: needs the type number."
        if spec.items is not None and (spec.show_if is None) != (spec.not_asked is None):
            yield f"{where}: 'show_if' and 'not_asked' need each other."


def _number_problems(entry: QuestionEntry, policy: Policy, languages: Sequence[str]) -> Iterator[str]:
    spec, where = entry.spec, entry.where
    if spec.number is not None and spec.number.unit is not None:
        yield from text_problems(spec.number.unit, f"{where}.number.unit", languages)
    stated = spec.date.bins if spec.date is not None else spec.number.bins if spec.number else None
    if stated is not None and any(low >= high for low, high in pairwise(stated)):
        yield f"{where}.bins: each cut point must be above the one before."
        return
    number = number_input(entry, policy, None)
    if number is None:
        size = len(answered_categories(policy.schema[entry.name]))
        yield (
            f"{where}.bins: {entry.name!r} has {size} categories that are not missing, so it needs "
            f"{size - 1} cut points here, or 'bins' in the policy."
        )
    elif not (math.isfinite(number.low) and math.isfinite(number.high)):
        yield f"{where}.number: needs 'min' and 'max'."
    elif number.low >= number.high:
        yield f"{where}: its smallest value must be below its largest."
    elif number.date is None and any(not number.low < cut <= number.high for cut in number.cuts):
        yield f"{where}.bins: must lie between {number.low:g} and {number.high:g}."
    elif number.slider and (number.high - number.low) / number.step > MOST_POSITIONS:
        yield f"{where}.number.slider: has more than {MOST_POSITIONS:,} positions; use a larger step."


def _plain(number: float) -> Number:
    return int(number) if math.isfinite(number) and number == int(number) else number


__all__ = [
    "DateSpec",
    "NumberInput",
    "NumberSpec",
    "Plain",
    "QuestionEntry",
    "QuestionSpec",
    "QuestionType",
    "answered_categories",
    "bin_edges",
    "bin_texts",
    "list_entries",
    "number_input",
    "shape_problems",
    "type_of",
    "type_problems",
]  # fmt: skip
