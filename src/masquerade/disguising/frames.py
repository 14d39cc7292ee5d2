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
from masquerade.disguising.earlier_draws import check_memo
from masquerade.disguising.files import disguise_file
from masquerade.disguising.memo import chosen_draws, memo_of
from masquerade.disguising.report_draws import disguise_codes, fresh_draws
from masquerade.frames.baskets import Baskets
from masquerade.frames.metadata import is_dask_frame, metadata_of, with_metadata
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
    accept_gamma: float | None = None,
) -> Any:
    """Return the frame (or baskets) with every variable of the policy disguised; other columns are omitted.

    Randomness comes from the operating system and cannot be seeded. An unknown or missing value raises an
    error with its row and column before anything is drawn. A Spark data frame is disguised on its executors:
    without a memo the reports are kept in Spark's checkpoint folder, so that no second evaluation draws them
    again. A Dask frame is disguised partition by partition: without a memo its reports are drawn now and stay
    in memory, with a memo they are lazy.

    Parameters
    ----------
    frame : data frame, Baskets, str or Path
        Clear records. For the path of a file an Arrow table is returned (`disguise_file` writes a file).
    policy : Policy, str or Path
        Policy, or the path of its file.
    memo : str or Path, optional
        Secret file by which the same person's same value gets the same report in every release. It must
        exist unless `new_memo` is True.
    id : str, optional
        Column that names the person, for `memo`.
    new_memo : bool, default False
        Create the memo, which must not exist yet. A second memo draws new reports for all people, and the γ
        of both memos multiply.
    keep : sequence of str, optional
        Columns to keep in clear.
    shuffle : bool, default False
        Shuffle the rows.
    accept_gamma : float, optional
        Largest γ of a record, over this release and earlier releases of the memo, that is accepted beyond the
        policy's limit.

    Returns
    -------
    data frame or Baskets
        Reports, of the type of `frame`.

    Raises
    ------
    FileError
        If the memo does not exist, or with `new_memo` exists.
    UnknownValue
        If a value is not one of the policy's categories.
    InputError
        If this release and the memo's earlier releases together exceed the policy's limit.

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
            frame,
            policy,
            memo=memo,
            person=id,
            new_memo=new_memo,
            keep=keep,
            shuffle=shuffle,
            accepted=accept_gamma,
        )
    if isinstance(frame, Baskets):
        return _disguise_baskets(frame, policy, [memo, id, *keep, shuffle or None, new_memo or None])
    if type(frame).__module__.startswith("pyspark.sql."):
        from masquerade.disguising.spark import disguise_spark  # noqa: PLC0415

        return disguise_spark(
            frame,
            policy,
            memo=memo,
            person=id,
            new_memo=new_memo,
            keep=keep,
            shuffle=shuffle,
            accepted=accept_gamma,
        )
    if is_dask_frame(frame):
        from masquerade.disguising.dask_frames import disguise_dask  # noqa: PLC0415

        return disguise_dask(
            frame,
            policy,
            memo=memo,
            person=id,
            new_memo=new_memo,
            keep=keep,
            shuffle=shuffle,
            accepted=accept_gamma,
        )
    columns = columns_of(frame)
    said = metadata_of(columns.frame)
    refuse_disguised(said, "the frame")
    kept = checked_keep(keep, policy)
    for name in kept:
        columns[name]
    remembered = memo_of(memo, id, new=new_memo)
    epsilon = check_memo(policy, remembered, accept_gamma)
    draws = chosen_draws(remembered, id, policy, columns, fresh_draws(Keystream()))
    reports = disguise_columns(columns, policy, draws, text=False)
    shown = shown_columns(columns, policy, kept)
    result = rebuild(columns, {name: reports.get(name) for name in shown})
    if shuffle:
        result = _shuffle_rows(result, columns.rows)
    marked = with_metadata(result, marks(policy, said, None if remembered is None else remembered.id))
    if remembered is not None:
        remembered.save(policy.id, epsilon)  # last: a release that failed need not be entered in the memo
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
    accepted: float | None,
) -> Any:
    """Return the records of a file disguised, as an Arrow table."""
    with tempfile.TemporaryDirectory(prefix="masquerade-") as folder:
        target = Path(folder) / "disguised.arrow"
        disguise_file(
            path,
            target,
            policy,
            memo=memo,
            id=person,
            new_memo=new_memo,
            keep=keep,
            shuffle=shuffle,
            accept_gamma=accepted,
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


def _shuffle_rows(frame: Any, rows: int) -> Any:
    """Return the rows in random order; a pandas index is renewed, because it would reveal the old order."""
    import narwhals as nw  # noqa: PLC0415

    native = nw.from_native(frame)
    eager = native.collect() if isinstance(native, nw.LazyFrame) else native
    mixed = nw.to_native(eager[permutation(rows).tolist()])
    return mixed.reset_index(drop=True) if hasattr(mixed, "reset_index") else mixed
