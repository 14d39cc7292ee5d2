"""Disguise a data frame: labels in, labels out, the caller's type kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from masquerade.channels.policy import Policy, check_policy
from masquerade.core.errors import InputError
from masquerade.crypto.keystream import Keystream
from masquerade.disguising.memo import Memo
from masquerade.disguising.report_draws import Draws, disguise_codes, fresh_draws
from masquerade.frames.baskets import Baskets
from masquerade.frames.label_codes import decode, encode
from masquerade.frames.metadata import INCOMPLETE
from masquerade.frames.native import columns_of, metadata_of, rebuild, with_metadata


def disguise(
    frame: Any,
    policy: Policy,
    *,
    memo: str | Path | None = None,
    id: str | None = None,  # noqa: A002  (the word users know)
    keep: Sequence[str] = (),
    shuffle: bool = False,
) -> Any:
    """Return the frame (or baskets) with every variable of the policy disguised; other columns are left out.

    Randomness comes from the operating system and cannot be seeded. With `memo` (a file) and `id` (a
    column) the same person's same value gets the same report in every release. `keep` passes columns on
    undisguised; `shuffle` breaks the order of the rows. An unknown or missing value is refused by row and
    column before anything is drawn. A Spark data frame is disguised on its executors: without a memo the
    reports are kept in Spark's checkpoint folder, so that no second evaluation draws them anew.
    """
    check_policy(policy)
    if isinstance(frame, Baskets):
        return disguise_baskets(frame, policy, [memo, id, *keep, shuffle or None])
    if type(frame).__module__.startswith("pyspark.sql."):
        from masquerade.disguising.spark import disguise_spark  # noqa: PLC0415

        return disguise_spark(frame, policy, memo=memo, person=id, keep=keep, shuffle=shuffle)
    columns = columns_of(frame)
    said = metadata_of(columns.frame)
    refuse_disguised(said, "the frame")
    kept = checked_keep(keep, policy)
    for name in kept:
        columns[name]
    draws, remembered = chosen_draws(memo, id, policy, columns)
    reports = disguise_columns(columns, policy, draws, text=False)
    ordered = {name: reports.get(name) for name in columns if name in reports or name in kept}
    if remembered is not None:
        remembered.saved(policy.id)
    result = rebuild(columns, {name: None if name in kept else ordered[name] for name in ordered})
    if shuffle:
        result = shuffled(result, columns.rows)
    return with_metadata(result, marks(policy, said))


def marks(policy: Policy, said: Mapping[str, str]) -> dict[str, str]:
    """Return what disguised records say: their policy, and what was missing before they were disguised."""
    return {"policy": policy.id} | {key: text for key, text in said.items() if key == INCOMPLETE}


def disguise_baskets(baskets: Baskets, policy: Policy, others: Sequence[object]) -> Baskets:
    """Disguise every item of packed baskets, a few at a time."""
    if any(other is not None for other in others):
        raise InputError("Baskets have items only: 'memo', 'id', 'keep' and 'shuffle' do not apply.")
    if baskets.policy_id is not None:
        refuse_disguised({"policy": baskets.policy_id}, "the baskets")
    draws = fresh_draws(Keystream())
    return baskets.through(policy, lambda codes, part: disguise_codes(codes, part, draws))


def refuse_disguised(metadata: Mapping[str, str], what: str) -> None:
    """Refuse records that say they are disguised already."""
    if "policy" in metadata:
        raise InputError(
            f"{what}: was disguised under policy {metadata['policy'][:12]} already; estimates from records "
            "disguised twice would be wrong."
        )


def checked_keep(keep: Sequence[str] | str, policy: Policy) -> tuple[str, ...]:
    """Refuse to pass on undisguised what the policy disguises."""
    names = (keep,) if isinstance(keep, str) else tuple(keep)
    for name in names:
        if name in policy.schema:
            raise InputError(f"{name!r} is a variable of the policy and cannot be kept as it is.")
    return names


def chosen_draws(
    memo: str | Path | None, person: str | None, policy: Policy, columns: Mapping[str, Any]
) -> tuple[Draws, Memo | None]:
    """Return how reports are drawn: fresh from the operating system, or from a memo."""
    if memo is None and person is None:
        return fresh_draws(Keystream()), None
    if memo is None or person is None:
        raise InputError("A memo needs both: the file ('memo') and the column that names the person ('id').")
    opened = Memo.open(memo)
    return opened.draws(policy.id, columns[person], person), opened


def disguise_columns(
    columns: Mapping[str, Any], policy: Policy, draws: Draws, *, text: bool
) -> dict[str, pa.Array]:
    """Encode, draw and decode the columns of a policy; `text` tells that they come from a CSV."""
    codes = {
        field.variable.name: encode(columns[field.variable.name], field, text=text) for field in policy.fields
    }
    reports = disguise_codes(codes, policy, draws)
    return {
        variable.name: decode(reports[variable.name], variable.categories)
        for variable in policy.observed.variables
    }


def permutation(rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a random order of rows from OS randomness (ties among 64-bit keys do not happen)."""
    return np.argsort(Keystream()(8 * rows).view(np.uint64), kind="stable")


def shuffled(frame: Any, rows: int) -> Any:
    """Return the rows in random order; a pandas index is renewed, since it would tell the old one."""
    import narwhals as nw  # noqa: PLC0415

    native = nw.from_native(frame)
    eager = native.collect() if isinstance(native, nw.LazyFrame) else native
    mixed = nw.to_native(eager[permutation(rows).tolist()])
    return mixed.reset_index(drop=True) if hasattr(mixed, "reset_index") else mixed
