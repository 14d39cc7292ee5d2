"""Dots with intervals: a row for each label, none on another, on axes of one's own or of a new figure."""

import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

import masquerade as mq
from masquerade.core.plots import style
from masquerade.core.plots.drawing import Dots, dot_plot, shorten_label

FRAME = pd.DataFrame({"a": ["x", "y", "z"] * 40, "b": [1, 2] * 60})


def labels_of(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def assert_apart(axes):
    """No label of a row lies on another."""
    axes.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])


def test_rows_stand_from_the_top_and_apart():
    values = np.arange(5.0)
    axes = dot_plot(list("abcde"), {"one": Dots(values, values - 1, values + 1)}, xlabel="count")
    assert labels_of(axes) == list("abcde")
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert axes.get_legend() is None
    assert_apart(axes)


def test_only_so_many_rows_are_drawn_and_the_rest_is_said():
    values = np.arange(1000.0)
    axes = dot_plot(range(1000), {"one": Dots(values)}, xlabel="count")
    assert len(labels_of(axes)) == 60
    assert "940 more rows are not drawn" in axes.get_xlabel()
    assert_apart(axes)


def test_infinite_ends_and_no_rows_at_all_are_drawn():
    ends = np.array([np.inf, 1.0])
    dot_plot(["a", "b"], {"one": Dots(np.zeros(2), -ends, ends)}, xlabel="x").figure.canvas.draw()
    dot_plot([], {"one": Dots(np.zeros(0))}, xlabel="x").figure.canvas.draw()


def test_long_labels_are_cut_and_dollars_are_dollars():
    assert shorten_label("$" + "a" * 80) == r"\$" + "a" * 42 + "…"
    assert shorten_label("abc", 2) == "a…"


@pytest.mark.parametrize(
    ("by", "rows", "legend"),
    [
        ((), ["all records"], None),
        (("a",), ["a = x", "a = y", "a = z"], None),
        (("a", "b"), ["a = x", "a = y", "a = z"], ["1", "2"]),
    ],
)
def test_a_table_is_drawn(by, rows, legend):
    (table,) = mq.tally(FRAME).answer([mq.Query(by=by)])
    before = "matplotlib.pyplot" in sys.modules
    axes = table.plot()
    assert ("matplotlib.pyplot" in sys.modules) == before
    assert labels_of(axes) == rows
    assert "95% intervals" in axes.get_xlabel()
    assert (legend is None) == (axes.get_legend() is None)
    if legend is not None:
        assert [text.get_text() for text in axes.get_legend().get_texts()] == legend
    own = Figure().subplots()
    assert table.plot(own) is own


def test_svg_is_laid_out_once_and_as_saving_does(monkeypatch):
    values = np.arange(4.0)
    series = {"one": Dots(values, values - 1, values + 1), "another": Dots(values + 1)}

    def draw():
        with style.house_style():
            labels = ["short", "a much longer label", "x", "y"]
            return style.svg(dot_plot(labels, series, xlabel="count", title="Title").figure, "name")

    passes = []
    execute = ConstrainedLayoutEngine.execute
    monkeypatch.setattr(
        ConstrainedLayoutEngine, "execute", lambda engine, fig: passes.append(fig) or execute(engine, fig)
    )
    text = draw()
    assert len(passes) == 1
    monkeypatch.setattr(style, "_lay_out", lambda _: None)
    assert text == draw()
