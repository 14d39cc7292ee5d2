"""Means, quantiles, clusters, tests of classifiers and what records can show, in the studio."""

import re

import numpy as np
import pandas as pd
import pytest
from tests.studio.world import Visitor, steps_of


@pytest.fixture(scope="module")
def visitor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studio")
    rng = np.random.default_rng(38)
    n = 6000
    visits = rng.integers(0, 4, n)
    ill = np.where(rng.random(n) < 0.05 + 0.1 * visits, "yes", "no")
    frame = pd.DataFrame({"visits": visits, "ill": ill, "sex": rng.choice(["f", "m"], n)})
    frame.to_csv(folder / "people.csv", index=False)
    came = Visitor(folder / "project")
    answer = came.post("data", do="draft", data=str(folder / "people.csv"))
    came.page(answer.headers["location"])
    changed = came.post("policy", do="limit", kind="gamma", limit="4000")
    assert changed.status_code == 303, changed.text
    for name in ("visits", "ill", "sex"):
        changed = came.post("policy", do="gamma", name=name, stop="15")
        assert changed.status_code == 303, changed.text
    made = came.post("release", shuffle="1", ending="csv")
    assert "Released" in came.page(made.headers["location"])
    yield came
    came.close()


def commands_of(page):
    return [command for command, _ in steps_of(page)]


def test_means_and_quantiles(visitor):
    page = visitor.page("estimate?do=mean&of=visits&by=sex")
    assert any("stats mean" in command and "--by sex" in command for command in commands_of(page))
    assert "mq.stats.mean(" in page
    middle = visitor.page("estimate?do=quantile&of=visits&q=0.25")
    assert any("--q 0.25" in command for command in commands_of(middle))
    assert "q=0.25" in middle


def test_what_the_records_can_show(visitor):
    page = visitor.page("estimate?do=enough")
    assert "Associations that these records can show" in page
    assert "visible_pairs(" in page
    assert page.count("associations</td>") + page.count("nothing</td>") == 3


def test_clusters_by_the_variables_with_numbers(visitor):
    page = visitor.page("learn?do=k-means&k=2&names=visits")
    assert "--k 2 --names visits" in page
    assert "mq.learn.k_means(" in page
    assert "k=2, names=" in page
    form = visitor.page("learn")
    assert re.findall(r'name="names" value="([^"]+)"', form) == ["visits"]
    assert "Choose the number of clusters" in visitor.page("learn?do=k-means")


def test_a_classifier_is_tested_next_to_the_trivial_one(visitor):
    page = visitor.page("learn?do=naive-bayes&target=ill")
    assert "How well does it predict?" in page
    records = re.search(r'name="test" value="([^"]+)"', page)[1]
    tested = visitor.page(f"learn?do=naive-bayes&target=ill&test={records}")
    for measure in (
        "sensitivity",
        "specificity",
        "positive predictive value",
        "AUC",
        "accuracy above trivial",
    ):
        assert measure in tested
    assert "for every record" in tested
    assert "Confusion matrix" in tested
    assert "Thresholds" in tested
    named = visitor.page(f"learn?do=naive-bayes&target=ill&test={records}&positive=no")
    assert any("--positive no" in command for command in commands_of(named))
    assert "= no, n = 6,000" in named


def test_undo_in_a_second_tab_is_said(visitor):
    """Both tabs show the same version; the second one undoes nothing after the first has."""
    at = re.search(r'name="at" value="(\d+)"', visitor.page("policy"))[1]
    first = visitor.post("undo", to=str(int(at) - 1), at=at, page="policy")
    assert first.status_code == 303
    second = visitor.post("undo", to=str(int(at) - 1), at=at, page="policy")
    assert second.status_code != 303
    assert "Another tab or window has changed the project" in second.text
    assert visitor.studio.project.at == int(at) - 1
    visitor.post("undo", to=at, at=str(int(at) - 1), page="policy")


def test_all_columns_have_one_click(visitor):
    page = visitor.page("policy")
    assert re.findall(r'data-all="(\w+)"', page) == ["sensitive", "none", "clear"]


def test_a_network_is_asked_with_errors(visitor):
    form = visitor.page("learn")
    assert '<option value="composite" >together, by pairs of variables</option>' in form
    page = visitor.page("learn?do=network&method=likelihood&of=ill&given=visits%3D3")
    assert "--method likelihood" in page
    assert "P(ill | visits=3)" in page
    query = page.partition("P(ill | visits=3)</caption>")[2].partition("</table>")[0]
    assert re.findall(r"<th [^>]*>([^<]*)</th>", query) == ["ill", "probability", "stderr", "lower", "upper"]
    assert "--query" in page
    assert ".project().query(" in page
    assert "errors by the delta method" in page


def test_a_network_of_separate_tables_says_why_a_query_has_no_errors(visitor):
    page = visitor.page("learn?do=network&of=ill&given=visits%3D3").partition("Ask the network")[2]
    assert "fit the network with method=" in page
    refused = visitor.page("learn?do=network&of=ill&given=nothing%3D3").partition("Ask the network")[2]
    assert "nothing" in refused
    assert "P(ill | " not in refused
