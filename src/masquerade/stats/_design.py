"""From a formula to the cells of a table and the numbers that a regression sees in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, SchemaError, did_you_mean
from masquerade.core.schema import Category, Schema, Variable
from masquerade.stats._tables import scores_of

if TYPE_CHECKING:
    import pandas as pd

Scores = Mapping[str, Mapping[Category, float] | Sequence[float]]
_LEFT = re.compile(r"^\s*`?(?P<name>[^`\[]+?)`?\s*(?:\[(?P<label>[^\]]+)\])?\s*$")


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula taken apart: the outcome, its category if named, and the terms with their variables."""

    text: str
    outcome: str
    label: str | None
    terms: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Formula:
        """Return the parts of "outcome ~ terms", or of "outcome[category] ~ terms"."""
        left, tilde, right = text.partition("~")
        found = _LEFT.match(left)
        if not tilde or found is None:
            raise InputError(f"A formula is written as 'outcome ~ a + b'. Got {text!r} instead.")
        return cls(text, found["name"].strip(), found["label"], right.strip(), variables_in(right.strip()))


def variables_in(terms: str) -> tuple[str, ...]:
    """Return the variables that terms are made of, in order."""
    try:
        needed = {str(name) for name in formulaic().Formula(terms).required_variables}
    except Exception as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"The terms {terms!r} cannot be read: {error}".rstrip(".") + ".") from None
    return tuple(sorted(needed, key=terms.find))


def formulaic() -> Any:
    """Return the package that reads formulas; without it say how it is installed."""
    try:
        import formulaic  # noqa: PLC0415  (an extra, and slow to load)
    except ImportError:
        raise InputError("Formulas need another package: pip install 'masquerade[stats]'") from None
    return formulaic


def column(
    variable: Variable, codes: Sequence[int], reference: Category | None, scores: Scores | None
) -> Any:
    """Return a column of categories as a formula takes them: numbers, or labels with the reference first."""
    import pandas as pd  # noqa: PLC0415

    numeric = all(isinstance(label, int) and not isinstance(label, bool) for label in variable.categories)
    if variable.name in (scores or {}):
        numbers = scores_of(variable, (scores or {})[variable.name])[0]
        return numbers[np.asarray(codes)]
    if numeric and reference is None:
        return np.array(variable.categories, dtype=float)[np.asarray(codes)]
    first = 0 if reference is None else variable.code(reference)
    order = [first, *(code for code in range(len(variable)) if code != first)]
    labels = [str(variable.categories[code]) for code in order]
    return pd.Categorical([str(variable.categories[code]) for code in codes], categories=labels)


def matrix_of(terms: str, frame: pd.DataFrame) -> tuple[tuple[str, ...], Floats]:
    """Return the names and the numbers of the terms in every row of a frame."""
    try:
        found = formulaic().model_matrix(terms, frame, na_action="raise")
    except Exception as error:  # formulaic raises what it likes
        if isinstance(error, InputError):
            raise
        raise InputError(f"The terms {terms!r} cannot be used: {error}".rstrip(".") + ".") from None
    return tuple(map(str, found.columns)), np.asarray(found, dtype=float)


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Every combination of covariates, and the terms there: X is (combinations × terms)."""

    variables: tuple[Variable, ...]
    terms: tuple[str, ...]
    X: Floats


def cells_of(
    formula: Formula, schema: Schema, reference: Mapping[str, Category] | None, scores: Scores | None
) -> Cells:
    """Return the design of a formula over all combinations of the covariates' categories."""
    import pandas as pd  # noqa: PLC0415

    check_names(formula, schema, reference, scores)
    variables = tuple(schema[name] for name in formula.names)
    codes = list(product(*(range(len(variable)) for variable in variables)))
    columns = {
        variable.name: column(
            variable, [row[place] for row in codes], (reference or {}).get(variable.name), scores
        )
        for place, variable in enumerate(variables)
    }
    frame = pd.DataFrame(columns, index=range(len(codes)))
    names, X = matrix_of(formula.terms, frame)
    check_rank(names, X)
    return Cells(variables, names, X)


def check_names(
    formula: Formula, schema: Schema, reference: Mapping[str, Category] | None, scores: Scores | None
) -> None:
    """Refuse names that there are not."""
    for name in (formula.outcome, *formula.names, *(reference or {}), *(scores or {})):
        if name not in schema:
            raise SchemaError(
                f"There is no variable {name!r} for {formula.text!r}.{did_you_mean(name, schema)}"
            )
    if formula.outcome in formula.names:
        raise InputError(f"{formula.outcome!r} stands on both sides of {formula.text!r}.")


def check_rank(names: Sequence[str], X: Floats) -> None:
    """Refuse terms that others already make up."""
    rank = int(np.linalg.matrix_rank(X))
    if rank < X.shape[1]:
        extra = [
            name
            for place, name in enumerate(names)
            if np.linalg.matrix_rank(X[:, : place + 1]) == np.linalg.matrix_rank(X[:, :place])
        ]
        raise InputError(f"Terms that others already make up: {', '.join(extra)}. Leave them out.")
