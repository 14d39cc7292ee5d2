"""Results for the collector's operator: open rows, counts of closed rows, and a list of invalid reports."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted
from masquerade.crypto.errors import DecodingError
from masquerade.frames.file_writer import AtomicWriter
from masquerade.frames.label_codes import decode
from masquerade.frames.metadata import INCOMPLETE
from masquerade.protocols.k_anonymity.threshold.class_opening import Opening, Verdict
from masquerade.protocols.k_anonymity.threshold.messages import ThresholdTerms
from masquerade.protocols.k_anonymity.threshold.row_schema import Form
from masquerade.sources.people.opened import OpenedRows

MOST_NAMED: Final = 1000  # invalid reports that are listed
MOST_SHOWN: Final = 20
_FIELDS: Final = {
    "quasi": "u1",
    "quasi_length": "<i8",
    "sensitive": "u1",
    "sensitive_length": "<i8",
    "class_of": "<i8",
    "verdicts": "u1",
}


def summary_of(opening: Opening, evaluations: int) -> dict[str, Any]:
    """Summarise an opening: counts of reports by result, and the positions of invalid reports."""
    faults = opening.faults()
    return {
        "epoch": opening.terms.epoch,
        "k": opening.terms.k,
        "evaluations": evaluations,
        "received": opening.received,
        "opened": opening.opened,
        "classes": len(opening.quasi),
        "not_opened": {
            verdict.reason: opening.count(verdict)
            for verdict in Verdict
            if verdict is not Verdict.OPENED and opening.count(verdict)
        },
        "small_classes": {str(size): number for size, number in opening.small.items()},
        "bad_reports": len(faults),
        "bad": [
            {"report": fault.report + 1, "reason": fault.verdict.reason} for fault in faults[:MOST_NAMED]
        ],
        "more_reports_than_evaluations": max(0, opening.received - evaluations),
        "contested_classes": opening.contested_classes,
    }


def pack_opening(opening: Opening) -> dict[str, Any]:
    """Encode an opening as JSON values."""
    arrays = {
        name: base64.b64encode(np.ascontiguousarray(getattr(opening, name), dtype=kind).tobytes()).decode()
        for name, kind in _FIELDS.items()
    }
    small = {str(size): number for size, number in opening.small.items()}
    return {"terms": opening.terms.encode().hex(), "small": small, **arrays}


def unpack_opening(values: Mapping[str, Any]) -> Opening:
    """Decode an opening from JSON values."""
    try:
        terms = ThresholdTerms.decode(bytes.fromhex(values["terms"]))
        arrays = {
            name: np.frombuffer(base64.b64decode(values[name], validate=True), kind)
            for name, kind in _FIELDS.items()
        }
        small = {int(size): int(number) for size, number in values["small"].items()}
        arrays["quasi"] = arrays["quasi"].reshape(-1, terms.quasi_size)
        arrays["sensitive"] = arrays["sensitive"].reshape(-1, terms.sensitive_size)
    except DecodingError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError):
        raise DecodingError("The collector's result is not valid.") from None
    classes, places = arrays["class_of"], range(len(arrays["quasi"]))
    outside = len(classes) and (classes.min() not in places or classes.max() not in places)
    if len(classes) != len(arrays["sensitive"]) or outside:
        raise DecodingError("An opening must have a class for every row.")
    return Opening(terms, **arrays, small=small)


def opened_rows(result: Mapping[str, Any], form: Form, *, accept_incomplete: bool = False) -> OpenedRows:
    """Return the collector's result as a `Tally`, which reports that rows are missing not at random."""
    if "opening" not in result:
        raise InputError("The collector returned no rows: the classes have not been opened yet.")
    return OpenedRows(unpack_opening(result["opening"]), form, accept_incomplete=accept_incomplete)


def write_rows(rows: OpenedRows, path: str | Path, *, overwrite: bool = False) -> None:
    """Write the open rows as CSV, Parquet or Arrow; the metadata state that rows are missing."""
    columns = {name: decode(rows.codes[name], rows.schema[name].categories) for name in rows.schema}
    table = pa.table(columns)
    terms = rows.opening.terms
    metadata = {INCOMPLETE: rows.incompleteness, "epoch": terms.epoch, "k": str(terms.k)}
    with AtomicWriter(path, table.schema, metadata, overwrite=overwrite) as target:
        for batch in table.to_batches():
            target.write(batch)


def describe_result(result: Mapping[str, Any], out: str) -> list[str]:
    """Describe a result in sentences."""
    closed = result["received"] - result["opened"]
    rows, classes = counted(result["opened"], "row"), counted(result["classes"], "class", "classes")
    lines = [
        f"epoch {result['epoch']!r}: {rows} of {classes}: {out}.",
        f"{closed:,} of {counted(result['received'], 'report')} did not open{':' if closed else '.'}",
        *[f"{number:,}: {reason}." for reason, number in result["not_opened"].items()],
        *[f"report {item['report']:,}: {item['reason']}." for item in result["bad"][:MOST_SHOWN]],
    ]
    if result["more_reports_than_evaluations"]:
        lines.append(
            f"there are {result['more_reports_than_evaluations']:,} more reports than evaluations: a person "
            "sent forged or repeated reports."
        )
    if result["contested_classes"]:
        lines.append(
            f"{result['contested_classes']:,} open classes share their quasi-identifier with another class: "
            "of each such group, all but one are forged."
        )
    if closed and result.get("coarser"):
        level = result["level"] + 1
        lines.append(
            f"the form has a coarser level for them: set 'level: {level}' of the epoch in the settings of "
            "both servers, restart them, and let people submit again."
        )
    if closed:
        lines.append("rows are missing, and not at random: mostly those with rare quasi-identifiers.")
    return lines
