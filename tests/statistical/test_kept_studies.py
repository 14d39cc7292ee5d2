"""The long studies that are kept in benchmarks/results say what the documentation says."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from benchmarks import compare_regressions, design_coverage, missing_coverage, regression_study
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
FIRST_OF_WARNER = [1.2240334157114972, 0.584206241660956, 0.9480125486906344]  # estimates of three runs


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


def test_the_page_of_compared_regressions_has_the_kept_tables():
    kept = json.loads((RESULTS / "compare_regressions.json").read_text(encoding="utf-8"))
    page = (RESULTS.parents[1] / "docs" / "howto" / "compare-regressions.md").read_text(encoding="utf-8")
    tables = compare_regressions.tables_of([compare_regressions.Row(**row) for row in kept["rows"]])
    assert len(tables) == 5
    for table in tables.values():
        assert table in page
    near = [row for row in kept["rows"] if row["analysis"] != "disguised predictor"]
    assert max(abs(row["printed"] - row["coef"]) for row in near) < 2e-4
    assert max(abs(row["printed_error"] - row["error"]) for row in near) < 6e-4
    printed = [row["printed"] for row in kept["rows"] if row["package"] == "list"]
    assert [round(one, 4) for one in kept["list stops"]] == printed
    assert [f"{one:.2f}" for one in kept["rr predictor"]] == ["-3128.42", "-3127.08"]
    shares = compare_regressions.compare_shares()
    assert shares == pytest.approx(kept["finite population"])
    assert shares["share"] == pytest.approx(shares["closed share"], rel=1e-10)
    assert shares["error"] == pytest.approx(shares["closed error"], rel=1e-10)
    assert f"{shares['share']:.5f} ({shares['error']:.5f})" in page


@pytest.fixture(scope="module")
def regressions():
    return json.loads((RESULTS / "regression_study.json").read_text(encoding="utf-8"))


def differs_by(first, second):
    """Return the difference of two shares in standard errors of a common share; each is (runs, share)."""
    runs, shares = np.array([first[0], second[0]]), np.array([first[1], second[1]])
    common = (runs @ shares) / runs.sum()
    error = np.sqrt(max(common * (1 - common), 1e-12) * np.sum(1 / runs))
    return (shares[0] - shares[1]) / error


def test_regressions_have_tests_and_intervals_in_every_run(regressions):
    assert set(regressions) == set(regression_study.SETTINGS)
    for name, row in regressions.items():
        assert np.all(np.array(row["answered"]) == 1.0), name
        assert row["runs"] == regression_study.RUNS, name


def test_profile_intervals_of_regressions_contain_the_truth_as_often_as_stated(regressions):
    low, high = regression_study.BAND
    outside = [
        name
        for name, row in regressions.items()
        if not np.all((np.array(row["coverage"]) >= low) & (np.array(row["coverage"]) <= high))
    ]
    assert outside == list(regression_study.FEW_YES)
    assert all(regressions[name]["coverage"] > 0.92 for name in outside)
    assert low < regressions["list, 4,800 people"]["coverage"] < high  # of the same list, with more people


def test_likelihood_ratio_tests_find_as_much_as_an_earlier_program(regressions):
    """At most three standard errors less power, and as few fits without a certificate."""
    for name, (runs, power, uncertified) in regression_study.EARLIER.items():
        row = regressions[name]
        if power is not None:
            assert differs_by((row["runs"], row["rejected"]), (runs, power)) > -3, name
        assert differs_by((row["runs"], row["not certified"]), (runs, uncertified)) < 3, name
    assert regressions["list, no effect"]["rejected"] < 0.08
    assert differs_by((2000, 0.5), (200, 0.65)) < -3  # otherwise the comparison could not fail


def test_the_page_of_regressions_has_the_kept_table(regressions):
    page = (RESULTS.parents[1] / "docs" / "howto" / "regression.md").read_text(encoding="utf-8")
    assert regression_study.table_of(regressions) in page


def test_a_kept_regression_study_is_of_this_code():
    """The first estimates of a setting are drawn again: a change that moves them needs a new study."""
    study = regression_study.Study("warner")
    study.add(3)
    np.testing.assert_allclose([row[0][3] for row in study.rows], FIRST_OF_WARNER, rtol=1e-6)


def test_regressions_are_as_fast_as_stated():
    rows = {row["name"]: row for row in json.loads((RESULTS / "regression_speed.json").read_text("utf-8"))}
    assert rows["one step, n = 100,000, p = 10"]["ratio"] < 3
    assert rows["1,000,000 records, 10 continuous covariates"]["seconds"] < 60
    merged = rows["1,000,000 records, 10 two-valued covariates"]["seconds"]
    assert (
        merged < rows["1,000,000 records, 10 continuous covariates"]["seconds"] / 4
    )  # equal rows are merged


def test_missing_answers_are_estimated_as_well_as_stated():
    kept = json.loads((RESULTS / "missing_coverage.json").read_text(encoding="utf-8"))
    assert kept["runs"] == missing_coverage.RUNS
    for title in ("driver clear", "driver flipped 25%"):
        for name, row in kept[title].items():
            is_median = name == "median, answered"  # its interval is too wide
            assert missing_coverage.LOWEST <= row["coverage"] <= (0.98 if is_median else 0.97), (title, name)
            error = row["spread"] / np.sqrt(kept["runs"])
            assert abs(row["bias"]) < 5 * error, (title, name)
        whole = kept[title]["mean, answered"]["whole population"]
        assert whole == 0.0  # complete cases never contain the mean of all people
    twin = kept["twin of the file"]
    assert {"mean of v0", "mean of v1", "median of v1", "share of north in v2"} <= set(twin)
    for name, row in twin.items():
        most = 1.0 if "median" in name else missing_coverage.HIGHEST  # a whole number is its own interval
        assert row["runs"] == missing_coverage.RUNS, name
        assert missing_coverage.LOWEST <= row["coverage"] <= most, name
        assert abs(row["bias"]) <= 5 * row["spread"] / np.sqrt(row["runs"]), name


def test_survival_from_counts_is_that_of_lifelines_and_holds_under_disguise():
    kept = json.loads((RESULTS / "survival.json").read_text(encoding="utf-8"))
    for trial in kept["clear"].values():
        assert trial["largest gap of the curves"] < 1e-14
        for name, bound in (
            ("log-rank", 1e-9),
            ("log hazard ratio, ties broken", 1e-6),
            ("standard error, ties broken", 1e-6),
        ):
            assert abs(trial[name] - trial[f"{name}, lifelines"]) < bound
    assert kept["clear"]["rossi"]["log-rank"] == pytest.approx(3.837570, abs=1e-6)
    assert kept["runs"] == 400
    for row in kept["disguised"]:
        assert 0.93 <= row["coverage of the hazard ratio"] <= 0.97
        assert 0.93 <= row["coverage of the curve"] <= 0.97
        assert abs(row["mean"] - row["beta"]) < 5 * row["standard deviation"] / np.sqrt(kept["runs"])
    assert 0.03 <= kept["disguised"][1]["log-rank rejects"] <= 0.07
    assert kept["disguised"][0]["reports taken as truth"]["coverage"] < 0.3
