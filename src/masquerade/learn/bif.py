"""Bayesian networks as BIF text, the format that bnlearn, pgmpy, pyAgrum and the network repositories share.

::

    network unknown { }
    variable smoke { type discrete [ 2 ] { yes, no }; }
    variable lung { type discrete [ 2 ] { yes, no }; }
    probability ( smoke ) { table 0.5, 0.5; }
    probability ( lung | smoke ) { (yes) 0.1, 0.9; (no) 0.01, 0.99; }

Categories are text in BIF; give a `schema` on reading to get other labels back. Properties and comments are
read over. Standard errors have no place in BIF and are left out: models keep them in their own JSON.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

from masquerade.core.atomic import write_whole
from masquerade.core.axes import Floats
from masquerade.core.errors import FileError, InputError
from masquerade.core.schema import Schema, Variable
from masquerade.learn.bif_parser import MARKS, Parser
from masquerade.learn.network import BayesianNetwork
from masquerade.learn.parameters import ConditionalTable

# a slash could begin a comment
PLAIN_NAME = re.compile(rf"[^\s{MARKS}\"/]+")


def read_bif(path: str | Path, schema: Schema | None = None) -> BayesianNetwork:
    """Return the network in a BIF file; see `parse_bif`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise FileError(f"{path}: not a BIF file, nor any UTF-8 text.") from None
    try:
        return parse_bif(text, schema)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write_bif(network: BayesianNetwork, path: str | Path, name: str = "unknown") -> None:
    """Write a network as a BIF file, whole or not at all."""
    write_whole(Path(path), format_bif(network, name))


def parse_bif(text: str, schema: Schema | None = None) -> BayesianNetwork:
    """Return the network that BIF text describes; what is wrong is named by its line.

    With a `schema`, a category is the one of its variable that is written like it (so 1 and not "1").
    """
    return Parser(text).network(schema)


def format_bif(network: BayesianNetwork, name: str = "unknown") -> str:
    """Return a network as BIF text, probabilities to full precision; negative parameters are refused."""
    tables = network.usable("BIF")
    lines = [f"network {written(name)} {{", "}"]
    for table in tables:
        labels = ", ".join(written_categories(table.child))
        lines += [
            f"variable {written(table.child.name)} {{",
            f"  type discrete [ {len(table.child)} ] {{ {labels} }};",
            "}",
        ]
    for table in tables:
        lines += probability_lines(table)
    return "\n".join(lines) + "\n"


def probability_lines(table: ConditionalTable) -> list[str]:
    """Return the block of one node."""
    child = written(table.child.name)
    if not table.parents:
        return [f"probability ( {child} ) {{", f"  table {written_numbers(table.probabilities)};", "}"]
    given = ", ".join(written(parent.name) for parent in table.parents)
    cells = product(*(written_categories(parent) for parent in table.parents))
    rows = table.probabilities.reshape(-1, len(table.child))
    body = [f"  ({', '.join(cell)}) {written_numbers(row)};" for cell, row in zip(cells, rows, strict=True)]
    return [f"probability ( {child} | {given} ) {{", *body, "}"]


def written_categories(variable: Variable) -> list[str]:
    """Return categories as BIF words; two that would read the same are refused."""
    labels = [written(str(label)) for label in variable.categories]
    if len(set(labels)) < len(labels):
        raise InputError(f"Two categories of {variable.name!r} are written the same in BIF.")
    return labels


def written(name: str) -> str:
    """Return a name as a BIF word, in quotes if it must be."""
    if PLAIN_NAME.fullmatch(name):
        return name
    if '"' in name or "\n" in name:
        raise InputError(f"A name with a quotation mark or a line end cannot be written as BIF: {name!r}.")
    return f'"{name}"'


def written_numbers(row: Floats) -> str:
    """Return numbers that read back as they are."""
    return ", ".join(repr(float(value)) for value in row)
