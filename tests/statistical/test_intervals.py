"""Intervals hold as often as the documentation says: a short run of the study that is kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.interval_coverage import LEAST, MOST, WORST, missed, study

import masquerade as mq
from masquerade.sources.records import Records

KEPT = Path(__file__).parents[2] / "benchmarks" / "results" / "interval_coverage.json"


def test_a_short_study_holds_what_is_stated():
    rows = study(40, 2000, seed=7)
    assert len(rows) == 18
    assert not [row for row in rows if missed(row, 2000)]


def test_the_kept_study_holds_what_is_stated():
    rows = json.loads(KEPT.read_text(encoding="utf-8"))
    assert not [row for row in rows if missed(row, 5000)]
    many = [row for row in rows if row["name"].startswith(("population, 30", "population, 100"))]
    assert all(LEAST <= row["mean"] <= MOST and row["first_percentile"] >= LEAST for row in many)
    assert all(row["least"] >= WORST for row in rows if row["name"].startswith("population"))


def test_a_study_that_misses_is_told():
    low = {"name": "population, 10 to 30 decisive reports", "least": 0.8, "mean": 0.95}
    wide = {"name": "population, 30 to 100 decisive reports", "least": 0.95, "mean": 0.99}
    assert missed(low, 2000)
    assert missed(wide, 2000)


@pytest.mark.parametrize("disguised", [False, True])
def test_slices_of_weighted_records_have_intervals_in_proportion_to_their_errors(disguised):
    schema = mq.Schema({"a": ["x", "y"], "b": ["p", "q", "r"]})
    channels = (
        {"a": mq.channels.symmetric(2, "0.3"), "b": mq.channels.symmetric(3, "0.3")} if disguised else {}
    )
    policy = mq.Policy.build(schema, channels)
    generator = np.random.default_rng(4)
    codes = {name: generator.integers(0, len(schema[name]), 3000).astype(np.uint8) for name in schema}
    source = Records(codes, policy, generator.uniform(0.1, 5, 3000))
    (table,) = source.answer([mq.Query(by=("a", "b"))])
    for slice_ in (table.select({"a": "x"}), *source.answer([mq.Query(by="b", where={"a": "x"})])):
        lower, upper = slice_.conf_int()
        np.testing.assert_allclose(upper - lower, 2 * 1.96 * slice_.stderr(), rtol=0.02)
