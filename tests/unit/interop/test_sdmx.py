"""SDMX-CSV and its structure: read by pysdmx, and what the table said."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pysdmx.io import read_sdmx
from tests.unit.interop.conftest import POLICY

import masquerade as mq
from masquerade.interop import to_sdmx_csv, to_sdmx_structure


@pytest.fixture
def table(disguised):
    return mq.tally(disguised, POLICY).answer([mq.Query(by=("smoker", "region"))])[0]


def test_pysdmx_reads_the_table_with_its_errors(table, tmp_path):
    (tmp_path / "table.csv").write_text(to_sdmx_csv(table, policy_id=POLICY.id), newline="")
    [found] = read_sdmx(str(tmp_path / "table.csv")).data
    frame = found.data
    assert np.array_equal(frame["OBS_VALUE"].astype(float), table.values.ravel())
    assert np.array_equal(frame["SE"].astype(float), table.stderr().ravel())
    assert list(frame["SMOKER"]) == ["yes", "yes", "no", "no"]
    assert list(frame["REGION"]) == ["C0", "C1"] * 2  # "south & west" is no code
    assert set(frame["OBS_STATUS"]) == {"E"}
    assert set(frame["POLICY"]) == {POLICY.id}


def test_pysdmx_accepts_the_structure(table, tmp_path):
    (tmp_path / "table.json").write_text(json.dumps(to_sdmx_structure(table)))
    told = read_sdmx(str(tmp_path / "table.json"))
    [flow] = told.get_dataflows()
    assert flow.short_urn.endswith("SMOKER_REGION(1.0)")
    regions = next(one for one in told.get_codelists() if one.id == "CL_REGION")
    assert [(code.id, code.name) for code in regions.items] == [("C0", "north"), ("C1", "south & west")]


def test_exact_counts_are_said_to_be_so(people):
    clear = mq.Policy.clear(mq.Schema({"se": ["yes", "no"], "größe": [1, 2, 3]}))
    frame = people.rename(columns={"smoker": "se", "age": "größe"})
    [table] = mq.tally(frame, clear).answer([mq.Query(by=("größe", "se"))])
    head, first, *_ = to_sdmx_csv(table).split("\r\n")
    names = head.split(",")
    assert first.split(",")[names.index("OBS_STATUS")] == "A"
    assert len(set(names)) == len(names)  # a variable called like an attribute is not one
    assert all(name.isascii() for name in names)


def test_the_whole_table(people):
    [table] = mq.tally(people, mq.Policy.clear(mq.Schema({"age": [1, 2, 3]}))).answer([mq.Query(by=())])
    assert "TOTAL(1.0),I,600.0,A" in to_sdmx_csv(table)
