"""Diversity and closeness are enforced, by the least that is needed; what cannot be met is refused."""

from __future__ import annotations

from collections import Counter
from math import exp, log

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from masquerade.anonymity import (
    Closeness,
    DistinctDiversity,
    EntropyDiversity,
    RecursiveDiversity,
    anonymize,
    check,
)
from masquerade.core.errors import InputError

TABLES = hnp.arrays(np.int64, st.tuples(st.integers(2, 40), st.just(4)), elements=st.integers(0, 3))
LEVELS = {"hierarchies": 1, "columns": {"q0": {"ranges": [2]}}}
REQUIRED = [
    DistinctDiversity(2),
    DistinctDiversity(3),
    EntropyDiversity(1.7),
    RecursiveDiversity(2, 2),
    Closeness(0.3),
    Closeness(0.15, ordered=True),
]


def as_frame(codes):
    return pd.DataFrame(codes, columns=["q0", "q1", "q2", "sensitive"])


def meets(required, values, table):
    """Tell whether a class meets it, by the definition in the papers, value by value."""
    counts = sorted(Counter(values).values(), reverse=True)
    shares = [count / len(values) for count in counts]
    if isinstance(required, DistinctDiversity):
        return len(counts) >= required.l
    if isinstance(required, EntropyDiversity):
        return exp(-sum(p * log(p) for p in shares)) >= required.l - 1e-9
    if isinstance(required, RecursiveDiversity):
        return counts[0] < required.c * sum(counts[required.l - 1 :])
    known = sorted(set(table))
    gaps = [values.count(v) / len(values) - table.count(v) / len(table) for v in known]
    if required.ordered:
        steps = [abs(sum(gaps[: i + 1])) for i in range(len(known))]
        return sum(steps) / max(len(known) - 1, 1) <= required.t + 1e-9
    return sum(map(abs, gaps)) / 2 <= required.t + 1e-9


@pytest.mark.parametrize("required", REQUIRED, ids=str)
@given(TABLES, st.integers(1, 4), st.booleans())
@settings(deadline=None, max_examples=12)
def test_every_class_meets_what_is_required_or_the_table_cannot(required, codes, k, leveled):
    frame, names = as_frame(codes), ["q0", "q1", "q2"]
    whole = frame["sensitive"].tolist()
    how = {"hierarchies": LEVELS if leveled else None, "sensitive": {"sensitive": required}}
    if len(frame) < k:
        return
    if not meets(required, whole, whole):
        with pytest.raises(InputError, match="the whole table is not"):
            anonymize(frame, names, k, **how)
        return
    result = anonymize(frame, names, k, **how)
    groups = result.frame.groupby(names, dropna=False)["sensitive"].agg(list)
    assert all(len(values) >= k and meets(required, values, whole) for values in groups)
    pd.testing.assert_series_equal(result.frame["sensitive"], frame["sensitive"])
    plain = anonymize(frame, names, k, hierarchies=how["hierarchies"])
    assert result.utility.loss >= plain.utility.loss - 1e-9
    told = plain.frame.groupby(names, dropna=False)["sensitive"].agg(list)
    if all(meets(required, values, whole) for values in told):  # nothing to mend: nothing is changed
        assert result.utility == plain.utility
    assert str(required) in result.summary()


def test_several_columns_are_protected_at_once_and_few_stars_are_added():
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({f"q{i}": draw.integers(0, 6, 3000) for i in range(3)})
    frame = frame.assign(illness=draw.choice(list("abcde"), 3000), income=draw.integers(0, 9, 3000))
    names = ["q0", "q1", "q2"]
    wanted = {"illness": [DistinctDiversity(4), Closeness(0.4)], "income": Closeness(0.2, ordered=True)}
    result = anonymize(frame, names, 5, sensitive=wanted)
    illness, income = check(result.frame, names, ["illness", "income"]).sensitive
    assert illness.distinct_l >= 4
    assert illness.t_equal <= 0.4
    assert income.t_ordered <= 0.2
    assert 0 < result.utility.suppressed_cells < 0.2 * result.utility.cells  # a table of stars meets it, too


@pytest.mark.parametrize(
    ("sensitive", "words"),
    [
        ({"sensitve": DistinctDiversity(2)}, "Did you mean 'sensitive'"),
        ({"q0": DistinctDiversity(2)}, "is a quasi-identifier"),
        ({"sensitive": 3}, "give DistinctDiversity"),
        ({"sensitive": []}, "give DistinctDiversity"),
        (DistinctDiversity(2), "must map the names"),
        ({"text": Closeness(0.1, ordered=True)}, "have an order"),
        ({"sensitive": DistinctDiversity(5)}, "the whole table is not 5-diverse"),
    ],
)
def test_what_cannot_be_required_is_refused(sensitive, words):
    frame = as_frame(np.arange(32).reshape(8, 4) % 4).assign(text=list("abababab"))
    with pytest.raises(InputError, match=words):
        anonymize(frame, ["q0", "q1"], 2, sensitive=sensitive)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DistinctDiversity(0),
        lambda: DistinctDiversity(2.5),
        lambda: EntropyDiversity(0.5),
        lambda: EntropyDiversity(float("nan")),
        lambda: RecursiveDiversity(2, 1),
        lambda: RecursiveDiversity(-1, 2),
        lambda: Closeness(1.5),
        lambda: Closeness("0.1"),
    ],
)
def test_figures_without_a_meaning_are_refused(make):
    with pytest.raises(InputError, match="Got"):
        make()
