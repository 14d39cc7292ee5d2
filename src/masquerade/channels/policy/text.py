"""Read and write policy text: YAML 1.2 and JSON, decimals kept as written, no duplicate keys.

Text may be untrusted. It is read within limits on bytes, nesting, and the number of values after anchors are
expanded. Merge keys, with which a short text can represent a huge one, are refused.
"""

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

from masquerade.core.errors import InputError, PolicyError
from masquerade.core.util.json_text import (
    MOST_DEPTH,
    MOST_DIGITS,
    check_plain,
    exact_decimal,
    parse_json,
    read_text,
)

MOST_YAML = 1 << 20  # bytes; longer policies are written as JSON, which is read a hundred times faster
MOST_VALUES = 1 << 20  # most values of a YAML text after its anchors are expanded
MERGE = "tag:yaml.org,2002:merge"
SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


class PolicyLoader(yaml.SafeLoader):
    """YAML 1.2 loader: `no` is text, 0.1 is exactly one tenth, and duplicate keys are refused."""

    yaml_implicit_resolvers = {  # noqa: RUF012  (PyYAML's own name and form)
        first: [
            (tag, pattern)
            for tag, pattern in rules
            if not tag.endswith((":bool", ":float", ":int", ":timestamp"))
        ]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        """Raise PolicyError if brackets nest too deeply: scanning them takes quadratic time."""
        if self.flow_level > MOST_DEPTH:
            raise PolicyError(f"line {self.line + 1}: nested deeper than {MOST_DEPTH} levels.")
        super().fetch_flow_collection_start(TokenClass)


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
    digits = _short(node, str(loader.construct_scalar(node)))
    if not DECIMAL.match(digits):  # its YAML tag states that it is a number
        raise yaml.constructor.ConstructorError(None, None, "not a number", node.start_mark)
    try:
        return exact_decimal(digits)
    except InputError as error:
        raise PolicyError(f"line {node.start_mark.line + 1}: {error}") from None


def _construct_whole(loader: PolicyLoader, node: yaml.ScalarNode) -> int:
    return int(_short(node, str(loader.construct_scalar(node))))


def _construct_nothing(loader: PolicyLoader, node: yaml.Node) -> None:
    loader.construct_undefined(node)


def _short(node: yaml.ScalarNode, digits: str) -> str:
    if len(digits) > MOST_DIGITS:
        raise PolicyError(f"line {node.start_mark.line + 1}: a number has more than {MOST_DIGITS} digits.")
    return digits


def construct_unique(loader: PolicyLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    """Build a mapping; raise an error for a key that occurs twice (YAML would silently keep the last)."""
    result: dict[Any, Any] = {}
    for key, value in node.value:
        pair = (loader.construct_object(key, deep=True), loader.construct_object(value, deep=True))
        _add_unique(result, pair, f"line {key.start_mark.line + 1}: ")
    return result


PolicyLoader.add_constructor("tag:yaml.org,2002:float", _construct_decimal)
PolicyLoader.add_constructor("tag:yaml.org,2002:int", _construct_whole)
PolicyLoader.add_constructor("tag:yaml.org,2002:map", construct_unique)
for _tag in ("binary", "omap", "pairs", "set", "timestamp"):  # types of YAML that no policy contains
    PolicyLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _construct_nothing)


def load_yaml(text: str, loader_class: type[PolicyLoader] = PolicyLoader) -> Any:
    """Return the plain values of YAML text; errors are PyYAML's or an `InputError`."""
    if len(text) > MOST_YAML:
        raise PolicyError(f"too long: at most {MOST_YAML:,} bytes of YAML are read; write JSON instead.")
    loader = loader_class(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check_node(node)
        values = loader.construct_document(node)
    except RecursionError:
        raise PolicyError(f"nested deeper than {MOST_DEPTH} levels.") from None
    except (InputError, yaml.YAMLError):
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        # a value that does not match its tag, such as !!int x
        raise PolicyError("not valid YAML.") from None
    finally:
        loader.dispose()
    check_plain(values)
    return values


def _check_node(root: yaml.Node) -> None:
    """Raise PolicyError for merge keys, cycles, too many levels, or too many expanded values."""
    sizes: dict[yaml.Node, int] = {}  # a node that is being expanded has no size yet

    def size(node: yaml.Node, depth: int) -> int:
        line = f"line {node.start_mark.line + 1}: "
        if node.tag == MERGE:
            raise PolicyError(f"{line}merge keys (<<) are not read; write the keys out.")
        if isinstance(node, yaml.ScalarNode):
            return 1
        if depth > MOST_DEPTH:
            raise PolicyError(f"{line}nested deeper than {MOST_DEPTH} levels.")
        if node not in sizes:
            sizes[node] = 0
            pairs = node.value if isinstance(node, yaml.MappingNode) else [(entry,) for entry in node.value]
            sizes[node] = 1 + sum(size(part, depth + 1) for pair in pairs for part in pair)
        if not sizes[node]:
            raise PolicyError(f"{line}an anchor must not contain itself.")
        if sizes[node] > MOST_VALUES:
            raise PolicyError(f"{line}more than {MOST_VALUES:,} values once anchors are written out.")
        return sizes[node]

    size(root, 0)


def _add_unique(result: dict[Any, Any], pair: tuple[Any, Any], where: str = "") -> None:
    """Add a key and its value; raise PolicyError if the key is a duplicate or not valid."""
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
    text = read_text(path)
    try:
        return parse(text, form)
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from None


def parse(text: str, form: str) -> Any:
    """Return the plain values of YAML or JSON text."""
    try:
        return parse_json(text, exact=True) if form == "json" else load_yaml(text)
    except InputError as error:
        raise PolicyError(str(error)) from None
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
    """Return values that JSON supports; fractions as exact text."""
    if isinstance(values, Mapping):
        return {key: plain_values(value) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return [plain_values(value) for value in values]
    if isinstance(values, (Fraction, Decimal)):
        return str(values)
    if isinstance(values, np.generic):
        return values.item()
    return values
