"""Disguise a Dask frame partition by partition.

Dask computes a partition again whenever it is used, and also when a worker is lost. A second draw for the
same value would reveal more than the policy allows. So fresh reports are drawn immediately, once for each
partition, and the returned frame contains the reports themselves and nothing that could draw again. Reports
drawn from a memo follow from its key, so they are the same every time and stay lazy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, UnknownValue, ValueProblem
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.columns import (
    checked_keep,
    disguise_columns,
    marks,
    refuse_disguised,
    shown_columns,
)
from masquerade.disguising.earlier_draws import check_memo
from masquerade.disguising.memo import Memo, chosen_draws, memo_of
from masquerade.disguising.person_ids import NORMAL, person_tags
from masquerade.disguising.report_draws import fresh_draws
from masquerade.frames.label_codes import encode_columns
from masquerade.frames.metadata import metadata_of, with_metadata
from masquerade.frames.native import columns_of, rebuild

if TYPE_CHECKING:
    from pathlib import Path


def disguise_dask(
    frame: Any,
    policy: Policy,
    *,
    memo: str | Path | None,
    person: str | None,
    new_memo: bool,
    keep: Sequence[str],
    shuffle: bool,
    accepted: float | None = None,
) -> Any:
    """Return a Dask frame with every variable of the policy disguised, as in `disguise`.

    The frame is computed twice, first to check its values and then to draw. Without a memo the reports are
    drawn immediately and stay in the memory of this process. With a memo they are drawn on demand, and the
    memo's secret is sent to the workers, which see the clear values anyway.
    """
    dask: Any = sys.modules["dask"]  # loaded by the caller
    if shuffle:
        raise InputError(
            "A Dask frame is disguised partition by partition, so its rows cannot be shuffled: omit "
            "'shuffle', or pass frame.compute()."
        )
    remembered = memo_of(memo, person, new=new_memo)
    epsilon = check_memo(policy, remembered, accepted)
    clear_names, empty = checked_keep(keep, policy), frame._meta  # noqa: SLF001  (how Dask describes a frame)
    metadata, columns = metadata_of(empty), columns_of(empty)
    refuse_disguised(metadata, "the frame")
    needed = {*policy.schema, *clear_names, *([] if person is None else [person])}
    for name in needed:
        columns[name]  # raises if it is missing
    names = tuple(shown_columns(columns, policy, clear_names))
    marked = marks(policy, metadata, None if remembered is None else remembered.id)
    work = PartitionWork(policy, names, person, remembered, marked)
    read = frame[[name for name in frame.columns if name in needed]]
    parts = read.to_delayed()
    _refuse_unknown(dask.compute(*(dask.delayed(work.check, pure=False)(part) for part in parts)))
    if remembered is not None:
        # saved before the first report exists, so that no report can be drawn with a different memo
        remembered.save(policy.id, epsilon)
        return read.map_partitions(work.draw, meta=work.draw(empty))
    drawn = dask.compute(*(dask.delayed(work.draw, pure=False)(part) for part in parts))
    return _frame_of(drawn, frame.divisions)


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """The work on one partition, a pandas frame. It has no keystream: each call keys its own."""

    policy: Policy
    shown: tuple[str, ...]
    person: str | None
    memo: Memo | None
    marked: dict[str, str]

    def check(self, part: Any) -> tuple[int, list[ValueProblem]]:
        """Return the number of rows, and the problems of values: column and row, never the value."""
        try:
            columns = columns_of(part)
            encode_columns(
                {name: columns[name] for name in self.policy.schema}, self.policy.fields, text=False
            )
            if self.person is not None:
                form = NORMAL if self.memo is None else self.memo.form
                person_tags(columns[self.person], self.person, bytes(32), form)
        except UnknownValue as error:
            return len(part), list(error.problems)
        return len(part), []

    def draw(self, part: Any) -> Any:
        """Return the partition disguised."""
        columns = columns_of(part)
        draws = chosen_draws(self.memo, self.person, self.policy, columns, fresh_draws(Keystream()))
        reports = disguise_columns(columns, self.policy, draws, text=False)
        return with_metadata(rebuild(columns, {name: reports.get(name) for name in self.shown}), self.marked)


def _refuse_unknown(checked: Sequence[tuple[int, list[ValueProblem]]]) -> None:
    """Raise UnknownValue for values that the policy does not list, by their rows over all partitions."""
    before, problems = 0, list[ValueProblem]()
    for rows, some in checked:
        if some:
            problems += UnknownValue.of(some).shift_rows(before, None).problems
        before += rows
    if problems:
        raise UnknownValue.of(problems)


def _frame_of(drawn: Sequence[Any], divisions: Sequence[Any]) -> Any:
    """Return reports as a Dask frame whose graph contains them as data."""
    dask: Any = sys.modules["dask"]
    empty = drawn[0].iloc[:0]
    for name in empty.columns:  # a partition may have other categories
        if any(part[name].dtype != empty[name].dtype for part in drawn):
            drawn = [part.assign(**{name: part[name].astype(object)}) for part in drawn]
            empty = drawn[0].iloc[:0]
    token = uuid4().hex
    reports = [
        dask.delayed(part, name=f"reports-{token}-{number}", traverse=False)
        for number, part in enumerate(drawn)
    ]
    return dask.dataframe.from_delayed(reports, meta=empty, divisions=tuple(divisions), verify_meta=False)
