"""Bayesian networks as BIF text, the common format of bnlearn, pgmpy, pyAgrum and network repositories.

::

    network unknown { }
    variable smoke { type discrete [ 2 ] { yes, no }; }
    variable lung { type discrete [ 2 ] { yes, no }; }
    probability ( smoke ) { table 0.5, 0.5; }
    probability ( lung | smoke ) { (yes) 0.1, 0.9; (no) 0.01, 0.99; }

Categories are text in BIF; give a `schema` when reading to get other labels back. Properties and comments are
ignored. BIF has no standard errors, so they are omitted: models keep them in their own JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.schema import Category, Schema, Variable

if TYPE_CHECKING:
    from masquerade.learn.networks.parameters import ConditionalTable

MOST_AXES, MOST_CELLS = 30, 1 << 22
MOST_CELLS_BY_DEFAULT = 1 << 23  # most cells of all tables, since a short default can fill a huge table
MARKS = r"{}()\[\];,|"
# published networks are printed to few digits: rows that nearly sum to one stay as printed, rows further off
# are rescaled, and rows that are still further off are refused
PRINTED_ROW_ERROR, LARGEST_ROW_ERROR = 1e-6, 0.01
# a slash could start a comment
PLAIN_NAME = re.compile(rf"[^\s{MARKS}\"/]+")
# variables, the parents of each, its probabilities (parents first)
NetworkParts = tuple[Schema, Mapping[str, Sequence[str]], Mapping[str, Floats]]
TOKEN = re.compile(
    rf"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)  # ignored
      |"(?P<text>[^"\n]*)"                  # a quoted name
      |(?P<mark>[{MARKS}])
      |(?P<word>[^\s{MARKS}"]+)""",
    re.VERBOSE | re.DOTALL,
)


def parse_bif(text: str, schema: Schema | None = None) -> NetworkParts:
    """Parse BIF text; raise InputError with the line of a mistake."""
    return _Parser(text).network(schema)


def format_bif(tables: Sequence[ConditionalTable], name: str = "unknown") -> str:
    """Return conditional tables as BIF text, probabilities to full precision."""
    lines = [f"network {quote_name(name)} {{", "}"]
    for table in tables:
        labels = ", ".join(_written_categories(table.child))
        lines += [
            f"variable {quote_name(table.child.name)} {{",
            f"  type discrete [ {len(table.child)} ] {{ {labels} }};",
            "}",
        ]
    for table in tables:
        lines += _probability_lines(table)
    return "\n".join(lines) + "\n"


def _probability_lines(table: ConditionalTable) -> list[str]:
    child = quote_name(table.child.name)
    if not table.parents:
        return [f"probability ( {child} ) {{", f"  table {_written_numbers(table.probabilities)};", "}"]
    parents = ", ".join(quote_name(parent.name) for parent in table.parents)
    cells = product(*(_written_categories(parent) for parent in table.parents))
    rows = table.probabilities.reshape(-1, len(table.child))
    body = [f"  ({', '.join(cell)}) {_written_numbers(row)};" for cell, row in zip(cells, rows, strict=True)]
    return [f"probability ( {child} | {parents} ) {{", *body, "}"]


def _written_categories(variable: Variable) -> list[str]:
    """Return categories as BIF words; raise InputError if two of them are equal."""
    labels = [quote_name(str(label)) for label in variable.categories]
    if len(set(labels)) < len(labels):
        raise InputError(f"Two categories of {variable.name!r} are written the same in BIF.")
    return labels


def quote_name(name: str) -> str:
    """Return a name as a BIF word, quoted if necessary."""
    if PLAIN_NAME.fullmatch(name):
        return name
    if '"' in name or "\n" in name:
        raise InputError(f"A name with a quotation mark or a line end cannot be written as BIF: {name!r}.")
    return f'"{name}"'


def _written_numbers(row: Floats) -> str:
    """Return numbers to full precision."""
    return ", ".join(repr(float(value)) for value in row)


class _Token(NamedTuple):
    """A word, a quoted text or a mark, and its line."""

    kind: str
    text: str
    line: int


@dataclass(slots=True)
class _Block:
    """The entries of one probability block: rows by configuration, a default, or the whole table."""

    child: str
    parents: tuple[str, ...]
    line: int
    rows: list[tuple[tuple[str, ...], Floats, int]] = field(default_factory=list)
    default: Floats | None = None
    table: Floats | None = None


class _Parser:
    """A recursive-descent parser with one method per grammar rule; `next` is the next token."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.next = next(self.tokens)
        self.variables: dict[str, Variable] = {}
        self.blocks: dict[str, _Block] = {}
        self.cells_by_default = 0

    def network(self, schema: Schema | None) -> NetworkParts:
        rules = {"variable": self.variable, "probability": self.probability, "network": self.heading}
        while self.next.kind != "end":
            word = self.name("'network', 'variable' or 'probability'")
            if word.text not in rules:
                self.fail(f"expected 'network', 'variable' or 'probability', found {word.text!r}", word.line)
            rules[word.text]()
        if not self.variables:
            self.fail("there is no variable")
        for name in self.variables:
            if name not in self.blocks:
                raise InputError(f"variable {name!r} has no probability block.")
        values = {name: self.values(self.blocks[name]) for name in self.variables}
        relabelled = Schema(self.relabel(variable, schema) for variable in self.variables.values())
        return relabelled, {name: self.blocks[name].parents for name in self.variables}, values

    def heading(self) -> None:
        while self.next.text != "{":
            self.name("'{'")
        self.take("{")
        while not self.passed("}"):
            self.property()

    def variable(self) -> None:
        name = self.name("the name of a variable")
        if name.text in self.variables:
            self.fail(f"variable {name.text!r} is declared twice", name.line)
        found: list[str] | None = None
        self.take("{")
        while not self.passed("}"):
            if not self.passed("type"):
                self.property()
                continue
            self.check_first(found, f"the type of {name.text!r}", self.next.line)
            self.take("discrete", "[")
            size = self.name("a number of categories")
            self.take("]", "{")
            found = [token.text for token in self.names_until("}")]
            self.passed(";")
            if size.text != str(len(found)):
                self.fail(f"{name.text!r} declares {size.text} categories and lists {len(found)}", size.line)
        if not found:
            self.fail(f"variable {name.text!r} has no categories", name.line)
        if len(set(found)) < len(found):
            self.fail(f"variable {name.text!r} lists a category twice", name.line)
        self.variables[name.text] = Variable(name.text, tuple(found))

    def probability(self) -> None:
        self.take("(")
        names = self.names_until(")")
        for token in names:
            if token.text not in self.variables:
                hint = did_you_mean(token.text, self.variables)
                self.fail(f"variable {token.text!r} is not declared.{hint}".rstrip("."), token.line)
        if not names:
            self.fail("a probability block names no variable")
        child = names[0]
        if child.text in self.blocks:
            self.fail(f"{child.text!r} has two probability blocks", child.line)
        block = _Block(child.text, tuple(token.text for token in names[1:]), child.line)
        if len({token.text for token in names}) < len(names):
            self.fail(f"a variable is named twice in the block of {child.text!r}", child.line)
        cells = prod(len(self.variables[token.text]) for token in names)
        if len(names) > MOST_AXES or cells > MOST_CELLS:
            self.fail(
                f"the table of {child.text!r} given {len(names) - 1} parents is too large: at most "
                f"{MOST_AXES - 1} parents and {MOST_CELLS:,} probabilities are read",
                child.line,
            )
        self.take("{")
        while not self.passed("}"):
            self.entry(block)
        self.cells_by_default += cells if block.default is not None else 0
        if self.cells_by_default > MOST_CELLS_BY_DEFAULT:
            most = f"{MOST_CELLS_BY_DEFAULT:,} probabilities"
            self.fail(f"tables with a default have more than {most} together", child.line)
        self.blocks[child.text] = block

    def entry(self, block: _Block) -> None:
        size, line = len(self.variables[block.child]), self.next.line
        if self.passed("("):
            labels = self.names_until(")")
            if len(labels) != len(block.parents):
                self.fail(
                    f"{block.child!r} has {len(block.parents)} parents, found {len(labels)} values", line
                )
            block.rows.append((tuple(token.text for token in labels), self.numbers(size), line))
        elif self.passed("table"):
            self.check_first(block.table, f"the table of {block.child!r}", line)
            sizes = [len(self.variables[name]) for name in block.parents]
            block.table = self.numbers(size * prod(sizes))
            # in a whole table the child varies slowest
            block.table = np.moveaxis(block.table.reshape(size, *sizes), 0, -1)
        elif self.passed("default"):
            self.check_first(block.default, f"the default of {block.child!r}", line)
            block.default = self.numbers(size)
        else:
            self.property()

    def check_first(self, earlier: object, what: str, line: int) -> None:
        """Raise InputError if there is an earlier statement: programs differ in which of the two they use."""
        if earlier is not None:
            self.fail(f"{what} is given twice", line)

    def values(self, block: _Block) -> Floats:
        """Return the rows of a block, all of which must be given and sum to one."""
        parents = [self.variables[name] for name in block.parents]
        shape = (*(len(parent) for parent in parents), len(self.variables[block.child]))
        values = np.full(shape, np.nan) if block.table is None else block.table.copy()
        if block.default is not None:
            values[np.isnan(values).any(axis=-1)] = block.default
        given: set[tuple[int, ...]] = set()
        for labels, row, line in block.rows:
            at = []
            for label, parent in zip(labels, parents, strict=True):
                if label not in parent.categories:
                    hint = did_you_mean(label, parent.categories)
                    self.fail(f"{label!r} is not a category of {parent.name!r}.{hint}".rstrip("."), line)
                at.append(parent.categories.index(label))
            if tuple(at) in given:
                self.fail(f"the row of {block.child!r} for ({', '.join(labels)}) is given twice", line)
            given.add(tuple(at))
            values[tuple(at)] = row
        if np.isnan(values).any():
            self.fail(f"rows of {block.child!r} are missing", block.line)
        sums = values.sum(axis=-1, keepdims=True)
        if np.any(np.abs(sums - 1) > LARGEST_ROW_ERROR):
            self.fail(f"the rows of {block.child!r} must sum to 1", block.line)
        return np.where(np.abs(sums - 1) > PRINTED_ROW_ERROR, values / sums, values)

    def relabel(self, variable: Variable, schema: Schema | None) -> Variable:
        """Return the variable with the labels that the schema has for these texts."""
        if schema is None or variable.name not in schema:
            return variable
        by_text: dict[str, Category] = {str(label): label for label in schema[variable.name].categories}
        if sorted(by_text) != sorted(str(label) for label in variable.categories):
            raise InputError(f"The categories of {variable.name!r} are not those of the schema.")
        return Variable(variable.name, tuple(by_text[str(label)] for label in variable.categories))

    def property(self) -> None:
        self.take("property")
        while not self.passed(";"):
            if self.next.kind == "end" or self.next.text in {"{", "}"}:
                self.fail("a property must end with ';'")
            self.advance()

    def numbers(self, count: int) -> Floats:
        """Read `count` probabilities and the semicolon; commas are optional."""
        found, line = [], self.next.line
        for token in self.names_until(";"):
            try:
                value = read_number(token.text)
            except ValueError:
                self.fail(f"expected a probability, found {token.text!r}", token.line)
            if not 0 <= value <= 1:
                self.fail(f"{token.text} is not a probability", token.line)
            found.append(value)
        if len(found) != count:
            self.fail(f"expected {count} probabilities, found {len(found)}", line)
        return np.array(found)

    def names_until(self, mark: str) -> list[_Token]:
        """Read names up to a mark; commas and bars between them are optional."""
        found = []
        while not self.passed(mark):
            if not (self.passed(",") or self.passed("|")):
                found.append(self.name(f"a name or {mark!r}"))
        return found

    def name(self, wanted: str) -> _Token:
        token = self.next
        if token.kind not in {"word", "text"}:
            self.fail_expecting(wanted)
        self.advance()
        return token

    def take(self, *texts: str) -> None:
        for text in texts:
            if not self.passed(text):
                self.fail_expecting(repr(text))

    def passed(self, text: str) -> bool:
        """Read the next token if it is this word or mark, unquoted; return True if it is."""
        found = self.next.kind in {"word", "mark"} and self.next.text == text
        if found:
            self.advance()
        return found

    def advance(self) -> None:
        """Move to the next token; the end is repeated."""
        if self.next.kind != "end":
            self.next = next(self.tokens)

    def fail_expecting(self, expected: str) -> NoReturn:
        actual = "the end of the text" if self.next.kind == "end" else repr(self.next.text)
        self.fail(f"expected {expected}, found {actual}")

    def fail(self, problem: str, line: int | None = None) -> NoReturn:
        raise InputError(f"line {self.next.line if line is None else line}: {problem}.")


def read_number(word: str) -> float:
    """Parse a number; Python's float() would also accept 0.5_0 and digits of other scripts.

    >>> read_number("2e-1")
    0.2
    """
    if not word.isascii() or "_" in word:
        raise ValueError
    return float(word)


def _tokens(text: str) -> Iterator[_Token]:
    line, place = 1, 0
    while place < len(text):
        if text.startswith("/*", place) and text.find("*/", place + 2) < 0:
            raise InputError(f"line {line}: a comment is never closed.")
        match = TOKEN.match(text, place)
        if match is None:
            raise InputError(f"line {line}: a quotation mark is never closed.")
        kind = str(match.lastgroup)
        if kind != "space":
            yield _Token(kind, match.group(kind), line)
        line += match.group().count("\n")
        place = match.end()
    yield _Token("end", "", line)
