"""Targets of further readers: results to check, signing requests, exports, sums with noise, folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

import masquerade as mq
from masquerade.channels.noise.terms import NoiseTerms
from masquerade.channels.policy import Policy
from masquerade.cli.output_check import _read_outputs, _read_rules
from masquerade.core.util.json_text import parse_json
from masquerade.crypto import certificates
from masquerade.frames.file_reader import open_batches
from masquerade.frames.table_formats.partitions import Partitions
from masquerade.interop.dap import dap_sums, from_dap
from masquerade.services.common.output_record import OutputRecord
from masquerade.services.parties.reconcile import Offer
from masquerade.sources.control.inference_control import Rules
from masquerade.sources.control.output_check import check_output
from masquerade.survey.collector.example import write_example
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.packages.package import build_package
from masquerade.survey.packages.responses import Responses
from tests.table_formats import create_iceberg, write_delta

YES_NO = Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {"a": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}}},
    }
)
BITS = mq.channels.unary_encoding(mq.Variable("home", ["a", "b"]), gamma=5)
TOWNS: dict[str, Any] = {
    "by": ["town"],
    "n": 100,
    "cells": [{"labels": {"town": name}, "count": 50} for name in "ab"],
}
SUMS = {
    "by": ["t"],
    "where": {"h": "no"},
    "n": 90,
    "cells": [{"labels": {"t": "a"}, "count": 12, "contributions": [6, 3.5, 1], "total": 11.5}],
}


def newest_files(folder: Path, file: Callable[..., Any], batches: Callable[[Path], object]) -> Iterator[Any]:
    """Yield the targets that read a file.

    Parameters
    ----------
    folder : Path
        Folder of the files.
    file : callable
        Makes a target of a name, a loader, an extension and seeds.
    batches : callable
        Reads a file of records in batches.
    """
    model = b'{"outputs": [{"type": "model", "n": 100, "parameters": 5}, {"type": "plot"}]}'
    estimate = json.dumps({**TOWNS, "gamma": "19", "question": "q"}).encode()
    tables = json.dumps([TOWNS, SUMS]).encode()
    yield file("output-results", _check_outputs, ".json", tables, estimate, model, weight=4)
    rules = b"rules: {profile: acro, least_dof: 20, dominance: {n: 2, k: 0.9, p: 0.1}, protect: [[a, b]]}\n"
    limits = b"most_categories: {share: 0.3, most: 4}\ndata_dependent: {least_people: 5, show_empty: true}\n"
    yield file("output-rules", lambda path: _read_rules(str(path)), ".yaml", rules, limits, weight=1)
    yield _record(folder, file)
    _, elliptic = requests(folder)
    yield file("signing-request", certificates._requested_key, ".csr", elliptic, weight=2)
    compressed = pa.compress(b"a,b\nyes,1\nno,2\n", codec="zstd", asbytes=True)
    yield file("csv-zst", batches, ".csv.zst", compressed, weight=2, plain=False)
    yield _export(folder, file)
    yield from _lake_tables(folder, file)
    YES_NO.save(folder / "offered.yaml")
    offer = b"party: north\npolicy: offered.yaml\npeople: 100\nlimit: 5%:50%\nprotect: [[a, b]]\n"
    yield file("offer", Offer.read, ".yaml", offer, weight=1)


def newest_texts(target: Callable[..., Any]) -> Iterator[Any]:
    """Yield the targets that read a text; `target` makes a target of a reader and seeds."""
    start = '{"masquerade_dap": 2, "policy": "%s", "vdaf": "%s", "report_count": 3, "noised_by": %d, '
    noise = '"dp_strategy": {"dp_strategy": "PureDpDiscreteLaplace", "budget": {"epsilon": [[1], [2]]}}, '
    counts = start % (YES_NO.id, "Prio3Histogram", 2) + noise + '"counts": [4, -1]}'
    yield target("interop-dap-noise", _noisy_histogram, counts.encode())
    bits = start % (BITS.id, "Prio3SumVec", 2) + noise + '"counts": [4, -1]}'
    exact = start % (BITS.id, "Prio3MultihotCountVec", 0) + '"counts": [2, 1]}'
    yield target("interop-dap-bits", _sums_of_bits, bits.encode(), exact.encode())
    vector = start % (YES_NO.id, "Prio3SumVec", 1) + noise + '"counts": [3, 2]}'
    share = "01" + "00" * 15
    shares = f'"draft": 18, "shares": ["{share * 2}", "{share * 2}"]}}'
    summed = start % (YES_NO.id, "Prio3SumVec", 0) + shares
    yield target("interop-dap-sums", _sums, vector.encode(), summed.encode())
    terms = NoiseTerms(1, [(3, 0.6), (2, 0.4)], contributors=3, colluders=1)
    plain = NoiseTerms(0.5, 4, delta=0)
    yield target("noise-terms", _terms, *(json.dumps(one.to_dict()).encode() for one in (terms, plain)))
    paths = b"year=2020/k=a%20b/one.parquet\nyear=2021/k=__HIVE_DEFAULT_PARTITION__/two.parquet"
    yield target("partition-names", _partitions, paths)


def _check_outputs(path: Path) -> None:
    rules = Rules.profile("acro", magnitudes=True)
    for output in _read_outputs(path):
        check_output(output, rules, [TOWNS])


def _record(folder: Path, file: Callable[..., Any]) -> Any:
    place = folder / "outputs"
    if not (place / "0001.json").exists():
        OutputRecord(place).add([TOWNS], Rules.profile("acro", magnitudes=True))
    right = (place / "0001.json").read_bytes()

    def read(path: Path) -> None:
        (place / "0001.json").write_bytes(path.read_bytes())
        try:
            record = OutputRecord(place)
            record.entries()
            record.entry(1)
        finally:
            (place / "0001.json").write_bytes(right)

    return file("output-record", read, ".json", right, weight=1)


@cache
def _tables(folder: Path) -> tuple[Path, Path, Path]:
    """Return the log of a Delta table, and metadata and manifest list of an Iceberg table."""
    records = pa.table({"a": ["yes", "no"], "b": [1, 2]})
    delta = write_delta(records, folder / "lake" / "delta", partition_by=["b"])
    table = create_iceberg(records, folder / "lake" / "iceberg", "b")
    listed = table.current_snapshot().manifest_list
    paths = (Path(place.removeprefix("file://")) for place in (table.metadata_location, listed))
    return delta / "_delta_log" / f"{0:020}.json", *paths


def _lake_tables(folder: Path, file: Callable[..., Any]) -> Iterator[Any]:
    """Yield the metadata of tables, each instead of the one that was written."""
    log, metadata, listed = _tables(folder)

    def reader(target: Path, table: Path) -> Callable[[Path], None]:
        right = target.read_bytes()

        def read(path: Path) -> None:
            target.write_bytes(path.read_bytes())
            try:
                with open_batches(table) as records:
                    list(records)
            finally:
                target.write_bytes(right)

        return read

    places = {"delta-log": (log, log.parent.parent), "iceberg-metadata": (metadata, metadata)}
    for name, (target, table) in places.items():
        yield file(name, reader(target, table), ".json", target.read_bytes(), weight=1)
    yield file(
        "iceberg-manifests", reader(listed, metadata), ".avro", listed.read_bytes(), weight=1, plain=False
    )


@cache
def requests(folder: Path) -> tuple[Path, bytes]:
    """Return the key of a service, and its signing request."""
    csr, key = certificates.request(folder / "requests", "north", ["north.example", "127.0.0.1"])
    return key, csr.read_bytes()


def _export(folder: Path, file: Callable[..., Any]) -> Any:
    """Return an export of another tool, read by the layout of a package."""
    work, package = folder / "exported-survey", folder / "exported"
    if not work.exists():
        write_example(work, "https://s.example")
    build_package(Survey.load(work / "survey.yaml"), "limesurvey").write(package, overwrite=True)
    layout = Responses.load(package)
    names = [column.name for column in layout.columns]
    cells = [next(iter(column.codes)) for column in layout.columns]
    if layout.mode_column is not None:
        names.append(layout.mode_column)
        cells.append(layout.mode)
    rows = "\n".join(",".join(f'"{cell}"' for cell in line) for line in (names, cells, cells))
    target = folder / "exported-reports.csv"
    return file(
        "tool-export",
        lambda path: layout.write(path, target, overwrite=True),
        ".csv",
        rows.encode() + b"\n",
        weight=1,
    )


def _noisy_histogram(text: str) -> None:
    from_dap(parse_json(text), YES_NO)


def _sums_of_bits(text: str) -> None:
    from_dap(parse_json(text), BITS)


def _sums(text: str) -> None:
    dap_sums(parse_json(text), 2, 3)


def _terms(text: str) -> None:
    values = parse_json(text)
    if isinstance(values, dict):
        NoiseTerms.from_dict(values)


def _partitions(text: str) -> None:
    paths = [f"/records/{line}" for line in text.split("\n")]
    found = Partitions(Path("/records"), paths, text=False)
    for path in paths:
        for name in found.names:
            found.column(path, name, 2)
