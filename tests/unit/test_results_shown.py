"""Every result shows itself: in a notebook as kept, as text in few lines, as a picture, in files for papers.

``python -m tests.unit.test_results_shown`` keeps the pages anew.
"""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.report.export import export_result

KEPT = Path(__file__).parent / "shown_results.json"
SCHEMA = {"a": ["no", "yes"], "b": [0, 1, 2], "c": ["u", "<v>"]}
POLICY = mq.Policy.build(
    SCHEMA,
    {"a": mq.channels.binary("1/5"), "b": mq.channels.symmetric(3, 0.3), "c": mq.channels.binary("1/10")},
)
FIGURE = re.compile(r"\d[\d,]*\.?\d*(?:e-?\d+)?")


def source():
    draw = np.random.default_rng(3)
    a = draw.integers(2, size=4000)
    b = np.where(draw.random(4000) < 0.6, 2 * a, draw.integers(3, size=4000))
    c = np.where(draw.random(4000) < 0.7, a, draw.integers(2, size=4000))
    labels = dict(zip(SCHEMA, (a, b, c), strict=True))
    people = pd.DataFrame({name: np.array(SCHEMA[name])[codes] for name, codes in labels.items()})
    return mq.tally(mq.simulate(people, POLICY, seed=4), POLICY)


def results():
    """Return one result of every kind."""
    data = source()
    [table] = data.answer([mq.Query(by=("a", "c"))])
    network = mq.learn.bayesian_network(data, {"a": (), "b": ("a",), "c": ("a",)})
    bayes = mq.learn.naive_bayes(data, "a")
    return {
        "table": table,
        "shares": mq.stats.shares(data, "a", by="c"),
        "test": mq.stats.independence(data, "a", "b"),
        "tests": mq.stats.associations(data),
        "loglinear": mq.stats.loglinear(data, [["a", "b"], ["c"]]),
        "regression": mq.stats.logistic(data, "a ~ b"),
        "posterior": data.posterior(mq.Query(by=("a",)), seed=1),
        "misfit": data.misfit(["a"]),
        "naive bayes": bayes,
        "performance": mq.evaluate.performance(bayes, data),
        "tree": mq.learn.decision_tree(data, "a"),
        "linear": mq.learn.linear_classifier(data, "a"),
        "structure": mq.learn.structure(data),
        "network": network,
        "node": network.tables[1],
        "rules": mq.learn.association_rules(data, min_support=0.1),
        "itemsets": mq.learn.frequent_itemsets(data, min_support=0.2),
        "accuracy": mq.evaluate.accuracy(bayes, data),
        "privacy": mq.privacy(POLICY),
        "guarantee": data.guarantee,
    }


@pytest.fixture(scope="module")
def shown():
    return results()


def figures(page):
    return [float(number.replace(",", "") or 0) for number in FIGURE.findall(page)]


class Strict(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, _attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_result_shows_itself_as_kept(shown):
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert set(kept) == set(shown)
    for name, result in shown.items():
        page = result._repr_html_()
        assert FIGURE.sub("#", page) == FIGURE.sub("#", kept[name]), name
        # figures of simulated tests and posteriors are drawn: the others agree to the digits shown
        assert figures(page) == pytest.approx(figures(kept[name]), rel=0.02, abs=0.02), name
        strict = Strict()
        strict.feed(page)
        assert strict.open == []
        assert "<v>" not in page  # a label is no element of the page
        assert len(repr(result).splitlines()) <= 30, name


def test_every_result_that_has_a_picture_draws_it_on_a_page(shown):
    drawn = {name for name, result in shown.items() if hasattr(result, "plot")}
    assert drawn >= {
        *("table", "shares", "test", "tests", "loglinear", "regression", "naive bayes"),
        *("tree", "linear", "structure", "network", "node", "rules", "itemsets"),
    }
    for name in drawn:
        axes = shown[name].plot()
        width, height = axes.figure.get_size_inches()
        assert width <= 11.7, name
        assert height <= 20, name


def test_a_wide_tree_fits_a_page():
    draw = np.random.default_rng(1)
    wide = {"t": ["n", "y"], "f": list(range(12)), "g": list(range(12))}
    f, g = draw.integers(12, size=(2, 20_000))
    people = pd.DataFrame({"t": np.where(f + g > 11, "y", "n"), "f": f, "g": g})
    tree = mq.learn.decision_tree(mq.tally(people, schema=mq.Schema(wide)), "t")
    assert tree.depth == 2
    for axes in (tree.plot(), tree.plot(max_depth=2)):
        assert axes.figure.get_size_inches()[0] <= 11.0 + 1e-9


def test_a_network_says_what_its_signs_are(shown):
    words = " ".join(text.get_text() for text in shown["network"].plot().texts)
    assert "±: largest standard error of a probability" in words


def test_tables_for_papers(shown, tmp_path):
    table = shown["table"]
    assert table.to_markdown().split("\n")[2] == "| a | c | count | stderr | lower | upper |"
    latex = shown["shares"].to_latex()
    assert latex.startswith("\\begin{table}")
    assert "\\%" in latex
    assert latex.count("\\\\\n") == 1 + 4
    assert "<" not in latex.replace("$<$", "")
    sheet = tmp_path / "t.xlsx"
    sheet.write_bytes(export_result(table, sheet))
    rows = list(openpyxl.load_workbook(sheet).active.iter_rows(values_only=True))
    assert rows[0] == ("a", "c", "count", "stderr", "lower", "upper")
    assert len(rows) == 5
    assert export_result(table, "t.csv").decode().startswith("a,c,count")
    assert export_result(shown["tree"], "t.txt").decode().startswith("Decision tree")
    with pytest.raises(InputError, match="must end in"):
        export_result(table, "t.docx")
    with pytest.raises(InputError, match="no rows"):
        shown["tree"].to_latex()


if __name__ == "__main__":
    pages = {name: result._repr_html_() for name, result in results().items()}
    KEPT.write_text(json.dumps(pages, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
