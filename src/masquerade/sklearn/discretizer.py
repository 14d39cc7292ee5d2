"""MGAS as a scikit-learn transformer: what a data owner does with numbers before they are disguised."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from masquerade.anonymity.mgas import Bins, mgas
from masquerade.channels.policy import policy_of
from masquerade.core.errors import InputError
from masquerade.sklearn._input import AnyPolicy, said_of_rows

Mode = Literal["order", "mean"]


@dataclass(eq=False, repr=False)
class MGASDiscretizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Group each column of numbers by `mgas`: every group has ≥ `k_min` records and spans ≥ `g`.

    `mode` "order" replaces a number by its group's place (0 is the lowest), "mean" by its group's mean. A
    number beyond those seen in `fit` falls into the outermost group. Groups come from the data: they are
    a release of their own (see `masquerade.anonymity.mgas`). With a `policy` they are its `bins:` instead,
    by the names of the columns or in the order of its binned variables; nothing is learnt, and a
    group's middle stands for its mean.

    Attributes: `bins_` holds the `Bins` of every column, whose `policy_bins` go into a policy;
    `n_features_in_` and `feature_names_in_` (where X has names) are as in scikit-learn.

    >>> from masquerade.sklearn import MGASDiscretizer
    >>> ages = [[18], [19], [20], [40], [41], [42]]
    >>> MGASDiscretizer(k_min=3, g=2).fit_transform(ages).ravel().tolist()
    [0, 0, 0, 1, 1, 1]
    """

    policy: AnyPolicy | None = None
    _: KW_ONLY
    k_min: int = 5
    g: float = 0.0
    mode: Mode = "order"

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  (pipelines pass it)
        """Find the groups of every column, or take the policy's."""
        self._by_mean()
        said_of_rows(X, None, None, accepted=True)
        fewest = self.k_min if self.policy is None else 1
        numbers = validate_data(self, X, dtype=np.float64, ensure_min_samples=max(1, fewest))
        if self.policy is None:
            self.bins_ = [mgas(column, self.k_min, self.g) for column in numbers.T]
        else:
            self.bins_ = self._given(numbers.shape[1])
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the numbers replaced by their groups' places or means."""
        check_is_fitted(self)
        numbers = validate_data(self, X, dtype=np.float64, reset=False)
        inside = [
            np.clip(column, bins.edges[0], bins.edges[-1])
            for column, bins in zip(numbers.T, self.bins_, strict=True)
        ]
        change = Bins.replace_by_mean if self._by_mean() else Bins.replace_by_order
        return np.column_stack(
            [change(bins, column) for column, bins in zip(inside, self.bins_, strict=True)]
        )

    def _by_mean(self) -> bool:
        if self.mode not in ("order", "mean"):
            raise InputError(f"'mode' must be 'order' or 'mean'. Got {self.mode!r} instead.")
        return self.mode == "mean"

    def _given(self, columns: int) -> list[Bins]:
        """Return the policy's bins of every column."""
        assert self.policy is not None  # noqa: S101  (called with a policy only)
        policy = policy_of(self.policy)
        binned = {field.variable.name: field for field in policy.fields if field.edges is not None}
        names = getattr(self, "feature_names_in_", list(binned))
        if len(names) != columns:
            raise InputError(f"The policy has bins for {len(names)} variables, X has {columns} columns.")
        for name in names:
            policy.schema[name]
            if name not in binned:
                raise InputError(f"The policy has no bins for {name!r}.")
        edges = [np.array(binned[name].edges, dtype=np.float64) for name in names]
        # nobody counted these groups: their middles stand for their means
        return [Bins(e, (e[:-1] + e[1:]) / 2, np.zeros(len(e) - 1, dtype=np.int64)) for e in edges]

    def __sklearn_tags__(self) -> Any:
        """Say that places and means have types of their own, whatever the numbers had."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
