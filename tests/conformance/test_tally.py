"""What every `Tally` must do, whatever stands behind it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.conformance.cases import BEYOND, QUERIES, RECORDS, SPECS, Case, case, queries_of
from tests.conformance.sources import PEOPLE, SERVED, SOURCES, Source

import masquerade as mq
from masquerade.core.errors import QueryRefused, SchemaError
from masquerade.testing import CHECKS, MOST_FITTED, Oracle, Subject

# Reports that do not tell all truths apart make fits slow: larger tables are fitted where evidence is made in
# another way, of the slowest case in memory alone, and smaller ones everywhere.
FITTED = {
    "one report of two": {"disguised records"},
    "blocks": {"disguised records", "DuckDB, summed up by the engine", "merged", "pooled parties"},
}
FEW_CELLS = 8
INSTEAD = {"one report of two": " can be queried", "blocks": "Tables of up to 2 variables of B, C, D follow"}

# These differ from another source in how its records are read or counted, or take long to make: `make test`
# runs them for the policies of USUAL, and `make test-slow` for all.
REPEATED = {
    "disguised records, equal rows merged",
    "Polars lazy frame",
    "Ibis table on Polars",
    "file of DuckDB",
    "Arrow data set",
    "reader of record batches",
    "folder of partitions",
    "DuckDB over partitions",
    "CSV compressed by Zstandard",
    "DuckDB over CSV",
    "DuckDB over CSV, summed up by the engine",
    "Ibis table on DuckDB",
    "Ibis table on SQLite, summed up by the engine",
    "vertical parties and a miner, part by part",
    "frequency mining",
    "secure aggregation",
    "PostgreSQL, summed up by the engine",
}
USUAL = {"joint", "strata"}
SLOW = {("disguised records", "one report of two")}  # a minute of fits

pytestmark = pytest.mark.parametrize(
    ("source", "name"),
    [
        pytest.param(
            source,
            name,
            id=f"{source.name}-{name}",
            marks=pytest.mark.slow
            if (source.name in REPEATED and name not in USUAL) or (source.name, name) in SLOW
            else (),
        )
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
def oracle(name: str, *, samples: int, clear: bool, records: int) -> Oracle:
    like = Source("", lambda _: None, samples, clear, records=records)
    parts = like.parts(case(name))
    return Oracle([frame for frame, _ in parts], parts[0][1])


@cache
def truth(name: str) -> mq.Tally:
    return mq.tally(case(name).clear, schema=case(name).policy)


@cache
def subject(source: Source, name: str) -> Subject:
    """Return a source with what it must answer; a normal bound needs thousands of records."""
    known = oracle(name, samples=source.samples, clear=source.clear, records=source.records)
    asked = QUERIES if source.clear else queries_of(name)
    fitted = MOST_FITTED if name not in BEYOND or source.name in FITTED[name] else FEW_CELLS
    nearby = truth(name) if source.records == RECORDS else None
    return Subject(made(source, name), asked, known, nearby, most_fitted=fitted)


@pytest.fixture
def tally(source: Source, name: str) -> mq.Tally:
    return made(source, name)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_source_keeps_its_promises(source, name, check):
    assert list(check(subject(source, name))) == []


def test_it_has_the_policys_schema_and_a_guarantee_about_all_of_it(tally, name):
    assert tally.schema == case(name).policy.schema
    assert {variable for item in tally.guarantee.disclosures for variable in item.variables} == set(
        tally.schema
    )


def test_conditions_slice_the_most_likely_table(tally):
    whole, sliced = tally.answer([mq.Query(by=("D", "A", "B")), mq.Query(by=("D", "B"), where={"A": "yes"})])
    np.testing.assert_allclose(
        whole.nonnegative("mle").select({"A": "yes"}).values, sliced.nonnegative("mle").values, atol=0.2
    )


def test_what_does_not_follow_from_the_reports_is_refused_with_what_does(source, tally, name):
    beyond = [] if source.clear else [query for query in QUERIES if query not in queries_of(name)]
    assert len(beyond) == (0 if source.clear else 2 * (name in BEYOND))
    for query in beyond:
        (refusal,) = {(item.code, item.reason) for item in tally.check([query])}
        assert refusal[0] == "not_estimable"
        assert INSTEAD[name] in refusal[1]
        with pytest.raises(QueryRefused, match="does not follow"):
            tally.answer([mq.Query(by="A"), query])


def test_unknown_names_are_errors_with_a_hint(tally):
    with pytest.raises(SchemaError, match="no variable 'Z'"):
        tally.check([mq.Query(by="Z")])
    with pytest.raises(SchemaError, match="'maybe' is not a category of 'A'"):
        tally.answer([mq.Query(by="B", where={"A": "maybe"})])


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
