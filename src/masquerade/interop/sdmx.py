"""SDMX: tables of estimated counts for statistical offices, with standard errors.

`to_sdmx_csv` writes SDMX-CSV 2.0 with one row per cell: the dimensions, the count, and the attributes
``OBS_STATUS`` (E, estimated; A, exact, if nothing was disguised), ``CONF_STATUS`` (F: free for publication,
since the reports are disguised), ``SE``, the interval, and ``UNIT_MEASURE``. `to_sdmx_structure` returns the
table's data structure definition as SDMX-JSON 2.0. Codes of SDMX consist of letters, digits, ``_``, ``-``,
``@`` and ``$``; other categories get a code whose name is their text.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from masquerade import __version__
from masquerade.core.errors import InputError
from masquerade.core.schema import Variable
from masquerade.core.table import CountTable
from masquerade.core.util.formatting import category_text

AGENCY, VERSION = "MASQUERADE", "1.0"
MEASURE: Final = "OBS_VALUE"
ATTRIBUTES: Final = ("OBS_STATUS", "CONF_STATUS", "SE", "LOWER", "UPPER", "UNIT_MEASURE", "POLICY")
MOST_CELLS: Final = 1 << 20
_CODE = re.compile(r"[A-Za-z0-9_@$-]+")
_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def to_sdmx_csv(table: CountTable, *, policy_id: str = "", level: float = 0.95) -> str:
    """Return a table as SDMX-CSV 2.0, with standard errors and intervals to full precision.

    Parameters
    ----------
    table : CountTable
        The table.
    policy_id : str, optional
        sha256 of the policy, written to every row.
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    str
        CSV text.

    Raises
    ------
    InputError
        If the table has more than 2²⁰ cells.

    Examples
    --------
    >>> [table] = mq.tally(mq.data.students()).answer([mq.Query(by="pills")])
    >>> mq.interop.to_sdmx_csv(table).splitlines()[0]
    'STRUCTURE,STRUCTURE_ID,ACTION,PILLS,OBS_VALUE,OBS_STATUS,CONF_STATUS,SE,LOWER,UPPER,UNIT_MEASURE,POLICY'
    """
    _check_size(table)
    lower, upper = table.conf_int(level)
    errors = table.stderr()
    exact = not np.any(table.covariance.diagonal("given_records"))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    dimensions = dimension_ids(table.axes)
    writer.writerow(["STRUCTURE", "STRUCTURE_ID", "ACTION", *dimensions, MEASURE, *ATTRIBUTES])
    head = ["dataflow", f"{AGENCY}:{dataflow_name(table)}({VERSION})", "I"]
    cells = product(*(category_codes(axis) for axis in table.axes))
    columns = (table.values.ravel(), errors.ravel(), lower.ravel(), upper.ravel())
    for cell, value, error, low, high in zip(cells, *columns, strict=True):
        numbers = [_number(error), _number(low), _number(high)]
        writer.writerow(
            [*head, *cell, _number(value), "A" if exact else "E", "F", *numbers, "PERSONS", policy_id]
        )
    return buffer.getvalue()


def to_sdmx_structure(table: CountTable) -> dict[str, Any]:
    """Return the structure of a table's SDMX-CSV as SDMX-JSON 2.0.

    Parameters
    ----------
    table : CountTable
        The table.

    Returns
    -------
    dict
        Code lists, concepts, data structure and dataflow.

    Raises
    ------
    InputError
        If the table has more than 2²⁰ cells.

    Examples
    --------
    >>> [table] = mq.tally(mq.data.students()).answer([mq.Query(by="pills")])
    >>> sorted(mq.interop.to_sdmx_structure(table)["data"])
    ['codelists', 'conceptSchemes', 'dataStructures', 'dataflows']
    """
    _check_size(table)
    flow = dataflow_name(table)
    ids = dimension_ids(table.axes)
    lists = [
        {
            "id": f"CL_{name}",
            "agencyID": AGENCY,
            "version": VERSION,
            "name": axis.name,
            "codes": [
                {"id": code, "name": category_text(label)}
                for code, label in zip(category_codes(axis), axis.categories, strict=True)
            ],
        }
        for name, axis in zip(ids, table.axes, strict=True)
    ]
    base = "urn:sdmx:org.sdmx.infomodel"
    dimensions = [
        {
            "id": name,
            "position": place,
            "conceptIdentity": f"{base}.conceptscheme.Concept={AGENCY}:CS_{flow}({VERSION}).{name}",
            "localRepresentation": {"enumeration": f"{base}.codelist.Codelist={AGENCY}:CL_{name}({VERSION})"},
        }
        for place, name in enumerate(ids, start=1)
    ]
    concepts = [(name, axis.name) for name, axis in zip(ids, table.axes, strict=True)]
    concepts += [(name, name.lower().replace("_", " ")) for name in (MEASURE, *ATTRIBUTES)]

    def component(name: str) -> dict[str, Any]:
        concept = f"{base}.conceptscheme.Concept={AGENCY}:CS_{flow}({VERSION}).{name}"
        return {"id": name, "conceptIdentity": concept}

    structure = {
        "id": f"DSD_{flow}",
        "agencyID": AGENCY,
        "version": VERSION,
        "name": f"Counts by {', '.join(table.names) or 'nothing'}",
        "dataStructureComponents": {
            "dimensionList": {"id": "DimensionDescriptor", "dimensions": dimensions},
            "measureList": {"id": "MeasureDescriptor", "measures": [component(MEASURE)]},
            "attributeList": {
                "id": "AttributeDescriptor",
                "attributes": [
                    component(name) | {"usage": "optional", "attributeRelationship": {"observation": {}}}
                    for name in ATTRIBUTES
                ],
            },
        },
    }
    return {
        "meta": {
            "schema": "https://json.sdmx.org/2.0.0/sdmx-json-structure-schema.json",
            "id": flow,
            "prepared": "1970-01-01T00:00:00Z",
            "sender": {"id": AGENCY, "name": f"masquerade {__version__}"},
        },
        "data": {
            "codelists": lists,
            "conceptSchemes": [
                {
                    "id": f"CS_{flow}",
                    "agencyID": AGENCY,
                    "version": VERSION,
                    "name": "Concepts",
                    "concepts": [{"id": name, "name": text} for name, text in concepts],
                }
            ],
            "dataStructures": [structure],
            "dataflows": [
                {
                    "id": flow,
                    "agencyID": AGENCY,
                    "version": VERSION,
                    "name": structure["name"],
                    "structure": f"{base}.datastructure.DataStructure={AGENCY}:DSD_{flow}({VERSION})",
                }
            ],
        },
    }


def dataflow_name(table: CountTable) -> str:
    """Return the id of a table's dataflow, from the names of its variables."""
    return "_".join(dimension_ids(table.axes))[:80] or "TOTAL"


def dimension_ids(axes: Sequence[Variable]) -> list[str]:
    """Return an SDMX id per variable: its name in capitals if that is valid, else a derived name."""
    taken = {MEASURE, *ATTRIBUTES, "STRUCTURE", "STRUCTURE_ID", "ACTION"}
    found: list[str] = []
    for axis in axes:
        name = axis.name.upper()
        if not _ID.fullmatch(name) or name in taken:
            plain = re.sub(r"[^A-Z0-9_]", "_", name.encode("ascii", "replace").decode())
            name = f"V_{plain}_{_mark(axis.name)}"
        taken.add(name)
        found.append(name)
    return found


def category_codes(variable: Variable) -> list[str]:
    """Return an SDMX code per category: its text if that is valid, else its index."""
    texts = [category_text(label) for label in variable.categories]
    plain = all(_CODE.fullmatch(text) for text in texts) and len(set(texts)) == len(texts)
    return texts if plain else [f"C{place}" for place in range(len(texts))]


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6].upper()


def _check_size(table: CountTable) -> None:
    if table.values.size > MOST_CELLS:
        raise InputError(
            f"A table of {table.values.size:,} cells cannot be written as SDMX: at most {MOST_CELLS:,}."
        )


def _number(value: float) -> str:
    return repr(float(value)) if np.isfinite(value) else ""
