"""Predictions for disguised rows: a model learnt from counts, seen through the policy of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Group, Policy
from masquerade.core.axes import Floats, contract
from masquerade.core.errors import InputError
from masquerade.core.schema import Category, Schema, Variable
from masquerade.learn.bayes import NaiveBayes
from masquerade.learn.prediction_rows import (
    labels_of,
    most_likely,
    normalised,
    possible,
    row_codes,
    summed_logs,
)
from masquerade.sources.query_plan import marginal_group


@dataclass(frozen=True, slots=True, eq=False)
class Emission:
    """P(joint report of some features | class), classes × reports."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    table: Floats


@dataclass(frozen=True, slots=True, eq=False)
class DisguisedView:
    """A naive Bayes classifier of disguised rows; `features` have the labels of the reports.

    Where a policy has strata, a row's own stratum (which is never disguised) says which channels it
    went through, so that rows must have this column too, even if it is no feature.
    """

    target: Variable
    features: tuple[Variable, ...]
    prior: Floats
    emissions: Mapping[Category | None, tuple[Emission, ...]]
    stratum: Variable | None = None

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the most likely true class of every disguised row."""
        return labels_of(self.target, most_likely(possible(self.scores(self._codes(frame)), self.prior)))

    def predict_proba(self, frame: Any) -> Floats:
        """Return P(true class | disguised row): one row each, classes in the order of `target`."""
        return np.exp(self.predict_log_proba(frame))

    def predict_log_proba(self, frame: Any) -> Floats:
        """Return the logarithms of `predict_proba`."""
        return normalised(self.scores(self._codes(frame)), self.prior)

    def scores(self, codes: Mapping[str, NDArray[np.intp]]) -> Floats:
        """Return ln P(class, report), rows × classes, from codes of the reports."""
        if self.stratum is None:
            return self._scores(None, codes)
        own = codes[self.stratum.name]
        result = np.empty((len(own), len(self.target)))
        for code, label in enumerate(self.stratum.categories):
            rows = np.flatnonzero(own == code)
            result[rows] = self._scores(label, {name: column[rows] for name, column in codes.items()})
        return result

    def _scores(self, stratum: Category | None, codes: Mapping[str, NDArray[np.intp]]) -> Floats:
        parts = [
            (
                part.table,
                np.asarray(np.ravel_multi_index([codes[name] for name in part.names], part.sizes)),
            )
            for part in self.emissions[stratum]
        ]
        return summed_logs(self.prior, parts)

    def _codes(self, frame: Any) -> dict[str, NDArray[np.intp]]:
        known = {variable.name: variable for variable in self.features}
        if self.stratum is not None:
            known.setdefault(self.stratum.name, self.stratum)
        return row_codes(frame, Schema(known.values()), list(known))


def disguised_view(model: NaiveBayes, policy: Policy) -> DisguisedView:
    """Return the classifier of rows that were disguised by a policy.

    Formula: P(c | x̃) ∝ P(c)·Π_g Σ_x Π_i P(x_i | c)·P_g[x, x̃_g] over the groups g disguised together. If the
    target itself is in a group, its truth is c and its report is summed over.
    Reference: Zhan et al. (2004) §3.4 for one variable a group.
    Cost: one product of small matrices per group, then one look-up per group and row.
    Error: exact for the model's probabilities. A group with other variables, whose truth the report of the
    features depends on, is refused: the model does not say how those are distributed.
    """
    for variable in (*model.features, model.target):
        if policy.schema[variable.name] != variable:
            raise InputError(
                f"The categories of {variable.name!r} are not the same in the model and in the policy."
            )
    by = policy.stratum_variable
    if by == model.target.name:
        raise InputError(f"The policy tells the strata by {by!r}: the target is not hidden from anybody.")
    labels: Sequence[Category | None] = (None,) if by is None else policy.strata
    return DisguisedView(
        model.target,
        tuple(policy.observed[feature.name] for feature in model.features),
        model.prior,
        {label: emissions_of(model, policy.groups_of(label)) for label in labels},
        None if by is None else policy.schema[by],
    )


def emissions_of(model: NaiveBayes, groups: Sequence[Group]) -> tuple[Emission, ...]:
    """Return P(report | class) of every group that holds a feature."""
    features = {feature.name for feature in model.features}
    return tuple(emission(model, group) for group in groups if features & set(group.names))


def emission(model: NaiveBayes, group: Group) -> Emission:
    """Return P(joint report of a group's features | class)."""
    tables = dict(zip((feature.name for feature in model.features), model.probabilities, strict=True))
    own = tuple(name for name in group.names if name in tables)
    used = marginal_group(group, own)
    if used.names != own:  # the reports of the features may still depend on the class, which is given
        used = marginal_group(group, tuple(n for n in group.names if n in tables or n == model.target.name))
    strangers = [name for name in used.names if name not in tables and name != model.target.name]
    if strangers:
        raise InputError(
            f"{', '.join(group.names)} were disguised together, and what is reported of {', '.join(own)} "
            f"depends on {', '.join(strangers)}: only a model with these as features can classify rows."
        )
    sizes = tuple(size for name, size in zip(used.names, used.report_sizes, strict=True) if name in tables)
    rows = []
    for c in range(len(model.target)):
        certain = np.eye(len(model.target))[c]
        truth = joint_of([tables[name][c] if name in tables else certain for name in used.names])
        reports = (truth @ used.channel.matrix).reshape(used.report_sizes)
        summed = reports.sum(axis=tuple(i for i, name in enumerate(used.names) if name not in tables))
        rows.append(summed.ravel())
    return Emission(own, sizes, np.array(rows))


def joint_of(factors: Sequence[Floats]) -> Floats:
    """Return the joint distribution of independent variables, flat, the first slowest."""
    start = np.ones([1] * len(factors))
    return contract(start, [factor[None, :] for factor in factors]).ravel()
