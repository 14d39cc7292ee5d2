"""Disguise a file in batches: memory does not grow with it, and the output appears complete or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa

from masquerade.channels.policy import Policy, check_policy
from masquerade.core.errors import UnknownValue
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.columns import (
    checked_keep,
    disguise_columns,
    marks,
    permutation,
    refuse_disguised,
    shown_columns,
)
from masquerade.disguising.memo import Memo, chosen_draws, memo_of
from masquerade.disguising.report_draws import fresh_draws
from masquerade.frames.file_reader import Batches, open_batches
from masquerade.frames.file_writer import AtomicWriter

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class Release:
    """What was done: how many records, all columns there were, other policies that the memo had served.

    `memo` is the id of the memo that drew the reports: the same id, policy and person mean the same draw.
    """

    rows: int
    columns: tuple[str, ...]
    earlier_policies: tuple[str, ...]
    memo: str | None = None


def disguise_file(
    source: str | Path | Sequence[str | Path],
    target: str | Path,
    policy: Policy,
    *,
    memo: str | Path | None = None,
    id: str | None = None,  # noqa: A002  (the word users know)
    keep: Sequence[str] = (),
    shuffle: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Release:
    """Disguise CSV, Parquet or Arrow into a file of the format that `target`'s ending names.

    As `disguise`, batch by batch; `shuffle` mixes the rows within a batch. The policy's id travels in the
    file's metadata (for CSV in ``<target>.masquerade.json``). On any error nothing is left behind.
    """
    remembered = memo_of(memo, id)
    check_policy(policy)
    kept = checked_keep(keep, policy)
    read = [*policy.schema, *kept, *([id] if id else [])]
    with open_batches(source, list(dict.fromkeys(read))) as batches:
        refuse_disguised(batches.metadata, batches.file)
        in_order = shown_columns(batches.file_names, policy, kept)
        rows = 0
        disguised = _disguised(batches, policy, in_order, id, remembered, shuffle=shuffle)
        # the first batch tells the types of kept columns; an empty file still has its header
        first = next(disguised, None)
        schema = _empty(policy, in_order).schema if first is None else first.schema
        with AtomicWriter(
            target,
            schema,
            marks(policy, batches.metadata, remembered),
            overwrite=overwrite,
            inputs=batches.paths,
        ) as writer:
            for batch in chain([] if first is None else [first], disguised):
                writer.write(batch)
                rows += len(batch)
                if progress is not None:
                    progress(batches.bytes_read, batches.total_bytes)
            if remembered is not None:
                # durable before the output appears: no report is published that could be drawn again
                remembered = remembered.saved(policy.id)
    if remembered is None:
        return Release(rows, batches.file_names, ())
    earlier = tuple(release for release in remembered.releases if release != policy.id)
    return Release(rows, batches.file_names, earlier, remembered.id)


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
    fresh = fresh_draws(Keystream())
    for batch in batches:
        columns = {name: batch[name] for name in batch.schema.names}
        try:
            draws = chosen_draws(memo, person, policy, columns, fresh)
            reports = disguise_columns(columns, policy, draws, text=batches.text)
        except UnknownValue as error:
            raise error.shifted(batches.rows_before, batches.file) from None
        result = pa.record_batch(
            {name: reports[name] if name in reports else columns[name] for name in shown}
        )
        yield result.take(pa.array(permutation(len(batch)))) if shuffle else result


def _empty(policy: Policy, shown: Sequence[str]) -> pa.RecordBatch:
    """Return a batch without rows, kept columns as text."""
    nothing = {name: pa.array([], pa.string()) for name in (*policy.schema, *shown)}
    columns = nothing | disguise_columns(nothing, policy, fresh_draws(Keystream()), text=True)
    return pa.record_batch({name: columns[name] for name in shown})
