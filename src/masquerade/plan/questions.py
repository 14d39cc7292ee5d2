"""What will be asked: tables by their variables, listed one by one or named by the learner that asks them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.query import Query
from masquerade.core.schema import Schema

MOST_TABLES = 50_000
_CALL = re.compile(r"^(?:learner:)?\s*(\w+)\s*(?:\(([^)]*)\))?$")
_CROSS = re.compile(r"\s*[×*]\s*")
Table = tuple[str, ...]
Questions = str | Query | Sequence[str | Query | Sequence[str]]


def tables_of(questions: Questions, schema: Schema) -> tuple[Table, ...]:
    """Return the tables that are asked, each by its variables in the schema's order, none twice.

    A text is ``singles``, ``pairs``, tables such as "smoker×region, age", or a learner:
    ``structure(max_parents=2)``, ``naive_bayes(target)``, ``rules(size=3)``, ``tree(target, depth=2)``.

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
    order = {name: place for place, name in enumerate(schema)}
    tables = []
    for names in found:
        for name in names:
            if name not in schema:
                raise InputError(f"queries: there is no variable {name!r}.{did_you_mean(name, schema)}")
        if not names or len(set(names)) < len(names):
            raise InputError("queries: a table names at least one variable, and none twice.")
        tables.append(tuple(sorted(names, key=order.__getitem__)))
    if not tables:
        raise InputError("queries: nothing is asked; try 'pairs', or tables such as 'smoker×region, age'.")
    return tuple(dict.fromkeys(tables))


def title(table: Table) -> str:
    """Return how a table is written.

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
    return [tuple(_CROSS.split(part.strip())) for part in text.split(",") if part.strip()]


def _up_to(size: int, schema: Schema) -> list[Table]:
    names = tuple(schema)
    size = min(size, len(names))
    count = sum(comb(len(names), width) for width in range(1, size + 1))
    if count > MOST_TABLES:
        raise InputError(
            f"queries: {count:,} tables of up to {size} variables are too many to plan (at most "
            f"{MOST_TABLES:,}); ask for smaller ones, or name those that matter."
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
        raise InputError("queries: a tree this deep asks too many tables to plan; let 'depth' be smaller.")
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
        raise InputError(f"queries: {name!r} takes nothing in brackets.")


def _number(values: Iterable[str], name: str, default: int, family: str) -> int:
    for value in values:
        key, equals, number = value.partition("=")
        if (
            (equals and key.strip() != name)
            or not (number or key).strip().isdigit()
            or not int(number or key)
        ):
            raise InputError(
                f"queries: {family}({name}={default}) takes a whole number from 1. Got {value!r}."
            )
        return int(number or key)
    return default


def _target(values: Sequence[str], schema: Schema, family: str) -> str:
    name = values[0].partition("=")[2].strip() or values[0] if len(values) == 1 else ""
    if name not in schema:
        raise InputError(
            f"queries: {family}(target) names one variable of the schema.{did_you_mean(name, schema)}"
        )
    return name
