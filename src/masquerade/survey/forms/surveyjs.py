"""Reader of SurveyJS forms (JSON): pages of elements.

Questions to choose one answer or several, ratings, matrices of single choices, and numbers with `min` and
`max` are imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from masquerade.core.errors import InputError
from masquerade.core.util.json_text import read_json
from masquerade.survey.forms.questionnaire import (
    WORD_FOR_WORD,
    Atom,
    ImportedQuestion,
    Questionnaire,
    Texts,
    add_number,
    finish_questionnaire,
    select_languages,
    tick_items,
)

MOST_RATES: Final = 100
MOST_DEPTH: Final = 20
CHOOSING: Final = frozenset({"radiogroup", "dropdown", "buttongroup", "imagepicker"})
# choices of SurveyJS that count as missing answers: key, value and text
SPECIAL: Final = (("Refuse", "refused", "Refuse to answer"), ("DontKnow", "dontknow", "Don't know"))
SILENT: Final = frozenset({"html", "image", "expression"})
_VALUE: Final = r"(?:'([^']*)'|\"([^\"]*)\"|(-?\d+(?:\.\d+)?|true|false))"
_IS: Final = re.compile(rf"\{{([^}}]+)\}}\s*(==|=|!=|<>|equal|notequal)\s*{_VALUE}", re.IGNORECASE)
_HAS: Final = re.compile(rf"\{{([^}}]+)\}}\s*(contains|notcontains)\s*{_VALUE}", re.IGNORECASE)
MOST_VALUES: Final = 10**6  # most values of a number
LARGEST: Final = 10**12
WHY: Final = {
    "comment": WORD_FOR_WORD,
    "text": f"{WORD_FOR_WORD}; a number needs inputType 'number' with 'min' and 'max'",
}
_ANY: Final = re.compile(r"\{([^}]+)\}\s*anyof\s*\[(.*)\]", re.IGNORECASE)


def read(path: Path) -> Questionnaire:
    """Read the questionnaire in a file."""
    values = read_json(path)
    if not isinstance(values, dict) or not isinstance(values.get("pages", values.get("elements")), list):
        raise InputError("is not a SurveyJS form: it has neither 'pages' nor 'elements'.")
    default = values.get("locale") if isinstance(values.get("locale"), str) else "en"
    left_out: list[str] = []
    problems: list[str] = []
    questions = [
        question
        for where, element, conditions in _elements(values, (), "", 0)
        for question in _question(
            where, element, conditions, str(default), left_out=left_out, problems=problems
        )
    ]
    in_texts = [language for question in questions for language in question.text]
    languages = select_languages(in_texts or [str(default)], left_out)
    title = _texts(values.get("title"), str(default)) or {str(default): path.stem}
    return finish_questionnaire(Questionnaire(title, languages, questions, left_out), problems, _atom)


def _elements(
    values: Mapping[str, Any], conditions: tuple[str, ...], where: str, depth: int
) -> Iterator[tuple[str, Mapping[str, Any], tuple[str, ...]]]:
    """Yield the elements of all pages and panels, with the conditions under which they are visible."""
    if depth > MOST_DEPTH:
        raise InputError(f"panels are nested more than {MOST_DEPTH} deep.")
    for key in ("pages", "elements", "questions"):
        listed = values.get(key)
        for place, inner in enumerate(listed if isinstance(listed, list) else []):
            if not isinstance(inner, dict):
                continue
            condition = inner.get("visibleIf")
            has_condition = isinstance(condition, str) and bool(condition.strip())
            all_conditions = (*conditions, str(condition)) if has_condition else conditions
            here = f"{where}{key}.{place}"
            if key == "pages" or inner.get("type") == "panel":
                yield from _elements(inner, all_conditions, f"{here}.", depth + 1)
            else:
                yield here, inner, all_conditions


def _question(
    where: str,
    element: Mapping[str, Any],
    conditions: tuple[str, ...],
    default: str,
    *,
    left_out: list[str],
    problems: list[str],
) -> Iterator[ImportedQuestion]:
    kind, name = str(element.get("type")), element.get("name")
    if not isinstance(name, str) or not name.strip():
        problems.append(f"{where}: has no name.")
        return
    if kind in SILENT:
        return
    text = _texts(element.get("title"), default) or {default: name}
    help_texts = _texts(element.get("description"), default)
    condition = conditions[0] if len(conditions) == 1 else " and ".join(f"({one})" for one in conditions)
    if kind == "matrix":
        matrix = ImportedQuestion(name, text, {}, help_texts, condition)
        yield from _lines(where, element, matrix, default, problems)
        return
    if kind == "text" and (limits := _limits(element)) is not None:
        question = ImportedQuestion(name, text, {}, help_texts, condition)
        left_out.append(add_number(question, *limits, slider=element.get("inputType") == "range"))
        yield question
        return
    if kind not in CHOOSING | {"checkbox", "boolean", "rating"}:
        why = WHY.get(kind, "pages do not ask this type")
        left_out.append(f"{name}: type {kind[:40]!r} cannot be asked; {why}.")
        return
    answers = _answers(where, kind, element, default, problems)
    if element.get("hasOther") or element.get("showOtherItem"):
        left_out.append(f"{name}: 'other' with a free text cannot be asked.")
    if kind == "checkbox" and len(answers) == 1 and element.get("isRequired") is True:
        left_out.append(f"{name}: a box that must be ticked is consent; write its text into 'agree'.")
    elif kind == "checkbox":
        yield from tick_items(name, text, answers, help_texts, condition)
    else:
        question_type = "scale" if kind == "rating" else ""
        yield ImportedQuestion(name, text, answers, help_texts, condition, question_type)


def _answers(
    where: str, kind: str, element: Mapping[str, Any], default: str, problems: list[str]
) -> dict[str, Texts]:
    """Return the answers to choose from, with those that count as missing."""
    if kind == "boolean":
        return {"true": _texts(element.get("labelTrue"), default) or {default: "Yes"},
                "false": _texts(element.get("labelFalse"), default) or {default: "No"}}  # fmt: skip
    if kind == "rating":
        return _rates(where, element, default, problems)
    answers = _choices(where, element.get("choices"), default, problems)
    for key, label, usual in SPECIAL:
        if element.get(f"show{key}Item") is True:
            text = _texts(element.get(f"{key[0].lower()}{key[1:]}Text"), default)
            answers.setdefault(label, text or {default: usual})
    return answers


def _lines(
    where: str, element: Mapping[str, Any], question: ImportedQuestion, default: str, problems: list[str]
) -> Iterator[ImportedQuestion]:
    """Yield the lines of a matrix, which all have its columns as answers."""
    columns = _choices(where, element.get("columns"), default, problems, "columns")
    for row, text in _choices(where, element.get("rows"), default, problems, "rows").items():
        answers = {label: dict(texts) for label, texts in columns.items()}
        yield ImportedQuestion(
            f"{question.name}_{row}", text, answers, dict(question.help), question.condition, "matrix",
            question.name, dict(question.text),
        )  # fmt: skip


def _limits(element: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """Return the smallest number, the largest and the step of a number; None if the form does not say."""
    if element.get("inputType") not in ("number", "range"):
        return None
    limits = [element.get("min"), element.get("max"), element.get("step", 1)]
    numbers = [float(it) for it in limits if type(it) in (int, float) and abs(it) < LARGEST]
    if len(numbers) != len(limits):
        return None
    low, high, step = numbers
    return (low, high, step) if step > 0 and 0 < (high - low) / step < MOST_VALUES else None


def _choices(
    where: str, listed: Any, default: str, problems: list[str], key: str = "choices"
) -> dict[str, Texts]:
    choices: dict[str, Texts] = {}
    if not isinstance(listed, list):
        problems.append(
            f"{where}.{key}: must be a list of answers; answers loaded from a server cannot be asked."
        )
        return choices
    for place, one in enumerate(listed):
        value = one.get("value") if isinstance(one, dict) else one
        if not isinstance(value, (str, int, float, bool)) or not _value(value):
            problems.append(f"{where}.{key}.{place}: has no value.")
            continue
        label = _value(value)
        if label in choices:
            problems.append(f"{where}.{key}.{place}: {label!r} occurs twice.")
        texts = _texts(one.get("text") if isinstance(one, dict) else None, default)
        choices[label] = texts or {default: label}
    return choices


def _rates(where: str, element: Mapping[str, Any], default: str, problems: list[str]) -> dict[str, Texts]:
    if isinstance(element.get("rateValues"), list):
        return _choices(where, element["rateValues"], default, problems)
    low, high = element.get("rateMin", 1), element.get("rateMax", element.get("rateCount", 5))
    if type(low) is not int or type(high) is not int or not 0 < high - low < MOST_RATES:
        problems.append(f"{where}: rateMin and rateMax must be integers, less than {MOST_RATES} apart.")
        return {}
    return {str(rate): {default: str(rate)} for rate in range(low, high + 1)}


def _texts(value: Any, default: str) -> Texts:
    """Return a text by language: one for all, or `{"default": …, "de": …}`."""
    if isinstance(value, str):
        return {default: value.strip()} if value.strip() else {}
    if not isinstance(value, dict):
        return {}
    return {
        default if language == "default" else str(language): text.strip()
        for language, text in value.items()
        if isinstance(text, str) and text.strip()
    }


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _atom(part: str) -> Atom | None:
    equal = _IS.fullmatch(part)
    if equal is not None:
        name, sign, *values = equal.groups()
        value = next(value for value in values if value is not None)
        return name.strip(), sign.lower() in {"=", "==", "equal"}, (value,)
    has = _HAS.fullmatch(part)
    if has is not None:
        name, sign, *values = has.groups()
        value = next(value for value in values if value is not None)
        return f"{name.strip()}_{value}", sign.lower() == "contains", ("yes",)
    chosen = _ANY.fullmatch(part)
    if chosen is None:
        return None
    matches = [re.fullmatch(_VALUE, one.strip()) for one in chosen[2].split(",")]
    answers = [next(v for v in match.groups() if v is not None) for match in matches if match is not None]
    return (chosen[1].strip(), True, tuple(answers)) if len(answers) == len(matches) else None
