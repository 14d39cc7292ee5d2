"""Clear covariates as a frame with merged rows, and the columns of terms for every truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, SchemaError, did_you_mean
from masquerade.core.likelihood_rows import LikelihoodRows
from masquerade.core.schema import Category, Schema
from masquerade.stats._tables import Where
from masquerade.stats.missing_values import answers_only
from masquerade.stats.regression.designs import Items, NuisanceTerms, Terms, TruthCells
from masquerade.stats.regression.formula import (
    Formula,
    Scores,
    TermsMatrix,
    check_rank,
    column,
    terms_matrix,
    variables_in,
)
from masquerade.stats.regression.truth_models import Link

if TYPE_CHECKING:
    import pandas as pd

Codes = NDArray[np.intp]
PER_CELL = 10  # minimum number of records per parameter of a saturated nuisance model


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options of a model other than formula and data: see `mq.stats.logistic`."""

    kind: str
    link: Link = "logit"
    items: Items = "auto"
    among: tuple[Category, ...] = ()
    nuisance: Mapping[str, str] | None = None
    reference: Mapping[str, Category] | None = None
    scores: Scores | None = None
    has_penalty: bool = False
    given: tuple[str, ...] = ()


def clear_frame(
    needed: Sequence[str], schema: Schema, rows: LikelihoodRows, clear: pd.DataFrame, options: ModelOptions
) -> tuple[pd.DataFrame, list[Codes]]:
    """Return the clear covariates as a frame, and codes of their values."""
    import pandas as pd  # noqa: PLC0415  (core and stats import pandas only when needed)

    columns: dict[str, Any] = {}
    keys: list[Codes] = []
    for name in needed:
        if name in schema:
            if name in rows.known:
                reference = (options.reference or {}).get(name)
                columns[name] = column(schema[name], rows.known[name], reference, options.scores)
                keys.append(rows.known[name])
            continue
        if name not in clear.columns:
            raise SchemaError(
                f"There is no variable or column {name!r}.{did_you_mean(name, [*schema, *clear.columns])}"
            )
        values = clear[name]
        if values.isna().any():
            raise InputError(f"Column {name!r} has missing values: remove such records.")
        if values.dtype == bool:
            values = values.astype(float)
        first = (options.reference or {}).get(name)
        if first is not None:
            texts = values.astype(str)
            others = [label for label in sorted(texts.unique()) if label != str(first)]
            values = pd.Series(pd.Categorical(texts, categories=[str(first), *others]))
        columns[name] = values
        keys.append(np.asarray(pd.factorize(np.asarray(values))[0], dtype=np.intp))
    return pd.DataFrame(columns, index=range(rows.n)), keys


def merge_rows(
    rows: LikelihoodRows, keys: Sequence[Codes], *, may_merge: bool
) -> tuple[Codes, Codes, Floats]:
    """Return the first record of each distinct row, the row of each record, and the counts of the rows."""
    everyone = np.arange(rows.n)
    apart = everyone, everyone, np.ones(rows.n)
    if not may_merge:
        return apart
    member = np.zeros(rows.n, dtype=np.intp)
    first, counts = np.zeros(1, dtype=np.intp), np.array([rows.n])
    for key in (rows.report, rows.design_of, *keys):
        width = int(key.max(initial=0)) + 1
        _, first, member, counts = np.unique(
            member * width + key, return_index=True, return_inverse=True, return_counts=True
        )
        if 2 * len(first) > rows.n:
            return apart
    return np.asarray(first), np.asarray(member), counts.astype(float)


@dataclass(frozen=True, slots=True, eq=False)
class TermsMaker:
    """Builder of the columns of terms, which depend on the truth if covariates are disguised."""

    schema: Schema
    frame: pd.DataFrame
    hidden: tuple[str, ...]
    cells: TruthCells
    options: ModelOptions
    components: dict[str, None] = field(default_factory=dict)  # labels whose terms were built, in order

    def make(self, terms: str, *, with_intercept: bool = True) -> tuple[TermsMatrix, Floats]:
        """Return the terms as columns of shape (rows, columns) or (rows, truths, columns)."""
        import pandas as pd  # noqa: PLC0415

        inside = variables_in(terms)
        truths = [variable for variable in self.cells.variables if variable.name in inside]
        hidden = [variable.name for variable in truths]
        unknown = [name for name in inside if name not in hidden and name not in self.frame.columns]
        if unknown:
            raise SchemaError(f"There is no variable or column {unknown[0]!r}.")
        frames = []
        for codes in product(*(range(len(variable)) for variable in truths)):
            frame = self.frame.copy(deep=False)
            for variable, code in zip(truths, codes, strict=True):
                reference = (self.options.reference or {}).get(variable.name)
                # terms are not used where the answer is missing, so any answer can be substituted
                answer = variable.answered_codes.index(code) if code in variable.answered_codes else 0
                frame[variable.name] = column(
                    answers_only(variable), np.full(len(frame), answer), reference, self.options.scores
                )
            frames.append(frame)
        stacked = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
        matrix = terms_matrix(terms, stacked)
        check_rank(matrix.names, matrix.X)
        if not with_intercept:
            matrix = matrix.without_intercept()
        if not hidden:
            return matrix, matrix.X
        by_cell = matrix.X.reshape(len(frames), len(self.frame), -1).transpose(1, 0, 2)
        return matrix, np.ascontiguousarray(by_cell[:, self.cells.joint_codes(hidden)])

    def nuisance(self, default: Terms) -> NuisanceTerms:
        """Return a function that builds the terms of nuisance predictors."""

        def find(labels: Sequence[str], *, is_constant: bool = False) -> Terms:
            self.components.update(dict.fromkeys(labels))
            for label in labels:
                given = (self.options.nuisance or {}).get(label)
                if given is not None:
                    matrix, X = self.make(given.partition("~")[2].strip() or given.strip())
                    return matrix.names, X
            return self.constant if is_constant else default

        return find

    def check_nuisance(self) -> None:
        """Raise InputError if `nuisance` names something that the model does not contain."""
        for name in self.options.nuisance or {}:
            if name not in self.components:
                labels = ", ".join(self.components) or "none"
                raise InputError(
                    f"'nuisance' names {name!r}, which is not a component of this model. It has: {labels}."
                )

    @property
    def constant(self) -> Terms:
        """Return an intercept alone."""
        return ("Intercept",), np.ones((len(self.frame), 1))

    def absence_terms(self, name: str, outcome: str, extra: Floats) -> Terms:
        """Return the terms that explain whether an answer is missing, from the variables in `given`.

        `extra` are columns of the outcome, of shape (rows, columns) or (rows, truths, columns).
        """
        others = [f"`{each}`" for each in self.options.given if each not in (name, outcome)]
        names, X = self.constant
        if others:
            matrix, X = self.make(" + ".join(others))
            names = matrix.names
        if outcome not in self.options.given:
            return names, X
        wide = max(X.ndim, extra.ndim)
        parts = [part[:, None] if part.ndim < wide else part for part in (X, extra)]
        lead = np.broadcast_shapes(*(part.shape[:-1] for part in parts))
        joined = [np.broadcast_to(part, (*lead, part.shape[-1])) for part in parts]
        more = tuple(f"{outcome} {i + 1}" for i in range(extra.shape[-1]))
        return (*names, *more), np.ascontiguousarray(np.concatenate(joined, axis=-1))

    def clear_terms(self, parameters: int, n: int) -> Terms:
        """Return the terms by which clear covariates explain disguised covariates.

        Formula: all interactions if there are at least `PER_CELL` records per parameter, else main effects.
        """
        names = [name for name in self.frame.columns if name not in self.hidden]
        if not names:
            return self.constant
        distinct = self.frame.drop_duplicates()
        if len(distinct) * parameters * PER_CELL <= n:
            codes = self.frame.groupby(names, sort=False, observed=True).ngroup().to_numpy()
            return tuple(f"cell {i + 1}" for i in range(len(distinct))), np.eye(len(distinct))[codes]
        matrix = terms_matrix(" + ".join(f"`{name}`" for name in names), self.frame)
        kept = _independent_columns(matrix.X)
        return tuple(matrix.names[i] for i in kept), matrix.X[:, kept]


def _independent_columns(X: Floats) -> list[int]:
    """Return the columns that are not linear combinations of earlier columns."""
    square = X.T @ X
    scale = 1 / np.sqrt(np.maximum(np.diag(square), 1e-300))
    square = square * np.outer(scale, scale)
    kept: list[int] = []
    for place in range(len(square)):
        tried = [*kept, place]
        if np.linalg.eigvalsh(square[np.ix_(tried, tried)])[0] > 1e-9:
            kept = tried
    return kept


def check_names_of(formula: Formula, schema: Schema, clear: pd.DataFrame, options: ModelOptions) -> None:
    """Raise SchemaError for unknown names, InputError for an outcome among the terms."""
    columns = [*schema, *map(str, clear.columns)]
    for name in (
        formula.outcome,
        *formula.names,
        *options.given,
        *(options.reference or {}),
        *(options.scores or {}),
    ):
        if name not in columns:
            raise SchemaError(
                f"There is no variable {name!r} for {formula.text!r}.{did_you_mean(name, columns)}"
            )
    if formula.outcome in formula.names:
        raise InputError(f"{formula.outcome!r} is on both sides of {formula.text!r}.")


def check_where(where: Where, schema: Schema, clear: pd.DataFrame) -> None:
    """Raise SchemaError if a condition is not on a variable of the source."""
    for name in where or {}:
        if name not in schema:
            advice = did_you_mean(name, list(schema))
            if name in clear.columns:
                advice = " Select the records and the rows of 'covariates' first."
            raise SchemaError(f"'where' takes variables of the source; {name!r} is unknown to it.{advice}")
