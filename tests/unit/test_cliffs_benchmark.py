"""The kept curves of `benchmarks/cliffs.py`: ratios and exponents hold, whatever the machine's speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import cliffs

RESULTS = Path(cliffs.__file__).parent / "results" / "cliffs.json"
KEPT = json.loads(RESULTS.read_text(encoding="utf-8"))
EXPONENTS = {"trees": 1.1, "trees, n": 0.5, "itemsets": 1.2, "anonymize": 0.6, "draft": 0.5, "wide": 1.1}


def points(name, side="after"):
    return {point["x"]: point[side] for point in KEPT[name]["points"] if point.get(side)}


def test_every_curve_is_kept_with_its_exponent_below_the_limit():
    assert set(KEPT) == set(cliffs.CURVES)
    for name, curve in KEPT.items():
        assert [point["x"] for point in curve["points"]] == list(cliffs.CURVES[name][1])
        for side, exponent in curve["exponents"].items():
            measured = [point for point in curve["points"] if point.get(side)]
            if exponent is None:
                assert len(measured) < 2
            else:
                assert exponent == pytest.approx(
                    cliffs.exponent_of(curve["points"], side, curve["regressed_on"])
                )
        if name in EXPONENTS:
            assert curve["exponents"]["after"] < EXPONENTS[name], name


def test_both_versions_found_the_same():
    for name, found in (("trees", "nodes"), ("trees, n", "nodes"), ("itemsets", "sets")):
        before = points(name, "before")
        assert before
        for x, figures in points(name).items():
            assert figures[found] == before[x][found]
    for x, figures in points("anonymize", "before").items():  # the second search is shorter: 0.05% more cells
        assert points("anonymize")[x]["cells_hidden"] <= 1.0005 * figures["cells_hidden"]


def test_no_table_takes_longer_to_anonymize_than_one_ten_times_as_long():
    took = {x: figures["seconds"] for x, figures in points("anonymize").items()}
    before = {x: figures["seconds"] for x, figures in points("anonymize", "before").items()}
    assert before[100_000] > before[1_000_000]
    for x, seconds in took.items():
        assert seconds <= 1.25 * min((took[y] for y in took if y >= 10 * x), default=seconds)


def test_disguised_dense_baskets_take_at_most_three_times_as_long_as_clear_ones():
    for figures in points("itemsets").values():
        assert figures["seconds"] <= 3 * figures["seconds_clear"]


def test_a_draft_takes_no_longer_than_the_disguise_of_the_same_file():
    for figures in points("draft").values():
        assert figures["seconds"] <= figures["seconds_disguise"]


def test_deep_trees_take_less_time_than_before_and_the_less_the_more_records():
    ratios = [
        figures["seconds"] / points("trees, n", "before")[x]["seconds"]
        for x, figures in points("trees, n").items()
    ]
    assert max(ratios) < 1
    assert ratios[-1] < 0.3
    assert points("trees")[8]["seconds"] < 0.6 * points("trees", "before")[8]["seconds"]


def test_a_wide_file_goes_from_draft_to_estimate_in_less_time_than_memory_and_columns_grow():
    wide = points("wide")
    assert {1000, 3000} <= set(wide)
    for x, figures in wide.items():
        assert max(value for name, value in figures.items() if name.startswith("mb_")) < 1024, x
    assert wide[3000]["seconds"] < 4 * wide[1000]["seconds"]


def test_a_limit_for_the_whole_record_is_drafted_for_a_thousand_columns():
    after, before = points("limit"), points("limit", "before")
    assert after[1000]["seconds"] < cliffs.PATIENCE / 5
    assert 1000 not in before  # stopped
    for x in (100, 300):
        assert after[x]["seconds"] < 0.5 * before[x]["seconds"]
