"""Variables and their categories: the schema of the true records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from masquerade.core.errors import SchemaError, did_you_mean
from masquerade.core.util.formatting import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

Category = str | int | bool


def category(label: object) -> Category:
    """Return a label as a plain category.

    NumPy scalars become Python scalars, whole floats become ints, other floats the text that `repr` gives.
    """
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SchemaError("A category that is a number must be finite. Declare missing answers instead.")
        return int(value) if value.is_integer() else repr(value)
    if isinstance(value, (str, int, bool)):
        return value
    raise SchemaError(f"A category must be text, a whole number or true/false. Got a {type(value).__name__}.")


def is_decimal(label: object) -> bool:
    """Return True if a category is a number with decimals, written as `repr` writes it."""
    try:
        return isinstance(label, str) and repr(float(label)) == label and math.isfinite(float(label))
    except ValueError:
        return False


def _plain_categories(name: str, labels: Iterable[object]) -> tuple[Category, ...]:
    """Return labels as categories; a single text is refused, because it would become a list of letters."""
    if isinstance(labels, str):
        raise SchemaError(f"The categories of {name!r} must be a list, not one text.")
    return tuple(category(label) for label in labels)


@dataclass(frozen=True, slots=True)
class Variable:
    """A named categorical variable with its categories in order.

    Parameters
    ----------
    name : str
        Name of the variable.
    categories : sequence of str, int or bool
        Distinct categories; their positions are their codes.
    missing : sequence of str, int or bool, optional
        The categories that mean a missing answer, such as "not stated" or "refused". They are disguised and
        counted like any other, but they never count as a number. They do not matter for equality.

    Raises
    ------
    SchemaError
        If the name is empty, there are no categories, a category is listed twice, or all are missing.

    Examples
    --------
    >>> mq.Variable("smoker", ("yes", "no")).code("no")
    1
    >>> mq.Variable("visits", (0, 1, 2, "not stated"), missing=["not stated"]).answered_codes
    (0, 1, 2)
    """

    name: str
    categories: tuple[Category, ...]
    missing: tuple[Category, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", _plain_categories(self.name, self.categories))
        if not self.name or not isinstance(self.name, str):
            raise SchemaError("A variable needs a name.")
        if not self.categories:
            raise SchemaError(f"Variable {self.name!r} has no categories.")
        if len(set(self.categories)) < len(self.categories):
            raise SchemaError(
                f"Variable {self.name!r} lists a category twice (true and 1 count as the same)."
            )
        if self.missing:
            absent = _plain_categories(self.name, self.missing)
            object.__setattr__(self, "missing", absent)
            for label in absent:
                self.code(label)
            if len(set(absent)) >= len(self.categories):
                raise SchemaError(f"Variable {self.name!r} has no category that is an answer.")

    def __eq__(self, other: object) -> bool:
        """Return True if names and categories are equal; 1 and true are different categories."""
        return isinstance(other, Variable) and self._typed_key() == other._typed_key()

    def __hash__(self) -> int:
        """Return a hash consistent with equality."""
        return hash(self._typed_key())

    def __len__(self) -> int:
        """Return the number of categories."""
        return len(self.categories)

    @property
    def answered_codes(self) -> tuple[int, ...]:
        """Return the codes of the categories that are answers."""
        absent = {self.code(label) for label in self.missing}
        return tuple(code for code in range(len(self.categories)) if code not in absent)

    @property
    def answers(self) -> tuple[Category, ...]:
        """Return the categories that are answers."""
        return tuple(self.categories[code] for code in self.answered_codes)

    @property
    def mixed(self) -> bool:
        """Return True if the categories have several types; a column of such labels is released as text."""
        return len({type(label) for label in self.categories}) > 1

    def _typed_key(self) -> tuple[object, ...]:
        return (self.name, *((type(label), label) for label in self.categories))

    def code(self, label: object) -> int:
        """Return the code of a category.

        Parameters
        ----------
        label : str, int or bool
            Category.

        Returns
        -------
        int
            Its position among the categories.

        Raises
        ------
        SchemaError
            If it is not a category of this variable.
        """
        plain = category(label)
        found = codes_by_label(self).get((type(plain), plain))
        if found is None:
            raise SchemaError(
                f"{label!r} is not a category of {self.name!r}.{did_you_mean(label, self.categories)}"
            )
        return found


DateUnit = Literal["age", "year", "quarter", "month"]


@dataclass(frozen=True, slots=True)
class DateReading:
    """Reading of a date: as completed years on a day, or as its year, quarter or month.

    Attributes
    ----------
    unit : {"age", "year", "quarter", "month"}
        An age and a year are whole numbers. A quarter is text such as "2026-Q1", a month such as "2026-03".
    on : date or None
        The day on which an age is reached.
    """

    unit: DateUnit
    on: date | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """Rules for reading a column: its variable, the category of missing values and the bins of numbers.

    Attributes
    ----------
    variable : Variable
        Variable of the column.
    missing : category or None
        Category of missing values. If None, missing values are refused, as unknown values are.
    edges : tuple of float or None
        Bin edges e0 < e1 < … < eK. Each category contains the numbers from one edge up to, but not including,
        the next edge; the last category also contains eK.
    recodes : tuple of pairs
        Values that are read as a category, or as missing (None).
    clear_missing : bool
        True if the policy accepts that reports show in clear whether the answer is missing.
    date : DateReading or None
        Reading of the dates of the column. None for other columns.
    """

    variable: Variable
    missing: Category | None = None
    edges: tuple[float, ...] | None = None
    recodes: tuple[tuple[Category, Category | None], ...] = ()
    clear_missing: bool = False
    date: DateReading | None = None


@lru_cache(maxsize=4096)
def codes_by_label(variable: Variable) -> Mapping[tuple[type, Category], int]:
    """Return the code of each category, keyed by type and value (so 1, "1" and true differ)."""
    return {(type(label), label): code for code, label in enumerate(variable.categories)}


class Schema(Mapping[str, Variable]):
    """Variables in order, by name; translates labels to codes and back.

    Parameters
    ----------
    variables : iterable of Variable, or mapping of str to categories
        Variables in order.

    Raises
    ------
    SchemaError
        If a variable is listed twice.

    Examples
    --------
    >>> schema = mq.Schema({"exams": ["few", "many"], "year": [1, 2, 3]})
    >>> schema.names, schema.shape(("year", "exams"))
    (('exams', 'year'), (3, 2))
    >>> schema["exams"].code("many")
    1
    """

    __slots__ = ("_by_name",)

    def __init__(self, variables: Iterable[Variable] | Mapping[str, Sequence[Category]]) -> None:
        if isinstance(variables, Mapping):
            variables = [
                Variable(name, _plain_categories(name, labels)) for name, labels in variables.items()
            ]
        listed = tuple(variables)
        self._by_name = {variable.name: variable for variable in listed}
        if len(self._by_name) < len(listed):
            raise SchemaError("A schema lists a variable twice.")

    def __getitem__(self, name: str) -> Variable:
        """Return the variable called `name`; raise `SchemaError` if it is unknown."""
        try:
            return self._by_name[name]
        except (KeyError, TypeError):
            raise SchemaError(
                f"There is no variable {name!r} in the schema.{did_you_mean(name, self._by_name)}"
            ) from None

    def __contains__(self, name: object) -> bool:
        """Return True if a variable of this name is in the schema."""
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in order."""
        return iter(self._by_name)

    def __len__(self) -> int:
        """Return the number of variables."""
        return len(self._by_name)

    def __eq__(self, other: object) -> bool:
        """Two schemas are equal if they list the same variables in the same order."""
        return isinstance(other, Schema) and self.variables == other.variables

    def __hash__(self) -> int:
        """Return a hash consistent with equality."""
        return hash(self.variables)

    @printable
    def __repr__(self) -> str:
        """Return names and numbers of categories."""
        return f"Schema({', '.join(f'{v.name}:{len(v)}' for v in self.variables)})"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names in order."""
        return tuple(self._by_name)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Return the variables in order."""
        return tuple(self._by_name.values())

    def shape(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of categories of the named variables."""
        return tuple(len(self[name]) for name in names)

    def decode(self, name: str, codes: NDArray[np.integer[Any]]) -> list[Category]:
        """Return the labels of codes.

        Parameters
        ----------
        name : str
            Variable.
        codes : array of int
            Codes of its categories.

        Returns
        -------
        list of category
            One label per code.
        """
        labels = self[name].categories
        return [labels[code] for code in codes]
