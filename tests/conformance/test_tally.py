"""What every `Tally` must do, whatever stands behind it."""

from __future__ import annotations

from functools import cache, reduce

import numpy as np
import pytest
from tests.conformance.cases import QUERIES, RECORDS, SPECS, Case, case
from tests.conformance.oracle import Expected, expected, record_vectors
from tests.conformance.sources import PEOPLE, SERVED, SOURCES, Source

import masquerade as mq
from masquerade.core.errors import QueryRefused, SchemaError
from masquerade.core.table import PROJECTIONS

pytestmark = pytest.mark.parametrize(
    ("source", "name"),
    [
        pytest.param(source, name, id=f"{source.name}-{name}")
        for source in (*SOURCES, *PEOPLE, *SERVED)
        for name in SPECS
        if name not in source.without
    ],
    indirect=["source"],
)


@pytest.fixture
def source(request) -> Source:
    if request.param.needs:
        request.getfixturevalue(request.param.needs)
    return request.param


@cache
def made(source: Source, name: str) -> mq.Tally:
    return source.make(case(name))


@cache
def vectors(name: str, *, samples: int, clear: bool, records: int) -> list[np.ndarray]:
    like = Source("", lambda _: None, samples, clear, records=records)
    return [record_vectors(*part) for part in like.parts(case(name))]


def oracle(source: Source, name: str, query: mq.Query) -> Expected:
    parts = vectors(name, samples=source.samples, clear=source.clear, records=source.records)
    return reduce(Expected.__add__, [expected(part, case(name).policy.schema, query) for part in parts])


@pytest.fixture
def tally(source: Source, name: str) -> mq.Tally:
    return made(source, name)


def assert_close(actual, wanted):
    np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-7)


def test_is_a_tally_with_the_policys_schema_and_a_guarantee(tally, name):
    assert isinstance(tally, mq.Tally)
    assert tally.schema == case(name).policy.schema
    assert {variable for item in tally.guarantee.disclosures for variable in item.variables} == set(
        tally.schema
    )


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_answers_equal_the_brute_force_oracle(tally, source, name, query):
    (table,) = tally.answer([query])
    wanted = oracle(source, name, query)
    assert table.names == query.by
    assert table.n == source.records
    assert_close(table.values.ravel(), wanted.values)
    assert_close(table.stderr().ravel() ** 2, np.maximum(np.diag(wanted.population), 0))
    assert_close(table.stderr("given_records").ravel() ** 2, np.maximum(np.diag(wanted.given_records), 0))
    assert_close(table.covariance.dense(), wanted.population)
    assert_close(table.covariance.dense(kind="given_records"), wanted.given_records)


def test_a_batch_is_answered_in_order_and_like_single_questions(tally):
    batch = tally.answer(QUERIES)
    assert [table.names for table in batch] == [query.by for query in QUERIES]
    for query, table in zip(QUERIES, batch, strict=True):
        assert_close(tally.answer([query])[0].values, table.values)


def test_no_question_gets_no_answer(tally):
    assert tally.answer([]) == []
    assert tally.check([]) == []


def test_a_condition_is_a_slice_of_the_larger_table(tally):
    whole, sliced = tally.answer(
        [mq.Query(by=("B", "A", "C")), mq.Query(by=("B",), where={"A": "no", "C": True})]
    )
    cut = whole.select({"A": "no", "C": True})
    assert_close(cut.values, sliced.values)
    for kind in ("population", "given_records"):
        assert_close(cut.stderr(kind), sliced.stderr(kind))
        assert_close(cut.covariance.dense(kind=kind), sliced.covariance.dense(kind=kind))


def test_marginals_of_inverted_tables_are_inverted_marginals(tally):
    whole, part = tally.answer([mq.Query(by=("D", "B", "A")), mq.Query(by=("A", "D"))])
    summed = whole.marginal(("A", "D"))
    assert summed.axes == part.axes
    assert_close(summed.values, part.values)
    assert_close(summed.stderr(), part.stderr())
    assert_close(summed.covariance.dense(kind="given_records"), part.covariance.dense(kind="given_records"))


def test_the_order_of_by_is_the_order_of_the_axes(tally):
    one, other = tally.answer([mq.Query(by=("A", "B", "D")), mq.Query(by=("D", "A", "B"))])
    assert_close(one.values.transpose(2, 0, 1), other.values)
    assert_close(one.stderr().transpose(2, 0, 1), other.stderr())


def test_the_total_is_known_exactly(tally, source):
    (table,) = tally.answer([mq.Query(by=("A", "C"))])
    assert table.total == pytest.approx(source.records)
    assert_close(table.covariance.quadratic(np.ones((2, 2))), 0.0)


def test_within_blocks_are_blocks_of_the_dense_covariance(tally):
    (table,) = tally.answer([mq.Query(by=("A", "B", "C"))])
    dense = table.covariance.dense().reshape(2, 3, 2, 2, 3, 2)
    blocks = table.within(("C", "A"))
    assert_close(table.covariance.within(("C", "A")), blocks)
    assert_close(table.covariance.within((2, 0)), blocks)
    for b in range(3):
        wanted = dense[:, b, :, :, b, :].transpose(1, 0, 3, 2).reshape(4, 4)
        assert_close(blocks[b], wanted)


def test_estimates_are_near_the_truth(tally, source, name):
    if source.records < RECORDS:
        pytest.skip("a normal bound needs thousands of records; the oracle has compared these exactly")
    # 48 cells; normal tail with Bonferroni at 1e-6: |z| < 5.8
    query = mq.Query(by=("A", "B", "C", "D"))
    (table,) = tally.answer([query])
    (truth,) = mq.tally(case(name).clear, schema=case(name).policy).answer([query])
    assert np.all(np.abs(table.values - truth.values) <= 5.8 * table.stderr("given_records") + 1e-6)


@pytest.mark.parametrize("method", PROJECTIONS)
def test_nonnegative_is_a_step_of_its_own(tally, method):
    (table,) = tally.answer([mq.Query(by=("C", "D", "A", "B"))])
    before = table.values.copy()
    projected = table.nonnegative(method)
    assert projected.adjusted == method
    assert table.adjusted is None
    assert np.all(projected.values >= 0)
    assert projected.total == pytest.approx(table.total)
    np.testing.assert_array_equal(table.values, before)


def test_conditions_slice_the_most_likely_table(tally):
    whole, sliced = tally.answer([mq.Query(by=("D", "A", "B")), mq.Query(by=("D", "B"), where={"A": "yes"})])
    np.testing.assert_allclose(
        whole.nonnegative("mle").select({"A": "yes"}).values, sliced.nonnegative("mle").values, atol=0.2
    )


def test_unknown_names_are_errors_with_a_hint(tally):
    with pytest.raises(SchemaError, match="no variable 'Z'"):
        tally.check([mq.Query(by="Z")])
    with pytest.raises(SchemaError, match="'maybe' is not a category of 'A'"):
        tally.answer([mq.Query(by="B", where={"A": "maybe"})])


def test_check_is_pure_and_answer_refuses_what_check_refuses(tally):
    assert tally.check(QUERIES) == []
    assert tally.check(QUERIES) == []


def test_answers_cannot_be_changed(tally):
    (table,) = tally.answer([mq.Query(by="A")])
    with pytest.raises(ValueError, match="read-only"):
        table.values[0] = 0


def test_a_singular_channel_is_refused_only_where_it_is_asked_for(source, name):
    spec = {**SPECS[name], "variables": {**SPECS[name]["variables"]}}
    spec["variables"]["E"] = {"categories": ["x", "y"], "channel": {"kind": "binary", "p": 0.5}}
    policy = mq.Policy.from_dict({"masquerade": 1, **spec})
    clear = case(name).clear.assign(E="x")
    fuller = Case(name, policy, clear, mq.simulate(clear, policy, seed=3))
    tally = (
        source.make(Case(name, policy, clear, fuller.disguised))
        if source.name != ("disguised records, equal rows merged")
        else mq.tally(fuller.disguised, policy)
    )
    assert tally.check([mq.Query(by="A")]) == []
    if source.clear:  # nothing to undo
        assert tally.check([mq.Query(by=("A", "E"))]) == []
        return
    refusals = tally.check([mq.Query(by=("A", "E"))])
    assert {refusal.code for refusal in refusals} == {"singular"}
    assert "E" in refusals[0].reason
    with pytest.raises(QueryRefused, match="E: "):
        tally.answer([mq.Query(by="A"), mq.Query(by="B", where={"E": "x"})])
