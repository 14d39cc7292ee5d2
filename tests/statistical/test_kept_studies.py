"""The long studies that are kept in benchmarks/results say what the documentation says."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from benchmarks import design_coverage
from benchmarks.link_null import MOST_LINKED, SETTINGS
from benchmarks.structure_noise import (
    LEVELS,
    NETWORKS,
    RECORDS,
    SEEDS,
    extra_links,
    kept_rows,
    key,
    missing_links,
    run,
)

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.fixture(scope="module")
def runs():
    return kept_rows(RESULTS / "structure_noise.json")


def test_structures_under_noise_were_learnt_from_every_network_level_number_and_seed(runs):
    wanted = set(product(NETWORKS, LEVELS, RECORDS, range(SEEDS)))
    assert {key(row) for row in runs} == wanted
    assert len(runs) == len(wanted)


def test_no_run_has_more_than_three_extra_links_above_those_of_clear_records(runs):
    assert extra_links(runs) == []
    worse = [{**row, "likelihood": {"extra": 9, "missing": 0}} if row["p"] != "0" else row for row in runs]
    assert extra_links(worse)


def test_at_most_one_link_more_is_missing_than_in_the_first_study(runs):
    """One line is over by 0.2: the first study has one seed there, on which three links may be missing."""
    found = {(name, p): verdict for name, p, _, _, verdict in missing_links(runs)}
    assert [line for line, verdict in found.items() if verdict == "MISSED"] == []
    assert [line for line, verdict in found.items() if verdict == "within chance"] == [("sachs", "0.2")]
    assert len(found) == 10
    blind = [{**row, "likelihood": {"extra": 0, "missing": row["links"]}} for row in runs]
    assert {verdict for *_, verdict in missing_links(blind)} == {"MISSED"}


@pytest.mark.parametrize(
    ("name", "p", "seed"), [("sachs", "0.2", 3), ("survey", "0.1", 1), ("sachs", "0", 0)]
)
def test_the_figures_are_those_of_this_code(runs, name, p, seed):
    """A run is repeated, to the last link: a change that moves figures must be followed by new ones."""
    again = run(name, p, RECORDS[0], seed)
    (kept,) = [row for row in runs if key(row) == (name, p, RECORDS[0], seed)]
    for rule in ("likelihood", "design effect"):
        assert {what: kept[rule][what] for what in ("extra", "missing")} == {
            what: again[rule][what] for what in ("extra", "missing")
        }


def test_without_links_no_more_p_values_are_small_than_stated():
    rows = json.loads((RESULTS / "link_null.json").read_text(encoding="utf-8"))
    tested = {row["setting"]: row for row in rows if "rejected" in row}
    assert set(tested) == {setting.name for setting in SETTINGS}
    runs = [0.05 * 0.95 / row["error"] ** 2 for row in tested.values()]
    assert sum(runs) > 4900  # of 5,000, errors are rounded
    assert [name for name, row in tested.items() if not row["reached"] or row["rejected"] > 0.08] == []


def test_bayesian_scores_link_what_is_independent_as_seldom_as_stated():
    rows = json.loads((RESULTS / "link_null.json").read_text(encoding="utf-8"))
    linked = {row["setting"]: row["linked"] for row in rows if "linked" in row}
    assert len(linked) == 12
    assert all(share <= MOST_LINKED[name.split(",")[0]] for name, share in linked.items())


def test_intervals_and_tests_of_indirect_questions_hold_as_often_as_stated():
    """Fourteen designs, three analyses, two sizes; one slope of too few people is on the safe side."""
    rows = json.loads((RESULTS / "design_coverage.json").read_text(encoding="utf-8"))
    wanted = set(
        product(design_coverage.DESIGNS, ("prevalence", "regression", "test"), design_coverage.SIZES)
    )
    assert {(row["design"], row["analysis"], row["n"]) for row in rows} == wanted
    assert min(row["runs"] for row in rows) >= 2000
    low, high = design_coverage.BAND
    outside = {
        (row["design"], row["analysis"], row["n"]) for row in rows if not low <= row["coverage"] <= high
    }
    assert outside == {("list experiment", "regression", 2000)}
    assert all(row["coverage"] < 0.97 for row in rows)
    for row in design_coverage.run("cheater detection", 2000, 8):
        assert row["coverage"] > 0.5  # the code still runs, and covers
