"""Disguise a file in batches, with constant memory and an atomic write of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from masquerade.channels.policy import Policy, check_policy, policy_of
from masquerade.channels.policy.estimability import refuse_unusable
from masquerade.core.errors import UnknownValue, ValueProblem
from masquerade.core.schema import Field
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.columns import (
    checked_keep,
    disguise_columns,
    disguised_reports,
    marks,
    missing_labels,
    permutation,
    policy_metadata,
    refuse_disguised,
    shown_columns,
)
from masquerade.disguising.earlier_draws import (
    EarlierDraw,
    check_stated_limit,
    draws_before,
    epsilon_of,
    epsilon_together,
)
from masquerade.disguising.memo import Memo, chosen_draws, memo_notes, memo_of
from masquerade.disguising.report_draws import fresh_draws
from masquerade.frames.cores import ahead
from masquerade.frames.dialect import Dialect
from masquerade.frames.file_reader import Batches, open_batches
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.formats import STREAM
from masquerade.frames.label_codes import encode_columns, missing_texts_of

Progress = Callable[[int, int | None], None]
LEFT = (
    "rows may have been written to standard output: they are a draw about these people, and a further run "
    "without a memo is another draw"
)


@dataclass(frozen=True, slots=True)
class ReleaseSummary:
    """Summary of a disguised file: records, columns, the memo, and earlier draws.

    `memo` is the id of the memo that drew the reports: the same id, policy and person mean the same draw.
    `earlier` are other draws, known from the memo and from files in the target's folder.
    `epsilon_together` is the ε of a record over all of them and this draw, if they are about the same people.
    It is inf if there is no bound, and None if one of them is unknown. `notes` are remarks on the memo and on
    how unusual files were read.
    """

    rows: int
    columns: tuple[str, ...]
    memo: str | None = None
    earlier: tuple[EarlierDraw, ...] = ()
    epsilon_together: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def earlier_policies(self) -> tuple[str, ...]:
        """Return the other policies that the memo was used with."""
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
    accept_gamma: float | None = None,
    before_draw: Callable[[ReleaseSummary], object] | None = None,
    before_publish: Callable[[ReleaseSummary], object] | None = None,
) -> ReleaseSummary:
    """Disguise files into one file, in the format given by the extension of `target`.

    Works like `disguise`, in batches. The policy is stored in the file's metadata, or next to it in
    ``<target>.masquerade.json``. On any error no file remains: the file is renamed to its target last, when
    it is durable and the memo is saved. Rows for standard output (``-``) are written immediately, after the
    memo is saved.

    Parameters
    ----------
    source : str, Path or sequence of them
        Clear records.
    target : str or Path
        File to write, or ``-``.
    policy : Policy, str or Path
        Policy, or the path of its file.
    memo : str or Path, optional
        Secret file that makes repeated releases repeat their reports. It must exist unless `new_memo` is
        True.
    id : str, optional
        Column that identifies the person, for `memo`.
    new_memo : bool, default False
        Create the memo, which must not exist yet.
    keep : sequence of str, optional
        Columns to keep in clear.
    shuffle : bool, default False
        Shuffle the rows within a batch.
    overwrite : bool, default False
        Replace the target if it exists.
    progress : callable, optional
        Called with the bytes read and their total, if known, after every batch.
    dialect : Dialect, optional
        Format of a CSV. What it does not state is detected.
    accept_gamma : float, optional
        Largest γ of a record, over this release and earlier ones, that is accepted beyond the policy's limit.
    before_draw : callable, optional
        Called with the release (0 rows) before anything is drawn. If it raises, nothing is released.
    before_publish : callable, optional
        Called with the release just before the file is renamed to its target. If it raises, nothing is
        released.

    Returns
    -------
    ReleaseSummary
        Numbers of rows and columns, the memo, and earlier draws.

    Raises
    ------
    FileError
        If a file cannot be read or written, or the memo does not exist (with `new_memo`: already exists).
    UnknownValue
        If a value is not one of the policy's categories.
    InputError
        If this draw and earlier draws (of the memo, or in the target's folder) together exceed the policy's
        limit.

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
    # all numbers are computed before the first row is written: after that, only writing can fail
    earlier = draws_before(target, policy, remembered)
    epsilon = epsilon_of(policy)
    together = epsilon_together(epsilon, earlier)
    check_stated_limit(policy, earlier, together, accept_gamma)
    read = [*policy.schema, *kept, *([id] if id else [])]
    streams = str(target) == STREAM
    with open_batches(source, list(dict.fromkeys(read)), dialect=dialect) as batches:
        refuse_disguised(batches.metadata, batches.file)
        batches.select(batches.names, coded=policy.schema).tell_missing(missing_texts_of(policy.fields))
        in_order = shown_columns(batches.file_names, policy, kept)
        notes = (*batches.notes, *memo_notes(remembered))
        release = ReleaseSummary(0, batches.file_names, _id_of(remembered), earlier, together, notes)
        if before_draw is not None:
            before_draw(release)
        disguised = _disguise_batches(batches, policy, in_order, id, remembered, shuffle=shuffle)
        # the types of kept columns come from the first batch; an empty file still gets its header
        first = next(disguised, None)
        schema = _empty(policy, in_order).schema if first is None else first.schema
        with AtomicWriter(
            target,
            schema,
            marks(policy, batches.metadata, release.memo) | policy_metadata(policy),
            overwrite=overwrite,
            inputs=batches.paths,
            disguised=disguised_reports(policy),
            missing=missing_labels(policy),
        ) as writer:
            if streams and remembered is not None:
                remembered.save(policy.id, epsilon)
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
                # the memo is durable before the output appears, so no published report can be drawn again
                remembered.save(policy.id, epsilon)
            if before_publish is not None:
                before_publish(release)
    return release


def _id_of(memo: Memo | None) -> str | None:
    return None if memo is None else memo.id


def _disguise_batches(
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
            first = error.shift_rows(batches.rows_before, batches.file)
            others = _find_problems(batches, stream, policy.fields)
            raise UnknownValue.of([*first.problems, *others]) from None
        result = pa.record_batch(
            {name: reports[name] if name in reports else columns[name] for name in shown}
        )
        yield result.take(pa.array(permutation(len(batch)))) if shuffle else result


def _find_problems(
    batches: Batches, stream: Iterator[pa.RecordBatch], fields: Sequence[Field]
) -> Iterator[ValueProblem]:
    """Yield the columns and rows of unknown values in the rest of a stream, never the values."""
    for batch in stream:
        try:
            encode_columns({name: batch[name] for name in batch.schema.names}, fields, text=batches.text)
        except UnknownValue as error:
            yield from error.shift_rows(batches.rows_before, batches.file).problems


class FileCheck(NamedTuple):
    """Summary of clear files as read by a policy: rows, omitted columns, remarks, and missing answers."""

    rows: int
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    missing: dict[str, int]


def check_files(
    source: str | Path | Sequence[str | Path], policy: Policy, *, dialect: Dialect | None = None
) -> FileCheck:
    """Read clear files as `disguise_file` would, without drawing.

    All problems of values are raised as one `UnknownValue`.
    """
    check_policy(policy)
    with open_batches(source, list(policy.schema), dialect=dialect) as batches:
        refuse_disguised(batches.metadata, batches.file)
        problems: list[ValueProblem] = []
        absent = {
            variable.name: [variable.code(label) for label in variable.missing]
            for variable in policy.schema.variables
            if variable.missing
        }
        rows, missing = 0, dict.fromkeys(absent, 0)
        for batch in batches.tell_missing(missing_texts_of(policy.fields)):
            rows += len(batch)
            columns = {name: batch[name] for name in batch.schema.names}
            try:
                codes = encode_columns(columns, policy.fields, text=batches.text)
            except UnknownValue as error:
                problems += error.shift_rows(batches.rows_before, batches.file).problems
                continue
            for name, missing_codes in absent.items():
                missing[name] += int(np.isin(codes[name], missing_codes).sum())
        if problems:
            raise UnknownValue.of(problems)
        left_out = tuple(name for name in batches.file_names if name not in policy.schema)
        return FileCheck(rows, left_out, tuple(batches.notes), missing)


def _empty(policy: Policy, shown: Sequence[str]) -> pa.RecordBatch:
    """Return a batch without rows, kept columns as text."""
    nothing = {name: pa.array([], pa.string()) for name in (*policy.schema, *shown)}
    columns = nothing | disguise_columns(nothing, policy, fresh_draws(Keystream()), text=True)
    return pa.record_batch({name: columns[name] for name in shown})
