"""Models that predict disguised rows: each report is weighted by the probability of every truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, SchemaError
from masquerade.core.schema import Category, Schema, Variable
from masquerade.learn.classifiers.linear import LinearClassifier
from masquerade.learn.classifiers.prediction_rows import LogScores, labels_of, row_codes, sum_logs
from masquerade.learn.classifiers.tree_model import DecisionTree


@dataclass(frozen=True, slots=True, eq=False)
class ReportChances:
    """P(joint report of features | class), classes × reports."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    table: Floats


@dataclass(frozen=True, slots=True, eq=False)
class DisguisedView(LogScores):
    """A naive Bayes classifier for disguised rows. `features` have the labels of the reports.

    If a policy has strata, the stratum of a row, which is never disguised, selects its channels. Rows must
    have this column even if it is not a feature.

    Attributes
    ----------
    target : Variable
        The predicted variable.
    features : tuple of Variable
        Reports to predict from.
    prior : ndarray
        P(class).
    emissions : mapping
        P(joint report | class) of each group of features, by stratum.
    stratum : Variable or None
        The variable that defines the strata.

    Examples
    --------
    >>> policy = mq.data.students_policy()
    >>> model = mq.learn.naive_bayes(mq.tally(mq.data.students(), schema=policy), "sleep", ["pills"])
    >>> view = mq.evaluate.disguised_view(model, policy)
    >>> [feature.name for feature in view.features], view.target.categories
    (['pills'], ('bad', 'good'))
    """

    target: Variable
    features: tuple[Variable, ...]
    prior: Floats
    emissions: Mapping[Category | None, tuple[ReportChances, ...]]
    stratum: Variable | None = None

    def scores(self, codes: Mapping[str, NDArray[np.intp]]) -> Floats:
        """Return ln P(class, report), rows × classes, from codes of the reports."""
        if self.stratum is None:
            return self._scores(None, codes)
        if self.stratum.name not in codes:
            raise SchemaError(f"There is no column {self.stratum.name!r} in the rows.")
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
        return sum_logs(self.prior, parts)

    def _codes(self, frame: Any) -> dict[str, NDArray[np.intp]]:
        known = {variable.name: variable for variable in self.features}
        if self.stratum is not None:
            known.setdefault(self.stratum.name, self.stratum)
        return row_codes(frame, Schema(known.values()), list(known), disguised=True)


@dataclass(frozen=True, slots=True, eq=False)
class DisguisedTreeView:
    """A decision tree for disguised rows. `features` have the labels of the reports.

    Formula: at a node, a row goes to every branch with P(branch | node, its report) ∝ the branch's share of
    records times P(report | category), as C4.5 weights rows with missing values.
    Reference: Quinlan (1993), chapter 3, for rows whose value is unknown.
    Error: at a node, the reports of features that split nodes further down are not used.
    """

    tree: DecisionTree
    features: tuple[Variable, ...]
    channels: Mapping[str, Floats]

    @property
    def target(self) -> Variable:
        """Return the predicted variable."""
        return self.tree.target

    def predict_proba(self, frame: Any) -> Floats:
        """Return P(class | reports), rows × classes."""
        used = [feature.name for feature in self.features if feature.name in self.tree.used_features]
        names = used or [self.features[0].name]
        codes = row_codes(frame, Schema(self.features), names, disguised=True)
        rows = len(codes[names[0]])
        result = np.zeros((rows, len(self.target)))
        open_places = [(0, np.ones(rows))]
        while open_places:
            place, weight = open_places.pop()
            node = self.tree.nodes[place]
            if node.split is None:
                result += weight[:, None] * node.probabilities
                continue
            shares = self.tree.shares(place)
            likely = self.channels[node.split.feature][:, codes[node.split.feature]] * shares[:, None]
            total = likely.sum(axis=0)
            likely = np.where(total > 0, likely / np.where(total > 0, total, 1.0), shares[:, None])
            open_places += [
                (branch, weight * part) for branch, part in zip(node.split.branches, likely, strict=True)
            ]
        return result

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the most probable class of every row; ties go to the first."""
        return labels_of(self.target, np.argmax(self.predict_proba(frame), axis=1))


class DisguisedLinearView(LinearClassifier):
    """A linear classifier for disguised rows. `features` have the labels of the reports.

    Formula: the numbers of a feature's categories are replaced by their expectation given its report, Σ_x P(x
    | x̃)·number(x), P(x | x̃) ∝ the feature's share of x among the records times P[x, x̃].
    Reference: regression calibration, Carroll, Ruppert, Stefanski & Crainiceanu (2006), chapter 4.
    Error: every report is used for its own feature only; probabilities under a strong disguise are too
    extreme.
    """

    __slots__ = ()

    def _codes(self, frame: Any) -> dict[str, NDArray[np.intp]]:
        return row_codes(frame, self.schema, [feature.name for feature in self.features], disguised=True)


def linear_view(
    model: LinearClassifier, features: tuple[Variable, ...], channels: Mapping[str, Floats]
) -> DisguisedLinearView:
    """Return a linear classifier for reports of the model's features; `features` have the reports' labels."""
    if model.shares is None:
        raise InputError("The model was saved by an earlier version, without shares: learn it again.")
    codings = []
    for feature, coding, share in zip(model.features, model.codings, model.shares, strict=True):
        likely = share[:, None] * channels[feature.name]
        total = likely.sum(axis=0)
        likely = np.where(total > 0, likely / np.where(total > 0, total, 1.0), share[:, None])
        codings.append(likely.T @ coding)
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    return DisguisedLinearView(
        **values | {"features": features, "codings": tuple(codings), "covariance": None}
    )


@dataclass(frozen=True, slots=True, eq=False)
class DisguisedNetworkView:
    """Predicts a node of a Bayesian network exactly, from the disguised values of all other nodes."""

    target: Variable
    features: tuple[Variable, ...]
    joint: Floats  # P(reports of the features …, target)

    def predict_proba(self, frame: Any) -> Floats:
        """Return P(class | reports), rows × classes."""
        names = [feature.name for feature in self.features]
        codes = row_codes(frame, Schema(self.features), names, disguised=True)
        found = self.joint[tuple(codes[feature.name] for feature in self.features)]
        total = found.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, found / np.where(total > 0, total, 1.0), self._prior))

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the most probable class of every row; ties go to the first."""
        return labels_of(self.target, np.argmax(self.predict_proba(frame), axis=1))

    @property
    def _prior(self) -> Floats:
        return np.asarray(self.joint.reshape(-1, len(self.target)).sum(axis=0))
