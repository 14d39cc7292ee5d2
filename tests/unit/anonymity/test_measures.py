"""The figures of a table against pycanon's, against their definitions, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pycanon import anonymity as pycanon

from masquerade.anonymity import check
from masquerade.core.errors import InputError

TABLES = hnp.arrays(np.int64, st.tuples(st.integers(1, 30), st.just(4)), elements=st.integers(0, 3))
NAMES = ["q0", "q1", "word", "number"]


def as_frame(codes):
    frame = pd.DataFrame(codes, columns=NAMES)
    return frame.assign(word=frame["word"].map(dict(enumerate("wxyz"))).astype(str))


def by_definition(frame, name):
    """Return every figure of a sensitive column, class by class as it is written in the papers."""
    whole = frame[name].value_counts(normalize=True).sort_index()
    found = {"l": [], "entropy": [], "c": [], "t": [], "ordered": []}
    for _, own in frame.groupby(["q0", "q1"]):
        shares = own[name].value_counts(normalize=True)
        counts = own[name].value_counts().to_numpy()
        found["l"].append(len(shares))
        found["entropy"].append(-sum(p * math.log(p) for p in shares))
        found["c"].append([counts[0] / counts[l - 1 :].sum() for l in range(2, len(counts) + 1)])
        difference = shares.reindex(whole.index, fill_value=0.0) - whole
        found["t"].append(difference.abs().sum() / 2)
        found["ordered"].append(difference.cumsum().abs().sum() / max(len(whole) - 1, 1))
    return found


@given(TABLES)
@settings(deadline=None, max_examples=60)
def test_the_figures_are_those_of_the_definitions(codes):
    frame = as_frame(codes)
    report = check(frame, ["q0", "q1"], ["word", "number"])
    sizes = frame.groupby(["q0", "q1"]).size()
    assert (report.k, report.classes, report.rows) == (sizes.min(), len(sizes), len(frame))
    assert report.unique_rows == (sizes == 1).sum()
    assert report.class_sizes == sizes.value_counts().sort_index().to_dict()
    assert report.rows_below(3) == sizes[sizes < 3].sum()
    for own in report.sensitive:
        truth = by_definition(frame, own.name)
        assert own.distinct_l == min(truth["l"])
        assert own.entropy_l == pytest.approx(math.exp(min(truth["entropy"])))
        assert own.t_equal == pytest.approx(max(truth["t"]))
        assert list(own.recursive_c) == list(range(2, min(truth["l"]) + 1))
        for l, c in own.recursive_c.items():
            assert c == pytest.approx(max(ratios[l - 2] for ratios in truth["c"]))
        alike = [size for size, l in zip(sizes, truth["l"], strict=True) if l == 1]
        assert (own.homogeneous_classes, own.homogeneous_rows) == (len(alike), sum(alike))
        assert sum(own.rows_by_distinct.values()) == len(frame)
    words, numbers = report.sensitive
    assert words.t_ordered is None
    assert numbers.t_ordered == pytest.approx(max(by_definition(frame, "number")["ordered"]), abs=1e-12)


@given(TABLES)
@settings(deadline=None, max_examples=25)
def test_pycanon_finds_the_same(codes):
    frame = as_frame(codes)
    quasi = ["q0", "q1"]
    report = check(frame, quasi, ["word", "number"])
    assert report.k == pycanon.k_anonymity(frame, quasi)
    for own in report.sensitive:
        assert own.distinct_l == pycanon.l_diversity(frame, quasi, [own.name])
        # pycanon rounds down, also what is below a whole number by rounding error alone
        assert pycanon.entropy_l_diversity(frame, quasi, [own.name]) in {
            math.floor(own.entropy_l + 1e-9),
            math.floor(own.entropy_l - 1e-9),
        }
        if own.values > 1:  # it divides by values - 1; words have equal distances, numbers an order
            expected = own.t_equal if own.t_ordered is None else own.t_ordered
            assert pycanon.t_closeness(frame, quasi, [own.name]) == pytest.approx(expected, abs=1e-12)
    # its recursive c divides the rarest value's count by that of more frequent ones, not the most frequent
    # one's by that of rarer ones as Machanavajjhala et al. do: not compared


@pytest.mark.parametrize("kind", [lambda f: f, pl.from_pandas, pa.Table.from_pandas])
def test_a_small_table_by_hand(kind):
    frame = pd.DataFrame(
        {"zip": ["07*", "07*", "07*", "08", "08"], "illness": ["flu", "flu", "cold", "flu", "flu"]}
    )
    report = check(kind(frame), ["zip"], ["illness"])
    assert (report.k, report.classes, report.uniqueness) == (2, 2, 0.0)
    (own,) = report.sensitive
    assert own.distinct_l == 1
    assert (own.homogeneous_classes, own.homogeneous_rows) == (1, 2)
    assert own.t_equal == pytest.approx(0.2)  # 4/5 flu in all, 1 in the second class
    assert own.rows_by_distinct == {1: 2, 2: 3}
    text = report.summary()
    assert "k = 2 over zip" in text
    assert "1 homogeneous class, of 2 rows" in text
    assert "not differential privacy" in text
    assert report.to_dict()["class_sizes"] == [[2, 1], [3, 1]]


def test_missing_values_are_a_category_and_have_no_order():
    frame = pd.DataFrame({"q": [1.0, None, None, 1.0], "s": [1.0, None, 2.0, 1.0]})
    report = check(frame, ["q"], ["s"])
    assert report.k == 2
    assert report.sensitive[0].values == 3
    assert report.sensitive[0].t_ordered is None


def test_a_table_without_rows_has_no_classes():
    report = check(pd.DataFrame({"q": [], "s": []}), ["q"], ["s"])
    assert (report.k, report.rows, report.classes, report.uniqueness) == (0, 0, 0, 0.0)
    assert report.size_bins() == ([], [])
    assert report.summary() == "The table has no rows, so there is nothing to report on q."


def test_the_picture_shows_rows_by_class_size():
    frame = pd.DataFrame({"q": [1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4]})
    report = check(frame, ["q"])
    assert report.size_bins() == (["1", "2–3", "4–7"], [1, 5, 5])
    from matplotlib.figure import Figure  # noqa: PLC0415

    axes = report.plot(Figure().subplots())
    assert [bar.get_height() for bar in axes.patches] == [1, 5, 5]


@pytest.mark.parametrize(
    ("quasi", "sensitive", "complaint"),
    [
        ([], None, "'quasi_identifiers' must be a list"),
        (["q"], "s", "'sensitive' must be a list"),
        (["q"], [], "'sensitive' must be a list"),
        (["q"], ["q"], "cannot be sensitive as well"),
        (["q"], ["t"], "no column 't'"),
    ],
)
def test_mistakes_are_told(quasi, sensitive, complaint):
    with pytest.raises(InputError, match=complaint):
        check(pd.DataFrame({"q": [1], "s": [2]}), quasi, sensitive)


def test_missing_cells_are_counted_and_are_values_of_their_own():
    frame = pd.DataFrame({"age": [1, 1, None, None, 2, 2], "ill": ["a", None, "a", "b", "a", "b"]})
    report = check(frame, ["age"], ["ill"])
    assert report.k == 2
    assert report.missing == {"age": 2, "ill": 1}
    assert "age is missing in 2 rows: an empty cell is a value of its own" in report.summary()
    assert report.to_dict()["missing"] == {"age": 2, "ill": 1}
    assert "missing" not in check(frame.dropna(), ["age"]).to_dict()
