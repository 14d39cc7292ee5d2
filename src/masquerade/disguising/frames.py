"""Disguise a data frame: labels in, labels out, the caller's type kept."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from masquerade.channels.policy import Policy, policy_of
from masquerade.channels.policy.estimability import refuse_unusable
from masquerade.core.errors import InputError
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.columns import (
    checked_keep,
    disguise_columns,
    marks,
    permutation,
    refuse_disguised,
    shown_columns,
)
from masquerade.disguising.earlier_draws import epsilon_of
from masquerade.disguising.files import disguise_file
from masquerade.disguising.memo import chosen_draws, memo_of
from masquerade.disguising.report_draws import disguise_codes, fresh_draws
from masquerade.frames.baskets import Baskets
from masquerade.frames.metadata import metadata_of, with_metadata
from masquerade.frames.native import columns_of, rebuild


def disguise(
    frame: Any,
    policy: Policy | str | Path,
    *,
    memo: str | Path | None = None,
    id: str | None = None,  # noqa: A002  (the word users know)
    new_memo: bool = False,
    keep: Sequence[str] = (),
    shuffle: bool = False,
) -> Any:
    """Return the frame (or baskets) with every variable of the policy disguised; other columns are left out.

    Randomness comes from the operating system and cannot be seeded. An unknown or missing value is refused by
    row and column before anything is drawn. A Spark data frame is disguised on its executors: without a memo
    the reports are kept in Spark's checkpoint folder, so that no second evaluation draws them again.

    Parameters
    ----------
    frame : data frame, Baskets, str or Path
        Clear records. For the path of a file an Arrow table comes back (`disguise_file` writes one).
    policy : Policy, str or Path
        Policy, or the path of its file.
    memo : str or Path, optional
        Secret file by which the same person's same value gets the same report in every release. It must be
        there, unless `new_memo`.
    id : str, optional
        Column that names the person, for `memo`.
    new_memo : bool, default False
        Make the memo, which must not be there yet: under a second one all people are drawn again, and γ
        multiplies.
    keep : sequence of str, optional
        Columns that are passed on in clear.
    shuffle : bool, default False
        Mix the rows.

    Returns
    -------
    data frame or Baskets
        Reports, of the type that was given.

    Raises
    ------
    FileError
        If the memo is not there, or with `new_memo` is there.
    UnknownValue
        If a value is not one of the policy's categories.

    Examples
    --------
    >>> policy = mq.data.students_policy()
    >>> reports = mq.disguise(mq.data.students(), policy)
    >>> list(reports.columns), len(reports)
    (['exams', 'year', 'pills', 'sleep'], 600)
    >>> mq.tally(reports, policy).answer([mq.Query(by="exams")])[0].values.tolist()
    [300.0, 300.0]
    """
    policy = policy_of(policy)
    refuse_unusable(policy)
    if isinstance(frame, (str, Path)):
        return _disguise_whole(
            frame, policy, memo=memo, person=id, new_memo=new_memo, keep=keep, shuffle=shuffle
        )
    if isinstance(frame, Baskets):
        return _disguise_baskets(frame, policy, [memo, id, *keep, shuffle or None, new_memo or None])
    if type(frame).__module__.startswith("pyspark.sql."):
        from masquerade.disguising.spark import disguise_spark  # noqa: PLC0415

        return disguise_spark(
            frame, policy, memo=memo, person=id, new_memo=new_memo, keep=keep, shuffle=shuffle
        )
    columns = columns_of(frame)
    said = metadata_of(columns.frame)
    refuse_disguised(said, "the frame")
    kept = checked_keep(keep, policy)
    for name in kept:
        columns[name]
    remembered = memo_of(memo, id, new=new_memo)
    epsilon = epsilon_of(policy)
    draws = chosen_draws(remembered, id, policy, columns, fresh_draws(Keystream()))
    reports = disguise_columns(columns, policy, draws, text=False)
    shown = shown_columns(columns, policy, kept)
    result = rebuild(columns, {name: reports.get(name) for name in shown})
    if shuffle:
        result = _shuffled(result, columns.rows)
    marked = with_metadata(result, marks(policy, said, None if remembered is None else remembered.id))
    if remembered is not None:
        remembered.saved(policy.id, epsilon)  # last: reports that nobody got need not be remembered
    return marked


def _disguise_whole(
    path: str | Path,
    policy: Policy,
    *,
    memo: str | Path | None,
    person: str | None,
    new_memo: bool,
    keep: Sequence[str],
    shuffle: bool,
) -> Any:
    """Return the records of a file disguised, as an Arrow table."""
    with tempfile.TemporaryDirectory(prefix="masquerade-") as folder:
        target = Path(folder) / "disguised.arrow"
        disguise_file(
            path, target, policy, memo=memo, id=person, new_memo=new_memo, keep=keep, shuffle=shuffle
        )
        with pa.OSFile(str(target)) as file:
            return ipc.open_file(file).read_all()


def _disguise_baskets(baskets: Baskets, policy: Policy, others: Sequence[object]) -> Baskets:
    if any(other is not None for other in others):
        raise InputError("Baskets have items only: 'memo', 'id', 'keep' and 'shuffle' do not apply.")
    if baskets.policy_id is not None:
        refuse_disguised({"policy": baskets.policy_id}, "the baskets")
    draws = fresh_draws(Keystream())
    return baskets.through(policy, lambda codes, part: disguise_codes(codes, part, draws))


def _shuffled(frame: Any, rows: int) -> Any:
    """Return the rows in random order; a pandas index is renewed, since it would tell the old one."""
    import narwhals as nw  # noqa: PLC0415

    native = nw.from_native(frame)
    eager = native.collect() if isinstance(native, nw.LazyFrame) else native
    mixed = nw.to_native(eager[permutation(rows).tolist()])
    return mixed.reset_index(drop=True) if hasattr(mixed, "reset_index") else mixed
