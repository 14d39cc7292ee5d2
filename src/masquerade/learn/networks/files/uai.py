"""Bayesian networks in the format of the UAI inference competitions, for pyAgrum, pgmpy and Merlin.

The format has no names: variables and categories are numbered. `to_uai` writes them in the order of the
network's tables; `from_uai` restores names if a `schema` lists the variables in that order.

In a table the last variable varies fastest, as the competitions define it. Tools differ: in pyAgrum 3.3 the
first of several parents varies fastest among them, in pgmpy 1.1 the node itself varies slowest. All tools
read BIF and XMLBIF in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Final

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema, Variable
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.json_text import read_text
from masquerade.learn.networks.files.network_parts import check_table_size, network_of, numbers_in
from masquerade.learn.networks.network import BayesianNetwork

MOST_VARIABLES: Final = 100_000
MOST_CHARACTERS: Final = 1 << 26
MOST_CATEGORIES: Final = 65_536
_COMMENT = re.compile(r"#[^\n]*")


def to_uai(network: BayesianNetwork) -> str:
    """Return a network as UAI text (``BAYES``), to full precision.

    Parameters
    ----------
    network : BayesianNetwork
        A network without negative parameters.

    Returns
    -------
    str
        UAI text.

    Raises
    ------
    InputError
        If a parameter is negative.

    Examples
    --------
    >>> mq.interop.to_uai(mq.data.seven_nodes()).splitlines()[:3]
    ['BAYES', '7', '2 2 2 2 2 2 2']
    """
    tables = network.usable("UAI")
    places = {table.child.name: place for place, table in enumerate(tables)}
    lines = ["BAYES", str(len(tables)), " ".join(str(len(table.child)) for table in tables), str(len(tables))]
    for table in tables:
        scope = [places[axis.name] for axis in table.axes]
        lines.append(" ".join(map(str, (len(scope), *scope))))
    for table in tables:
        rows = table.probabilities.reshape(-1, len(table.child))
        lines += ["", str(table.probabilities.size)]
        lines += [" ".join(repr(float(value)) for value in row) for row in rows]
    return "\n".join(lines) + "\n"


def from_uai(text: str, schema: Schema | None = None) -> BayesianNetwork:
    """Parse a network from UAI text.

    Parameters
    ----------
    text : str
        UAI text.
    schema : Schema, optional
        Variables, in the order of the text. Without it, they are called x0, x1, … with the categories 0, 1,
        ….

    Returns
    -------
    BayesianNetwork
        The network.

    Raises
    ------
    InputError
        If the text is not valid or does not fit the schema.

    Examples
    --------
    >>> text = mq.interop.to_uai(mq.data.seven_nodes())
    >>> mq.interop.from_uai(text, mq.data.seven_nodes().schema).structure["D"]
    ('B', 'C')
    """
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"too long: at most {MOST_CHARACTERS:,} characters are read.")
    every = _COMMENT.sub(" ", text).split()
    words = iter(every)
    kind = next(words, "")
    if kind != "BAYES":
        raise InputError(
            f"not a Bayesian network of the UAI format: it must start with BAYES, not {kind[:20]!r}."
        )
    count = _whole_number(words, "the number of variables", MOST_VARIABLES)
    sizes = [_whole_number(words, f"the size of variable {i}", MOST_CATEGORIES) for i in range(count)]
    if count == 0 or min(sizes) == 0:
        raise InputError("there must be variables, each with at least one category.")
    if sum(sizes) > len(every):  # a table has at least one number per category
        raise InputError("the variables have more categories than the text has numbers.")
    variables = _variables(sizes, schema)
    if _whole_number(words, "the number of tables", MOST_VARIABLES) != count:
        raise InputError("a Bayesian network must have one table per variable.")
    scopes = [_scope(words, count, place) for place in range(count)]
    parents: dict[str, tuple[str, ...]] = {}
    values: dict[str, Floats] = {}
    for scope in scopes:
        *given, child = (variables[place] for place in scope)
        if child.name in parents:
            raise InputError(f"variable {scope[-1]} has two tables.")
        shape = [len(one) for one in (*given, child)]
        check_table_size(child.name, shape)
        cells = prod(shape)
        if _whole_number(words, "the size of a table", cells) != cells:
            raise InputError(f"the table of variable {scope[-1]} must have {cells:,} numbers.")
        found = [word for _, word in zip(range(cells), words, strict=False)]
        values[child.name] = numbers_in(found, cells, f"the table of variable {scope[-1]}").reshape(shape)
        parents[child.name] = tuple(one.name for one in given)
    if next(words, None) is not None:
        raise InputError("there is text after the last table.")
    return network_of(variables, {one.name: parents[one.name] for one in variables}, values)


def read_uai(path: str | Path, schema: Schema | None = None) -> BayesianNetwork:
    """Read a network from a UAI file.

    Parameters
    ----------
    path : str or Path
        File to read.
    schema : Schema, optional
        Variables, as in `from_uai`.

    Returns
    -------
    BayesianNetwork
        The network.

    Raises
    ------
    InputError
        If the file is not valid.

    Examples
    --------
    >>> mq.interop.write_uai(mq.data.seven_nodes(), "seven.uai")
    >>> len(mq.interop.read_uai("seven.uai").tables)
    7
    """
    text = read_text(Path(path), most=MOST_CHARACTERS)
    try:
        return from_uai(text, schema)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write_uai(network: BayesianNetwork, path: str | Path) -> None:
    """Write a network to a UAI file, atomically.

    Parameters
    ----------
    network : BayesianNetwork
        A network without negative parameters.
    path : str or Path
        File to write.

    Returns
    -------
    None
        The file is complete, or unchanged if writing failed.

    Raises
    ------
    InputError
        If a parameter is negative.

    Examples
    --------
    >>> mq.interop.write_uai(mq.data.seven_nodes(), "seven.uai")
    >>> mq.interop.read_uai("seven.uai").schema.names
    ('x0', 'x1', 'x2', 'x3', 'x4', 'x5', 'x6')
    """
    write_whole(Path(path), to_uai(network))


def _variables(sizes: list[int], schema: Schema | None) -> list[Variable]:
    if schema is None:
        return [Variable(f"x{i}", tuple(range(size))) for i, size in enumerate(sizes)]
    found = list(schema.variables)
    if [len(one) for one in found] != sizes:
        raise InputError(
            "The schema must list the variables of the file in their order, with as many categories."
        )
    return found


def _scope(words: Iterator[str], count: int, place: int) -> list[int]:
    what = f"the variables of table {place}"
    size = _whole_number(words, what, count)
    indices = [_whole_number(words, what, count - 1) for _ in range(size)]
    if not indices or len(set(indices)) < len(indices):
        raise InputError(f"{what} must be at least one, each once.")
    return indices


def _whole_number(words: Iterator[str], what: str, most: int) -> int:
    word = next(words, "")
    if not (word.isascii() and word.isdecimal()) or len(word) > 12 or int(word) > most:
        raise InputError(f"{what} must be a whole number of at most {most:,}.")
    return int(word)
