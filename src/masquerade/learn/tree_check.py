"""What a tree can be grown from and how: features and options that make no sense are refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from masquerade.core.errors import InputError
from masquerade.core.schema import Schema, Variable

Criterion = Literal["gain", "gain_ratio"]
CRITERIA: tuple[Criterion, ...] = ("gain", "gain_ratio")
MOST_TESTED_CELLS = 4096


def chosen_features(schema: Schema, target: str, features: Sequence[str] | None) -> tuple[str, ...]:
    """Return the features in the order of the schema; names that cannot be used are refused."""
    aim = schema[target].name
    if features is None:
        return tuple(name for name in schema if name != aim)
    if isinstance(features, str):
        raise InputError("The features of a tree must be a list of names, not one text.")
    wanted = {schema[name].name for name in features}
    if aim in wanted:
        raise InputError(f"The target {aim!r} cannot be a feature of its own tree.")
    return tuple(name for name in schema if name in wanted)


def check_sizes(schema: Schema, target: Variable, names: Sequence[str]) -> None:
    """Refuse features whose table with the target is too large for the covariance that the test needs."""
    for name in names:
        cells = len(schema[name]) * len(target)
        if cells > MOST_TESTED_CELLS:
            raise InputError(
                f"Feature {name!r} with target {target.name!r} makes {cells:,} cells; the significance test "
                f"takes {MOST_TESTED_CELLS:,} at most. Leave it out, merge categories, or pass "
                "significance=None."
            )


def check_options(
    criterion: str,
    max_depth: int | None,
    min_records: float,
    significance: float | None,
    prune: float | None,
) -> None:
    """Refuse options that mean nothing."""
    if criterion not in CRITERIA:
        raise InputError(
            f"The 'criterion' must be one of {', '.join(map(repr, CRITERIA))}. Got {criterion!r} instead."
        )
    if max_depth is not None and (max_depth < 0 or int(max_depth) != max_depth):
        raise InputError(f"The 'max_depth' must be a whole number from 0 on, or None. Got {max_depth}.")
    if not 0 <= min_records < np.inf:
        raise InputError(f"The 'min_records' must not be negative. Got {min_records} instead.")
    if significance is not None and not 0 < significance < 1:
        raise InputError(f"The 'significance' must be between 0 and 1, or None. Got {significance} instead.")
    if prune is not None and not 0 < prune <= 0.5:
        raise InputError(f"'prune' is a confidence in (0, 0.5], or None. Got {prune} instead.")
