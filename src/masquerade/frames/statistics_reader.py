"""Read a table of SPSS, Stata or SAS, in a process of its own (see `statistics_process`).

The request is a line of JSON on standard input; replies go to standard output, each a head of a kind and a
length, then its content. Nothing is ever written elsewhere.
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

from masquerade.frames.cell_text import cell_text

HEAD = struct.Struct("<cQ")
DESCRIPTION, BATCH, DAMAGED, AMBIGUOUS, DONE = b"d", b"b", b"x", b"a", b"."


class _Ambiguous(Exception):
    """Two codes of a column are read as one category."""


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
    except BrokenPipeError:  # nobody reads on
        return
    except Exception:  # noqa: BLE001  (a library's own, which may quote data)
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
    _, about = read(request["file"], metadataonly=True, output_format="dict")
    names = list(about.column_names)
    widths = [int(about.variable_storage_width.get(name, 8)) for name in names]
    return {"names": names, "rows": about.number_rows, "widths": widths}


def _batches(library: Any, request: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    read, columns = getattr(library, f"read_{request['reader']}"), request["columns"]
    catalogue = library.read_sas7bcat(request["catalogue"])[1].value_labels if request["catalogue"] else None
    start, seen = 0, {name: dict[str, Any]() for name in columns}
    while True:
        frame, about = read(request["file"], usecols=columns, row_offset=start, row_limit=request["rows"])
        if not len(frame):
            return
        labels = about.variable_value_labels
        if catalogue is not None:
            labels = {name: catalogue.get(one) or {} for name, one in about.variable_to_label.items()}
        texts = [_texts(frame[name].tolist(), labels.get(name), seen[name], name) for name in columns]
        yield pa.RecordBatch.from_arrays(texts, names=columns)
        start += len(frame)


def _texts(
    values: Sequence[Any], labels: Mapping[Any, str] | None, seen: dict[str, Any], name: str
) -> pa.Array:
    """Return values as text, those with a label as their label.

    Two codes with the same label are one category by the file's own words. A code without a label that reads
    like the label of another one is refused. `seen` tells of every label whether a label gave it.
    """
    words = set(map(cell_text, (labels or {}).values()))
    texts = dict[Any, str | None]()
    for value in set(values):
        has_label = labels is not None and value in labels
        text = texts[value] = cell_text(labels[value] if labels is not None and has_label else value)
        if text is not None and text in words and seen.setdefault(text, has_label) != has_label:
            raise _Ambiguous(name)
    return pa.array([texts[value] for value in values], pa.string())
