"""Missing values mean the same in every file format, frame and engine, and never count as numbers."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyreadstat
import pytest
from benchmarks import missing_file
from benchmarks.missing_file import EDGES, LABELS, LOGIT, policy_of
from tests.conformance.sources import STARTED

import masquerade as mq

ROWS, COLUMNS = 2_000, 8
MANY_ROWS, MANY_COLUMNS = 200_000, 40
SHEET_ROWS = 10_000  # of a workbook: a library writes it cell by cell
SIGMAS = 6.5  # false alarms below 1e-10 a comparison, of which there are fewer than 400


@cache
def people(rows: int, columns: int) -> pd.DataFrame:
    """Return whole numbers, decimals and texts in turn, with 3% to 30% of a column missing."""
    return missing_file.people(rows, columns, np.random.default_rng(34))


def truth(frame: pd.DataFrame, name: str) -> list[int]:
    """Return the counts of a column, missing last, by pandas alone."""
    values, place = frame[name], int(name[1:])
    if place % 3 == 1:
        cut = pd.cut(values.astype(float), EDGES, right=False, labels=False)
        cut[values.astype(float) == EDGES[-1]] = len(EDGES) - 2
        counts = [int((cut == code).sum()) for code in range(len(EDGES) - 1)]
    else:
        counts = [int((values == label).sum()) for label in ([0, 1, 2, 3, 4], None, LABELS)[place % 3]]
    return [*counts, int(values.isna().sum())]


def floats(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with NaN for missing numbers and None for missing texts, as most files are read."""
    return pd.DataFrame(
        {
            name: column.astype(object).where(column.notna(), None)
            if pd.api.types.is_string_dtype(column.dtype)
            else column.astype("float64")
            for name, column in frame.items()
        }
    )


def csv_file(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_csv(path, index=False)
    return path


def marked_csv(frame: pd.DataFrame, path: Path) -> Path:
    """Write a CSV whose missing cells have a mark, as R writes them."""
    frame.to_csv(path, index=False, na_rep="NA")
    return path


def sav_file(frame: pd.DataFrame, path: Path) -> Path:
    pyreadstat.write_sav(floats(frame), str(path))
    return path


def user_missing_sav(frame: pd.DataFrame, path: Path) -> Path:
    """Write an SPSS file in which every second missing number is a user's own code."""
    written, ranges = floats(frame), {}
    for name, column in written.items():
        if pd.api.types.is_float_dtype(column.dtype):
            holes = np.flatnonzero(column.isna())[::2]
            written.loc[holes, name] = -9.0
            ranges[name] = [-9]
    pyreadstat.write_sav(written, str(path), missing_ranges=ranges)
    return path


def dta_file(frame: pd.DataFrame, path: Path) -> Path:
    pyreadstat.write_dta(floats(frame), str(path))
    return path


def extended_missing_dta(frame: pd.DataFrame, path: Path) -> Path:
    """Write a Stata file in which the missing numbers are ., .a, .b … .z in turn."""
    written, letters = floats(frame), {}
    for name, column in written.items():
        if pd.api.types.is_float_dtype(column.dtype):
            holes = np.flatnonzero(column.isna())
            codes = [string.ascii_lowercase[i % 26] for i in range(len(holes))]
            written[name] = column.astype(object)
            written.loc[holes[::2], name] = codes[::2]
            letters[name] = sorted(set(codes[::2]))
    pyreadstat.write_dta(written, str(path), missing_user_values=letters)
    return path


def xpt_file(frame: pd.DataFrame, path: Path) -> Path:
    pyreadstat.write_xport(floats(frame), str(path))
    return path


def json_lines(frame: pd.DataFrame, path: Path) -> Path:
    """Write JSON lines in which a missing value is null, or its key is not there."""
    rows = floats(frame).astype(object).where(frame.notna(), None).to_dict("records")
    lines = [
        json.dumps({key: value for key, value in row.items() if value is not None or place % 2 == 0})
        for place, row in enumerate(rows)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def excel_file(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_excel(path, index=False)
    return path


def parquet_file(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_parquet(path, index=False)
    return path


def arrow_file(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_feather(path)
    return path


FILES: dict[str, tuple[str, Callable[[pd.DataFrame, Path], Path]]] = {
    "CSV": ("csv", csv_file),
    "CSV with NA": ("csv", marked_csv),
    "Parquet": ("parquet", parquet_file),
    "Parquet with NaN": ("parquet", lambda frame, path: parquet_file(floats(frame), path)),
    "Arrow": ("arrow", arrow_file),
    "SPSS": ("sav", sav_file),
    "SPSS, user missing": ("sav", user_missing_sav),
    "Stata": ("dta", dta_file),
    "Stata, extended missing": ("dta", extended_missing_dta),
    "SAS transport": ("xpt", xpt_file),
    "JSON lines": ("jsonl", json_lines),
    "Excel": ("xlsx", excel_file),
}
FRAMES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas with NA": lambda frame: frame,
    "pandas with NaN": floats,
    "pandas, categories": lambda frame: frame.astype(
        {name: "category" for name in frame if frame[name].dtype == "string"}
    ),
    "Polars": pl.from_pandas,
    "PyArrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


def reading(columns: int, name: str) -> mq.Policy:
    """Return the policy; where a file writes a mark in empty cells the policy says so."""
    values = policy_of(columns).to_dict()
    if name == "CSV with NA":
        values["variables"] = {key: entry | {"na": ["NA"]} for key, entry in values["variables"].items()}
    return mq.Policy.from_dict(values)


def counts_of(source: mq.Tally) -> dict[str, list[int]]:
    tables = source.answer([mq.Query(by=name) for name in source.schema])
    return {
        name: table.values.astype(int).tolist() for name, table in zip(source.schema, tables, strict=True)
    }


def expected(frame: pd.DataFrame) -> dict[str, list[int]]:
    return {name: truth(frame, name) for name in frame}


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
@pytest.mark.parametrize("name", FILES)
def test_missing_values_of_files(name: str, engine: str, tmp_path: Path) -> None:
    frame = people(ROWS, COLUMNS)
    suffix, write = FILES[name]
    path = write(frame, tmp_path / f"people.{suffix}")
    source = mq.tally(path, schema=reading(COLUMNS, name), engine=engine)
    assert counts_of(source) == expected(frame)


@pytest.mark.parametrize("name", FRAMES)
def test_missing_values_of_frames(name: str) -> None:
    frame = people(ROWS, COLUMNS)
    assert counts_of(mq.tally(FRAMES[name](frame), schema=policy_of(COLUMNS))) == expected(frame)


def in_table(connection: Any, frame: pd.DataFrame, policy: mq.Policy | None = None) -> mq.Tally:
    """Return a source over a table of clear records or, with a policy, of reports."""
    plain = floats(frame) if connection.name == "sqlite" else frame  # whose Ibis binds no NA
    table = pa.Table.from_pandas(plain, preserve_index=False)
    kind = "clear" if policy is None else "reports"
    created = connection.create_table(f"{kind}_{len(frame)}_{len(frame.columns)}", table, overwrite=True)
    if policy is None:
        return mq.tally(created, schema=policy_of(len(frame.columns)))
    return mq.tally(created, policy)


def in_spark(frame: pd.DataFrame, policy: mq.Policy) -> mq.Tally:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return mq.tally(STARTED["session"].createDataFrame(table), policy)


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
@pytest.mark.parametrize("connect", [ibis.duckdb.connect, ibis.sqlite.connect], ids=["DuckDB", "SQLite"])
def test_missing_values_of_ibis_tables(connect: Callable[[], Any]) -> None:
    frame = people(ROWS, COLUMNS)
    assert counts_of(in_table(connect(), frame)) == expected(frame)


@pytest.mark.usefixtures("database")
def test_missing_values_of_postgres_tables() -> None:
    frame = people(ROWS, COLUMNS)
    assert counts_of(in_table(STARTED["database"], frame)) == expected(frame)


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("with_nan", [False, True])
def test_missing_values_of_spark_frames(with_nan: bool) -> None:  # noqa: FBT001
    frame = people(ROWS, COLUMNS)
    table = pa.Table.from_pandas(floats(frame) if with_nan else frame, preserve_index=False)
    source = mq.tally(STARTED["session"].createDataFrame(table), schema=policy_of(COLUMNS))
    assert counts_of(source) == expected(frame)


KINDS = {
    "masquerade": 1,
    "variables": {
        "visits": {
            "categories": [0, 1, 9, "not stated", "refused", "not asked"],
            "missing": ["not stated", "refused", "not asked"],
            "recode": {"not asked": [-9, ".z"]},
        },
        "income": {
            "bins": [0, 1000, 10000],
            "missing": ["not stated", "refused"],
            "recode": {"refused": [-8, ".r"]},
        },
    },
}
VISITS = [0, 1, 9, None, "refused", "not asked", 9]  # the 9 of an answer is a code of missing income
INCOME = [10, 5000, 9, 20, "refused", None, 10000]


def kinds_file(kind: str, folder: Path) -> Path:
    """Write VISITS and INCOME with the kinds of missing values that a format has."""
    path = folder / f"kinds.{kind}"
    if kind == "sav":
        visits = [{"refused": -8, "not asked": -9, None: np.nan}.get(value, value) for value in VISITS]
        income = [{"refused": -8, None: np.nan}.get(value, value) for value in INCOME]
        frame = pd.DataFrame({"visits": visits, "income": income}, dtype=float)
        pyreadstat.write_sav(
            frame, str(path), missing_ranges={"visits": [{"lo": -9, "hi": -8}], "income": [-8]},
            variable_value_labels={"visits": {-8: "refused"}},
        )  # fmt: skip
    elif kind == "dta":
        visits = [{"refused": "a", "not asked": "z", None: np.nan}.get(value, value) for value in VISITS]
        income = [{"refused": "r", None: np.nan}.get(value, value) for value in INCOME]
        frame = pd.DataFrame({"visits": visits, "income": income}, dtype=object)
        pyreadstat.write_dta(
            frame, str(path), missing_user_values={"visits": ["a", "z"], "income": ["r"]},
            variable_value_labels={"visits": {"a": "refused"}},
        )  # fmt: skip
    else:
        written = pd.DataFrame({"visits": VISITS, "income": INCOME}, dtype=object)
        return FILES[{"csv": "CSV", "xlsx": "Excel", "jsonl": "JSON lines"}[kind]][1](written, path)
    return path


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
@pytest.mark.parametrize("kind", ["sav", "dta", "csv", "xlsx"])
def test_kinds_of_missing_values_are_different_labels(kind: str, engine: str, tmp_path: Path) -> None:
    source = mq.tally(kinds_file(kind, tmp_path), schema=mq.Policy.from_dict(KINDS), engine=engine)
    assert counts_of(source) == {"visits": [1, 1, 2, 1, 1, 1], "income": [3, 2, 1, 1]}


@pytest.mark.parametrize("kind", ["sav", "dta"])
def test_kinds_that_the_policy_does_not_name_are_the_first_missing_category(
    kind: str, tmp_path: Path
) -> None:
    values = {"visits": {"categories": [0, 1, 9, "missing"], "missing": "missing"}}
    policy = mq.Policy.from_dict({"masquerade": 1, "variables": values})
    source = mq.tally(kinds_file(kind, tmp_path), schema=policy)
    assert counts_of(source) == {"visits": [1, 1, 2, 3]}


def test_a_number_that_spss_marks_as_missing_is_never_an_answer(tmp_path: Path) -> None:
    """The policy lists 9 as a category; the file says that 9 is missing."""
    path = tmp_path / "codes.sav"
    pyreadstat.write_sav(pd.DataFrame({"visits": [0.0, 9.0, 9.0]}), str(path), missing_ranges={"visits": [9]})
    values = {"visits": {"categories": [0, 9, "missing"], "missing": "missing"}}
    policy = mq.Policy.from_dict({"masquerade": 1, "variables": values})
    assert counts_of(mq.tally(path, schema=policy)) == {"visits": [1, 0, 2]}


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow", "sav", "dta", "xlsx", "jsonl"])
def test_missing_reports_are_written_and_read_back(suffix: str, tmp_path: Path) -> None:
    """SPSS and Stata have the missing labels as missing values of their own."""
    frame, policy = people(ROWS, COLUMNS), policy_of(COLUMNS, gamma=9)
    clear, out = csv_file(frame, tmp_path / "people.csv"), tmp_path / f"reports.{suffix}"
    mq.disguise_file(clear, out, policy)
    source = mq.tally(out)
    assert source.n == ROWS
    for name in source.schema:
        share = mq.stats.shares(source, name)
        error = np.abs(share.values - np.array(truth(frame, name)) / ROWS)
        assert (error <= SIGMAS * share.stderr).all(), name
    if suffix in {"sav", "dta"}:
        read = getattr(pyreadstat, f"read_{suffix}")
        reported = source.codes["v0"]
        assert read(str(out))[0]["v0"].isna().sum() == (reported == 5).sum() > 0


def test_nan_in_reports_is_the_missing_category() -> None:
    frame, policy = people(ROWS, COLUMNS), policy_of(COLUMNS, gamma=9)
    reports = mq.disguise(frame, policy)
    holes = reports.replace("not stated", None)
    assert holes.isna().to_numpy().any()
    answers = [counts_of(mq.tally(one, policy)) for one in (reports, holes)]
    assert answers[0] == answers[1]


def check_estimates(source: mq.Tally, frame: pd.DataFrame) -> None:
    """Compare means, medians, shares and a regression of answers with the clear file."""
    for name in frame:
        counts = np.array(truth(frame, name), dtype=float)
        share = mq.stats.shares(source, name)
        assert (np.abs(share.values - counts / counts.sum()) <= SIGMAS * share.stderr).all(), name
        if int(name[1:]) % 3 == 2:
            continue
        answered = counts[:-1] / counts[:-1].sum()
        middles = np.arange(5.0) if int(name[1:]) % 3 == 0 else (np.array(EDGES[:-1]) + EDGES[1:]) / 2
        mean = mq.stats.mean(source, name)
        assert abs(mean.values[0] - answered @ middles) <= SIGMAS * mean.stderr[0], name
        assert "Only people who answered are counted." in mean.notes[0]
        median = mq.stats.quantile(source, name, level=1 - 1e-10)
        if int(name[1:]) % 3 == 0:
            middle = float(np.searchsorted(np.cumsum(answered), 0.5))
        else:
            middle = float(np.interp(0.5, np.concatenate([[0], np.cumsum(answered)]), EDGES))
        assert median.lower[0] - 1e-9 <= middle <= median.upper[0] + 1e-9, name
    for place in range(2, len(frame.columns), 3):
        fit = mq.stats.logistic(source, f"v{place}[north] ~ v{place - 2}", level=1 - 1e-10)
        assert fit.fit is not None  # by the likelihood of the reports
        ends = fit.to_frame()
        assert np.all(ends["lower"].to_numpy() <= np.array(LOGIT)), fit
        assert np.all(ends["upper"].to_numpy() >= np.array(LOGIT)), fit
        assert "Only people who answered are counted." in fit.notes[-1]


def figures(source: mq.Tally) -> list[float]:
    """Return estimates of each kind, to compare sources of the same reports."""
    fit = mq.stats.logistic(source, "v2[north] ~ v0")
    shares, median = mq.stats.shares(source, "v2", missing="answered"), mq.stats.quantile(source, "v1")
    mean = mq.stats.mean(source, "v0")
    parts = [shares.values, shares.stderr, mean.values, mean.stderr, median.values, median.lower]
    return [float(one) for part in (*parts, fit.values, fit.bse, [fit.llf]) for one in part]


def test_means_medians_shares_and_regressions_cover_the_truth() -> None:
    frame, policy = people(20_000, COLUMNS), policy_of(COLUMNS, gamma=9)
    check_estimates(mq.tally(mq.disguise(frame, policy), policy), frame)


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
@pytest.mark.usefixtures("database", "session")
def test_reports_in_servers_have_the_estimates_of_reports_in_memory(tmp_path: Path) -> None:
    check_engines(people(ROWS, COLUMNS), tmp_path)


def check_engines(frame: pd.DataFrame, folder: Path) -> mq.Tally:
    """Disguise the records, and compare estimates of all engines. Return the reports in memory."""
    policy = policy_of(len(frame.columns), gamma=9)
    reports = mq.disguise(frame, policy)
    source = mq.tally(reports, policy)
    wanted = figures(source)
    path = folder / "reports.parquet"
    reports.to_parquet(path)
    engines = {
        "DuckDB, file": mq.tally(path, policy, engine="duckdb"),
        "DuckDB, Ibis": in_table(ibis.duckdb.connect(), reports, policy),
        "SQLite": in_table(ibis.sqlite.connect(), reports, policy),
        "PostgreSQL": in_table(STARTED["database"], reports, policy),
        "Spark": in_spark(reports, policy),
    }
    for name, engine in engines.items():
        np.testing.assert_allclose(figures(engine), wanted, rtol=1e-9, err_msg=name)
    return source


@pytest.mark.slow
@pytest.mark.usefixtures("database", "session")
@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
def test_forty_columns_of_200_000_people_in_servers_and_files(tmp_path: Path) -> None:
    frame = people(MANY_ROWS, MANY_COLUMNS)
    wanted = expected(frame)
    for name, (suffix, write) in FILES.items():
        part = frame.head(SHEET_ROWS) if suffix == "xlsx" else frame
        path = write(part, tmp_path / f"people.{suffix}")
        for engine in ("memory", "duckdb"):
            source = mq.tally(path, schema=reading(MANY_COLUMNS, name), engine=engine)
            assert counts_of(source) == (expected(part) if suffix == "xlsx" else wanted), (name, engine)
        path.unlink()
    for name, make in FRAMES.items():
        assert counts_of(mq.tally(make(frame), schema=policy_of(MANY_COLUMNS))) == wanted, name
    for connection in (ibis.duckdb.connect(), ibis.sqlite.connect(), STARTED["database"]):
        assert counts_of(in_table(connection, frame)) == wanted, connection.name
    table = pa.Table.from_pandas(frame, preserve_index=False)
    spark = mq.tally(STARTED["session"].createDataFrame(table), schema=policy_of(MANY_COLUMNS))
    assert counts_of(spark) == wanted
    check_estimates(check_engines(frame, tmp_path), frame)
