"""What benchmarks say of limits and estimates."""

import json
from pathlib import Path

from benchmarks.frequency import Took, row, shown

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "frequency.json"


def test_a_missed_limit_is_flagged_and_an_estimate_limits_nothing():
    fast, slow = Took(1.0, 1.0), Took(3.0, 3.0)
    assert "LIMIT MISSED" in shown(row("a sum", slow, 1.0, 2.0))
    assert "LIMIT MISSED" not in shown(row("a sum", fast, 1.0, 2.0))
    beside = row("a mix", slow, 1.0, None, estimate=2.0)
    assert not beside["missed"]
    assert shown(beside).endswith("estimated: 2")


def test_no_limit_is_missed_in_the_figures_that_are_kept():
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))["results"]
    limits = {item["name"]: item["limit"] for item in kept if item["limit"] is not None}
    assert len(limits) == 4
    assert [item["name"] for item in kept if item["clock"] > limits.get(item["name"], item["clock"])] == []
