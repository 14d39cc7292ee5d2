"""Verdicts, figures in words, files, and the page that shows them."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pandas as pd
import pytest
from tests.e2e.test_demo import Page
from tests.experiments.test_runner import COIN, HUNGRY, LATER, ODD, chosen

from masquerade_experiments.command import notes
from masquerade_experiments.experiment import Comparison
from masquerade_experiments.ma_2006.averages import mean_of
from masquerade_experiments.page import effort, report_html, row
from masquerade_experiments.result_files import write_results
from masquerade_experiments.runner import reproduce
from masquerade_experiments.summary import (
    Outcome,
    comparison_values,
    means,
    outcome_values,
    overall,
    overall_text,
    table_cells,
)
from masquerade_experiments.wording import difference_text, figure, paper_text, setting_text, with_error
from masquerade_experiments.zhan_2004.presentation import mean_and_error

MATCH = Comparison("a", 1.0, 1.1, stderr=0.1)
DIFFER = Comparison("b", 1.0, 2.0, stderr=0.1, why="It must.")
SURPRISE = Comparison("c", 1.0, 2.0)
UNEXPECTED = "This was not expected, and nothing explains it."
NO_PAPER = Comparison("d", None, 2.0)
UNDECIDED = Comparison("f", 1.0, 0.87, stderr=0.42, rule="at most")
FORMULA = replace(MATCH, kind="printed formula")
CLAIM = replace(MATCH, kind="claim as read", read_as="“Near”, read as: equal.")
COUNT = replace(MATCH, kind="own count")
NUMBERS = "matches printed numbers"
TOTAL = (
    "4 experiments: 1 matches printed numbers, 1 differs, 1 pending, 1 not run. "
    "Values: 1 of 2 printed numbers."
)
SEEN = "It must. Check: masquerade this"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduction")


@pytest.fixture(scope="module")
def outcomes(out):
    return reproduce(chosen(COIN, ODD, HUNGRY, LATER), out, quick=True)


@pytest.fixture(scope="module")
def written(outcomes, out):
    return write_results(outcomes, out, quick=True).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(written):
    return Page(written)


def compared(outcomes, *comparisons):
    """Return the first outcome with other comparisons."""
    found = outcomes[0]
    return Outcome(found.about, replace(found.findings, comparisons=comparisons))


@pytest.mark.parametrize(
    ("comparisons", "verdict", "counts", "whys"),
    [
        ((MATCH, MATCH), NUMBERS, "2 of 2 printed numbers", ()),
        ((MATCH, NO_PAPER), NUMBERS, "1 of 1 printed number", ()),
        ((MATCH, DIFFER), "differs", "1 of 2 printed numbers", ("It must.",)),
        ((SURPRISE, DIFFER, DIFFER), "differs", "0 of 3 printed numbers", (UNEXPECTED, "It must.")),
        ((NO_PAPER,), "nothing to compare", "–", ()),
        ((), "nothing to compare", "–", ()),
        ((Comparison("e", 1.0, math.nan, stderr=0.1),), "differs", "0 of 1 printed number", (UNEXPECTED,)),
        ((FORMULA,) * 2, "matches a printed formula", "2 of 2 values of printed formulas", ()),
        ((FORMULA, MATCH), NUMBERS, "1 of 1 printed number, 1 of 1 printed formula", ()),
        ((CLAIM, COUNT), "keeps claims as read", "1 of 1 claim as read, 1 of 1 own count", ()),
        ((COUNT,), "agrees by our own count", "1 of 1 own count", ()),
        ((CLAIM, DIFFER), "differs", "0 of 1 printed number, 1 of 1 claim as read", ("It must.",)),
        ((MATCH, UNDECIDED), "undecided", "1 of 2 printed numbers", ()),
        ((UNDECIDED, DIFFER), "differs", "0 of 2 printed numbers", ("It must.",)),
        ((replace(DIFFER, check="masquerade this"),), "differs", "0 of 1 printed number", (SEEN,)),
    ],
)
def test_the_verdict_over_all_comparisons(outcomes, comparisons, verdict, counts, whys):
    outcome = compared(outcomes, *comparisons)
    assert (outcome.verdict, outcome.counts, outcome.whys) == (verdict, counts, whys)
    assert json.loads(json.dumps(outcome_values(outcome), allow_nan=False))["verdict"] == verdict


@pytest.mark.parametrize(
    ("ours", "stderr", "verdict"),
    [
        (0.87, 0.42, "undecided"),  # the right side of the bound, by chance as likely as not
        (0.87, 0.06, "matches"),
        (1.05, 0.02, "differs"),
        (1.05, 0.03, "undecided"),  # no claim passes on the wrong side
        (1.0, 0.0, "matches"),
        (1.001, 0.0, "differs"),
        (0.87, math.nan, "undecided"),  # one run has no error
        (1.05, math.nan, "undecided"),
    ],
)
def test_claims_are_judged_by_sign_and_size(ours, stderr, verdict):
    assert Comparison("claim", 1.0, ours, stderr, rule="at most").verdict == verdict
    assert Comparison("claim", -1.0, -ours, stderr, rule="at least").verdict == verdict


@pytest.mark.parametrize(
    ("ours", "stderr", "verdict"),
    [
        (1.0, 0.0, "differs"),  # nothing shows a difference: both sides are the same
        (0.999, 0.0, "matches"),
        (1.0 - 1e-14, 0.0, "differs"),  # rounding is no difference
        (1.0, 0.1, "undecided"),
        (0.7, 0.1, "matches"),
        (1.3, 0.1, "differs"),
        (1.0, math.nan, "undecided"),
        (math.nan, 0.1, "differs"),
        (-math.inf, 0.0, "differs"),  # nothing that is no number agrees
    ],
)
def test_claims_of_a_difference_need_one(ours, stderr, verdict):
    assert Comparison("claim", 1.0, ours, stderr, rule="below").verdict == verdict
    assert Comparison("claim", -1.0, -ours, stderr, rule="above").verdict == verdict


def test_one_run_has_no_error_which_is_shown_and_said():
    (spread, mean) = (mean_of(pd.Series([0.5])).spread, mean_and_error(pd.Series([0.5])))
    assert math.isnan(spread)
    assert math.isnan(mean[1])
    alone = Comparison("value", 1.0, 0.5, mean[1])
    assert (row(alone)["ours"], alone.z, alone.verdict) == ("0.5 ± –", None, "undecided")
    assert comparison_values(alone)["stderr"] is None
    assert Comparison("value", 1.0, 0.9, mean[1], reading=0.2).verdict == "matches"
    assert effort(2, 1, 3.0, 7).endswith("One run has no standard error (–).")


def test_who_is_left_undecided_is_told_how_to_decide(outcomes):
    (line,) = notes([compared(outcomes, MATCH, UNDECIDED)])
    runs, identity = outcomes[0].findings.runs, outcomes[0].about.id
    assert line.endswith(f"more runs may decide it. Try: masquerade reproduce {identity} --runs {4 * runs}")


def test_all_verdicts_together(outcomes):
    assert [outcome.verdict for outcome in outcomes] == [NUMBERS, "differs", "not run", "pending"]
    assert overall(outcomes) == {NUMBERS: 1, "differs": 1, "pending": 1, "not run": 1}
    assert overall_text(outcomes) == TOTAL
    assert overall_text(outcomes[:1] * 2).startswith("2 experiments: 2 match printed numbers. Values: ")
    assert overall_text(outcomes[1:2]).startswith("1 experiment: 1 differs. Values: ")


def test_an_experiment_that_repeats_another_is_counted_once(outcomes):
    again = Outcome(replace(outcomes[0].about, id="toy-again", repeats="toy-coin"), outcomes[0].findings)
    once = overall_text(outcomes[:1])
    both = overall_text([outcomes[0], again])
    assert both == once.replace("1 experiment:", "1 experiment, 1 more repeats one of them:")
    assert outcome_values(again)["repeats"] == "toy-coin"
    # alone, it is not a repetition of anything that is shown
    assert overall_text([again]) == once


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.123456, "0.1235"),
        (1234.56, "1,235"),
        (99999.9, "100,000"),
        (-0.00123456, "−0.001235"),
        (1.5e-7, "1.500e−07"),
        (0.0, "0"),
        (100.0, "100"),
        (math.nan, "–"),
        (math.inf, "∞"),
    ],
)
def test_figures(value, text):
    assert figure(value) == text


@pytest.mark.parametrize(
    ("value", "stderr", "text"),
    [
        (0.41234, 0.00567, "0.4123 ± 0.0057"),
        (-0.41234, 0.1, "−0.41 ± 0.10"),
        (1234.5, 56.7, "1,234 ± 57"),
        (3.0, 0.0, "3"),
        (3.0, math.nan, "3 ± –"),
        (math.nan, 0.1, "–"),
        (2.0, 1e-12, "2 ± 1.0e−12"),
    ],
)
def test_figures_with_errors(value, stderr, text):
    assert with_error(value, stderr) == text


def test_comparisons_in_words():
    assert paper_text(replace(MATCH, rule="at most", reading=0.05)) == "at most 1, to within 0.05"
    assert paper_text(replace(MATCH, paper_stderr=0.02)) == "1 ± 0.02"
    assert paper_text(replace(MATCH, rule="below")) == "below 1"
    assert paper_text(NO_PAPER) == difference_text(NO_PAPER) == "–"
    assert difference_text(MATCH) == "+1.0 s.e."
    assert difference_text(replace(MATCH, ours=0.75)) == "−2.5 s.e."
    assert difference_text(replace(MATCH, ours=1 - 1e-9)) == "+0.0 s.e."
    assert difference_text(SURPRISE) == "+1"
    assert difference_text(replace(SURPRISE, ours=1.0)) == "0"
    assert setting_text({}) == "the only setting"


def test_comparisons_as_values():
    values = comparison_values(DIFFER)
    assert values["difference"] == pytest.approx(1.0)
    assert values["standard_errors"] == pytest.approx(10.0)
    assert (values["verdict"], values["why"]) == ("differs", "It must.")
    assert comparison_values(replace(MATCH, ours=math.nan))["ours"] is None


def test_means_over_runs():
    frame = pd.DataFrame(
        {
            "n": [10, 10, 10, 10, 20],
            "run": [0, 0, 1, 1, 0],
            "node": ["A", "B", "A", "B", "A"],
            "value": [1.0, 2.0, 3.0, 2.0, 5.0],
        }
    )
    head, rows = table_cells(means(frame, ["n"]))
    assert head == ["n", "node", "value"]
    assert rows == [["10", "A", "2.0 ± 1.0"], ["10", "B", "2"], ["20", "A", "5"]]
    head, rows = table_cells(means(frame[["run", "value"]].iloc[:2], []))
    assert (head, rows) == (["runs", "value"], [["all", "1.5"]])


def test_a_table_of_its_own_is_shown_as_it_is():
    table = pd.DataFrame(
        {"x": [1.23456, None], "y": [True, False], "z": ["a", None]}, index=pd.Index([3, 4], name="n")
    )
    assert table_cells(table) == (
        ["n", "x", "y", "z"],
        [["3", "1.235", "yes", "a"], ["4", "–", "no", "–"]],
    )


def test_the_page_shows_every_value(outcomes, page):
    for outcome in outcomes[:2]:
        for item in outcome.comparisons:
            assert with_error(item.ours, item.stderr) in page.text
            assert difference_text(item) in page.text
        assert str(outcome.findings.seed) in page.text
        assert outcome.about.shows in page.text
        for cells in table_cells(outcome.findings.table)[1]:
            assert all(text in page.text for text in cells)
    for words in (
        TOTAL,
        "The coins are made of <brass>.",
        "The paper forgets that coins have two sides.",
        "Why: The paper counts from three.",
        "was not found",
        "It waits for better times.",
        "Heads & tails",
        "quick version",
        "4 runs at each of 2 settings",
    ):
        assert words in page.text


def test_the_page_explains_what_differs_and_only_that(outcomes):
    expected = replace(MATCH, why="It might have differed.")
    shown = Page(report_html([compared(outcomes, SURPRISE, DIFFER, expected)], quick=False)).text
    assert f"Why: {UNEXPECTED}" in shown
    assert "Why: It must." in shown
    assert shown.count("Why:") == 2
    assert "quick version" not in shown


def test_the_page_needs_nothing_from_outside(written, page, outcomes, out):
    assert page.tags["script"] == page.tags["link"] == page.tags["iframe"] == page.tags["img"] == 0
    assert "http" not in written
    assert "@import" not in written
    assert all(address.startswith("#") for address in re.findall(r"url\(([^)]*)\)", written))
    inside = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    assert inside <= set(page.ids)
    assert {outcome.about.id for outcome in outcomes} <= inside
    assert max(page.ids.values()) == 1
    files = [link for link in page.links if not link.startswith("#")]
    assert len(files) == 6
    assert all((out / link).is_file() for link in files)


def test_the_page_can_be_used_without_seeing_it(written, page):
    assert len(page.labels) == page.tags["svg"] == 2
    assert all(len(label) > 20 for label in page.labels)
    levels = [int(level) for level in re.findall(r"<h([1-6])", written)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all("scope=" in head for head in re.findall(r"<th\b[^>]*>", written))
    assert '<html lang="en">' in written
    for verdict in ("matches", "differs", "pending", "not run"):  # words, not colours alone
        assert re.search(
            rf'<span class="verdict \w+"><span aria-hidden="true">.</span> {verdict}</span>', written
        )


def test_the_files_of_an_experiment(written, outcomes, out):
    assert written
    for outcome in outcomes[:2]:
        folder = out / outcome.about.id
        assert {path.name for path in folder.iterdir()} == {
            "data.csv",
            "comparison.csv",
            "comparison.json",
            "figure.svg",
            "figure.png",
        }
        read = pd.read_csv(folder / "data.csv")
        pd.testing.assert_frame_equal(read, outcome.findings.frame)
        values = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
        assert values["verdict"] == outcome.verdict
        assert values["comparisons"][0]["ours"] == outcome.comparisons[0].ours
        table = pd.read_csv(folder / "comparison.csv")
        assert list(table["verdict"]) == [item.verdict for item in outcome.comparisons]
        assert ET.parse(folder / "figure.svg").getroot().tag.endswith("}svg")  # noqa: S314  (our own file)
        assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in out.iterdir()} == {"work", "index.html", "toy-coin", "toy-odd"}
