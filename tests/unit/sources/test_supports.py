"""Supports from records: the quick way equals the ordinary queries, for every kind of policy."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from tests.conformance.cases import BEYOND, SPECS, case

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused, SchemaError
from masquerade.core.supports import Supports, SupportTally, from_tables, query_supports
from masquerade.frames.baskets import Baskets, basket_policy
from masquerade.kernels.bits import pack
from masquerade.sources.baskets import BasketRecords
from masquerade.sources.records import Records


def items_of(schema):
    return tuple((variable.name, label) for variable in schema.variables for label in variable.categories)


def sets_of(items, size):
    found = [
        places
        for places in combinations(range(len(items)), size)
        if len({items[i][0] for i in places}) == size
    ]
    return np.array(found, dtype=np.int32).reshape(-1, size)


def assert_same(found, expected):
    scale = 1e-9 * max(expected.n, 1)
    np.testing.assert_allclose(found.values, expected.values, atol=scale)
    np.testing.assert_allclose(found.stderr**2, expected.stderr**2, rtol=1e-7, atol=scale)
    assert found.n == expected.n
    np.testing.assert_allclose([found.total, found.ratio], [expected.total, expected.ratio], rtol=1e-9)
    if expected.covariance is None:
        assert found.covariance is None
    else:
        np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-7, atol=10 * scale)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), (3,), (4, 2, 1)], ids=str)
def test_supports_equal_queries(name, sizes):
    records = mq.tally(case(name).disguised, case(name).policy)
    items = items_of(records.schema)
    generator = np.random.default_rng(4)
    for size in sizes:
        sets = generator.permutation(sets_of(items, size))
        beyond = BEYOND.get(name, {"nothing"})
        told = [not beyond <= {items[place][0] for place in row} for row in sets]
        sets = sets[told]
        for parts in (None, generator.random(sets.shape) < 0.5):
            question = Supports(items, sets, parts)
            assert_same(records.supports(question), from_tables(records, question))


def test_the_empty_set_is_everybody():
    records = mq.tally(case("joint").disguised, case("joint").policy)
    question = Supports(items_of(records.schema), np.zeros((2, 0), dtype=np.int32))
    found = records.supports(question)
    np.testing.assert_allclose(found.values, records.n)
    np.testing.assert_allclose(found.stderr, 0.0)


@pytest.mark.parametrize("name", ["independent", "not lumpable", "strata"])
def test_survey_weights(name):
    frame = case(name).disguised.assign(w=np.random.default_rng(5).gamma(2.0, size=len(case(name).disguised)))
    records = mq.tally(frame, case(name).policy, weights="w")
    items = items_of(records.schema)
    sets = sets_of(items, 3)
    parts = np.random.default_rng(6).random(sets.shape) < 0.5
    question = Supports(items, sets, parts)
    found = records.supports(question)
    assert found.ratio > 1.1  # the weights do vary
    assert_same(found, from_tables(records, question))


def few_rows(policy):
    generator = np.random.default_rng(7)
    codes = {name: generator.integers(0, 2, 40_000).astype(np.uint8) for name in policy.schema}
    return Records(codes, policy)


@pytest.mark.parametrize("p", ["0", "0.2", "0.8"])
def test_merged_rows_count_as_often_as_they_stand_for(p):
    policy = basket_policy("abc", mq.channels.binary(p))
    fresh, merged = few_rows(policy), few_rows(policy)
    items = tuple((name, True) for name in "abc")
    question = Supports(items, sets_of(items, 2))
    expected = fresh.supports(question)
    merged.answer([mq.Query(by=("a", "b", "c"))] * 3)
    assert merged._stores[0].multiplicity is not None
    assert_same(merged.supports(question), expected)
    assert_same(expected, from_tables(fresh, question))


def test_clear_records_are_plainly_counted():
    records = few_rows(basket_policy("abc", mq.channels.binary("0")))
    found = records.supports(Supports((("a", True), ("b", True)), np.array([[0, 1]], dtype=np.int32)))
    count = np.count_nonzero(records.codes["a"] & records.codes["b"])
    assert found.values.tolist() == [count]  # exactly
    np.testing.assert_allclose(found.stderr**2, count - count**2 / 40_000)


def test_proposition_7_2():
    """Items of one symmetric joint group: the marginal channel of Ma (2006), by its printed formula."""
    p, size, held = 0.3, 3, 2
    policy = basket_policy(
        "abc", mq.channels.binary(0), ["abc"], lambda cells: mq.channels.symmetric(cells, p)
    )
    records = few_rows(policy)
    found = records.supports(Supports((("a", True), ("b", True)), np.array([[0, 1]], dtype=np.int32)))
    off = p * 2 ** (size - held) / (2**size - 1)
    own = 1 - p + p * (2 ** (size - held) - 1) / (2**size - 1)
    channel = np.full((4, 4), off) + np.eye(4) * (own - off)
    observed = np.bincount(records.codes["a"] * 2 + records.codes["b"], minlength=4)
    estimate = np.linalg.inv(channel).T @ observed
    np.testing.assert_allclose(found.values, estimate[3])
    weights = np.linalg.inv(channel)[:, 3]
    np.testing.assert_allclose(found.stderr**2, observed @ weights**2 - estimate[3] ** 2 / records.n)


def test_pooled_sources_add_up():
    records = [mq.tally(case(name).disguised, case(name).policy) for name in ("independent", "joint")]
    merged = mq.Merged(records, of="records")
    items = items_of(merged.schema)
    sets = sets_of(items, 2)
    question = Supports(items, sets, np.arange(2)[None, :] == np.zeros((len(sets), 1)))
    first, second = (source.supports(question) for source in records)
    assert_same(first + second, from_tables(merged, question))
    assert_same(query_supports(merged, question), from_tables(merged, question))
    pooled = query_supports(mq.Merged(records), question)
    shares = [answer.stderr / answer.n for answer in (first, second)]
    assert np.sum((pooled.stderr / pooled.n) ** 2) < min(np.sum(share**2) for share in shares)
    off = pooled.values / pooled.n - query_supports(merged, question).values / pooled.n
    assert np.all(np.abs(off) < 5 * np.hypot(*shares))
    assert pooled.total == pytest.approx(pooled.n)


def test_a_channel_that_cannot_be_undone_is_refused():
    policy = basket_policy("ab", mq.channels.binary("1/2"))
    question = Supports((("a", True),), np.array([[0]], dtype=np.int32))
    with pytest.raises(QueryRefused):
        few_rows(policy).supports(question)


@pytest.mark.parametrize(
    ("sets", "error"),
    [
        ([[0, 9]], "0 to 2"),
        ([[1, 0]], "ascending"),
        ([[0, 0]], "ascending"),
        ([[0, 1]], "two categories"),
        ([0, 2], "one row per set"),
        ([[0.0, 2.0]], "whole numbers"),
    ],
)
def test_what_is_no_set_is_refused(sets, error):
    schema = mq.Schema({"a": ["x", "y"], "b": [True, False]})
    items = (("a", "x"), ("a", "y"), ("b", True))
    with pytest.raises(InputError, match=error):
        Supports(items, np.array(sets)).check(schema)


def test_unknown_items_are_refused():
    schema = mq.Schema({"a": ["x", "y"]})
    with pytest.raises(SchemaError, match="not a category"):
        Supports((("a", "z"),), np.zeros((1, 1), dtype=np.int32)).check(schema)
    with pytest.raises(InputError, match="True or False"):
        Supports((("a", "x"),), np.zeros((1, 1), dtype=np.int32), np.ones((1, 2), dtype=bool)).check(schema)


@pytest.mark.parametrize("p", ["0", "0.15", "0.9"])
@pytest.mark.parametrize("together", [(), ("bd", "ce")], ids=["alone", "joint"])
def test_packed_baskets_equal_records(p, together):
    policy = basket_policy(
        "abcde", mq.channels.binary(p), together, lambda cells: mq.channels.symmetric(cells, "0.4")
    )
    generator = np.random.default_rng(9)
    codes = {name: (generator.random(1001) < 0.4).astype(np.uint8) for name in "abcde"}
    words = np.stack([pack(column, np.array([False, True])) for column in codes.values()])
    baskets, records = BasketRecords(Baskets(tuple("abcde"), words, 1001), policy), Records(codes, policy)
    assert isinstance(baskets, SupportTally)
    items = tuple((name, label) for name in "abcde" for label in (True, False))
    for size in (1, 2, 3):
        question = Supports(items, sets_of(items, size))
        assert_same(query_supports(baskets, question), from_tables(records, question))
    queries = [mq.Query(), mq.Query(by=("a", "d")), mq.Query(by="b", where={"c": True, "e": False})]
    for found, expected in zip(baskets.answer(queries), records.answer(queries), strict=True):
        np.testing.assert_allclose(found.values, expected.values, atol=1e-9)
        np.testing.assert_allclose(found.stderr(), expected.stderr(), atol=1e-9)
    assert baskets.guarantee == records.guarantee


def test_intervals_are_those_of_tables():
    frame = case("independent").disguised
    records = mq.tally(frame, case("independent").policy)
    (table,) = records.answer([mq.Query(by=("A", "B"))])
    items = tuple(("A", label) for label in ("yes", "no")) + tuple(("B", label) for label in (1, 2, 3))
    found = records.supports(Supports(items, sets_of(items, 2)))
    alone = records.supports(Supports(items[:2], sets_of(items[:2], 1)))
    for level in (0.5, 0.95):
        # of one binary item the same; of several the skew is that of reports of two kinds
        for end, wanted in zip(alone.interval(level), table.marginal("A").conf_int(level), strict=True):
            np.testing.assert_allclose(end, wanted, rtol=1e-6)
        for end, wanted in zip(found.interval(level), table.conf_int(level), strict=True):
            assert np.all(np.abs(end - wanted.ravel()) <= 0.02 * table.stderr().ravel())
    with pytest.raises(InputError, match="level"):
        found.interval(1.0)


def test_no_records_at_all():
    policy = basket_policy("ab", mq.channels.binary("0.1"))
    records = Records({name: np.zeros(0, dtype=np.uint8) for name in "ab"}, policy)
    items = (("a", True), ("b", True))
    found = records.supports(Supports(items, np.array([[0, 1]], dtype=np.int32)))
    assert found.values.tolist() == [0.0]
    assert found.stderr.tolist() == [0.0]
    assert pd.notna(found.interval(0.95).upper).all()
