"""Read a table of SPSS, Stata or SAS in a separate process (see `statistics_process`).

The request is one line of JSON on standard input. Replies go to standard output, each a header (type and
length) followed by its content. Nothing is written to any file.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import IO, Any

import pyarrow as pa
from pyarrow import ipc

from masquerade.core.util.frame_marks import DISGUISED, DISGUISED_VALUE
from masquerade.frames.cell_text import cell_text

HEAD = struct.Struct("<cQ")
DESCRIPTION, BATCH, DAMAGED, AMBIGUOUS, DONE = b"d", b"b", b"x", b"a", b"."


class _Ambiguous(Exception):
    """Error: two codes of a column would be read as one category."""


def answer(request: Mapping[str, Any]) -> None:
    """Answer one request."""
    out = sys.stdout.buffer
    try:
        library = import_module("pyreadstat")
        if request["columns"] is None:
            _send(out, DESCRIPTION, json.dumps(_describe(library, request)).encode())
        else:
            for batch in _batches(library, request):
                _send(out, BATCH, _pack(batch))
    except _Ambiguous as error:
        _send(out, AMBIGUOUS, json.dumps(str(error)).encode())
    except BrokenPipeError:  # the parent process stopped reading
        return
    except Exception:  # noqa: BLE001  (errors of the library may quote data)
        _send(out, DAMAGED)
    else:
        _send(out, DONE)


def _send(out: IO[bytes], kind: bytes, content: bytes | memoryview = b"") -> None:
    out.write(HEAD.pack(kind, len(content)))
    out.write(content)
    out.flush()


def _pack(batch: pa.RecordBatch) -> memoryview:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue())


def _describe(library: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    read = getattr(library, f"read_{request['reader']}")
    # without it, the ranges of missing values are not reported
    kinds = {"user_missing": True} if request["reader"] == "sav" else {}
    _, about = read(request["file"], metadataonly=True, output_format="dict", **kinds)
    names = list(about.column_names)
    widths = [int(about.variable_storage_width.get(name, 8)) for name in names]
    missing = {name: labels for name in names if (labels := _missing_labels(about, name))}
    return {"names": names, "rows": about.number_rows, "widths": widths, "missing": missing}


def _missing_labels(about: Any, name: str) -> list[str]:
    """Return the labels of values of a column that the file marks as missing, by a range or a letter."""
    ranges = about.missing_ranges.get(name, ())
    return [
        str(label).strip()
        for value, label in _value_labels(about, name).items()
        if str(label).strip() and (_is_letter(value) or any(_within(value, one) for one in ranges))
    ]


def _value_labels(about: Any, name: str) -> dict[Any, str]:
    """Return the labels of a column's values, without the warning in labels of disguised columns."""
    labels: dict[Any, str] = about.variable_value_labels.get(name, {})
    if not str(about.column_names_to_labels.get(name) or "").startswith(DISGUISED):
        return labels
    return {value: str(label).removesuffix(DISGUISED_VALUE) for value, label in labels.items()}


def _is_letter(value: Any) -> bool:
    """Return True for a missing value of Stata or SAS: .a to .z, and ._ of SAS."""
    return isinstance(value, str) and len(value) == 1 and (value.isalpha() or value == "_")


def _within(value: Any, bounds: Mapping[str, Any]) -> bool:
    low, high = bounds["lo"], bounds["hi"]
    return isinstance(value, str) == isinstance(low, str) and low <= value <= high


def _batches(library: Any, request: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    read, columns = getattr(library, f"read_{request['reader']}"), request["columns"]
    catalogue = library.read_sas7bcat(request["catalogue"])[1].value_labels if request["catalogue"] else None
    start, seen = 0, {name: dict[str, Any]() for name in columns}
    while True:
        frame, about = read(request["file"], usecols=columns, row_offset=start, row_limit=request["rows"])
        if not len(frame):
            return
        labels = {name: _value_labels(about, name) for name in columns}
        if catalogue is not None:
            labels = {name: catalogue.get(one) or {} for name, one in about.variable_to_label.items()}
        texts = [_texts(frame[name].tolist(), labels.get(name), seen[name], name) for name in columns]
        if request["missing"] and request["reader"] != "xport":
            # a second pass: with `user_missing`, pyreadstat 1.3 reads "." among integers and letters as 0
            kinds, _ = read(
                request["file"],
                usecols=list(request["missing"]),
                row_offset=start,
                row_limit=request["rows"],
                user_missing=True,
            )
            for name, texts_kept in request["missing"].items():
                place, is_text = columns.index(name), request["reader"] == "sav"
                texts[place] = _with_kinds(
                    texts[place],
                    kinds[name].tolist(),
                    labels.get(name) or {},
                    frozenset(texts_kept),
                    is_text=is_text,
                )
        yield pa.RecordBatch.from_arrays(texts, names=columns)
        start += len(frame)


def _texts(
    values: Sequence[Any], labels: Mapping[Any, str] | None, seen: dict[str, Any], name: str
) -> pa.Array:
    """Return values as text: the label of a value if it has one, otherwise the value.

    Two codes with the same label become one category, since the file does not distinguish them. An empty
    label is ignored. A code without a label is refused if its text equals the label of another code. `seen`
    maps each text to True if it came from a label.
    """
    labels = {value: label for value, label in (labels or {}).items() if str(label).strip()}
    words = set(map(cell_text, labels.values()))
    texts = dict[Any, str | None]()
    for value in set(values):
        has_label = value in labels
        text = texts[value] = cell_text(labels[value] if has_label else value)
        if text is not None and text in words and seen.setdefault(text, has_label) != has_label:
            raise _Ambiguous(name)
    return pa.array([texts[value] for value in values], pa.string())


def _with_kinds(
    texts: pa.Array,
    values: Sequence[Any],
    labels: Mapping[Any, str],
    kept_texts: frozenset[str],
    *,
    is_text: bool,
) -> pa.Array:
    """Return texts in which missing values have their label or code if it is among `kept_texts`.

    `values` are the same cells with the codes of missing values. Unless `is_text`, only letters are codes of
    missing values, written .a to .z.
    """
    if not texts.null_count:
        return texts
    kinds = dict[Any, str | None]()
    result = texts.to_pylist()
    for row, (text, value) in enumerate(zip(result, values, strict=True)):
        is_empty = value is None or value != value  # noqa: PLR0124  (NaN)
        if text is not None or is_empty or not (is_text or _is_letter(value)):
            continue
        if value not in kinds:
            code = f".{value}" if not is_text else cell_text(value)
            names = (cell_text(str(labels.get(value, "")).strip()), code)
            kinds[value] = next((name for name in names if name in kept_texts), None)
        result[row] = kinds[value]
    return pa.array(result, pa.string())
