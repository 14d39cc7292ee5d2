"""One YAML file and the environment: what a service is told, before it is checked, and what is wrong."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from masquerade.channels.policy.text import PolicyLoader, construct_unique, load_yaml
from masquerade.core.errors import FileError, InputError, did_you_mean, in_one_line

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PREFIX = "MASQUERADE_"
LEVEL = "__"
# variables of the library itself: they are never overrides, whatever a settings file calls its keys
RESERVED = frozenset({"MASQUERADE_DATA", "MASQUERADE_CACHE", "MASQUERADE_OFFLINE"})
RESERVED |= {"MASQUERADE_URL", "MASQUERADE_DEBUG"}
MOST_BYTES = 1 << 20
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


class _SettingsLoader(PolicyLoader):
    """YAML as in policies, keys being names."""


def _construct_named(loader: _SettingsLoader, node: yaml.MappingNode) -> dict[str, Any]:
    """Build a mapping; refuse a key that is no text, or that occurs twice."""
    for key, _ in node.value:
        if not isinstance(loader.construct_object(key, deep=True), str):
            raise InputError(f"line {key.start_mark.line + 1}: a key must be text; quote it.")
    return construct_unique(loader, node)


_SettingsLoader.add_constructor("tag:yaml.org,2002:map", _construct_named)


def read(path: Path) -> dict[str, Any]:
    """Return the values of a YAML file."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise FileError(
            f"{path}: cannot be read ({(error.strerror or 'input/output error').lower()})."
        ) from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{path}: is too long for settings (at most {MOST_BYTES} bytes).")
    try:
        values = _parse(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not a text file in UTF-8.") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: must be keys with values, such as 'listen: {{port: 8443}}'.")
    return values


def _parse(text: str) -> Any:
    """Return the plain values of YAML text; an error names the line and quotes nothing."""
    try:
        return load_yaml(text, _SettingsLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"line {line}: not valid YAML.") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("not valid YAML.") from None


def override(
    values: dict[str, Any], model: type[BaseModel], environment: Mapping[str, str]
) -> dict[tuple[str, ...], str]:
    """Put overrides from the environment into the values; return which variable set which key.

    MASQUERADE_LISTEN__PORT=9000 sets listen.port. Names of peers and the like are matched without regard to
    case, `-` and `.` being written `_`. Single values and lists of them can be overridden, of peers only
    those of the file: whom a service admits and what it consents to stands in the file alone.
    """
    sources: dict[tuple[str, ...], str] = {}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in RESERVED:
            continue
        path = _located(variable, values, model)
        if path in sources:
            raise InputError(f"{variable} and {sources[path]} override the same key {'.'.join(path)}.")
        here = values
        for part in path[:-1]:
            inner = here.get(part)
            here[part] = here = dict(inner) if isinstance(inner, Mapping) else {}
        here[path[-1]] = _scalar(variable, environment[variable])
        sources[path] = variable
    return sources


def _located(variable: str, values: Mapping[str, Any], model: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys that a variable's name stands for."""
    path: list[str] = []
    annotation: Any = model
    here: Any = values
    for part in variable.removeprefix(PREFIX).split(LEVEL):
        known = _below(annotation, here)
        meant = [key for key in known if _spelt(key) == part]
        if len(meant) > 1:
            raise InputError(f"{variable} could mean two keys: {meant[0]!r} and {meant[1]!r}.")
        if not meant:
            full = [PREFIX + LEVEL.join([*map(_spelt, path), _spelt(key)]) for key in known]
            what = "is no override: the settings have no such key." if known else "goes deeper than any key."
            raise InputError(f"{variable} {what}{did_you_mean(variable, full)}")
        path += meant
        annotation = known[meant[0]]
        here = here.get(meant[0]) if isinstance(here, Mapping) else None
    if _holds_models(annotation):
        raise InputError(
            f"{variable} is no override: {'.'.join(path)} is changed in the file, or key by key."
        )
    return tuple(path)


def _spelt(key: str) -> str:
    """Return how a key is written in the name of a variable."""
    return re.sub(r"[^A-Z0-9_]", "_", key.upper())


def _scalar(variable: str, text: str) -> Any:
    """Return text as it is; a list or mapping is written as YAML in brackets."""
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return _parse(text)
    except InputError:
        raise InputError(f"{variable}: not a valid list; write it like [a, b].") from None


def _holds_models(annotation: Any) -> bool:
    """Tell whether an annotation speaks of models, or of lists or mappings of them."""
    return _is_model(annotation) or any(map(_holds_models, get_args(annotation)))


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _plain(annotation: Any) -> Any:
    """Return an annotation without what is said about it, and without None."""
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        annotation = next(option for option in get_args(annotation) if option is not types.NoneType)
    return annotation


def _below(annotation: Any, values: Any) -> dict[str, Any]:
    """Return the keys that may stand at a place, with annotations: a model's fields, or those in the file."""
    plain = _plain(annotation)
    if _is_model(plain):
        return {name: field.annotation for name, field in plain.model_fields.items()}
    origin = get_origin(plain)
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(values, Mapping):
        return {str(key): get_args(plain)[1] for key in values}
    return {}


def explain(
    error: ValidationError, values: object, model: type[BaseModel], sources: Mapping[tuple[str, ...], str]
) -> str:
    """Return the problems in one line; of many, the first and how many other keys are wrong."""
    problems: dict[tuple[str, ...], str] = {}
    for problem in error.errors(include_url=False, include_input=False):
        path, around = _place(problem["loc"], values, model)
        problems.setdefault(path, _words(problem, path, around))
    deepest = [p for p in problems if not any(o != p and o[: len(p)] == p for o in problems)]

    def named(path: tuple[str, ...]) -> str:
        variable = next((sources[path[:n]] for n in range(len(path), 0, -1) if path[:n] in sources), None)
        return (".".join(path) or "the settings") + (f" (from {variable})" if variable else "")

    return in_one_line([f"{named(path)}: {problems[path]}" for path in deepest])


def _place(location: Sequence[object], values: object, model: type[BaseModel]) -> tuple[tuple[str, ...], Any]:
    """Return the path in the file, without names that are pydantic's own, and what holds its last key."""
    path: list[str] = []
    around: Any = model
    annotation: Any = model
    here = values
    for i, part in enumerate(location):
        below = _below(annotation, here)
        there = isinstance(here, Mapping) and part in here
        listed = isinstance(here, (list, tuple)) and isinstance(part, int) and part < len(here)
        absent = i == len(location) - 1 and part in below
        if there or listed or absent:
            inner = next(iter(get_args(_plain(annotation))), None) if listed else below.get(str(part))
            around, annotation = annotation, inner
            here = here[part] if there or listed else None  # type: ignore[index]
            path.append(str(part))
    return tuple(path), around


def _words(problem: ErrorDetails, path: tuple[str, ...], around: Any) -> str:
    """Return what is wrong with one key in plain words."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        secret = any(word in path[-1].lower() for word in SECRETS)
        advice = " Keys and tokens are never written into the settings, only their files or digests."
        return f"is not a known key.{did_you_mean(path[-1], _below(around, None))}{advice if secret else ''}"
    told = problem["msg"].removeprefix("Value error, ")
    return WORDS[kind].format(**context) if kind in WORDS else told.rstrip(".") + "."
