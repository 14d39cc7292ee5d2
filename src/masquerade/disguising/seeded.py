"""Disguise with a seed, for studies: the result is marked as simulated and must not be released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Policy, check_policy
from masquerade.disguising.columns import checked_keep, disguise_columns, marks, shown_columns
from masquerade.disguising.report_draws import Codes, disguise_codes, fresh_draws
from masquerade.frames.baskets import Baskets
from masquerade.frames.metadata import metadata_of, with_metadata
from masquerade.frames.native import columns_of, rebuild
from masquerade.kernels.draw import Bytes


def seeded_bytes(seed: int | np.random.Generator) -> Bytes:
    """Return a source of pseudo-random bytes."""
    generator = np.random.default_rng(seed)

    def fresh(n: int) -> NDArray[np.uint8]:
        return np.frombuffer(generator.bytes(n), dtype=np.uint8).copy()

    return fresh


def simulate(frame: Any, policy: Policy, seed: int | np.random.Generator, *, keep: Sequence[str] = ()) -> Any:
    """Disguise a frame with a seeded generator: repeatable, and therefore not private.

    Parameters
    ----------
    frame : data frame or Baskets
        Clear records.
    policy : Policy
        Policy to disguise by.
    seed : int or numpy.random.Generator
        The same seed gives the same reports.
    keep : sequence of str, optional
        Columns to keep in clear, as in `disguise`.

    Returns
    -------
    data frame or Baskets
        Reports, of the type of `frame`, marked as simulated.

    Raises
    ------
    UnknownValue
        If a value is not one of the policy's categories.

    Examples
    --------
    >>> policy = mq.data.students_policy()
    >>> first = mq.simulate(mq.data.students(), policy, seed=1)
    >>> first.equals(mq.simulate(mq.data.students(), policy, seed=1))
    True
    """
    check_policy(policy)
    if isinstance(frame, Baskets):
        draws = fresh_draws(seeded_bytes(seed))
        return frame.through(policy, lambda codes, part: disguise_codes(codes, part, draws))
    columns = columns_of(frame)
    kept = checked_keep(keep, policy)
    reports = disguise_columns(columns, policy, fresh_draws(seeded_bytes(seed)), text=False)
    result = rebuild(columns, {name: reports.get(name) for name in shown_columns(columns, policy, kept)})
    return with_metadata(result, marks(policy, metadata_of(columns.frame)) | {"simulated": "true"})


def simulate_codes(
    codes: dict[str, Codes], policy: Policy, seed: int | np.random.Generator
) -> dict[str, Codes]:
    """Return report codes drawn by a seeded generator."""
    return disguise_codes(codes, policy, fresh_draws(seeded_bytes(seed)))
