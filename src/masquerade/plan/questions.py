"""The tables that a survey must estimate: listed, or given by the learner that needs them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from math import comb

from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.query import Query
from masquerade.core.schema import Schema

MOST_TABLES = 50_000
MOST_NAMES = 12  # most names of variables in a message
_CALL = re.compile(r"^(?:learner:)?\s*(\w+)\s*(?:\(([^)]*)\))?$")
_CROSS = re.compile(r"\s*[×*]\s*")
Table = tuple[str, ...]
Questions = str | Query | Sequence[str | Query | Sequence[str]]


def tables_of(questions: Questions, schema: Schema, clear: Collection[str] = ()) -> tuple[Table, ...]:
    """Return the requested tables without duplicates, each as its variables in the schema's order.

    Variables in `clear` are omitted from tables: a table with such a variable only compares the groups that
    the variable defines.

    A text is ``singles``, ``pairs``, ``singles, pairs``, a list of tables such as "smoker×region, age", or a
    learner: ``structure(max_parents=2)``, ``naive_bayes(target)``, ``rules(size=3)``, ``tree(target,
    depth=2)``.

    >>> from masquerade.plan import tables_of
    >>> schema = mq.Schema({"smoker": ["yes", "no"], "region": ["north", "south"], "age": ["young", "old"]})
    >>> tables_of("smoker×region, age", schema)
    (('smoker', 'region'), ('age',))
    >>> tables_of("naive_bayes(smoker)", schema)
    (('smoker', 'region'), ('smoker', 'age'))
    """
    if isinstance(questions, str):
        found = _of_text(questions, schema)
    elif isinstance(questions, Query):
        found = [questions.names]
    else:
        found = []
        for part in questions:
            if isinstance(part, str):
                found += _of_text(part, schema)
            else:
                found.append(part.names if isinstance(part, Query) else tuple(part))
    if not found:
        raise InputError("queries: no table is named; try 'pairs', or tables such as 'smoker×region, age'.")
    order = {name: place for place, name in enumerate(schema)}
    return tuple(dict.fromkeys(_checked_table(names, schema, order, clear) for names in found))


def _checked_table(
    listed: Sequence[str], schema: Schema, order: Mapping[str, int], clear: Collection[str]
) -> Table:
    """Return the disguised variables of a table in the schema's order; raise InputError for other names."""
    names = [name for name in listed if name not in clear]
    for name in names:
        if name not in schema:
            raise InputError(f"queries: there is no variable {name!r}.{_known_names(name, schema)}")
    if listed and not names:
        raise InputError(f"queries: {title(tuple(listed))} is released in clear: there is nothing to plan.")
    if not names or len(set(names)) < len(names):
        raise InputError("queries: a table needs at least one variable, and none twice.")
    return tuple(sorted(names, key=order.__getitem__))


def _known_names(name: str, schema: Schema) -> str:
    """Return the name that was probably meant, or some of the names that exist."""
    more = f" and {len(schema) - MOST_NAMES} more" if len(schema) > MOST_NAMES else ""
    return did_you_mean(name, schema) or f" There are {', '.join(list(schema)[:MOST_NAMES])}{more}."


def title(table: Table) -> str:
    """Format the title of a table.

    >>> title(("smoker", "region"))
    'smoker×region'
    """
    return "×".join(table)


def _of_text(text: str, schema: Schema) -> list[Table]:
    call = _CALL.match(text.strip())
    if call is not None and call[1] in _FAMILIES and call[1] not in schema:
        values = [part.strip() for part in (call[2] or "").split(",") if part.strip()]
        return _FAMILIES[call[1]](values, schema)
    if call is not None and call[2] is not None:
        raise InputError(
            f"queries: {call[1]!r} is not known.{did_you_mean(call[1], _FAMILIES)} Or name tables, such as "
            "'smoker×region, age'."
        )
    tables: list[Table] = []
    for part in (part.strip() for part in text.split(",")):
        if part in _FAMILIES and part not in schema:
            tables += _FAMILIES[part]([], schema)
        elif part:
            tables.append(tuple(_CROSS.split(part)))
    return tables


def _up_to(size: int, schema: Schema) -> list[Table]:
    names = tuple(schema)
    size = min(size, len(names))
    count = sum(comb(len(names), width) for width in range(1, size + 1))
    if count > MOST_TABLES:
        raise InputError(
            f"queries: {count:,} tables of up to {size} variables are too many to plan (at most "
            f"{MOST_TABLES:,}); ask for smaller tables, or name those that matter."
        )
    return [table for width in range(1, size + 1) for table in combinations(names, width)]


def _singles(values: Sequence[str], schema: Schema) -> list[Table]:
    _none_of(values, "singles")
    return [(name,) for name in schema]


def _pairs(values: Sequence[str], schema: Schema) -> list[Table]:
    _none_of(values, "pairs")
    if len(schema) < 2:
        raise InputError("queries: pairs need at least two variables; ask for 'singles'.")
    return list(combinations(schema, 2))


def _structure(values: Sequence[str], schema: Schema) -> list[Table]:
    return _up_to(1 + _number(values, "max_parents", 2, "structure"), schema)


def _rules(values: Sequence[str], schema: Schema) -> list[Table]:
    return _up_to(_number(values, "size", 3, "rules"), schema)


def _naive_bayes(values: Sequence[str], schema: Schema) -> list[Table]:
    target = _target(values, schema, "naive_bayes")
    return [(name, target) for name in schema if name != target]


def _tree(values: Sequence[str], schema: Schema) -> list[Table]:
    target = _target(values[:1], schema, "tree")
    depth = _number(values[1:], "depth", 2, "tree")
    others = [name for name in schema if name != target]
    sizes = range(1, min(depth, len(others)) + 1)
    if sum(comb(len(others), size) for size in sizes) > MOST_TABLES:
        raise InputError("queries: a tree of this depth needs too many tables to plan; reduce 'depth'.")
    return [(*chosen, target) for size in sizes for chosen in combinations(others, size)]


_FAMILIES = {
    "singles": _singles,
    "pairs": _pairs,
    "structure": _structure,
    "rules": _rules,
    "naive_bayes": _naive_bayes,
    "tree": _tree,
}


def _none_of(values: Sequence[str], name: str) -> None:
    if values:
        raise InputError(f"queries: {name!r} takes no arguments.")


def _number(values: Iterable[str], name: str, default: int, family: str) -> int:
    for value in values:
        key, equals, number = value.partition("=")
        if (
            (equals and key.strip() != name)
            or not (number or key).strip().isdigit()
            or not int(number or key)
        ):
            raise InputError(
                f"queries: {family}({name}={default}) takes a whole number, at least 1. Got {value!r}."
            )
        return int(number or key)
    return default


def _target(values: Sequence[str], schema: Schema, family: str) -> str:
    name = values[0].partition("=")[2].strip() or values[0] if len(values) == 1 else ""
    if name not in schema:
        raise InputError(
            f"queries: {family}(target) names one variable of the schema.{_known_names(name, schema)}"
        )
    return name
