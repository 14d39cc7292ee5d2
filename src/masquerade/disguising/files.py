"""Disguise a file in batches: memory does not grow with it, and the output appears complete or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from masquerade.channels.policy import Policy, check_policy, policy_of
from masquerade.channels.policy.estimability import refuse_unusable
from masquerade.core.errors import UnknownValue
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.columns import (
    carried,
    checked_keep,
    disguise_columns,
    marks,
    permutation,
    refuse_disguised,
    shown_columns,
)
from masquerade.disguising.earlier_draws import EarlierDraw, draws_before, epsilon_of, epsilon_together
from masquerade.disguising.memo import Memo, chosen_draws, memo_notes, memo_of
from masquerade.disguising.report_draws import fresh_draws
from masquerade.frames.cores import ahead
from masquerade.frames.dialect import Dialect
from masquerade.frames.file_reader import Batches, open_batches
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.formats import STREAM
from masquerade.frames.value_check import value_problems

Progress = Callable[[int, int | None], None]
LEFT = (
    "rows may have left through standard output: they are a draw about these people, and a further run "
    "without a memo is another one"
)


@dataclass(frozen=True, slots=True)
class Release:
    """What was done: how many records, all columns there were, the memo, and what was drawn before.

    `memo` is the id of the memo that drew the reports: the same id, policy and person mean the same draw.
    `earlier` are other draws of these variables, known from the memo and from files in the target's folder;
    over all of them and this one, `epsilon_together` is the ε of a record, if they are about the same people
    (inf without a bound, None if one of them is not known). `notes` say how files were read that are not
    written as most are, and what to know about the memo.
    """

    rows: int
    columns: tuple[str, ...]
    memo: str | None = None
    earlier: tuple[EarlierDraw, ...] = ()
    epsilon_together: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def earlier_policies(self) -> tuple[str, ...]:
        """Return the other policies that the memo has served."""
        return tuple(draw.policy for draw in self.earlier if draw.file is None)


def disguise_file(
    source: str | Path | Sequence[str | Path],
    target: str | Path,
    policy: Policy | str | Path,
    *,
    memo: str | Path | None = None,
    id: str | None = None,  # noqa: A002  (the word users know)
    new_memo: bool = False,
    keep: Sequence[str] = (),
    shuffle: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    dialect: Dialect | None = None,
    before_publish: Callable[[Release], object] | None = None,
) -> Release:
    """Disguise files into one of the format that `target`'s ending names.

    As `disguise`, batch by batch. The policy travels in the file's metadata (or next to it, in
    ``<target>.masquerade.json``). On any error nothing is left behind: the file takes its name last, when it
    is durable and the memo is saved. Rows to standard output (``-``) leave as they come; the memo is
    saved before the first.

    Parameters
    ----------
    source : str, Path or sequence of them
        Clear records.
    target : str or Path
        File to write, or ``-``.
    policy : Policy, str or Path
        Policy, or the path of its file.
    memo : str or Path, optional
        Secret file by which repeated releases repeat their reports. It must be there, unless `new_memo`.
    id : str, optional
        Column that names the person, for `memo`.
    new_memo : bool, default False
        Make the memo, which must not be there yet.
    keep : sequence of str, optional
        Columns that are passed on in clear.
    shuffle : bool, default False
        Mix the rows within a batch.
    overwrite : bool, default False
        Replace the target if it exists.
    progress : callable, optional
        Called with the bytes read and their total, if known, after every batch.
    dialect : Dialect, optional
        How a CSV is written; found by looking, as far as it does not say.
    before_publish : callable, optional
        Called with the release when only the name of the file is missing; an error of it undoes the release.

    Returns
    -------
    Release
        What was done.

    Raises
    ------
    FileError
        If a file cannot be read or written, or the memo is not there (with `new_memo`: is there).
    UnknownValue
        If a value is not one of the policy's categories.

    Examples
    --------
    >>> mq.data.students().to_csv("students.csv", index=False)
    >>> release = mq.disguise_file("students.csv", "reports.parquet", mq.data.students_policy())
    >>> release.rows
    600
    """
    remembered, policy = memo_of(memo, id, new=new_memo), policy_of(policy)
    refuse_unusable(policy)
    kept = checked_keep(keep, policy)
    # every figure is known before the first row is written: nothing is left that could fail but writing
    earlier = draws_before(target, policy, remembered)
    epsilon, together = epsilon_of(policy), epsilon_together(policy, earlier)
    read = [*policy.schema, *kept, *([id] if id else [])]
    streams = str(target) == STREAM
    with open_batches(source, list(dict.fromkeys(read)), dialect=dialect) as batches:
        refuse_disguised(batches.metadata, batches.file)
        batches.select(batches.names, coded=policy.schema)
        in_order = shown_columns(batches.file_names, policy, kept)
        notes = (*batches.notes, *memo_notes(remembered))
        release = Release(0, batches.file_names, _id_of(remembered), earlier, together, notes)
        disguised = _disguised(batches, policy, in_order, id, remembered, shuffle=shuffle)
        # the first batch tells the types of kept columns; an empty file still has its header
        first = next(disguised, None)
        schema = _empty(policy, in_order).schema if first is None else first.schema
        with AtomicWriter(
            target,
            schema,
            marks(policy, batches.metadata, release.memo) | carried(policy),
            overwrite=overwrite,
            inputs=batches.paths,
            unranked=_drawn(policy),
        ) as writer:
            if streams and remembered is not None:
                remembered.saved(policy.id, epsilon)
            try:
                for batch in chain([] if first is None else [first], ahead(disguised)):
                    writer.write(batch)
                    release = replace(release, rows=release.rows + len(batch))
                    if progress is not None:
                        progress(batches.bytes_read, batches.total_bytes)
                writer.settle()
            except BaseException as error:
                if streams and remembered is None:
                    error.add_note(LEFT)
                raise
            if not streams and remembered is not None:
                # durable before the output appears: no report is published that could be drawn again
                remembered.saved(policy.id, epsilon)
            if before_publish is not None:
                before_publish(release)
    return release


def _id_of(memo: Memo | None) -> str | None:
    return None if memo is None else memo.id


def _disguised(
    batches: Batches,
    policy: Policy,
    shown: Sequence[str],
    person: str | None,
    memo: Memo | None,
    *,
    shuffle: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield disguised batches; errors about a value count rows from the start of its file."""
    fresh, stream = fresh_draws(Keystream()), iter(batches)
    for batch in stream:
        columns = {name: batch[name] for name in batch.schema.names}
        try:
            draws = chosen_draws(memo, person, policy, columns, fresh)
            reports = disguise_columns(columns, policy, draws, text=batches.text)
        except UnknownValue as error:
            first = error.shifted(batches.rows_before, batches.file)
            others = value_problems(batches, stream, policy.fields)
            raise UnknownValue.of([*first.problems, *others]) from None
        result = pa.record_batch(
            {name: reports[name] if name in reports else columns[name] for name in shown}
        )
        yield result.take(pa.array(permutation(len(batch)))) if shuffle else result


def _drawn(policy: Policy) -> tuple[str, ...]:
    """Return the reports that are drawn: the least and greatest of a part of a file say nothing about it."""
    hidden = set(policy.disguised)
    return tuple(
        name for group in policy.groups if hidden.intersection(group.names) for name in group.reports
    )


def check_files(
    source: str | Path | Sequence[str | Path], policy: Policy, *, dialect: Dialect | None = None
) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Read clear files as `disguise_file` would, and draw nothing: rows, columns left out, what to know.

    Everything that is wrong with the values is one `UnknownValue`.
    """
    check_policy(policy)
    with open_batches(source, list(policy.schema), dialect=dialect) as batches:
        refuse_disguised(batches.metadata, batches.file)
        counted = _Counted(iter(batches))
        problems = list(value_problems(batches, counted, policy.fields))
        if problems:
            raise UnknownValue.of(problems)
        left_out = tuple(name for name in batches.file_names if name not in policy.schema)
        return counted.rows, left_out, tuple(batches.notes)


class _Counted(Iterator[pa.RecordBatch]):
    """Batches as they pass, and how many rows they held."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self.rows = batches, 0

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.rows += len(batch)
        return batch


def _empty(policy: Policy, shown: Sequence[str]) -> pa.RecordBatch:
    """Return a batch without rows, kept columns as text."""
    nothing = {name: pa.array([], pa.string()) for name in (*policy.schema, *shown)}
    columns = nothing | disguise_columns(nothing, policy, fresh_draws(Keystream()), text=True)
    return pa.record_batch({name: columns[name] for name in shown})
