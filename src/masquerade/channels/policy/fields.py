"""How a column of clear values is read, as a policy file says it: categories, bins, missing, recodings."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from masquerade.channels.channel import Channel
from masquerade.channels.designs import bin_labels
from masquerade.channels.policy.models import VariableSpec
from masquerade.core.errors import PolicyError, SchemaError, did_you_mean
from masquerade.core.schema import Category, Field, Schema, Variable

Columns = str | Sequence[str]


def field_of(name: str, entry: VariableSpec) -> Field:
    """Return how a column is read, from its entry in a policy file."""
    where = f"variables.{name}"
    try:
        if entry.bins is not None:
            if entry.categories is not None:
                raise PolicyError(f"{where}: give either 'categories' or 'bins'.")
            edges = [float(edge) for edge in entry.bins]
            if len(edges) < 2 or any(low >= high for low, high in pairwise(edges)):
                raise PolicyError(f"{where}.bins: at least two cut points, each above the one before.")
            # a missing number lies in no bin: what stands for it is one more category
            labels = bin_labels(edges) + (() if entry.missing is None else (entry.missing,))
            field = Field(Variable(name, labels), entry.missing, tuple(edges))
        elif entry.categories is None:
            raise PolicyError(
                f"{where}: 'categories' are missing (they come from the policy, not from data)."
            )
        else:
            field = Field(Variable(name, tuple(entry.categories)), entry.missing)
        if field.missing is not None:
            field.variable.code(field.missing)
        return replace(field, recodes=_recodes_of(field, entry, where))
    except SchemaError as error:
        raise PolicyError(f"{where}: {error}") from None


def _recodes_of(
    field: Field, entry: VariableSpec, where: str
) -> tuple[tuple[Category, Category | None], ...]:
    """Return the values that are read as another, or as missing."""
    read: dict[tuple[type, Category], tuple[Category, Category | None]] = {}
    named: list[tuple[Category, Category | None]] = [(value, None) for value in entry.na]
    for label, values in entry.recode.items():
        named += [(value, _read_as(field, label, f"{where}.recode")) for value in values]
    for value, meant in named:
        if field.edges is None and any(
            type(own) is type(value) and own == value for own in field.variable.categories
        ):
            raise PolicyError(
                f"{where}: {value!r} is a category, and cannot be read as another or as missing."
            )
        if read.setdefault((type(value), value), (value, meant))[1] != meant:
            raise PolicyError(f"{where}: {value!r} is to be read in two ways.")
    return tuple(read.values())


def _read_as(field: Field, label: Category, where: str) -> Category:
    """Return the category that values are recoded to; of bins, the one that a number lies in."""
    edges, listed = field.edges, field.variable.categories
    if edges is None or label in listed:
        return category_named(field.variable, label, where)
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    if not edges[0] <= number <= edges[-1]:
        raise PolicyError(f"{where}: {label!r} is no number inside the bins, and none of their labels.")
    return listed[min(bisect_right(edges, number), len(edges) - 1) - 1]


def recodes_in_file(field: Field) -> dict[str, Any]:
    """Return what a policy file says of values that are read as others."""
    na = [value for value, label in field.recodes if label is None]
    recode: dict[Category, list[Category]] = {}
    for value, label in field.recodes:
        if label is not None:
            recode.setdefault(label, []).append(value)
    return ({"na": na} if na else {}) | ({"recode": recode} if recode else {})


def category_named(variable: Variable, label: Category, where: str) -> Category:
    """Return the category that a key of a policy names; JSON writes every key as text."""
    meant = [own for own in variable.categories if label == own or label == json.dumps(own)]
    if len(meant) > 1:
        meant = [own for own in meant if type(own) is type(label)]
    if not meant:
        hint = did_you_mean(label, variable.categories)
        raise PolicyError(f"{where}: {label!r} is not a category of {variable.name!r}.{hint}")
    return meant[0]


def known_variable(schema: Schema, name: str, where: str) -> Variable:
    """Return a variable of the schema; errors say where in the policy it is named."""
    if name not in schema:
        raise PolicyError(f"{where}: there is no variable {name!r}.{did_you_mean(name, schema)}")
    return schema[name]


def matrix_spec(channel: Channel) -> dict[str, Any]:
    """Return a channel as a policy file writes it when it comes from code: by its probabilities."""
    spec: dict[str, Any] = {"kind": "matrix", "rows": [[str(p) for p in row] for row in channel.rows]}
    columns = {column.name: list(column.categories) for column in channel.columns}
    return (
        spec
        | ({} if channel.labels is None else {"reports": list(channel.labels)})
        | ({"columns": columns} if columns else {})
    )


def without_none(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that have a value."""
    return {key: value for key, value in entry.items() if value is not None}


def one_or_all(columns: tuple[str, ...]) -> str | list[str]:
    """Return a single column as text, several as a list, as a policy file has them."""
    return columns[0] if len(columns) == 1 else list(columns)


def plain_columns(report: Columns | None) -> str | list[str] | None:
    """Return the report columns of a group as a policy file has them."""
    return report if report is None or isinstance(report, str) else list(report)
