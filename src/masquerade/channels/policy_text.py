"""Policy text in and out: YAML 1.2 and JSON, decimals kept as written, no key twice."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from masquerade.core.errors import FileError, PolicyError

SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


class PolicyLoader(yaml.SafeLoader):
    """YAML as people mean it: `no` is text, 0.1 is one tenth, a key occurs once."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own name and form)
        first: [
            (tag, pattern)
            for tag, pattern in rules
            if not tag.endswith((":bool", ":float", ":int", ":timestamp"))
        ]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


PolicyLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
# 01234 and 1:30 stay text: codes and times, which YAML 1.1 would read as octal and sexagesimal numbers
PolicyLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)
DECIMAL = re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$")
PolicyLoader.add_implicit_resolver("tag:yaml.org,2002:float", DECIMAL, list("-+.0123456789"))


def _construct_decimal(loader: PolicyLoader, node: yaml.ScalarNode) -> Decimal:
    return Decimal(str(loader.construct_scalar(node)))


def construct_unique(loader: PolicyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    """Build a mapping and refuse a key that occurs twice (YAML would keep the last in silence)."""
    loader.flatten_mapping(node)
    result: dict[Any, Any] = {}
    for key, value in node.value:
        pair = (loader.construct_object(key, deep=True), loader.construct_object(value, deep=True))
        _add_unique(result, pair, f"line {key.start_mark.line + 1}: ")
    return result


PolicyLoader.add_constructor("tag:yaml.org,2002:float", _construct_decimal)
PolicyLoader.add_constructor("tag:yaml.org,2002:map", construct_unique)


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    result: dict[Any, Any] = {}
    for pair in pairs:
        _add_unique(result, pair)
    return result


def _add_unique(result: dict[Any, Any], pair: tuple[Any, Any], where: str = "") -> None:
    """Add a key and its value; refuse a key that is there already or is none."""
    key, value = pair
    if not isinstance(key, (str, int, bool)):
        raise PolicyError(f"{where}a key must be text, a whole number or true/false; quote it.")
    if key in result:
        raise PolicyError(f"{where}{key!r} is given twice.")
    result[key] = value


def read(path: Path) -> Any:
    """Return the plain values of a YAML or JSON file."""
    form = SUFFIXES.get(path.suffix.lower())
    if form is None:
        raise PolicyError(f"{path}: a policy file ends in .yaml, .yml or .json.")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise PolicyError(f"{path}: is not a text file in UTF-8.") from None
    try:
        return parse(text, form)
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from None


def parse(text: str, form: str) -> Any:
    """Return the plain values of YAML or JSON text."""
    try:
        if form == "json":
            return json.loads(text, parse_float=Decimal, object_pairs_hook=_unique)
        return yaml.load(text, Loader=PolicyLoader)  # noqa: S506  (a SafeLoader)
    except json.JSONDecodeError as error:
        raise PolicyError(f"line {error.lineno}: not valid JSON ({error.msg}).") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PolicyError(f"line {line}: not valid YAML ({error.problem}).") from None
    except yaml.YAMLError:
        raise PolicyError("not valid YAML.") from None


class _PolicyDumper(yaml.SafeDumper):
    """YAML with short lists on one line; text that would read as a number is quoted."""


_PolicyDumper.add_implicit_resolver("tag:yaml.org,2002:float", DECIMAL, list("-+.0123456789"))


def write(values: Any, form: str) -> str:
    """Return plain values as YAML or JSON text that reads back to the same policy."""
    plain = plain_values(values)
    if form == "json":
        return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    return str(
        yaml.dump(plain, Dumper=_PolicyDumper, sort_keys=False, allow_unicode=True, default_flow_style=None)
    )


def plain_values(values: Any) -> Any:
    """Return values that JSON knows; fractions as text, exactly."""
    if isinstance(values, Mapping):
        return {key: plain_values(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [plain_values(value) for value in values]
    if isinstance(values, (Fraction, Decimal)):
        return str(values)
    if isinstance(values, np.generic):
        return values.item()
    return values
