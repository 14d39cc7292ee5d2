"""Disguise a file in batches: memory does not grow with it, and the output appears complete or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa

from masquerade.channels.estimability import refuse_unusable
from masquerade.channels.policy import Policy, check_policy, policy_of
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
from masquerade.disguising.memo import Memo, chosen_draws, memo_of
from masquerade.disguising.report_draws import fresh_draws
from masquerade.frames.cores import ahead
from masquerade.frames.dialect import Dialect
from masquerade.frames.file_reader import Batches, open_batches
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.value_check import value_problems

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class Release:
    """What was done: how many records, all columns there were, other policies that the memo had served.

    `memo` is the id of the memo that drew the reports: the same id, policy and person mean the same draw.
    `notes` say how files were read that are not written as most are.
    """

    rows: int
    columns: tuple[str, ...]
    earlier_policies: tuple[str, ...]
    memo: str | None = None
    notes: tuple[str, ...] = ()


def disguise_file(
    source: str | Path | Sequence[str | Path],
    target: str | Path,
    policy: Policy | str | Path,
    *,
    memo: str | Path | None = None,
    id: str | None = None,  # noqa: A002  (the word users know)
    keep: Sequence[str] = (),
    shuffle: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    dialect: Dialect | None = None,
) -> Release:
    """Disguise files into one of the format that `target`'s ending names.

    As `disguise`, batch by batch; `shuffle` mixes the rows within a batch. How a CSV is written is found by
    looking, as far as `dialect` does not say. The policy travels in the file's metadata (or next to it, in
    ``<target>.masquerade.json``). On any error nothing is left behind.

    >>> mq.data.students().to_csv("students.csv", index=False)
    >>> release = mq.disguise_file("students.csv", "reports.parquet", mq.data.students_policy())
    >>> release.rows
    600
    """
    remembered, policy = memo_of(memo, id), policy_of(policy)
    refuse_unusable(policy)
    kept = checked_keep(keep, policy)
    read = [*policy.schema, *kept, *([id] if id else [])]
    with open_batches(source, list(dict.fromkeys(read)), dialect=dialect) as batches:
        refuse_disguised(batches.metadata, batches.file)
        batches.select(batches.names, coded=policy.schema)
        in_order = shown_columns(batches.file_names, policy, kept)
        rows = 0
        disguised = _disguised(batches, policy, in_order, id, remembered, shuffle=shuffle)
        # the first batch tells the types of kept columns; an empty file still has its header
        first = next(disguised, None)
        schema = _empty(policy, in_order).schema if first is None else first.schema
        with AtomicWriter(
            target,
            schema,
            marks(policy, batches.metadata, remembered) | carried(policy),
            overwrite=overwrite,
            inputs=batches.paths,
            unranked=_drawn(policy),
        ) as writer:
            for batch in chain([] if first is None else [first], ahead(disguised)):
                writer.write(batch)
                rows += len(batch)
                if progress is not None:
                    progress(batches.bytes_read, batches.total_bytes)
            if remembered is not None:
                # durable before the output appears: no report is published that could be drawn again
                remembered = remembered.saved(policy.id)
    if remembered is None:
        return Release(rows, batches.file_names, (), notes=tuple(batches.notes))
    earlier = tuple(release for release in remembered.releases if release != policy.id)
    return Release(rows, batches.file_names, earlier, remembered.id, tuple(batches.notes))


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
