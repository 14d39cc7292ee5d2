"""Linear classifiers from any source of counts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import get_args

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, MasqueradeWarning, did_you_mean
from masquerade.core.query import Query
from masquerade.core.schema import Schema, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.words import counted
from masquerade.learn import losses
from masquerade.learn.linear_model import (
    TIES,
    Counts,
    LinearClassifier,
    Loss,
    Scores,
    coding,
    grid,
    one_of,
    winners,
)

__all__ = ["LinearClassifier", "linear_classifier"]

Cost = Callable[[losses.Basis, Floats, Floats], losses.Fitted]

MOST_CELLS = 2**20
MOST_LIKELY_CELLS = 2**14  # beyond, the most likely table takes minutes and "auto" clips instead
MOST_ERROR_WORK = 2**27  # cells × coefficients beyond which standard errors are left out


def linear_classifier(
    source: Tally,
    target: str,
    features: Sequence[str] | None = None,
    loss: Loss = "pocket",
    scores: Scores | None = None,
    *,
    ridge: float = 0.0,
    counts: Counts = "auto",
    steps: int = 20_000,
    seed: int = 0,
) -> LinearClassifier:
    """Return a linear classifier of `target` that minimises the expected cost, from counts alone.

    Chapter 6 minimises Σ over disguised records of E[cost(truth) | report]. Summed over records first, the
    weight of a configuration is one EM update of its estimated count, and at the most likely table that is
    the count itself: the expected cost is the ordinary cost, weighted by the table.

    `scores` gives the numbers of a feature's categories, such as the means of `mgas`, or "indicator". Without
    them numbers stand for themselves, bins for their middles, and other labels get an indicator for each but
    the first. `counts` says how negative estimates are handled: "mle", "simplex" and "clip" as in
    `CountTable.nonnegative`; "auto" is "mle" up to 16,384 cells and "clip" beyond; "unbiased" keeps them,
    which squares and logistic bear (corrected scores): no bias from projecting where cells outnumber records.
    `ridge` penalises ridge·Σβ² (squares) or half of it (logistic). `steps` and `seed` are for pocket.

    Formula: min_β Σ_cells N̂(x, c)·cost(x, c; β); several classes one against the rest. Standard errors: to
    first order a coefficient is a sum of cells with weights −H⁻¹·∂cost/∂β; its variance is a quadratic form.
    Reference: Ma (2006), §4.2 and chapter 6 (pocket); least squares and logistic are its future work (a).
    Cost: one question over all features and the target, at most 2²⁰ cells; then see `learn.losses`.
    Error: first order in 1/n; a table with much `negative` is biased by the projection (not if "unbiased"),
    and its standard errors remain those of the unbiased counts. A ridge's own bias is not counted.

    >>> import masquerade as mq, pandas as pd
    >>> records = pd.DataFrame({"age": [1, 2, 3, 4], "buys": ["no", "no", "yes", "yes"]})
    >>> linear_classifier(mq.tally(records), "buys").predict({"age": [1, 4]}).tolist()
    ['no', 'yes']
    """
    names = check_names(source.schema, target, features)
    check_options(loss, ridge, counts, steps)
    coded = [coding(source.schema[name], (scores or {}).get(name)) for name in names]
    unused = [name for name in scores or {} if name not in names]
    if unused:
        raise InputError(f"'scores' are given for {unused[0]!r}, no feature.{did_you_mean(unused[0], names)}")
    (table,) = source.answer([Query(by=(*names, target))])
    method = counts if counts != "auto" else "mle" if table.values.size <= MOST_LIKELY_CELLS else "clip"
    cells = table.values if method == "unbiased" else table.nonnegative(method).values
    codings = [matrix for _, matrix in coded]
    problem = Problem(table.axes[-1], codings, cells)
    generator = np.random.default_rng(seed)

    def cost(basis: losses.Basis, positive: Floats, totals: Floats) -> losses.Fitted:
        if loss == "pocket":
            return losses.pocket(basis, positive, totals, steps, generator)
        smooth = losses.squares if loss == "squares" else losses.logistic
        return smooth(basis, positive, totals, ridge)

    fits = problem.fit(cost)
    coefficients = np.array([one.coefficients for one in fits])
    right = hits(codings, coefficients, cells.shape)
    total = cells.sum()
    return LinearClassifier(
        target=table.axes[-1],
        features=table.axes[:-1],
        codings=tuple(codings),
        names=tuple(name for columns, _ in coded for name in columns),
        loss=loss,
        coefficients=coefficients,
        stderr=standard_errors(table, codings, fits, loss),
        accuracy=float((cells * right).sum() / total),
        accuracy_stderr=float(np.sqrt(max(table.covariance.quadratic(right), 0.0)) / total),
        counts=method,
        negative=float(np.maximum(-table.values, 0.0).sum() / total),
        ridge=float(ridge),
        n=table.n,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A table of configurations and classes, the numbers of the features, and one cost for all classes."""

    target: Variable
    codings: Sequence[Floats]
    cells: Floats

    def fit(self, cost: Cost) -> list[losses.Fitted]:
        """Return the discriminants: one for two classes, else one for each against the rest."""
        flat = self.cells.reshape(-1, len(self.target))
        classes = flat.sum(axis=0)
        if not flat.sum() > 0 or np.count_nonzero(classes > TIES * flat.sum()) < 2:
            raise InputError(f"Nothing can be learnt: fewer than two classes of {self.target.name!r} occur.")
        used = np.flatnonzero(np.any(flat != 0, axis=1))
        codes = np.unravel_index(used, self.cells.shape[:-1])
        design = np.hstack([matrix[code] for matrix, code in zip(self.codings, codes, strict=True)])
        totals = flat[used].sum(axis=1)
        basis = losses.basis_of(design, totals)
        if basis.rank < 1 + design.shape[1]:
            warnings.warn(
                "Some features never vary or follow from the others: of all equally good coefficients the "
                "smallest are taken, and standard errors hold for these.",
                MasqueradeWarning,
                stacklevel=4,
            )
        wanted = [1] if len(self.target) == 2 else range(len(self.target))
        return [
            cost(basis, flat[used, code], totals)
            if classes[code] > TIES * flat.sum()
            else never(design.shape[1], self.target, code)
            for code in wanted
        ]


def never(columns: int, target: Variable, code: int) -> losses.Fitted:
    """Return the discriminant of a class that does not occur: minus infinity, with a warning."""
    warnings.warn(
        f"{target.name} = {target.categories[code]!r} does not occur: it is never predicted.",
        MasqueradeWarning,
        stacklevel=5,
    )
    return losses.Fitted(np.array([-np.inf, *np.zeros(columns)]), None)


def standard_errors(
    table: CountTable, codings: Sequence[Floats], fits: Sequence[losses.Fitted], loss: Loss
) -> Floats | None:
    """Return the standard errors of all coefficients (one quadratic form each); None where not feasible."""
    columns = len(fits[0].coefficients)
    if loss == "pocket" or table.values.size * columns * len(fits) > MOST_ERROR_WORK:
        return None
    result = np.full((len(fits), columns), np.inf)
    for d, one in enumerate(fits):
        if one.inverse is None:
            continue
        classes = np.arange(table.values.shape[-1]) == (1 if len(fits) == 1 else d)
        eta = grid(codings, one.coefficients)[..., None]
        residual = eta - np.where(classes, 1.0, -1.0) if loss == "squares" else losses.expit(eta) - classes
        for i, row in enumerate(one.inverse):
            influence = grid(codings, row)[..., None] * residual
            result[d, i] = np.sqrt(max(table.covariance.quadratic(influence), 0.0))
    return result


def hits(codings: Sequence[Floats], coefficients: Floats, shape: tuple[int, ...]) -> Floats:
    """Return 1 for the cells that the discriminants classify rightly, 0 for the others."""
    chosen = winners(np.stack([grid(codings, row) for row in coefficients]))
    return np.asarray(chosen[..., None] == np.arange(shape[-1]), dtype=float)


def check_names(schema: Schema, target: str, features: Sequence[str] | None) -> tuple[str, ...]:
    """Return the features; refuse unknown names, a target among them, none at all, or too many cells."""
    if len(schema[target]) < 2:
        raise InputError(f"The target {target!r} has one class only: there is nothing to tell apart.")
    if isinstance(features, str):
        raise InputError(f"'features' must be a list of names, not the one text {features!r}.")
    names = tuple(name for name in schema if name != target) if features is None else tuple(features)
    if target in names or not names:
        raise InputError(f"A linear classifier needs features other than its target {target!r}.")
    cells = prod(schema.shape((*names, target)))
    if cells > MOST_CELLS:
        raise InputError(
            f"The table of {counted(len(names), 'feature')} and {target!r} has {cells:,} cells, at most "
            f"{MOST_CELLS:,} are allowed: name fewer 'features', or "
            "disguise them with fewer categories or wider bins."
        )
    return names


def check_options(loss: str, ridge: float, counts: str, steps: int) -> None:
    """Refuse options that do not exist or do not go together."""
    one_of("loss", loss, get_args(Loss))
    one_of("counts", counts, get_args(Counts))
    if not np.isfinite(ridge) or ridge < 0:
        raise InputError(
            f"The 'ridge' parameter of linear_classifier() must be 0 or more. Got {ridge} instead."
        )
    if loss == "pocket" and (counts == "unbiased" or ridge or steps < 1):
        raise InputError("loss='pocket' needs at least one step and takes no ridge and no negative counts.")
