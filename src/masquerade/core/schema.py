"""Variables and their categories: what the world looks like before anybody wears a mask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.errors import SchemaError, did_you_mean
from masquerade.core.util.formatting import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

Category = str | int | bool


def category(label: object) -> Category:
    """Return `label` as a plain category; numpy scalars become Python ones, whole floats become ints."""
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (str, int, bool)):
        return value
    raise SchemaError(f"A category must be text, a whole number or true/false. Got a {type(value).__name__}.")


def _plain_categories(name: str, labels: Iterable[object]) -> tuple[Category, ...]:
    """Return labels as categories; one text is not a list of its letters."""
    if isinstance(labels, str):
        raise SchemaError(f"The categories of {name!r} must be a list, not one text.")
    return tuple(category(label) for label in labels)


@dataclass(frozen=True, slots=True)
class Variable:
    """A named categorical variable with its categories in order.

    >>> mq.Variable("smoker", ("yes", "no")).code("no")
    1
    """

    name: str
    categories: tuple[Category, ...]

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

    def __eq__(self, other: object) -> bool:
        """Two variables are equal if their names and categories are, by type too (1 is not true)."""
        return isinstance(other, Variable) and self._typed() == other._typed()

    def __hash__(self) -> int:
        """Hash as equality compares."""
        return hash(self._typed())

    def __len__(self) -> int:
        """Return the number of categories."""
        return len(self.categories)

    @property
    def mixed(self) -> bool:
        """Tell whether categories have several types; a column of such labels is released as text."""
        return len({type(label) for label in self.categories}) > 1

    def _typed(self) -> tuple[object, ...]:
        return (self.name, *((type(label), label) for label in self.categories))

    def code(self, label: object) -> int:
        """Return the code of a category."""
        plain = category(label)
        found = codes_by_label(self).get((type(plain), plain))
        if found is None:
            raise SchemaError(
                f"{label!r} is not a category of {self.name!r}.{did_you_mean(label, self.categories)}"
            )
        return found


@dataclass(frozen=True, slots=True)
class Field:
    """How a column is read: its variable, the category a missing value stands for, where numbers are cut.

    With `edges` e0 < e1 < … < eK, category k holds the numbers in [ek, ek+1); the last one includes eK.
    Without `missing`, a missing value is refused like an unknown one. `recodes` are values that are read as
    a category, or as missing (None).
    """

    variable: Variable
    missing: Category | None = None
    edges: tuple[float, ...] | None = None
    recodes: tuple[tuple[Category, Category | None], ...] = ()


@lru_cache(maxsize=4096)
def codes_by_label(variable: Variable) -> Mapping[tuple[type, Category], int]:
    """Return the code of each category, keyed by type and value (so 1, "1" and true differ)."""
    return {(type(label), label): code for code, label in enumerate(variable.categories)}


class Schema(Mapping[str, Variable]):
    """Variables in order, by name; translates labels to codes and back.

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
        """Return the variable called `name`; an unknown name is a `SchemaError`."""
        try:
            return self._by_name[name]
        except (KeyError, TypeError):
            raise SchemaError(
                f"There is no variable {name!r} in the schema.{did_you_mean(name, self._by_name)}"
            ) from None

    def __contains__(self, name: object) -> bool:
        """Tell whether a variable of this name is in the schema."""
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in order."""
        return iter(self._by_name)

    def __len__(self) -> int:
        """Return the number of variables."""
        return len(self._by_name)

    def __eq__(self, other: object) -> bool:
        """Two schemas are equal if they list the same variables in the same order."""
        return isinstance(other, Schema) and self.variables == other.variables

    def __hash__(self) -> int:
        """Hash by the variables."""
        return hash(self.variables)

    @printable
    def __repr__(self) -> str:
        """Show names and numbers of categories."""
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
        """Return the labels of `codes`."""
        labels = self[name].categories
        return [labels[code] for code in codes]
