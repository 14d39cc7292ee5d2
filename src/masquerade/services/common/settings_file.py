"""One YAML file and the environment as plain values: what a service is told, before it is checked."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel

from masquerade.core.errors import FileError, InputError, did_you_mean

PREFIX = "MASQUERADE_"
LEVEL = "__"
# variables of the library itself: they are never overrides, whatever a settings file calls its keys
RESERVED = frozenset({"MASQUERADE_DATA", "MASQUERADE_CACHE", "MASQUERADE_OFFLINE"})
RESERVED |= {"MASQUERADE_URL", "MASQUERADE_DEBUG"}
MOST_BYTES = 1 << 20


class SettingsLoader(yaml.SafeLoader):
    """YAML as people mean it: `no` is text, 0123 is text, a key occurs once."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own name and form)
        first: [(tag, pattern) for tag, pattern in rules if not tag.endswith((":bool", ":int", ":timestamp"))]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


SettingsLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
SettingsLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)


def construct_unique(loader: SettingsLoader, node: yaml.MappingNode) -> dict[str, Any]:
    """Build a mapping and refuse a key that occurs twice (YAML would keep the last in silence)."""
    loader.flatten_mapping(node)
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if not isinstance(key, str):
            raise InputError(f"line {line}: a key must be text; quote it.")
        if key in result:
            raise InputError(f"line {line}: {key!r} is given twice.")
        result[key] = loader.construct_object(value_node, deep=True)
    return result


SettingsLoader.add_constructor("tag:yaml.org,2002:map", construct_unique)


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
        values = parse(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not a text file in UTF-8.") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: must be keys with values, such as 'listen: {{port: 8443}}'.")
    return values


def parse(text: str) -> Any:
    """Return the plain values of YAML text; an error names the line and quotes nothing."""
    try:
        return yaml.load(text, Loader=SettingsLoader)  # noqa: S506  (a SafeLoader)
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
        known = keys_of(annotation, here)
        meant = [key for key in known if spelt(key) == part]
        if len(meant) > 1:
            raise InputError(f"{variable} could mean two keys: {meant[0]!r} and {meant[1]!r}.")
        if not meant:
            full = [PREFIX + LEVEL.join([*map(spelt, path), spelt(key)]) for key in known]
            what = "is no override: the settings have no such key." if known else "goes deeper than any key."
            raise InputError(f"{variable} {what}{did_you_mean(variable, full)}")
        path += meant
        annotation = inside(annotation, meant[0])
        here = here.get(meant[0]) if isinstance(here, Mapping) else None
    if holds_models(annotation):
        raise InputError(
            f"{variable} is no override: {'.'.join(path)} is changed in the file, or key by key."
        )
    return tuple(path)


def spelt(key: str) -> str:
    """Return how a key is written in the name of a variable."""
    return re.sub(r"[^A-Z0-9_]", "_", key.upper())


def _scalar(variable: str, text: str) -> Any:
    """Return text as it is; a list or mapping is written as YAML in brackets."""
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return parse(text)
    except InputError:
        raise InputError(f"{variable}: not a valid list; write it like [a, b].") from None


def models_of(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that an annotation allows."""
    if get_origin(annotation) is Annotated:
        return models_of(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [model for option in get_args(annotation) for model in models_of(option)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


def holds_models(annotation: Any) -> bool:
    """Return whether an annotation speaks of models, or of lists or mappings of them."""
    return bool(models_of(annotation)) or any(map(holds_models, get_args(annotation)))


def inside(annotation: Any, part: object) -> Any:
    """Return the annotation of what lies under a key or place; None if nothing is known of it."""
    if get_origin(annotation) is Annotated:
        return inside(get_args(annotation)[0], part)
    if get_origin(annotation) in (Union, types.UnionType):
        found = (inside(option, part) for option in get_args(annotation))
        return next((item for item in found if item is not None), None)
    for model in models_of(annotation):
        field = model.model_fields.get(str(part))
        return None if field is None else field.annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return arguments[1]
    if origin in (list, tuple) and arguments:
        return arguments[0]
    return None


def keys_of(annotation: Any, values: Any) -> list[str]:
    """Return the keys that may stand at a place: a model's fields, or the names that the file has there."""
    fields = [name for model in models_of(annotation) for name in model.model_fields]
    if fields:
        return list(dict.fromkeys(fields))
    mapping = inside(annotation, "") is not None and isinstance(values, Mapping)
    return [str(key) for key in values] if mapping else []
