"""Limits on models and magnitudes, and named profiles of rules that stewards know from other systems.

A profile is only a set of keys: it expands into rules that are shown, and keys that are stated override it.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from math import floor, isfinite
from numbers import Real
from typing import Any

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, did_you_mean

PROFILES: Mapping[str, Mapping[str, Any]] = {
    # dsBase 6.3.3: nfilter.tab, nfilter.glm, nfilter.levels.density and .max
    "datashield": {
        "data_dependent": {"least_people": 3, "show_empty": True},
        "most_parameters": 0.33,
        "most_categories": {"share": 0.33, "most": 40},
    },
    # ACRO, default.yaml: safe_threshold, safe_dof_threshold, safe_nk_n, safe_nk_k, safe_pratio_p
    "acro": {
        "data_dependent": {"least_people": 10, "show_empty": False},
        "least_dof": 10,
        "dominance": {"n": 2, "k": 0.9, "p": 0.1},
    },
    # the cell size of the Centers for Medicare & Medicaid Services
    "cms11": {"data_dependent": {"least_people": 11, "show_empty": True}},
}


def expand_profile(keys: Mapping[str, Any], *, magnitudes: bool) -> dict[str, Any]:
    """Return rules with the keys of their profile written out.

    Parameters
    ----------
    keys : mapping
        Keys of rules. `profile` names a profile; other keys override its keys, None removes one.
    magnitudes : bool
        True where the contributions to sums are held. Elsewhere profiles expand without `dominance`.

    Returns
    -------
    dict
        The keys without `profile`.

    Raises
    ------
    InputError
        If there is no such profile.
    """
    overrides = {key: _with_floats(value) for key, value in keys.items()}
    name = overrides.pop("profile", None)
    if name is None:
        return overrides
    if not isinstance(name, str) or name not in PROFILES:
        hint = did_you_mean(str(name), PROFILES)
        raise InputError(f"'profile' of rules must be one of {', '.join(PROFILES)}. Got {name!r}.{hint}")
    expanded = deepcopy(dict(PROFILES[name]))
    if not magnitudes:
        expanded.pop("dominance", None)
    for key, value in overrides.items():
        both = isinstance(value, Mapping) and isinstance(expanded.get(key), Mapping)
        expanded[key] = {**expanded[key], **value} if both else value
    return {key: value for key, value in expanded.items() if value is not None}


def _with_floats(value: Any) -> Any:
    """Return a value of a file with floats for its exact decimals."""
    if isinstance(value, Mapping):
        return {key: _with_floats(item) for key, item in value.items()}
    return float(value) if isinstance(value, Decimal) else value


def check_share(name: str, value: object) -> None:
    """Raise InputError unless a value is a number above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) <= 1:
        raise InputError(f"{name!r} of rules must be above 0 and at most 1. Got {value!r} instead.")


def most_in(share: float, n: int) -> int:
    """Return the largest integer that is at most share·n, without the rounding error of a decimal share."""
    return floor(share * n + 1e-9)


@dataclass(frozen=True, slots=True)
class MostCategories:
    """Limit on the number of categories of a counted variable.

    Parameters
    ----------
    share : float, optional
        Most categories, as a share of the number of records.
    most : int, optional
        Most categories.

    Examples
    --------
    >>> limit = mq.MostCategories(share=0.33, most=40)
    >>> limit.limit(90), limit.limit(1000)
    (29, 40)
    """

    share: float = 1.0
    most: int | None = None

    def __post_init__(self) -> None:
        check_share("share", self.share)
        if self.most is not None and (
            isinstance(self.most, bool) or not isinstance(self.most, int) or self.most < 1
        ):
            raise InputError(
                f"'most' of most_categories must be an integer of at least 1. Got {self.most!r} instead."
            )

    def limit(self, n: int) -> int:
        """Return the most categories of a variable among `n` records."""
        few = most_in(self.share, n)
        return few if self.most is None else min(few, self.most)


@dataclass(frozen=True, slots=True)
class Dominance:
    """Dominance rules of sums: (n, k) and p%.

    They need the contributions to a sum, and are checked where these are held.

    Parameters
    ----------
    n, k : int and float, optional
        A sum fails if its `n` largest contributions are more than the share `k` of it.
    p : float, optional
        A sum fails if all but its two largest contributions add up to less than `p` times the largest: the
        second largest contributor could then estimate the largest contribution within this share of it.

    Examples
    --------
    >>> rule = mq.Dominance(n=2, k=0.9, p=0.1)
    >>> rule.failures([60, 31, 9])
    ('nk',)
    >>> rule.failures([60, 30, 10])
    ()
    """

    n: int | None = None
    k: float | None = None
    p: float | None = None

    def __post_init__(self) -> None:
        if (self.n is None) != (self.k is None) or (self.n is None and self.p is None):
            raise InputError("'dominance' of rules needs n and k together, or p, or all three.")
        if self.n is not None and (isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1):
            raise InputError(f"'n' of dominance must be an integer of at least 1. Got {self.n!r} instead.")
        for name in ("k", "p"):
            if getattr(self, name) is not None:
                check_share(name, getattr(self, name))

    @property
    def depth(self) -> int:
        """Number of largest contributions that the rules need."""
        return max(self.n or 0, 2 if self.p is not None else 0)

    def failures(self, contributions: Floats | list[float], total: float | None = None) -> tuple[str, ...]:
        """Return the rules that a sum fails.

        Parameters
        ----------
        contributions : sequence of float
            Contributions to the sum, all or the largest.
        total : float, optional
            The sum. Without it, the sum of the contributions.

        Returns
        -------
        tuple of str
            ``"nk"`` and ``"p"``, each if its rule fails.
        """
        sizes = np.sort(np.asarray(contributions, dtype=float))[::-1]
        amount = float(sizes.sum()) if total is None else float(total)
        if not isfinite(amount) or np.any(sizes < 0) or amount < sizes.sum() * (1 - 1e-9):
            raise InputError("Contributions must be 0 or more, and their sum at most the total.")
        slack = 1e-12 * max(amount, 1.0)
        broken = []
        if self.n is not None and self.k is not None and sizes[: self.n].sum() > self.k * amount + slack:
            broken.append("nk")
        rest = amount - float(sizes[:2].sum())
        if self.p is not None and len(sizes) and rest < self.p * float(sizes[0]) - slack:
            broken.append("p")
        return tuple(broken)
