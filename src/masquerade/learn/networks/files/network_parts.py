"""Shared parts of readers of network files: numbers, table sizes, rows that sum to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Category, Schema, Variable
from masquerade.learn.networks.files.bif import read_number
from masquerade.learn.networks.network import BayesianNetwork, ConditionalTable, known_network

MOST_AXES: Final = 30
MOST_CELLS: Final = 1 << 22
# published networks are printed to few digits: rows that nearly sum to one stay as printed, rows further off
# are rescaled, and rows that are still further off are refused
PRINTED_ROW_ERROR, LARGEST_ROW_ERROR = 1e-6, 0.01


def network_of(
    variables: Sequence[Variable], parents: Mapping[str, Sequence[str]], values: Mapping[str, Floats]
) -> BayesianNetwork:
    """Return the network with these parents and probabilities (parents first, the node last)."""
    return known_network(
        Schema(variables), parents, {name: normalise_rows(name, table) for name, table in values.items()}
    )


def normalise_rows(name: str, table: Floats) -> Floats:
    """Return probabilities whose rows sum to one: as given if they nearly do, else rescaled."""
    if np.any(table < 0) or np.any(table > 1 + LARGEST_ROW_ERROR):
        raise InputError(f"the table of {name!r} contains a number that is not a probability.")
    sums = table.sum(axis=-1, keepdims=True)
    if np.any(np.abs(sums - 1) > LARGEST_ROW_ERROR):
        raise InputError(f"the rows of {name!r} must sum to 1.")
    return np.where(np.abs(sums - 1) > PRINTED_ROW_ERROR, table / sums, table)


def numbers_in(words: Sequence[str], count: int, what: str) -> Floats:
    """Return `count` finite numbers from words."""
    if len(words) != count:
        raise InputError(f"{what} must have {count:,} numbers. Got {len(words):,} instead.")
    try:
        found = np.array([read_number(word) for word in words])
    except ValueError:
        raise InputError(f"{what} contains a word that is not a number.") from None
    if not np.all(np.isfinite(found)):
        raise InputError(f"{what} contains a number that is not finite.")
    return found


def check_table_size(name: str, sizes: Sequence[int]) -> None:
    """Raise InputError if a table has too many axes or cells."""
    if len(sizes) > MOST_AXES or prod(sizes) > MOST_CELLS:
        raise InputError(
            f"the table of {name!r} given {len(sizes) - 1} parents is too large: at most {MOST_AXES - 1} "
            f"parents and {MOST_CELLS:,} probabilities are read."
        )


def relabel(variable: Variable, schema: Schema | None) -> Variable:
    """Return the variable with the labels that a schema has for its texts (1 and not "1")."""
    if schema is None or variable.name not in schema:
        return variable
    by_text: dict[str, Category] = {str(label): label for label in schema[variable.name].categories}
    if sorted(by_text) != sorted(str(label) for label in variable.categories):
        raise InputError(f"The categories of {variable.name!r} are not those of the schema.")
    return Variable(variable.name, tuple(by_text[str(label)] for label in variable.categories))


def with_stderr(network: BayesianNetwork, errors: Mapping[str, Floats]) -> BayesianNetwork:
    """Return the network with standard errors of tables; rows with infinite errors are not reliable."""
    tables = []
    for table in network.tables:
        stderr = errors.get(table.child.name)
        if stderr is None:
            tables.append(table)
            continue
        reliable = np.asarray(np.isfinite(stderr).all(axis=-1))
        tables.append(ConditionalTable(table.child, table.parents, table.probabilities, stderr, reliable))
    return BayesianNetwork(tuple(tables))


def written_categories(variable: Variable, form: str) -> list[str]:
    """Return categories as text; raise InputError if two of them are equal."""
    labels = [str(label) for label in variable.categories]
    if len(set(labels)) < len(labels):
        raise InputError(f"Two categories of {variable.name!r} are written the same in {form}.")
    return labels
