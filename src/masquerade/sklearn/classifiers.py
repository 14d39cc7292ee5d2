"""Naive Bayes, decision tree and linear classifier as scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from sklearn.utils.metaestimators import available_if

from masquerade.channels.policy import Policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.core.tally import Tally
from masquerade.evaluate import disguised_view
from masquerade.learn.bayes import naive_bayes
from masquerade.learn.linear import Counts, Loss, Scores, linear_classifier
from masquerade.learn.tree import decision_tree
from masquerade.learn.tree_model import Criterion
from masquerade.sklearn.base import DisguisedClassifier
from masquerade.sklearn.learnt import Numbers
from masquerade.sklearn.reading import AnyPolicy, Clear, Disguised, Rows
from masquerade.sources.records import Records

PredictOn = Literal["clear", "disguised"]


class DisguisedNaiveBayes(DisguisedClassifier):
    """Naive Bayes for scikit-learn: `masquerade.learn.naive_bayes`; on clear labels it is CategoricalNB.

    With a policy, `predict_on` says what the rows given to `predict` and `predict_proba` are: "clear", or
    "disguised" by that policy, when the most likely *true* class is predicted from the reports. `score`
    always takes disguised records, and gives the accuracy that those predictions have.
    See `DisguisedClassifier` for the other parameters and for the attributes, `feature_names_in_` among them.
    """

    def __init__(
        self,
        policy: AnyPolicy | None = None,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        alpha: float = 1.0,
        predict_on: PredictOn = "clear",
        bins: int | None = None,
    ) -> None:
        self.policy = policy
        self.target = target
        self.features = features
        self.alpha = alpha
        self.predict_on = predict_on
        self.bins = bins

    def predict_proba(self, X: Any) -> Floats:
        """Return P(class | row), in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithms of `predict_proba`."""
        rows = self._rows(X)
        found: Floats = self._predictor().predict_log_proba(rows)[:, self._order]
        return found

    def _learn(self, source: Tally, target: str) -> Any:
        self._on_reports()
        return naive_bayes(source, target, self.features, self.alpha)

    def _on_reports(self) -> bool:
        if self.predict_on not in ("clear", "disguised"):
            raise InputError(f"'predict_on' must be 'clear' or 'disguised'. Got {self.predict_on!r} instead.")
        if self.predict_on == "disguised" and self.policy is None:
            raise InputError("predict_on='disguised' needs the policy that the rows were disguised by.")
        return self.predict_on == "disguised"

    def _predictor(self) -> Any:
        if self._on_reports() and isinstance(self._reading, Disguised):
            return disguised_view(self.model_, self._reading.policy)
        return self.model_

    def _read_rows(self, reading: Disguised, X: Any) -> Rows:
        names = [feature.name for feature in self.model_.features]
        if self._on_reports() and reading.policy.stratum_variable is not None:
            names.append(reading.policy.stratum_variable)
        return reading.rows(X, names, disguised=self._on_reports())

    def _tested(self, records: Records) -> Records:
        """Return the records as the predictor sees them.

        What is predicted from reports is a function of the reports: they are known, and only the class is
        not. So features count as undisguised, which needs a class that is disguised on its own.
        """
        if not self._on_reports():
            return records
        policy, target = records.policy, self._reading.target
        group = policy.group(target.name)
        if len(group.names) > 1 or policy.stratum_variable is not None:
            raise InputError(
                "The accuracy of predictions from disguised rows needs a target that is disguised alone and "
                "a policy without strata: use predict_on='clear'."
            )
        seen = [target if v.name == target.name else v for v in policy.observed.variables]
        return Records(
            records.codes, Policy.build(Schema(seen), {target.name: group.channel}), records.weights
        )


class DisguisedTree(DisguisedClassifier):
    """Decision tree for scikit-learn: `masquerade.learn.decision_tree`, whose parameters it takes.

    It predicts clear rows. See `DisguisedClassifier` for `policy`, `target`, `features`, `bins`, and for
    the attributes, `feature_names_in_` among them.
    """

    def __init__(
        self,
        policy: AnyPolicy | None = None,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        criterion: Criterion = "gain",
        max_depth: int | None = None,
        min_records: float = 1.0,
        significance: float | None = 0.05,
        prune: float | None = None,
        bins: int | None = None,
    ) -> None:
        self.policy = policy
        self.target = target
        self.features = features
        self.criterion = criterion
        self.max_depth = max_depth
        self.min_records = min_records
        self.significance = significance
        self.prune = prune
        self.bins = bins

    def predict_proba(self, X: Any) -> Floats:
        """Return P(class | row), in the order of `classes_`."""
        rows = self._rows(X)
        found: Floats = self.model_.predict_proba(rows)[:, self._order]
        return found

    def _learn(self, source: Tally, target: str) -> Any:
        return decision_tree(
            source,
            target,
            self.features,
            self.criterion,
            max_depth=self.max_depth,
            min_records=self.min_records,
            significance=self.significance,
            prune=self.prune,
        )


class DisguisedLinear(DisguisedClassifier):
    """Linear classifier for scikit-learn: `masquerade.learn.linear_classifier`, whose parameters it takes.

    Logistic with `ridge` 1 unless told, as LogisticRegression is; "pocket" takes no ridge. It predicts clear
    rows, with `predict_proba` for logistic loss. The learner needs a table over all features: without
    a policy and `bins`, numbers are cut into as many bins (2 to 16) as keep it to 262,144 cells, and a
    bin counts as its mean. See `DisguisedClassifier` for `policy`, `target`, `features`, `bins`, and for
    the attributes, `feature_names_in_` among them.
    """

    _needs_table = True

    def __init__(
        self,
        policy: AnyPolicy | None = None,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        loss: Loss = "logistic",
        scores: Scores | None = None,
        ridge: float = 1.0,
        counts: Counts = "auto",
        steps: int = 20_000,
        seed: int = 0,
        bins: int | None = None,
    ) -> None:
        self.policy = policy
        self.target = target
        self.features = features
        self.loss = loss
        self.scores = scores
        self.ridge = ridge
        self.counts = counts
        self.steps = steps
        self.seed = seed
        self.bins = bins

    def decision_function(self, X: Any) -> Floats:
        """Return the discriminants: of the second of two classes, else one for each of `classes_`."""
        rows = self._rows(X)
        found: Floats = self.model_.decision_function(rows)
        if found.ndim == 1:
            return found if self._order[0] == 0 else -found
        return found[:, self._order]

    @available_if(lambda self: self.loss == "logistic")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return P(class | row), in the order of `classes_`."""
        rows = self._rows(X)
        found: Floats = self.model_.predict_proba(rows)[:, self._order]
        return found

    def _learn(self, source: Tally, target: str) -> Any:
        return linear_classifier(
            source,
            target,
            self.features,
            self.loss,
            self._numbers(),
            ridge=0.0 if self.loss == "pocket" else self.ridge,
            counts=self.counts,
            steps=self.steps,
            seed=self.seed,
        )

    def _numbers(self) -> Scores | None:
        if not isinstance(self._reading, Clear):
            return self.scores
        learnt = {
            column.variable.name: column.means.tolist()
            for column in self._reading.columns
            if isinstance(column, Numbers)
            and (self.features is None or column.variable.name in self.features)
        }
        return learnt | dict(self.scores or {})
