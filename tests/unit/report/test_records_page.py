"""The report on records: what it says without links, and how it shows the test of a classifier."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

import masquerade as mq
from masquerade.report.records_page import describe_undecided, survey_findings, survey_page

FILES = {"policy": None, "records": "people.csv"}
SCHEMA = {"a": ["x", "y"], "b": ["u", "v"], "ill": ["no", "yes"]}
POLICY = mq.Policy.build(SCHEMA, {"ill": mq.channels.binary("1/10")})


def source_of(n, seed, share):
    """Return a tally of disguised records; `share` of the ill have a = y, of the others 30%."""
    draw = np.random.default_rng(seed)
    ill = draw.random(n) < 0.024
    a = draw.random(n) < np.where(ill, share, 0.3)
    people = pd.DataFrame(
        {
            "a": np.where(a, "y", "x"),
            "b": draw.choice(["u", "v"], n),
            "ill": np.where(ill, "yes", "no"),
        }
    )
    return mq.tally(mq.simulate(people, POLICY, seed=seed), POLICY)


def test_a_report_without_links_says_by_which_test_and_offers_the_smallest_p_value():
    found = survey_findings(source_of(400, 3, 0.3), POLICY)
    assert min(found.tests.p_adjusted) >= 0.05
    page = survey_page(found, "Report", FILES)
    assert "Decided by Pearson" in page
    assert "Holm" in page
    smallest = int(np.argmin(found.tests.p_values))
    assert f"({found.tests.names[smallest]})" in describe_undecided(found.tests)
    assert "does not show that there is no link" in page
    linked = survey_findings(source_of(20_000, 4, 0.9), POLICY)
    assert "Decided by Pearson" not in survey_page(linked, "Report", FILES)


def test_a_report_of_a_rare_class_has_all_measures_and_the_trivial_classifier():
    source = source_of(20_000, 5, 0.9)
    model = mq.learn.naive_bayes(source, "ill")
    tested = mq.evaluate.performance(model, source)
    page = survey_page(replace(survey_findings(source, POLICY), performance=tested), "Report", FILES)
    text = re.sub(r"<[^>]+>", " ", page)
    for measure in (
        *("sensitivity", "specificity", "positive predictive value", "negative predictive value", "AUC"),
        *("accuracy above trivial", "prevalence", "predicts no for every record", "threshold"),
    ):
        assert measure in text, measure
    assert page.count('aria-label="Measures of the classifier with intervals"') == 1


def test_each_plot_of_a_report_is_laid_out_once_and_drawn_once(monkeypatch):
    drawn, laid_out = [], []
    draw, execute = Figure.draw, ConstrainedLayoutEngine.execute

    def count_drawing(figure, renderer):
        drawn.append(figure)
        return draw(figure, renderer)

    def count_layout(engine, figure):
        laid_out.append(figure)
        return execute(engine, figure)

    monkeypatch.setattr(Figure, "draw", count_drawing)
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", count_layout)
    page = survey_page(survey_findings(source_of(20_000, 4, 0.9), POLICY), "Report", FILES)
    plots = page.count("<svg")
    assert plots >= 4
    assert len(drawn) == len({id(figure) for figure in drawn}) == plots
    assert len(laid_out) == len({id(figure) for figure in laid_out}) <= plots
