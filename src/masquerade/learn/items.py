"""Which categories are items, and how they are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.schema import Category, Schema, Variable
from masquerade.core.supports import Item

Items = Iterable[str | Item] | Mapping[str, Iterable[Category]]
Mask = NDArray[np.bool_]
PRESENT = ((True, False), ("in", "out"), (1, 0))  # what says that an item is in a basket, and that it is not


def items_of(schema: Schema, wanted: Items | None) -> tuple[tuple[Item, ...], tuple[str, ...]]:
    """Return the items to look at, in the order of the schema, and how they are called."""
    pairs: dict[tuple[str, type, Category], None] = {}
    if wanted is None:
        wanted = schema.names
    if isinstance(wanted, str):
        raise InputError("'items' must be a list of variables or (variable, category) pairs, not one text.")
    if isinstance(wanted, Mapping):
        wanted = [(name, label) for name, listed in wanted.items() for label in listed]
    for item in wanted:
        named = default_items(schema[item]) if isinstance(item, str) else [item]
        for name, label in named:
            plain = schema[name].categories[schema[name].code(label)]
            pairs[name, type(plain), plain] = None
    places = {name: i for i, name in enumerate(schema)}
    found = sorted(
        ((name, label) for name, _, label in pairs), key=lambda i: (places[i[0]], schema[i[0]].code(i[1]))
    )
    if not found:
        raise InputError("There are no items to look at.")
    return tuple(found), tuple(label_of(schema[name], label) for name, label in found)


def default_items(variable: Variable) -> list[Item]:
    """Return being in for an in/out variable, every category for another."""
    present = present_in(variable)
    return [(variable.name, c) for c in variable.categories if present is None or c == present]


def present_in(variable: Variable) -> Category | None:
    """Return what says "in the basket", if the variable is of that kind (or would be, were both seen)."""
    typed = {(type(c), c) for c in variable.categories}
    for yes, no in PRESENT:
        if typed <= {(type(yes), yes), (type(no), no)} and (len(typed) == 2 or type(yes) is bool):
            return yes
    return None


def label_of(variable: Variable, label: Category) -> str:
    """Return how an item is called: by its variable alone if that says it all."""
    present = present_in(variable)
    if present is not None and label == present:
        return variable.name
    return f"{variable.name}={label}"


def places_of(
    given: Iterable[str | Item] | None, items: Sequence[Item], labels: Sequence[str], name: str
) -> Mask:
    """Tell which items a filter allows: by label, by variable or as (variable, category) pairs."""
    if given is None:
        return np.ones(len(items), dtype=bool)
    if isinstance(given, str):
        given = [given]
    mask = np.zeros(len(items), dtype=bool)
    for wanted in given:
        hits = [
            i
            for i, (item, text) in enumerate(zip(items, labels, strict=True))
            if (wanted in (text, item[0]) if isinstance(wanted, str) else tuple(wanted) == item)
        ]
        if not hits:
            raise InputError(f"{name!r} names {wanted!r}, which is no item.{did_you_mean(wanted, labels)}")
        mask[hits] = True
    return mask
