"""MGAS as a scikit-learn transformer: groups numbers before they are disguised."""

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
from masquerade.sklearn._input import AnyPolicy, check_origins

Mode = Literal["order", "mean"]


@dataclass(eq=False, repr=False)
class MGASDiscretizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Group each column of numbers by `mgas`: every group has ≥ `k_min` records and spans ≥ `g`.

    A number outside the range of `fit` falls into the outermost group. Groups are computed from data and are
    themselves a release (see `masquerade.anonymity.mgas`).

    Parameters
    ----------
    policy : Policy, mapping, str or Path, optional
        Use the `bins:` of this policy instead. Columns are matched by name, or by the order of the binned
        variables. Nothing is learned, and the middle of a group replaces its mean.
    k_min : int, default 5
        Least number of records in a group.
    g : float, default 0.0
        Least span of a group.
    mode : {"order", "mean"}
        Replace a number by the index of its group (0 is the lowest), or by the group's mean.

    Attributes
    ----------
    bins_ : list of Bins
        Groups of every column; their `policy_bins` can be used in a policy.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of str
        Names of the columns, if X has names.

    Examples
    --------
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
        """Compute the groups of every column, or take them from the policy.

        Parameters
        ----------
        X : array_like or DataFrame
            Numbers.
        y : object, optional
            Ignored.

        Returns
        -------
        MGASDiscretizer
            The fitted transformer.

        Raises
        ------
        InputError
            If an option is not valid, or the policy has no bins for a column.
        """
        self._by_mean()
        check_origins(X, None, None, accepted=True)
        fewest = self.k_min if self.policy is None else 1
        numbers = validate_data(self, X, dtype=np.float64, ensure_min_samples=max(1, fewest))
        if self.policy is None:
            self.bins_ = [mgas(column, self.k_min, self.g) for column in numbers.T]
        else:
            self.bins_ = self._policy_bins(numbers.shape[1])
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Return the numbers replaced by the indices or means of their groups."""
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

    def _policy_bins(self, columns: int) -> list[Bins]:
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
        # these groups have no records: the middles replace the means
        return [Bins(e, (e[:-1] + e[1:]) / 2, np.zeros(len(e) - 1, dtype=np.int64)) for e in edges]

    def __sklearn_tags__(self) -> Any:
        """Declare that the output has its own dtype."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
