"""What learners are told, as people type it: names, links, structures, items, numbers for categories."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from masquerade.cli.query_arguments import known, shown
from masquerade.core.errors import FileError, InputError, SchemaError, did_you_mean

if TYPE_CHECKING:
    from masquerade.core.schema import Category, Schema, Variable
    from masquerade.learn.scores import Correction

Structure = dict[str, tuple[str, ...]]
ARROW = re.compile(r"\s*(?:<-|←)\s*")
FORWARD = re.compile(r"\s*(?:->|→)\s*")


def names_given(text: str | None, schema: Schema, option: str) -> tuple[str, ...] | None:
    """Return the variables in "A,B"; a name that holds a comma is known by being one."""
    if text is None:
        return None
    if text in schema:
        return (text,)
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if not name:
            raise InputError(f"{option} {text!r}: variables are given as A,B.")
        known(name, schema, option)
        if names.count(name) > 1:
            raise InputError(f"{option} names {name!r} twice.")
    return names


def links_given(texts: Iterable[str], schema: Schema, option: str) -> list[tuple[str, str]]:
    """Return the links in "PARENT->CHILD"."""
    found = []
    for text in texts:
        ends = FORWARD.split(text.strip())
        if len(ends) != 2 or not all(ends):
            raise InputError(f"{option} {text!r}: a link is given as 'PARENT->CHILD'.")
        for end in ends:
            known(end, schema, option)
        found.append((ends[0], ends[1]))
    return found


def structure_given(text: str, schema: Schema) -> Structure:
    """Return the parents of every node, from a file or from "CHILD<-PARENT,PARENT; CHILD<-PARENT"."""
    path = Path(text)
    found = in_file(path) if path.suffix.lower() in {".json", ".bif"} else in_text(text)
    for name in dict.fromkeys([*found, *(parent for parents in found.values() for parent in parents)]):
        known(name, schema, "--structure")
    whole = {name: found.get(name, ()) for name in schema if name in found or any_child(name, found)}
    from masquerade.learn.network import ancestral_order  # noqa: PLC0415  (loads numpy)

    ancestral_order(whole)
    return whole


def any_child(name: str, structure: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether a node is a parent of any other."""
    return any(name in parents for parents in structure.values())


def in_text(text: str) -> Structure:
    """Return the structure in "CHILD<-PARENT,PARENT; CHILD<-PARENT; ALONE"."""
    found: Structure = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        child, *rest = ARROW.split(part)
        parents = [parent.strip() for parent in rest[0].split(",")] if rest and rest[0] else []
        if not child or len(rest) > 1 or not all(parents):
            raise InputError(f"--structure {part!r}: parents are given as 'CHILD<-PARENT,PARENT; …'.")
        add_node(found, child, parents)
    if not found:
        raise InputError("--structure names no node: parents are given as 'CHILD<-PARENT,PARENT; …'.")
    return found


def add_node(found: Structure, child: str, parents: Sequence[str]) -> None:
    """Add a node; a node or parent given twice is refused."""
    if child in found:
        raise InputError(f"--structure gives the parents of {child!r} twice.")
    if len(set(parents)) < len(parents):
        raise InputError(f"--structure names a parent of {child!r} twice.")
    found[child] = tuple(parents)


def in_file(path: Path) -> Structure:
    """Return the structure in a file: a learnt structure or network, BIF, or names with lists of parents."""
    import masquerade as mq  # noqa: PLC0415  (its learners load numpy)

    if path.suffix.lower() == ".bif":
        from masquerade.learn.bif import read_bif  # noqa: PLC0415

        return dict(read_bif(path).structure)
    values = read_json(path)
    if not isinstance(values, dict) or "masquerade_model" in values:
        model = mq.learn.load(path)
        if not hasattr(model, "structure"):
            raise InputError(f"{path}: this model is of kind {values['kind']!r}, and has no structure.")
        return {name: tuple(parents) for name, parents in model.structure.items()}
    found: Structure = {}
    for child, parents in values.items():
        if not isinstance(parents, list) or not all(isinstance(parent, str) for parent in parents):
            raise InputError(f"{path}: the parents of {child!r} must be a list of names.")
        add_node(found, child, parents)
    if not found:
        raise InputError(f"{path}: names no node.")
    return found


def read_json(path: Path) -> Any:
    """Return the values in a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise FileError(f"{path}: line {error.lineno}: not valid JSON ({error.msg}).") from None
    except (UnicodeDecodeError, RecursionError):
        raise FileError(f"{path}: not JSON text.") from None


def correction_given(text: str) -> Correction:
    """Return the rule in "design-effect", "none", "constant:4" or "eta:0.999"."""
    from masquerade.learn import scores  # noqa: PLC0415  (loads numpy)

    name, _, value = text.partition(":")
    if not value and name in {"design-effect", "none"}:
        return scores.DesignEffect() if name == "design-effect" else scores.Uncorrected()
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if name not in {"constant", "eta"} or number != number:  # noqa: PLR0124  (NaN)
        raise InputError(
            f"--correction {text!r}: one of design-effect, none, constant:C and eta:E, such as constant:4."
        )
    return scores.Constant(number) if name == "constant" else scores.Eta(number)


def items_given(
    texts: Sequence[str] | None, schema: Schema, option: str
) -> list[str | tuple[str, Category]] | None:
    """Return items: a variable stands for its categories, VARIABLE=CATEGORY for one of them."""
    if not texts:
        return None
    found: list[str | tuple[str, Category]] = []
    for text in texts:
        name, equals, label = text.partition("=")
        while equals and name.strip() not in schema and "=" in label:  # a name may hold "="
            more, equals, label = label.partition("=")
            name = f"{name}={more}"
        if text in schema or not equals:
            found.append(known(text, schema, option).name)
        else:
            variable = known(name.strip(), schema, option)
            found.append((variable.name, category_called(variable, label.strip(), option)))
    return found


def category_called(variable: Variable, text: str, option: str) -> Category:
    """Return the category that a text stands for: 3 for "3", true for "true"."""
    forms = [shown(label) for label in variable.categories]
    if text not in forms:
        hint = did_you_mean(text, forms)
        raise SchemaError(f"{option}: {text!r} is not a category of {variable.name!r}.{hint}")
    return variable.categories[forms.index(text)]


def scores_given(texts: Sequence[str], schema: Schema) -> dict[str, Any]:
    """Return the numbers of categories in "V=1,2,5", or "indicator"."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, numbers = text.rpartition("=")
        if not equals:
            raise InputError(f"--scores {text!r}: numbers are given as VARIABLE=1,2,5 or VARIABLE=indicator.")
        variable = known(name.strip(), schema, "--scores")
        try:
            given: Any = [float(part) for part in numbers.split(",")]
        except ValueError:
            given = numbers.strip()
        found[variable.name] = given
    return found
