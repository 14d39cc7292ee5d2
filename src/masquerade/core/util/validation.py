"""Plain sentences for the errors that pydantic finds in a file. Reads its results without loading it."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

from masquerade.core.errors import did_you_mean

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

KeyPath = tuple[str, ...]
SENTENCES: Final = {
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
    "too_long": "must have at most {max_length} entries.",
    "string_too_short": "must not be empty.",
    "string_too_long": "must have at most {max_length} characters.",
    "greater_than": "must be more than {gt}.",
    "greater_than_equal": "must be at least {ge}.",
    "less_than": "must be less than {lt}.",
    "less_than_equal": "must be at most {le}.",
    "literal_error": "must be {expected}.",
    "enum": "must be {expected}.",
}


def describe_errors(
    error: ValidationError, describe: Callable[[ErrorDetails], tuple[KeyPath, str]]
) -> dict[KeyPath, str]:
    """Return one sentence per wrong key; `describe` returns the key and the sentence of an error.

    A value that was tried as several types has one error per type; the first is kept. Of nested keys, the
    innermost is kept, because its error is more specific.
    """
    sentences: dict[KeyPath, str] = {}
    for problem in error.errors(include_url=False, include_input=False):
        path, sentence = describe(problem)
        sentences.setdefault(path, sentence)
    outer = {path[:length] for path in sentences for length in range(len(path))}
    return {path: sentence for path, sentence in sentences.items() if path not in outer}


def describe_error(
    problem: ErrorDetails, key: str, allowed: Iterable[str], sentences: Mapping[str, str] = SENTENCES
) -> str:
    """Return a sentence about a wrong key; `allowed` are the keys that may be there."""
    kind = problem["type"]
    if kind == "extra_forbidden":
        return f"is not a known key.{did_you_mean(key, allowed)}"
    if kind in sentences:
        return sentences[kind].format(**problem.get("ctx", {}))
    return problem["msg"].removeprefix("Value error, ").removeprefix("'value' ").rstrip(".") + "."


def find_key(location: Sequence[object], values: object, model: type) -> tuple[KeyPath, Any]:
    """Return the path of a key in the file, and the annotation of the mapping or list that contains it.

    Pydantic's locations also name the types that it tried: names that the file does not contain are omitted.
    """
    path: list[str] = []
    around: Any = model
    annotation: Any = model
    here = values
    for i, part in enumerate(location):
        below = list_keys(annotation, here)
        is_key = isinstance(here, Mapping) and part in here
        is_entry = isinstance(here, (list, tuple)) and isinstance(part, int) and part < len(here)
        is_missing = i == len(location) - 1 and part in below
        if is_key or is_entry or is_missing:
            inner = (
                next(iter(get_args(strip_annotation(annotation))), None) if is_entry else below.get(str(part))
            )
            around, annotation = annotation, inner
            here = here[part] if is_key or is_entry else None  # type: ignore[index]
            path.append(str(part))
    return tuple(path), around


def list_keys(annotation: Any, values: Any) -> dict[str, Any]:
    """Return the keys allowed at a place with their annotations: fields of a model, or keys in the file."""
    plain = strip_annotation(annotation)
    if is_model(plain):
        return {name: field.annotation for name, field in plain.model_fields.items()}
    origin = get_origin(plain)
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(values, Mapping):
        return {str(key): get_args(plain)[1] for key in values}
    return {}


def strip_annotation(annotation: Any) -> Any:
    """Return the type of an annotation, without metadata and None; of a union the first."""
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        annotation = next(option for option in get_args(annotation) if option is not types.NoneType)
    return annotation


def is_model(annotation: Any) -> bool:
    """Return True if an annotation is a pydantic model."""
    return isinstance(annotation, type) and hasattr(annotation, "model_fields")
