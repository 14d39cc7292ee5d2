"""What is wrong with a settings file, in one line: the key and what would be right, never the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError

from masquerade.core.errors import did_you_mean
from masquerade.services.common import settings_file as store

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

WORDS: Final = {
    "missing": "is missing.",
    "string_type": "must be text; quote it.",
    "path_type": "must be the name of a file.",
    "list_type": "must be a list, such as [a, b].",
    "tuple_type": "must be a list, such as [a, b].",
    "dict_type": "must be keys with values.",
    "model_type": "must be keys with values.",
    "model_attributes_type": "must be keys with values.",
    "int_type": "must be a whole number.",
    "int_parsing": "must be a whole number.",
    "int_from_float": "must be a whole number.",
    "int_parsing_size": "must be a smaller whole number.",
    "float_type": "must be a number.",
    "float_parsing": "must be a number.",
    "finite_number": "must be a finite number.",
    "bool_type": "must be true or false.",
    "bool_parsing": "must be true or false.",
    "too_short": "must not be empty.",
    "string_too_short": "must not be empty.",
    "greater_than": "must be more than {gt}.",
    "greater_than_equal": "must be at least {ge}.",
    "less_than": "must be less than {lt}.",
    "less_than_equal": "must be at most {le}.",
    "literal_error": "must be {expected}.",
    "enum": "must be {expected}.",
}
SECRETS: Final = ("token", "secret", "password", "private", "pem", "passphrase")


def explain(
    error: ValidationError, values: object, model: type[BaseModel], sources: Mapping[tuple[str, ...], str]
) -> str:
    """Return the first problem in one line, and how many other keys are wrong."""
    problems: dict[tuple[str, ...], str] = {}
    for problem in error.errors(include_url=False, include_input=False):
        path, around = _place(problem["loc"], values, model)
        problems.setdefault(path, _words(problem, path, around))
    deepest = [p for p in problems if not any(o != p and o[: len(p)] == p for o in problems)]
    first = deepest[0]
    variable = next((sources[first[:n]] for n in range(len(first), 0, -1) if first[:n] in sources), None)
    name = (".".join(first) or "the settings") + (f" (from {variable})" if variable else "")
    more = f" (and {len(deepest) - 1} more)" if len(deepest) > 1 else ""
    return f"{name}: {problems[first]}{more}"


def _place(location: Sequence[object], values: object, model: type[BaseModel]) -> tuple[tuple[str, ...], Any]:
    """Return the path in the file, without names that are pydantic's own, and what holds its last key."""
    path: list[str] = []
    around: Any = model
    annotation: Any = model
    here = values
    for i, part in enumerate(location):
        there = isinstance(here, Mapping) and part in here
        listed = isinstance(here, (list, tuple)) and isinstance(part, int) and part < len(here)
        absent = i == len(location) - 1 and part in store.keys_of(annotation, here)
        if there or listed or absent:
            around, annotation = annotation, store.inside(annotation, part)
            here = here[part] if there or listed else None  # type: ignore[index]
            path.append(str(part))
    return tuple(path), around


def _words(problem: ErrorDetails, path: tuple[str, ...], around: Any) -> str:
    """Return what is wrong with one key in plain words."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        secret = any(word in path[-1].lower() for word in SECRETS)
        advice = " Keys and tokens are never written into the settings, only their files or digests."
        return (
            "is not a known key."
            + did_you_mean(path[-1], store.keys_of(around, None))
            + (advice if secret else "")
        )
    told = problem["msg"].removeprefix("Value error, ")
    return WORDS[kind].format(**context) if kind in WORDS else told.rstrip(".") + "."
