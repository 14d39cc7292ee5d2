"""Disguise a Spark frame where its rows are: every executor draws for its own, by the code of other frames.

Spark evaluates a frame again whenever it is used, and again where an executor was lost; a second draw for
the same value would tell more than the policy allows. So reports drawn afresh are written to the checkpoint
folder before they are handed out, where a part that was written once is never replaced, and reading a lost
part fails. Reports drawn from a memo follow from its key, come out the same every time, and stay lazy.
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
from masquerade.disguising.earlier_draws import epsilon_of
from masquerade.disguising.memo import Memo, chosen_draws, memo_of
from masquerade.disguising.person_ids import NORMAL, person_tags
from masquerade.disguising.report_draws import fresh_draws
from masquerade.frames.label_codes import decode, encode
from masquerade.frames.native import columns_of, rebuild

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

MARK = "masquerade"  # the key of what a disguised column says about itself
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
) -> DataFrame:
    """Return a Spark frame with every variable of the policy disguised, as `disguise` says.

    The frame is read twice, first to check its values, then to draw. Without a memo the reports are drawn
    now and written to Spark's checkpoint folder, which must be set; with one they are drawn when asked
    for, and the memo's secret goes to the executors, which see the clear values anyway. `shuffle` also
    needs the folder. Executors need masquerade installed.
    """
    remembered = memo_of(memo, person, new=new_memo)
    epsilon, drawn_by = epsilon_of(policy), None if remembered is None else remembered.id
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
    # by number, since PySpark takes a dot or a backtick in a name for syntax
    quoted = ["`" + name.replace("`", "``") + "`" for name in read]
    needed = frame.select(*quoted).toDF(*map(str, range(len(read))))
    _refuse_unknown(needed, work)
    if remembered is not None:
        # before the first report exists: none can ever be drawn otherwise
        remembered.saved(policy.id, epsilon)
    reports = _through(needed, work.draw, schema)
    if lazy:
        return reports
    definite = _written(reports)
    # by random keys, which are definite by now
    return definite.repartition(ORDER).sortWithinPartitions(ORDER).drop(ORDER) if shuffle else definite


def _on_executors(step: Step) -> Step:
    """Return a step for executors: columns have their names, and errors, which Spark logs, quote no data."""

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
    """What the executors do, sent to them whole: no keystream is among it, each task keys its own."""

    policy: Policy
    read: tuple[str, ...]
    shown: tuple[str, ...]
    person: str | None
    memo: Memo | None
    schema: pa.Schema

    @_on_executors
    def check(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the first thing that is wrong with a partition: which column, and what, never the value."""
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
    """Send a frame through a function in Arrow batches; no pandas is used, so no warning about it either."""
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


def _written(reports: DataFrame) -> DataFrame:
    """Return the reports as they now lie in the checkpoint folder, drawn and never to be drawn again."""
    try:
        return reports.checkpoint(eager=True)
    except Exception as error:
        folder = reports.sparkSession.sparkContext.getCheckpointDir()
        error.add_note(f"Some reports may be in {folder}: delete them, for another disguise draws anew.")
        raise


def _refuse_unknown(frame: DataFrame, work: SparkWork) -> None:
    """Refuse values that the policy does not list, before anything is drawn."""
    found = _through(frame, work.check, "column string, problem string").collect()
    if found:
        column, problem = min((row["column"], row["problem"]) for row in found)
        raise UnknownValue(column, None, problem)


def _result(
    frame: DataFrame, policy: Policy, shown: Sequence[str], memo: str | None, *, shuffle: bool
) -> tuple[StructType, pa.Schema]:
    """Return the columns of the result, as Spark and as Arrow name their types."""
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
    """Return the type of a column's reports: the one it had, if that holds every label it may get."""
    labels = policy.observed[name].categories
    every = decode(np.arange(len(labels)), labels)
    kind = rebuild(clear, {name: every}).schema.field(name).type
    return kind if kind == clear.schema.field(name).type else every.type
