"""`mq.tally`: a source of counts from what the caller has."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from masquerade.channels.policy import Policy, check_policy
from masquerade.core.errors import InputError, MasqueradeWarning, PolicyMismatch, UnknownValue
from masquerade.core.missing_data import Missing
from masquerade.core.schema import Category, Field, Schema, category
from masquerade.frames.baskets import Baskets
from masquerade.frames.files import open_batches
from masquerade.frames.label_codes import encode
from masquerade.frames.metadata import INCOMPLETE
from masquerade.frames.native import columns_of, metadata_of
from masquerade.sources.baskets import BasketRecords
from masquerade.sources.engine import Engine
from masquerade.sources.engine_tables import IbisTable, SparkFrame, Watch, table_of
from masquerade.sources.planner import EngineName, table_for
from masquerade.sources.records import Records
from masquerade.sources.row_chunks import Chunk, chunks, is_path

MOST_INFERRED = 1000


@overload
def tally(data: Baskets, policy: Policy | None = None) -> BasketRecords: ...


@overload
def tally(
    data: Any,
    policy: Policy | None = None,
    *,
    schema: Schema | Policy | None = None,
    weights: str | None = None,
    id: str | None = None,
    engine: Literal["memory"],
    accept_incomplete: bool = False,
) -> Records: ...


@overload
def tally(
    data: Any,
    policy: Policy | None = None,
    *,
    schema: Schema | Policy | None = None,
    weights: str | None = None,
    id: str | None = None,
    engine: EngineName = "auto",
    watch: Watch | None = None,
    accept_incomplete: bool = False,
) -> Records | Engine: ...


def tally(
    data: Any,
    policy: Policy | None = None,
    *,
    schema: Schema | Policy | None = None,
    weights: str | None = None,
    id: str | None = None,  # noqa: A002  (the word users know)
    engine: EngineName = "auto",
    watch: Watch | None = None,
    accept_incomplete: bool = False,
) -> Records | Engine | BasketRecords:
    """Return a source that answers counts about records: a frame, files, a table in an engine, or baskets.

    Files are paths or patterns like ``people/*.parquet``; a table is an Ibis table or a Spark data frame.

    With a `policy`, `data` are records disguised by it. Without one they are clear; their categories come
    from `schema` (or the variables of a policy), and only if none is given from the data themselves.
    `weights` names a column of survey weights; `id` names the person, and a person's second record is
    refused, since repeated records would make the standard errors too small.

    `engine` says where files are counted: "memory", "duckdb" (out of core), or "auto", which takes memory
    for what fits easily and logs its choice (logger ``masquerade.sources``). `watch` is called with the
    share of a scan that is done (None if unknown), while an engine scans.

    Data that say that records are missing, not at random, refuse every question with the code
    ``incomplete``, unless you say `accept_incomplete`: answers are then about the records that are there.
    """
    if isinstance(data, Baskets):
        return basket_tally(data, policy, [schema, weights, id])
    extra = [name for name in (weights, id) if name is not None]
    given = table_of(data, watch=watch)
    used, fields, said = how_to_read(data if given is None else given, policy, schema, extra)
    missing = missing_from(said, accepted=accept_incomplete)
    table = table_for(data, given, used, engine=engine, watch=watch)
    if table is not None:
        source = Engine(table, used, fields, weights=weights, released=policy is not None, missing=missing)
        if id is not None:
            source.check_once(id)
        return source
    parts: dict[str, list[Any]] = {name: [] for name in (*used.schema, *extra)}
    for chunk in chunks(data, list(parts)):
        try:
            for field in fields:
                name = field.variable.name
                # labels of several types are released as text, whatever the file
                text = chunk.text or (policy is not None and field.variable.mixed)
                parts[name].append(encode(chunk.columns[name], field, text=text))
            if weights is not None:
                parts[weights].append(numbers(chunk, weights))
            if id is not None:
                parts[id].append(chunk.columns[id])
        except UnknownValue as error:
            raise error.shifted(chunk.before, chunk.file) from None
    if id is not None:
        check_once(parts[id], id)
    codes = {name: joined(parts[name], np.dtype(np.uint8)) for name in used.schema}
    weighing = None if weights is None else joined(parts[weights], np.dtype(np.float64))
    return Records(codes, used, weighing, missing=missing)


def basket_tally(baskets: Baskets, policy: Policy | None, others: Sequence[object]) -> BasketRecords:
    """Return baskets as a source; they have no columns beside their items."""
    if any(other is not None for other in others):
        raise InputError("Baskets are read by their items: 'schema', 'weights' and 'id' do not apply.")
    if policy is not None:
        check_policy(policy)
        if baskets.policy_id not in {None, policy.id}:
            raise PolicyMismatch("The baskets were disguised under another policy: estimates would be wrong.")
    elif baskets.policy_id is not None:
        raise PolicyMismatch("The baskets are disguised: give their 'policy'.")
    return BasketRecords(baskets, policy)


def how_to_read(
    data: Any, policy: Policy | None, schema: Schema | Policy | None, leave_out: Sequence[str]
) -> tuple[Policy, Sequence[Field], Mapping[str, str]]:
    """Return the policy of the records (for clear ones: none disguised), the fields, and what data say."""
    if policy is not None:
        check_policy(policy)
        if schema is not None:
            raise InputError("Give 'policy' for disguised records or 'schema' for clear ones, not both.")
        said = check_origin(data, policy)
        return policy, [Field(variable) for variable in policy.observed.variables], said
    said = check_origin(data, None)
    known = inferred_schema(data, leave_out) if schema is None else schema
    used = known.undisguised() if isinstance(known, Policy) else Policy.clear(known)
    return used, used.fields, said


def said_by(data: Any) -> Mapping[str, str]:
    """Return the texts that travel with data: in a file, beside it, or on a frame."""
    if isinstance(data, (SparkFrame, IbisTable)):
        return {}  # tables of engines carry no such words
    if not is_path(data):
        return metadata_of(columns_of(data).frame)
    if data == "-" or (isinstance(data, (list, tuple)) and "-" in data):
        return {}  # can be read once only
    with open_batches(data, []) as batches:
        return batches.metadata


def missing_from(said: Mapping[str, str], *, accepted: bool) -> Missing | None:
    """Return what data say is missing, None if they do not."""
    return Missing(said[INCOMPLETE], accepted) if INCOMPLETE in said else None


def warn_missing(missing: Missing | None) -> None:
    """Warn of records that are missing, where there is nobody to be asked whether that is accepted."""
    if missing is not None:
        warnings.warn(f"The records are incomplete: {missing.what}.", MasqueradeWarning, stacklevel=3)


def check_origin(data: Any, policy: Policy | None) -> Mapping[str, str]:
    """Return what data say of themselves.

    Those that were disguised under another policy, or at all where clear ones are due, are refused.
    """
    said = said_by(data)
    origin = said.get("policy")
    if origin is None or (policy is not None and origin == policy.id):
        return said
    if policy is None:
        raise PolicyMismatch(f"The records were disguised under policy {origin[:12]}…: give it as 'policy'.")
    raise PolicyMismatch(
        f"The records were disguised under policy {origin[:12]}…, this one is {policy.id[:12]}…: "
        "estimates would be wrong."
    )


def inferred_schema(data: Any, leave_out: Sequence[str]) -> Schema:
    """Return the categories that occur in clear data, in order."""
    if isinstance(data, (SparkFrame, IbisTable)) or (is_path(data) and data == "-"):
        where = "standard input" if is_path(data) else data.title
        raise InputError(f"Clear records from {where} need a 'schema' that lists their categories.")
    found: dict[str, dict[Category, None]] = {}
    for chunk in chunks(data, None):
        for name in chunk.columns:
            if name in leave_out:
                continue
            values = pc.unique(chunk.columns[name])
            labels = found.setdefault(name, {})
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            for value in values.to_pylist():
                if value is None or value != value:  # noqa: PLR0124  (NaN)
                    raise InputError(
                        f"Column {name!r} has missing values: give a policy as 'schema' that says what "
                        "they stand for."
                    )
                labels[category(value)] = None
            if len(labels) > MOST_INFERRED:
                raise InputError(
                    f"Column {name!r} has more than {MOST_INFERRED:,} different values: give a 'schema', "
                    "or leave the column out."
                )
    if not found:
        raise InputError("The data have no columns.")
    return Schema({name: sorted(labels, key=lambda v: (str(type(v)), v)) for name, labels in found.items()})


def numbers(chunk: Chunk, name: str) -> NDArray[np.float64]:
    """Return a numeric column."""
    try:
        column = pc.cast(chunk.columns[name], pa.float64())
    except pa.ArrowInvalid:
        raise InputError(f"Column {name!r} holds survey weights and must be numbers.") from None
    if column.null_count:
        raise UnknownValue(name, pc.index(pc.is_null(column), value=True).as_py() + 1, "is missing")
    return np.asarray(column.to_numpy(), dtype=np.float64)


def check_once(parts: Sequence[Any], name: str) -> None:
    """Refuse two records of one person."""
    arrays = [
        chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])
    ]
    everyone = pa.chunked_array(arrays) if arrays else pa.chunked_array([pa.array([], pa.string())])
    repeated = len(everyone) - pc.count_distinct(everyone, mode="all").as_py()
    if repeated:
        raise InputError(
            f"{repeated:,} records repeat a person of column {name!r}. Count one record per person: "
            "repeated records share their draws, so standard errors would be too small."
        )


def joined(parts: Sequence[NDArray[Any]], empty: np.dtype[Any]) -> NDArray[Any]:
    """Return the parts as one array."""
    if not parts:
        return np.zeros(0, dtype=empty)
    return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts))
