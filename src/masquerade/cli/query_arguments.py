"""Questions as people type them: `--by A,B`, `--where C=x`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from masquerade.core.errors import InputError, SchemaError, did_you_mean

if TYPE_CHECKING:
    from masquerade.core.schema import Category, Schema, Variable


def tables_asked(by: Sequence[str], where: Mapping[str, Category], schema: Schema) -> list[tuple[str, ...]]:
    """Return the variables of every table; none at all asks for one count."""
    tables = [names_asked(text, schema) for text in by] or [()]
    for names in tables:
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"--by names {name!r} twice.")
            if name in where:
                raise InputError(f"{name!r} is in --by and in --where: count its categories, or fix one.")
    return tables


def names_asked(text: str, schema: Schema) -> tuple[str, ...]:
    """Return the variables in "A,B"; a name that holds a comma is known by being one."""
    if text in schema:
        return (text,)
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if not name:
            raise InputError(f"--by {text!r}: variables are given as A,B.")
        known(name, schema, "--by")
    return names


def conditions(texts: Sequence[str], schema: Schema) -> dict[str, Category]:
    """Return the conditions in "C=x", each category in its own type."""
    found: dict[str, Category] = {}
    for text in texts:
        variable, label = split(text, schema)
        if variable.name in found:
            raise InputError(f"--where names {variable.name!r} twice; a record has one category.")
        found[variable.name] = matched(variable, label)
    return found


def split(text: str, schema: Schema) -> tuple[Variable, str]:
    """Return the two sides of a condition; a name that holds "=" is known by being a variable."""
    places = [place for place, character in enumerate(text) if character == "="]
    for place in places:
        if text[:place].strip() in schema:
            return schema[text[:place].strip()], text[place + 1 :].strip()
    if not places or not text[: places[0]].strip():
        raise InputError(f"--where {text!r}: a condition is given as VARIABLE=CATEGORY.")
    return known(text[: places[0]].strip(), schema, "--where"), ""


def known(name: str, schema: Schema, option: str) -> Variable:
    """Return a variable of the policy."""
    if name not in schema:
        raise SchemaError(f"{option}: the policy has no variable {name!r}.{did_you_mean(name, schema)}")
    return schema[name]


def matched(variable: Variable, text: str) -> Category:
    """Return the category that a text stands for: 3 for "3", true for "true"."""
    forms = {label: shown(label) for label in variable.categories}
    found = [label for label, form in forms.items() if form == text]
    if not found:
        found = [label for label in forms if isinstance(label, bool) and shown(label) == text.lower()]
    if len(found) == 1:
        return found[0]
    if found:
        raise SchemaError(f"--where: {variable.name!r} has several categories that are written {text!r}.")
    hint = did_you_mean(text, forms.values())
    raise SchemaError(f"--where: {text!r} is not a category of {variable.name!r}.{hint}")


def shown(label: Category) -> str:
    """Return a category as files show it."""
    return str(label).lower() if isinstance(label, bool) else str(label)
