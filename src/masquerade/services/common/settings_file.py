"""Reading settings from a YAML file and the environment, and describing their problems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import yaml
from pydantic import BaseModel, ValidationError

from masquerade.channels.policy.text import PolicyLoader, construct_unique, load_yaml
from masquerade.core.errors import FileError, InputError, did_you_mean, in_one_line
from masquerade.core.util.validation import (
    KeyPath,
    describe_error,
    describe_errors,
    find_key,
    is_model,
    list_keys,
)

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

PREFIX = "MASQUERADE_"
LEVEL = "__"
# variables of the library itself, which are never overrides
RESERVED = frozenset({"MASQUERADE_DATA", "MASQUERADE_CACHE", "MASQUERADE_OFFLINE"})
RESERVED |= {"MASQUERADE_URL", "MASQUERADE_DEBUG"}
MOST_BYTES = 1 << 20
SECRETS: Final = ("token", "secret", "password", "private", "pem", "passphrase")


class _SettingsLoader(PolicyLoader):
    """YAML as in policies, with text keys only."""


def _construct_named(loader: _SettingsLoader, node: yaml.MappingNode) -> dict[str, Any]:
    """Return a mapping; raise InputError for a key that is not text or that occurs twice."""
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
    """Put overrides from the environment into the values, and return the variable of each key.

    MASQUERADE_LISTEN__PORT=9000 sets listen.port. Keys that are names, such as those of peers, are matched
    regardless of case, with `_` for `-` and `.`. Only single values and lists of them can be overridden. A
    variable cannot add a peer or a consent: the file alone decides about these.

    Parameters
    ----------
    values : dict
        Values of the file, which are changed.
    model : type
        Model of the settings.
    environment : mapping
        Environment variables.

    Returns
    -------
    dict
        Variable names by key.

    Raises
    ------
    InputError
        If a variable matches no key, several keys, or a key that cannot be overridden.
    """
    sources: dict[tuple[str, ...], str] = {}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in RESERVED:
            continue
        path = _find_overridden(variable, values, model)
        if path in sources:
            raise InputError(f"{variable} and {sources[path]} override the same key {'.'.join(path)}.")
        here = values
        for part in path[:-1]:
            inner = here.get(part)
            here[part] = here = dict(inner) if isinstance(inner, Mapping) else {}
        here[path[-1]] = _scalar(variable, environment[variable])
        sources[path] = variable
    return sources


def _find_overridden(variable: str, values: Mapping[str, Any], model: type[BaseModel]) -> tuple[str, ...]:
    """Return the path of keys that a variable's name refers to."""
    path: list[str] = []
    annotation: Any = model
    here: Any = values
    for part in variable.removeprefix(PREFIX).split(LEVEL):
        known = list_keys(annotation, here)
        meant = [key for key in known if _variable_part(key) == part]
        if len(meant) > 1:
            raise InputError(f"{variable} could mean two keys: {meant[0]!r} and {meant[1]!r}.")
        if not meant:
            full = [PREFIX + LEVEL.join([*map(_variable_part, path), _variable_part(key)]) for key in known]
            what = (
                "overrides nothing: the settings have no such key." if known else "goes deeper than any key."
            )
            raise InputError(f"{variable} {what}{did_you_mean(variable, full)}")
        path += meant
        annotation = known[meant[0]]
        here = here.get(meant[0]) if isinstance(here, Mapping) else None
    if _holds_models(annotation):
        raise InputError(
            f"{variable} cannot override {'.'.join(path)}: change it in the file, or override single keys."
        )
    return tuple(path)


def _variable_part(key: str) -> str:
    """Return the spelling of a key in the name of a variable."""
    return re.sub(r"[^A-Z0-9_]", "_", key.upper())


def _scalar(variable: str, text: str) -> Any:
    """Return text unchanged, or the list or mapping that it contains as YAML in brackets."""
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return _parse(text)
    except InputError:
        raise InputError(f"{variable}: not a valid list; write it like [a, b].") from None


def _holds_models(annotation: Any) -> bool:
    """Return True if an annotation contains a model, or lists or mappings of models."""
    return is_model(annotation) or any(map(_holds_models, get_args(annotation)))


def explain(
    error: ValidationError, values: object, model: type[BaseModel], sources: Mapping[tuple[str, ...], str]
) -> str:
    """Return the problems in one line; if there are many, the first and the number of the others."""

    def describe(problem: ErrorDetails) -> tuple[KeyPath, str]:
        path, around = find_key(problem["loc"], values, model)
        sentence = describe_error(problem, path[-1] if path else "", list_keys(around, None))
        if problem["type"] == "extra_forbidden" and any(word in path[-1].lower() for word in SECRETS):
            sentence += " Keys and tokens are never written into the settings, only their files or digests."
        return path, sentence

    def named(path: tuple[str, ...]) -> str:
        variable = next((sources[path[:n]] for n in range(len(path), 0, -1) if path[:n] in sources), None)
        return (".".join(path) or "the settings") + (f" (from {variable})" if variable else "")

    problems = describe_errors(error, describe)
    return in_one_line([f"{named(path)}: {sentence}" for path, sentence in problems.items()])
