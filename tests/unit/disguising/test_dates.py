"""Dates are read as ages, years, quarters or months, in drafts, files, frames and engines."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.e2e.test_cli_app import ok, refused

import masquerade as mq
from masquerade.core.errors import InputError, PolicyError, UnknownValue
from masquerade.core.schema import DateReading
from masquerade.disguising.column_summary import summaries
from masquerade.disguising.draft_dates import parse_dates
from masquerade.disguising.policy_draft import draft_variables
from masquerade.frames.label_codes import date_labels, days_of

DAYS = [dt.date(1950, 1, 1) + dt.timedelta(days=97 * place) for place in range(200)]
ON = dt.date(2026, 6, 15)
BINS = [0, 30, 40, 50, 120]
AGES = {"masquerade": 1, "variables": {"born": {"date": {"as": "age", "on": "2026-06-15"}, "bins": BINS}}}


def age(day: dt.date, on: dt.date = ON) -> int:
    """Return completed years by counting birthdays."""
    return sum(
        (year, day.month, day.day) <= (on.year, on.month, on.day) for year in range(day.year + 1, 2100)
    )


def counts(source: mq.Tally) -> list[int]:
    return [int(value) for value in source.answer([mq.Query(by="born")])[0].values]


def test_ages_are_completed_years_on_the_day() -> None:
    days = [*DAYS, dt.date(1990, 6, 14), dt.date(1990, 6, 15), dt.date(1990, 6, 16), dt.date(2000, 2, 29)]
    found = date_labels(pa.array(days), DateReading("age", ON)).to_pylist()
    assert found == [str(age(day)) for day in days]


def test_quarters_and_months_have_their_year() -> None:
    assert date_labels(pa.array(DAYS), DateReading("month")).to_pylist() == [f"{day:%Y-%m}" for day in DAYS]
    quarters = [f"{day.year}-Q{(day.month + 2) // 3}" for day in DAYS]
    assert date_labels(pa.array(DAYS), DateReading("quarter")).to_pylist() == quarters


def test_texts_are_dates_only_if_the_day_exists() -> None:
    texts = ["2026-01-31", "31.01.2026", " 2026-01-31 ", "2026-01-31T10:00:00", "2026-02-30", "1/2/2026", "7"]
    assert days_of(pa.array(texts)).is_valid().to_pylist() == [True] * 4 + [False] * 3


@pytest.mark.parametrize(
    "make",
    [
        lambda days: pd.DataFrame({"born": pd.to_datetime(pd.Series(days))}),
        lambda days: pd.DataFrame({"born": [day.isoformat() for day in days]}),
        lambda days: pl.DataFrame({"born": days}),
        lambda days: pa.table({"born": pa.array([f"{day:%d.%m.%Y}" for day in days]).dictionary_encode()}),
    ],
    ids=["pandas", "texts", "Polars", "dictionary"],
)
def test_frames_of_dates_are_counted_by_age(make: Any) -> None:
    ages = pd.cut([age(day) for day in DAYS], BINS, right=False)
    wanted = ages.value_counts().tolist()
    assert counts(mq.tally(make(DAYS), schema=mq.Policy.from_dict(AGES))) == wanted


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_of_dates_are_counted_by_age(suffix: str, engine: str, tmp_path: Path) -> None:
    frame, path = pd.DataFrame({"born": DAYS}), tmp_path / f"people.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    ages = pd.cut([age(day) for day in DAYS], BINS, right=False)
    source = mq.tally(path, schema=mq.Policy.from_dict(AGES), engine=engine)
    assert counts(source) == ages.value_counts().tolist()


def test_values_that_are_not_dates_are_refused_without_being_shown() -> None:
    frame = pd.DataFrame({"born": ["1990-06-15", "34", "1990-02-30"]})
    with pytest.raises(UnknownValue, match=r"rows 2, 3: .*not a date") as caught:
        mq.tally(frame, schema=mq.Policy.from_dict(AGES))
    assert "34" not in str(caught.value)


def test_a_policy_with_dates_is_written_and_read_back() -> None:
    policy = mq.Policy.from_dict(AGES)
    written = policy.select(["born"]).to_dict()
    assert written["variables"]["born"]["date"] == {"as": "age", "on": "2026-06-15"}
    assert mq.Policy.from_dict(written).fields == policy.fields


@pytest.mark.parametrize("date", [{"as": "age"}, {"as": "month", "on": "2026-01-01"}, {"as": "week"}])
def test_a_reading_of_dates_that_is_not_valid_is_refused(date: dict[str, str]) -> None:
    with pytest.raises(PolicyError, match=r"variables\.born\.date"):
        mq.Policy.from_dict({"masquerade": 1, "variables": {"born": {"date": date, "bins": BINS}}})


def drafted(values: Any, unit: str | None, *, text: bool = True) -> dict[str, Any]:
    batch = pa.record_batch({"born": values, "smoker": pa.array(["yes", "no"] * (len(values) // 2))})
    dates = parse_dates([f"born={unit}"], today=ON) if unit else {}
    draft = draft_variables(summaries([batch], text=text, dates=dates))
    return {"left_out": draft.left_out, **draft.variables()["variables"].get("born", {})}


def test_drafts_name_the_option_for_a_column_of_dates() -> None:
    assert "--date NAME=age" in drafted(pa.array(DAYS), None, text=False)["left_out"]["born"]
    assert "--date NAME=age" in drafted(pa.array([f"{day}" for day in DAYS]), None)["left_out"]["born"]


@pytest.mark.parametrize("text", [True, False])
def test_drafts_bin_ages_and_years(text: bool) -> None:  # noqa: FBT001
    values = pa.array([f"{day}" for day in DAYS]) if text else pa.array(DAYS)
    found = drafted(values, "age", text=text)
    assert found["date"] == {"as": "age", "on": "2026-06-15"}
    assert found["bins"][0] <= min(map(age, DAYS))
    assert found["bins"][-1] >= max(map(age, DAYS))
    assert drafted(values, "year", text=text)["bins"][0] <= 1950


def test_drafts_list_all_months_between_the_first_and_the_last() -> None:
    days = [f"{day}" for day in (dt.date(2025, 11, 3), dt.date(2026, 2, 1)) for _ in range(10)]
    found = drafted(pa.array([*days, "n/a", None]), "month")
    assert found["categories"] == ["2025-11", "2025-12", "2026-01", "2026-02", "missing"]
    assert found["na"] == ["n/a"]


def test_drafts_of_too_many_months_say_what_fits() -> None:
    assert "years or ages" in drafted(pa.array([f"{day}" for day in DAYS]), "month")["left_out"]["born"]


@pytest.mark.parametrize("text", ["born", "born=week", "born=month:2026-01-01", "=age", "born=age:1.2.2026"])
def test_options_of_dates_that_are_not_valid_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--date"):
        parse_dates([text])


def test_a_draft_with_dates_disguises_the_file(tmp_path: Path) -> None:
    data, policy, reports = tmp_path / "people.csv", tmp_path / "policy.yaml", tmp_path / "reports.csv"
    smoker = ["yes", "no"] * (len(DAYS) // 2)
    pd.DataFrame({"born": DAYS, "smoker": smoker}).to_csv(data, index=False)
    ok("policy", "init", data, "--date", "born=age:2026-06-15", "--count", "singles", "--out", policy)
    ok("disguise", data, "--policy", policy, "--out", reports)
    source = mq.tally(reports, policy)
    assert source.n == len(DAYS)
    assert set(source.schema) == {"born", "smoker"}
    assert "no column 'bron'" in refused("policy", "init", data, "--date", "bron=age")


def test_numbers_with_few_decimals_are_drafted_as_categories(tmp_path: Path) -> None:
    grades = [1.0, 1.3, 1.7, 2.0, 2.3] * 40
    for values, text in ((pa.array(grades), False), (pa.array([str(grade) for grade in grades]), True)):
        found = drafted(values, None, text=text)
        assert found["categories"] == [1, "1.3", "1.7", 2, "2.3"]
    frame = pd.DataFrame({"born": grades})
    policy = {"masquerade": 1, "variables": {"born": {"categories": found["categories"]}}}
    path = tmp_path / "grades.csv"
    frame.to_csv(path, index=False)
    for data in (frame, path):
        source = mq.tally(data, schema=mq.Policy.from_dict(policy))
        assert counts(source) == [40] * 5
        assert mq.stats.mean(source, "born").values[0] == pytest.approx(sum(grades) / len(grades))


def test_numbers_with_many_decimals_or_two_spellings_are_binned() -> None:
    assert "bins" in drafted(pa.array([place + 0.5 for place in range(20)] * 20), None, text=False)
    assert "bins" in drafted(pa.array(["1.3", "1.30"] * 100), None)
