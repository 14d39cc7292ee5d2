"""Models seen through the policy of the rows that they predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Group, Policy
from masquerade.core.axes import Floats, contract
from masquerade.core.errors import InputError, SchemaError
from masquerade.core.schema import Category, Schema, Variable
from masquerade.learn.bayes import NaiveBayes
from masquerade.learn.network import BayesianNetwork
from masquerade.learn.prediction_rows import LogScores, labels_of, row_codes, summed_logs
from masquerade.learn.tree_model import DecisionTree
from masquerade.sources.expectation import MOST_TRUTHS
from masquerade.sources.query_plan import marginal_group

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class _Emission:
    """P(joint report of some features | class), classes × reports."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    table: Floats


@dataclass(frozen=True, slots=True, eq=False)
class DisguisedView(LogScores):
    """A naive Bayes classifier of disguised rows; `features` have the labels of the reports.

    Where a policy has strata, a row's own stratum (which is never disguised) says which channels it
    went through, so that rows must have this column too, even if it is no feature.
    """

    target: Variable
    features: tuple[Variable, ...]
    prior: Floats
    emissions: Mapping[Category | None, tuple[_Emission, ...]]
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
        return summed_logs(self.prior, parts)

    def _codes(self, frame: Any) -> dict[str, NDArray[np.intp]]:
        known = {variable.name: variable for variable in self.features}
        if self.stratum is not None:
            known.setdefault(self.stratum.name, self.stratum)
        return row_codes(frame, Schema(known.values()), list(known))


@overload
def disguised_view(model: NaiveBayes, policy: Policy) -> DisguisedView: ...


@overload
def disguised_view(model: DecisionTree, policy: Policy) -> DisguisedTreeView: ...


@overload
def disguised_view(
    model: BayesianNetwork, policy: Policy, target: str | None = None
) -> DisguisedNetworkView: ...


def disguised_view(
    model: NaiveBayes | DecisionTree | BayesianNetwork, policy: Policy, target: str | None = None
) -> DisguisedView | DisguisedTreeView | DisguisedNetworkView:
    """Return the classifier of rows that were disguised by a policy; of a network, of the node `target`.

    Formula: P(c | x̃) ∝ P(c)·Π_g Σ_x Π_i P(x_i | c)·P_g[x, x̃_g] over the groups g disguised together. If the
    target itself is in a group, its truth is c and its report is summed over.
    Reference: Zhan et al. (2004) §3.4 for one variable a group.
    Cost: one product of small matrices per group, then one look-up per group and row.
    Error: exact for the model's probabilities. A group with other variables, whose truth the report of the
    features depends on, is refused: the model does not say how those are distributed.
    """
    if isinstance(model, DecisionTree):
        return _tree_view(model, policy)
    if not isinstance(model, NaiveBayes):
        return _network_view(model, policy, target)
    for variable in (*model.features, model.target):
        if policy.schema[variable.name] != variable:
            raise InputError(
                f"The categories of {variable.name!r} are not the same in the model and in the policy."
            )
    by = policy.stratum_variable
    if by == model.target.name:
        raise InputError(f"The policy tells the strata by {by!r}: the target is not hidden from anybody.")
    labels: Sequence[Category | None] = policy.strata or (None,)
    features = {feature.name for feature in model.features}
    for group in policy.groups:
        if group.own_report and features & set(group.names):
            raise InputError(
                f"{', '.join(group.names)} have one report in common, not one each: such rows have no "
                "features to classify by. Classify clear rows, or rows of another policy."
            )
    return DisguisedView(
        model.target,
        tuple(policy.observed[feature.name] for feature in model.features),
        model.prior,
        {
            label: tuple(
                _emission(model, group) for group in policy.groups_of(label) if features & set(group.names)
            )
            for label in labels
        },
        None if by is None else policy.schema[by],
    )


def _emission(model: NaiveBayes, group: Group) -> _Emission:
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
        factors = [tables[name][c] if name in tables else certain for name in used.names]
        # the joint distribution of independent variables, flat, the first slowest
        truth = contract(np.ones([1] * len(factors)), [factor[None, :] for factor in factors])
        reports = (truth.ravel() @ used.matrix_channel.matrix).reshape(used.report_sizes)
        summed = reports.sum(axis=tuple(i for i, name in enumerate(used.names) if name not in tables))
        rows.append(summed.ravel())
    return _Emission(own, sizes, np.array(rows))


@dataclass(frozen=True, slots=True, eq=False)
class DisguisedTreeView:
    """A decision tree of disguised rows; `features` have the labels of the reports.

    Formula: on the way down a row is at every branch with P(branch | node, its report) ∝ the branch's share
    of records times P(report | category), as C4.5 weighs rows with missing values.
    Reference: Quinlan (1993), chapter 3, for rows whose value is unknown.
    Error: reports of features that are asked further down are not used higher up.
    """

    tree: DecisionTree
    features: tuple[Variable, ...]
    channels: Mapping[str, Floats]

    @property
    def target(self) -> Variable:
        """Return what is predicted."""
        return self.tree.target

    def predict_proba(self, frame: Any) -> Floats:
        """Return P(class | reports), rows × classes."""
        asked = [feature.name for feature in self.features if feature.name in self.tree.used]
        names = asked or [self.features[0].name]
        codes = row_codes(frame, Schema(self.features), names)
        rows = len(codes[names[0]])
        found = np.zeros((rows, len(self.target)))
        open_places = [(0, np.ones(rows))]
        while open_places:
            place, weight = open_places.pop()
            node = self.tree.nodes[place]
            if node.split is None:
                found += weight[:, None] * node.probabilities
                continue
            shares = self.tree.shares(place)
            likely = self.channels[node.split.feature][:, codes[node.split.feature]] * shares[:, None]
            total = likely.sum(axis=0)
            likely = np.where(total > 0, likely / np.where(total > 0, total, 1.0), shares[:, None])
            open_places += [
                (branch, weight * part) for branch, part in zip(node.split.branches, likely, strict=True)
            ]
        return found

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the most probable class of every row; the first of equals."""
        return labels_of(self.target, np.argmax(self.predict_proba(frame), axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class DisguisedNetworkView:
    """A node of a Bayesian network, predicted from disguised rows of all others: exactly, by summing."""

    target: Variable
    features: tuple[Variable, ...]
    joint: Floats  # P(reports of the features …, target)

    def predict_proba(self, frame: Any) -> Floats:
        """Return P(class | reports), rows × classes."""
        codes = row_codes(frame, Schema(self.features), [feature.name for feature in self.features])
        found = self.joint[tuple(codes[feature.name] for feature in self.features)]
        total = found.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, found / np.where(total > 0, total, 1.0), self._prior))

    def predict(self, frame: Any) -> NDArray[Any]:
        """Return the most probable class of every row; the first of equals."""
        return labels_of(self.target, np.argmax(self.predict_proba(frame), axis=1))

    @property
    def _prior(self) -> Floats:
        return np.asarray(self.joint.reshape(-1, len(self.target)).sum(axis=0))


def _tree_view(tree: DecisionTree, policy: Policy) -> DisguisedTreeView:
    names = [feature.name for feature in tree.features]
    channels = {name: _own_channel(policy, name) for name in names}
    return DisguisedTreeView(tree, tuple(policy.observed[name] for name in names), channels)


def _network_view(network: BayesianNetwork, policy: Policy, target: str | None) -> DisguisedNetworkView:
    if target is None:
        raise InputError("A network has no target of its own: say which variable is predicted.")
    nodes = {table.child.name: table.child for table in network.tables}
    names = [name for name in nodes if name != Schema(nodes.values())[target].name]
    if prod(len(policy.observed[name]) for name in names) * len(nodes[target]) > MOST_TRUTHS:
        raise InputError(f"The reports of {len(names)} variables have too many combinations to predict from.")
    joint = network.query([*names, target]).probabilities
    for axis, name in enumerate(names):
        joint = np.moveaxis(np.tensordot(joint, _own_channel(policy, name), axes=(axis, 0)), -1, axis)
    return DisguisedNetworkView(nodes[target], tuple(policy.observed[name] for name in names), joint)


def _own_channel(policy: Policy, name: str) -> Floats:
    group = policy.group(name)
    if len(group.names) > 1 or group.own_report or policy.stratum_variable is not None:
        raise InputError(f"{name!r} is not disguised alone and alike in all strata: classify clear rows.")
    return group.matrix_channel.matrix
