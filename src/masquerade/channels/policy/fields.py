"""Read columns of clear values as a policy file states: categories, bins, missing values, recoded values."""

from __future__ import annotations

import json
import math
import warnings
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

from masquerade.channels.channel import Channel
from masquerade.channels.class_response import ClassResponse
from masquerade.channels.designs import bin_labels
from masquerade.channels.policy.models import VariableSpec
from masquerade.core.errors import MasqueradeWarning, PolicyError, SchemaError, did_you_mean
from masquerade.core.schema import Category, DateReading, Field, Schema, Variable

Columns = str | Sequence[str]
Item = TypeVar("Item")


def field_of(name: str, entry: VariableSpec) -> Field:
    """Return the field that reads a column, from its entry in a policy file."""
    where = f"variables.{name}"
    absent = entry.missing_labels
    first = absent[0] if absent else None
    try:
        if entry.bins is not None:
            if entry.categories is not None:
                raise PolicyError(f"{where}: give either 'categories' or 'bins'.")
            edges = [float(edge) for edge in entry.bins]
            if len(edges) < 2 or any(low >= high for low, high in pairwise(edges)):
                raise PolicyError(f"{where}.bins: at least two cut points, each above the one before.")
            # a missing number is in no bin: its label is one more category
            field = Field(Variable(name, bin_labels(edges) + absent, absent), first, tuple(edges))
        elif entry.categories is None:
            raise PolicyError(
                f"{where}: 'categories' are missing (they come from the policy, not from data)."
            )
        else:
            field = Field(Variable(name, tuple(entry.categories), absent), first)
            _warn_of_numbers(field, where)
        is_clear = entry.clear_missing is not None
        if is_clear and not (absent and entry.channel is not None):
            raise PolicyError(f"{where}.clear_missing: needs 'missing' and a 'channel' for the answers.")
        return replace(
            field,
            recodes=_recodes_of(field, entry, where),
            clear_missing=is_clear,
            date=None if entry.date is None else entry.date.reading,
        )
    except SchemaError as error:
        raise PolicyError(f"{where}: {error}") from None


def _warn_of_numbers(field: Field, where: str) -> None:
    """Warn if a number represents missing values among numbers: other software would average it."""
    answers = [label for label in field.variable.categories if label not in field.variable.missing]
    numbers = [label for label in field.variable.missing if type(label) is int]
    if numbers and any(type(label) is int for label in answers):
        warnings.warn(
            f"{where}.missing: the number {numbers[0]} stands for missing values. It is never counted as a "
            "number here; 'masquerade policy convert' gives it a name.",
            MasqueradeWarning,
            stacklevel=2,
        )


def missing_in_file(variable: Variable) -> Category | list[Category] | None:
    """Return the missing categories in the form of a policy file: None, one label, or a list."""
    return None if not variable.missing else one_or_all(variable.missing)


def _recodes_of(
    field: Field, entry: VariableSpec, where: str
) -> tuple[tuple[Category, Category | None], ...]:
    """Return the values that are read as another value, or as missing."""
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
            raise PolicyError(f"{where}: {value!r} is listed with two different readings.")
    return tuple(read.values())


def _read_as(field: Field, label: Category, where: str) -> Category:
    """Return the category that values are recoded to; for bins, the bin that contains a number."""
    edges, listed = field.edges, field.variable.categories
    if edges is None or label in listed:
        return category_named(field.variable, label, where)
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    if not edges[0] <= number <= edges[-1]:
        raise PolicyError(f"{where}: {label!r} is neither a number inside the bins nor one of their labels.")
    return listed[min(bisect_right(edges, number), len(edges) - 1) - 1]


def recodes_in_file(field: Field) -> dict[str, Any]:
    """Return the recoded values of a field and the reading of its dates, in the form of a policy file."""
    na = [value for value, label in field.recodes if label is None]
    recode: dict[Category, list[Category]] = {}
    for value, label in field.recodes:
        if label is not None:
            recode.setdefault(label, []).append(value)
    return (
        ({"na": na} if na else {})
        | ({"recode": recode} if recode else {})
        | ({} if field.date is None else {"date": date_in_file(field.date)})
    )


def date_in_file(reading: DateReading) -> dict[str, str]:
    """Return the reading of dates, in the form of a policy file."""
    day = {} if reading.on is None else {"on": reading.on.isoformat()}
    return {"as": reading.unit, **day}


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
    """Return a variable of the schema; errors state where the policy names it."""
    if name not in schema:
        raise PolicyError(f"{where}: there is no variable {name!r}.{did_you_mean(name, schema)}")
    return schema[name]


def matrix_spec(channel: Channel) -> dict[str, Any]:
    """Return the entry of a policy file for a channel that was made in code: its probabilities."""
    spec: dict[str, Any] = {"kind": "matrix", "rows": channel.row_texts}
    columns = {column.name: list(column.categories) for column in channel.columns}
    return (
        spec
        | ({} if channel.labels is None else {"reports": list(channel.labels)})
        | ({"columns": columns} if columns else {})
    )


def channel_in_file(variable: Variable, channel: Channel, *, clear_missing: bool) -> dict[str, Any]:
    """Return the keys of a variable's entry for its channel.

    With `clear_missing`, missing answers are reported in clear, and the channel covers only other answers.
    """
    spec = matrix_spec(channel)
    if not clear_missing:
        return {"channel": spec}
    answered = variable.answered_codes
    rows = [[spec["rows"][truth][report] for report in answered] for truth in answered]
    return {"clear_missing": "accepted", "channel": {"kind": "matrix", "rows": rows}}


def without_none(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry without the keys whose value is None."""
    return {key: value for key, value in entry.items() if value is not None}


def one_or_all(values: tuple[Item, ...]) -> Item | list[Item]:
    """Return a single value by itself and several values as a list, in the form of a policy file."""
    return values[0] if len(values) == 1 else list(values)


def plain_columns(report: Columns | None) -> str | list[str] | None:
    """Return the report columns of a group, in the form of a policy file."""
    return report if report is None or isinstance(report, str) else list(report)


def blocks_in_file(names: Sequence[str], response: ClassResponse) -> dict[str, Any]:
    """Return the entry of a policy file for the blocks of class response."""
    units = [tuple(names[place] for place in unit) for unit in response.units]
    entry: dict[str, Any] = {"variables": [one_or_all(unit) for unit in units]}
    if response.design:
        entry["design"] = [
            {"variables": [name for unit in block for name in units[unit]], "weight": weight}
            for block, weight in response.design
        ]
    else:
        entry["k"] = response.k
    return entry | {"cells": str(response.cells), "gamma": str(response.gamma)}
