"""Disguise a Spark frame on its executors, each of which draws the reports of its own rows.

Spark evaluates a frame again whenever it is used, and also when an executor is lost. A second draw for the
same value would reveal more than the policy allows. So fresh reports are written to the checkpoint folder
before they are used. A partition in that folder is never replaced, and reading a lost partition fails.
Reports drawn from a memo follow from its key, so they are the same every time and stay lazy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError, MasqueradeError, SchemaError, UnknownValue, did_you_mean
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
from masquerade.frames.label_codes import decode, encode
from masquerade.frames.native import columns_of, rebuild

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

MARK = "masquerade"  # metadata key of a disguised column
ORDER = "masquerade_random_order"
Batches = Iterable[pa.RecordBatch]
Step = Callable[["SparkWork", Batches], Iterator[pa.RecordBatch]]


def disguise_spark(
    frame: DataFrame,
    policy: Policy,
    *,
    memo: str | Path | None,
    person: str | None,
    new_memo: bool,
    keep: Sequence[str],
    shuffle: bool,
    accepted: float | None = None,
) -> DataFrame:
    """Return a Spark frame with every variable of the policy disguised, as in `disguise`.

    The frame is read twice, first to check its values and then to draw. Without a memo, the reports are drawn
    immediately and written to Spark's checkpoint folder, which must be set. With a memo they are drawn on
    demand, and the memo's secret is sent to the executors, which see the clear values anyway. `shuffle` also
    needs the checkpoint folder. masquerade must be installed on the executors.
    """
    remembered = memo_of(memo, person, new=new_memo)
    epsilon = check_memo(policy, remembered, accepted)
    drawn_by = None if remembered is None else remembered.id
    _check_kind(frame)
    kept = checked_keep(keep, policy)
    _check_names(frame.columns, [*policy.schema, *kept, *([] if person is None else [person])])
    for field in frame.schema.fields:
        if field.name in policy.schema:
            refuse_disguised(field.metadata.get(MARK, {}), f"column {field.name!r} of the frame")
    lazy = remembered is not None and not shuffle
    if not lazy:
        _check_folder(frame)
    shown = shown_columns(frame.columns, policy, kept)
    schema, arrow = _result(frame, policy, shown, drawn_by, shuffle=shuffle)
    read = tuple(name for name in frame.columns if name in {*policy.schema, *kept, person})
    work = SparkWork(policy, read, shown, person, remembered, arrow)
    # by number, because PySpark parses a dot or a backtick in a name as syntax
    quoted = ["`" + name.replace("`", "``") + "`" for name in read]
    needed = frame.select(*quoted).toDF(*map(str, range(len(read))))
    _refuse_unknown(needed, work)
    if remembered is not None:
        # saved before the first report exists, so that no report can be drawn with a different memo
        remembered.save(policy.id, epsilon)
    reports = _through(needed, work.draw, schema)
    if lazy:
        return reports
    definite = _checkpoint_reports(reports)
    # sorted by random keys, which the checkpoint has fixed
    return definite.repartition(ORDER).sortWithinPartitions(ORDER).drop(ORDER) if shuffle else definite


def _on_executors(step: Step) -> Step:
    """Decorate a step for executors: restore column names, and keep data out of errors, which Spark logs."""

    @wraps(step)
    def guarded(work: SparkWork, batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            yield from step(work, (batch.rename_columns(work.read) for batch in batches))
        except MasqueradeError as error:
            raise error from None
        except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError) as error:
            problem = type(error).__name__
        else:
            return
        raise RuntimeError(f"Disguising a partition failed with {problem}.")

    return guarded


@dataclass(frozen=True, slots=True)
class SparkWork:
    """The work of the executors, sent to them pickled. It has no keystream: each task keys its own."""

    policy: Policy
    read: tuple[str, ...]
    shown: tuple[str, ...]
    person: str | None
    memo: Memo | None
    schema: pa.Schema

    @_on_executors
    def check(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the first problem of a partition: its column and description, never the value."""
        for batch in batches:
            try:
                for field in self.policy.fields:
                    encode(batch.column(field.variable.name), field)
                if self.person is not None:
                    form = NORMAL if self.memo is None else self.memo.form
                    person_tags(batch.column(self.person), self.person, bytes(32), form)
            except UnknownValue as error:
                yield pa.record_batch({"column": [error.column], "problem": [error.problem]})
                return

    @_on_executors
    def draw(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield disguised batches."""
        fresh = fresh_draws(Keystream())
        for batch in batches:
            columns = columns_of(batch)
            draws = chosen_draws(self.memo, self.person, self.policy, columns, fresh)
            reports = disguise_columns(columns, self.policy, draws, text=False)
            result = rebuild(columns, {name: reports.get(name) for name in self.shown})
            if ORDER in self.schema.names:
                keys = Keystream()(8 * len(batch)).view(np.int64)
                result = result.append_column(ORDER, pa.array(keys))
            yield result.cast(self.schema)


def _through(
    frame: DataFrame,
    function: Callable[[Batches], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Apply a function to a frame in Arrow batches, without pandas and its warnings."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return frame.mapInArrow(function, schema)


def _check_kind(frame: Any) -> None:
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise InputError("A Spark Connect frame cannot be disguised; use a classic Spark session.")
    if frame.isStreaming:
        raise InputError("A stream cannot be disguised: it has no end, and its parts may be evaluated twice.")


def _check_names(names: Sequence[str], needed: Sequence[str]) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(f"The frame has two columns called {twice[0]!r}.")
    for name in needed:
        if name not in names:
            raise SchemaError(f"There is no column {name!r} in the frame.{did_you_mean(name, names)}")


def _check_folder(frame: DataFrame) -> None:
    context = frame.sparkSession.sparkContext
    if context.getCheckpointDir() is None:
        raise InputError(
            "Spark has no checkpoint folder, so using the result twice would draw twice. Set one that all "
            "executors reach, spark.sparkContext.setCheckpointDir(…), or give a memo and an id."
        )


def _checkpoint_reports(reports: DataFrame) -> DataFrame:
    """Return the reports from the checkpoint folder: they are drawn now, and never again."""
    try:
        return reports.checkpoint(eager=True)
    except Exception as error:
        folder = reports.sparkSession.sparkContext.getCheckpointDir()
        error.add_note(
            f"Some reports may be in {folder}: delete them, because disguising again draws new reports."
        )
        raise


def _refuse_unknown(frame: DataFrame, work: SparkWork) -> None:
    """Raise UnknownValue for values that the policy does not list, before anything is drawn."""
    found = _through(frame, work.check, "column string, problem string").collect()
    if found:
        column, problem = min((row["column"], row["problem"]) for row in found)
        raise UnknownValue(column, None, problem)


def _result(
    frame: DataFrame, policy: Policy, shown: Sequence[str], memo: str | None, *, shuffle: bool
) -> tuple[StructType, pa.Schema]:
    """Return the columns of the result with their Spark and Arrow types."""
    from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType  # noqa: PLC0415

    said = {key: text for field in frame.schema for key, text in field.metadata.get(MARK, {}).items()}
    natural = {pa.string(): StringType(), pa.int64(): LongType(), pa.bool_(): BooleanType()}
    clear: pa.Table = frame.limit(0).toArrow()
    spark_fields: list[StructField] = []
    arrow_fields: list[pa.Field] = []
    for name in shown:
        if name not in frame.columns or (name in policy.observed and name not in policy.schema):
            kind = decode(np.arange(1), policy.observed[name].categories).type
            marked = {MARK: marks(policy, said, memo)}
            field = StructField(name, natural[kind], nullable=False, metadata=marked)
            spark_fields.append(field)
            arrow_fields.append(pa.field(name, kind))
            continue
        field, kind = frame.schema[name], clear.schema.field(name).type
        if name in policy.schema:
            kept = _report_type(clear, name, policy)
            marked = {**field.metadata, MARK: marks(policy, said, memo)}
            spark_type = field.dataType if kept == kind else natural[kept]
            field, kind = StructField(name, spark_type, field.nullable, marked), kept
        spark_fields.append(field)
        arrow_fields.append(pa.field(name, kind))
    if shuffle:
        spark_fields.append(StructField(ORDER, LongType(), nullable=False))
        arrow_fields.append(pa.field(ORDER, pa.int64()))
    return StructType(spark_fields), pa.schema(arrow_fields)


def _report_type(clear: pa.Table, name: str, policy: Policy) -> pa.DataType:
    """Return the type of a column's reports: the original type if it can represent every label."""
    labels = policy.observed[name].categories
    every = decode(np.arange(len(labels)), labels)
    kind = rebuild(clear, {name: every}).schema.field(name).type
    return kind if kind == clear.schema.field(name).type else every.type
