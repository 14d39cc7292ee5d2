"""SurveyJS, forms as JSON: pages of elements, of which those with answers to choose from can be asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from masquerade.core.errors import InputError
from masquerade.core.util.json_text import read_json
from masquerade.survey.forms.questionnaire import (
    Atom,
    ImportedQuestion,
    Questionnaire,
    Texts,
    finished,
    spoken,
)

MOST_RATES: Final = 100
MOST_DEPTH: Final = 20
CHOOSING: Final = frozenset({"radiogroup", "dropdown", "buttongroup", "imagepicker"})
SILENT: Final = frozenset({"html", "image", "expression"})
_VALUE: Final = r"(?:'([^']*)'|\"([^\"]*)\"|(-?\d+(?:\.\d+)?|true|false))"
_IS: Final = re.compile(rf"\{{\s*([^}}]+?)\s*\}}\s*(==|=|!=|<>|equal|notequal)\s*{_VALUE}", re.IGNORECASE)
_ANY: Final = re.compile(r"\{\s*([^}]+?)\s*\}\s*anyof\s*\[(.*)\]", re.IGNORECASE)


def read(path: Path) -> Questionnaire:
    """Return the questionnaire in a file."""
    values = read_json(path)
    if not isinstance(values, dict) or not isinstance(values.get("pages", values.get("elements")), list):
        raise InputError("is no SurveyJS form: it has neither 'pages' nor 'elements'.")
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
    told = [language for question in questions for language in question.text]
    languages = spoken(told or [str(default)], left_out)
    title = _texts(values.get("title"), str(default)) or {str(default): path.stem}
    return finished(Questionnaire(title, languages, questions, left_out), problems, _atom)


def _elements(
    values: Mapping[str, Any], conditions: tuple[str, ...], where: str, depth: int
) -> Iterator[tuple[str, Mapping[str, Any], tuple[str, ...]]]:
    """Yield the elements of all pages and panels, with the conditions that they stand under."""
    if depth > MOST_DEPTH:
        raise InputError(f"panels stand in panels more than {MOST_DEPTH} deep.")
    for key in ("pages", "elements", "questions"):
        listed = values.get(key)
        for place, inner in enumerate(listed if isinstance(listed, list) else []):
            if not isinstance(inner, dict):
                continue
            told = inner.get("visibleIf")
            own = (*conditions, told) if isinstance(told, str) and told.strip() else conditions
            here = f"{where}{key}.{place}"
            if key == "pages" or inner.get("type") == "panel":
                yield from _elements(inner, own, f"{here}.", depth + 1)
            else:
                yield here, inner, own


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
    answers: dict[str, Texts] = {}
    if kind in CHOOSING:
        answers = _choices(where, element.get("choices"), default, problems)
        if element.get("hasOther") or element.get("showOtherItem"):
            left_out.append(f"{name}: 'other' with a text of its own cannot be asked.")
    elif kind == "boolean":
        answers = {"true": _texts(element.get("labelTrue"), default) or {default: "Yes"},
                   "false": _texts(element.get("labelFalse"), default) or {default: "No"}}  # fmt: skip
    elif kind == "rating":
        answers = _rates(where, element, default, problems)
    else:
        why = "ask each of its choices as a question of its own" if kind == "checkbox" else (
            "pages ask questions with answers to choose from")  # fmt: skip
        left_out.append(f"{name}: type {kind[:40]!r} cannot be asked; {why}.")
        return
    condition = conditions[0] if len(conditions) == 1 else " and ".join(f"({one})" for one in conditions)
    text = _texts(element.get("title"), default) or {default: name}
    yield ImportedQuestion(name, text, answers, _texts(element.get("description"), default), condition)


def _choices(where: str, listed: Any, default: str, problems: list[str]) -> dict[str, Texts]:
    found: dict[str, Texts] = {}
    if not isinstance(listed, list):
        problems.append(
            f"{where}.choices: must be a list of answers; those that a server lists cannot be asked."
        )
        return found
    for place, one in enumerate(listed):
        value = one.get("value") if isinstance(one, dict) else one
        if not isinstance(value, (str, int, float, bool)) or not _value(value):
            problems.append(f"{where}.choices.{place}: has no value.")
            continue
        label = _value(value)
        if label in found:
            problems.append(f"{where}.choices.{place}: {label!r} is there twice.")
        found[label] = _texts(one.get("text") if isinstance(one, dict) else None, default) or {default: label}
    return found


def _rates(where: str, element: Mapping[str, Any], default: str, problems: list[str]) -> dict[str, Texts]:
    if isinstance(element.get("rateValues"), list):
        return _choices(where, element["rateValues"], default, problems)
    low, high = element.get("rateMin", 1), element.get("rateMax", element.get("rateCount", 5))
    if type(low) is not int or type(high) is not int or not 0 < high - low < MOST_RATES:
        problems.append(f"{where}: rateMin and rateMax must be whole numbers, less than {MOST_RATES} apart.")
        return {}
    return {str(rate): {default: str(rate)} for rate in range(low, high + 1)}


def _texts(given: Any, default: str) -> Texts:
    """Return a text by language: one for all, or `{"default": …, "de": …}`."""
    if isinstance(given, str):
        return {default: given.strip()} if given.strip() else {}
    if not isinstance(given, dict):
        return {}
    return {
        default if language == "default" else str(language): text.strip()
        for language, text in given.items()
        if isinstance(text, str) and text.strip()
    }


def _value(given: object) -> str:
    if isinstance(given, bool):
        return str(given).lower()
    return str(int(given)) if isinstance(given, float) and given.is_integer() else str(given).strip()


def _atom(part: str) -> Atom | None:
    equal = _IS.fullmatch(part)
    if equal is not None:
        name, sign, *values = equal.groups()
        value = next(value for value in values if value is not None)
        return name, sign.lower() in {"=", "==", "equal"}, (value,)
    chosen = _ANY.fullmatch(part)
    if chosen is None:
        return None
    found = [re.fullmatch(_VALUE, one.strip()) for one in chosen[2].split(",")]
    told = [next(v for v in match.groups() if v is not None) for match in found if match is not None]
    return (chosen[1], True, tuple(told)) if len(told) == len(found) else None
