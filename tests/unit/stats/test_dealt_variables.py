"""Statistics and learners where each person reports on a few variables, dealt from a listed design."""

from __future__ import annotations

from functools import partial

import ibis
import numpy as np
import pandas as pd
import psycopg
import pyarrow as pa
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused
from masquerade.sources.records import Records

PEOPLE = 20_000
NAMES = ["pills", "doses", "smoker", "region", "age", "sleep", "before", "after", "exams"]


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    """Return clear records in which pills, doses and smoker, and before and after, are related."""
    draw = np.random.default_rng(5)
    stressed = draw.random(PEOPLE) < 0.5

    def answer(chance):
        return np.where(draw.random(PEOPLE) < chance, "yes", "no")

    clear = pd.DataFrame(
        {
            "pills": answer(np.where(stressed, 0.8, 0.2)),
            "smoker": answer(np.where(stressed, 0.7, 0.2)),
            "region": draw.choice(["north", "south", "west"], PEOPLE),
            "age": draw.integers(0, 4, PEOPLE),
            "sleep": answer(0.4),
            "before": answer(0.3),
            "exams": draw.choice(["few", "many"], PEOPLE),
        }
    )
    clear["doses"] = np.where(clear["pills"] == "yes", draw.choice(["one", "two"], PEOPLE), "none")
    clear["after"] = np.where(draw.random(PEOPLE) < 0.8, clear["before"], "yes")
    return clear[NAMES]


@pytest.fixture(scope="module")
def policy(people) -> mq.Policy:
    """Return a planned policy with a unit of two variables, a listed design and a clear variable."""
    schema = {name: sorted(people[name].unique().tolist()) for name in NAMES}
    made = mq.plan(schema, n=PEOPLE, queries="singles, pairs", clear=["exams"], together=[("pills", "doses")])
    assert made.design == "dealt blocks of different sizes"
    assert made.policy.record_gamma <= 19
    return made.policy


@pytest.fixture(scope="module")
def reports(people, policy) -> pd.DataFrame:
    return mq.disguise(people, policy)


@pytest.fixture(scope="module")
def source(reports, policy) -> Records:
    return mq.tally(reports, policy)


def test_tables_of_one_unit_count_as_one_variable(source, people):
    """Each cell is within 6 standard errors of the truth: 27 cells alarm in 6e-8 of runs."""
    clear = mq.tally(people, schema=source.policy)
    for names in (
        ("pills",),
        ("pills", "doses"),
        ("pills", "doses", "smoker"),
        ("age", "exams"),
        ("region",),
    ):
        table = source.answer([mq.Query(by=names)])[0]
        true = clear.answer([mq.Query(by=names)])[0]
        error = np.maximum(table.stderr("given_records"), 1e-9)
        assert np.abs((table.values - true.values) / error).max() < 6


STATISTICS = {
    "shares by a clear variable": lambda s: mq.stats.shares(s, "pills", by="exams"),
    "shares by two variables": lambda s: mq.stats.shares(s, "pills", by=["smoker", "exams"]),
    "shares under a condition": lambda s: mq.stats.shares(s, "pills", where={"smoker": "yes"}),
    "associations": mq.stats.associations,
    "associations given": lambda s: mq.stats.associations(s, given="exams"),
    "change": lambda s: mq.stats.change(s, "before", "after"),
    "difference": lambda s: mq.stats.difference(s, "pills", "smoker", given="exams"),
    "odds_ratio": lambda s: mq.stats.odds_ratio(s, "pills", "smoker"),
    "ratio": lambda s: mq.stats.ratio(s, "pills", "smoker"),
    "mantel_haenszel": lambda s: mq.stats.mantel_haenszel(s, "pills", "smoker", "exams"),
    "independence": lambda s: mq.stats.independence(s, "pills", "smoker"),
    "marginal_homogeneity": lambda s: mq.stats.marginal_homogeneity(s, "before", "after"),
    "mean": lambda s: mq.stats.mean(s, "age", "smoker"),
    "quantile": lambda s: mq.stats.quantile(s, "age", edges=[0, 1, 2, 3, 4]),
    "trend": lambda s: mq.stats.trend(s, "pills", "age"),
    "loglinear": lambda s: mq.stats.loglinear(s, "pills:smoker"),
    "linear": lambda s: mq.stats.linear(s, "age ~ smoker + exams"),
    "logistic": lambda s: mq.stats.logistic(s, "pills ~ smoker + exams"),
    "multinomial": lambda s: mq.stats.multinomial(s, "region ~ smoker"),
    "poisson": lambda s: mq.stats.poisson(s, "age ~ smoker"),
    "proportional_odds": lambda s: mq.stats.proportional_odds(s, "age ~ smoker"),
    "impute": lambda s: mq.stats.impute(s, ["pills", "smoker"], 3),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_run(source, name):
    assert STATISTICS[name](source) is not None


def test_statistics_are_near_those_of_the_clear_records(source, people):
    """Each estimate is within 6 standard errors of its value in the clear records: 2e-9 a look."""
    clear = mq.tally(people, schema=source.policy)
    for ask in (
        partial(mq.stats.difference, outcome="pills", group="smoker"),
        partial(mq.stats.mean, of="age"),
        partial(mq.stats.change, before="before", after="after"),
    ):
        ours, true = ask(source).to_frame(), ask(clear).to_frame()
        value = next(name for name in ("difference", "mean", "change", "estimate") if name in ours)
        assert abs(ours[value].iloc[-1] - true[value].iloc[-1]) < 6 * ours["stderr"].iloc[-1]


LEARNERS = {
    "rules": lambda s: mq.learn.association_rules(s, 0.1, 0.6, max_len=2),
    "itemsets": lambda s: mq.learn.frequent_itemsets(s, 0.1, max_len=2),
    "structure": lambda s: mq.learn.structure(s, max_parents=1),
    "network": lambda s: mq.learn.bayesian_network(s, {"pills": [], "smoker": ["pills"], "exams": []}),
    "resampled network": lambda s: mq.learn.resampled_network(s, samples=2, max_parents=1),
    "correlations": lambda s: mq.learn.correlations(s, ["smoker", "age"], scores={"smoker": [0, 1]}),
    "tree": lambda s: mq.learn.decision_tree(s, "pills", max_depth=1),
    "k_means": lambda s: mq.learn.k_means(s, 2, ["age"]),
    "linear classifier": lambda s: mq.learn.linear_classifier(s, "pills", ["smoker"], "logistic"),
    "naive_bayes": lambda s: mq.learn.naive_bayes(s, "pills"),
    "density": lambda s: mq.learn.reconstructed_density(s, "age", edges=[0, 1, 2, 3, 4]),
    "tables": lambda s: mq.learn.tables(s, [["pills", "smoker"]]),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_run(source, name):
    assert LEARNERS[name](source) is not None


def test_structure_finds_the_strong_links(source):
    """pills–smoker (φ = .3) and before–after (φ = .75) differ from independence by over 8 standard errors."""
    found = mq.learn.structure(source, max_parents=1)
    links = {frozenset((child, parent)) for child, parents in found.structure.items() for parent in parents}
    assert frozenset(("before", "after")) in links
    assert any(frozenset((other, "smoker")) in links for other in ("pills", "doses"))


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: mq.stats.shares(s, ["pills", "smoker", "region"]),
        lambda s: mq.stats.logistic(s, "pills ~ smoker + sleep + before", method="score"),
        lambda s: mq.learn.association_rules(s, max_len=3),
        mq.stats.impute,
    ],
)
def test_tables_that_do_not_follow_are_refused_in_the_users_words(source, ask):
    with pytest.raises((InputError, QueryRefused)) as caught:
        ask(source)
    said = str(caught.value)
    assert "does not follow from the reports: nobody reported on these" in said
    assert "masquerade policy init --count 'pills×" in said
    assert "block" not in said
    assert len(said) < 2500  # the first few of many tables


def test_indicators_sum_to_the_unbiased_counts(source):
    table = source.answer([mq.Query(by=("pills", "smoker"))])[0]
    sums = source.indicators(("pills", "smoker")).sum(axis=0)
    np.testing.assert_allclose(sums, np.asarray(table.values).ravel(), rtol=1e-9)


def test_imputations_have_the_shares_of_the_reports(source):
    """The mean over 10 imputations is within 6 standard errors of the estimate."""
    estimate = mq.stats.shares(source, "smoker").to_frame().iloc[-1]
    drawn = mq.stats.impute(source, ["smoker"], 10)
    share = np.mean([(frame["smoker"] == "yes").mean() for frame in drawn.frames])
    assert abs(share - estimate["share"]) < 6 * estimate["stderr"]


def test_classifiers_of_one_feature_are_evaluated(source):
    model = mq.learn.naive_bayes(source, "pills", ["smoker"])
    assert 0.55 < mq.evaluate.accuracy(model, source).value < 0.75
    assert mq.evaluate.roc_auc(model, source) is not None
    with pytest.raises(InputError, match="the γ of a record bounds"):
        mq.audit.attack(source.policy, mq.learn.bayesian_network(source, {"pills": []}), ["pills"])


QUERIES = [
    mq.Query(by=("pills", "doses")),
    mq.Query(by=("smoker", "exams")),
    mq.Query(by="age", where={"sleep": "yes"}),
]


def _same_answers(ours, source):
    for mine, theirs in zip(ours.answer(QUERIES), source.answer(QUERIES), strict=True):
        np.testing.assert_allclose(mine.values, theirs.values, atol=1e-6)
        np.testing.assert_allclose(mine.stderr(), theirs.stderr(), rtol=1e-9)


def test_duckdb_answers_as_memory_does(source, reports, policy, tmp_path):
    reports.to_parquet(tmp_path / "reports.parquet")
    _same_answers(mq.tally(tmp_path / "reports.parquet", policy, engine="duckdb"), source)


def test_postgres_answers_as_memory_does(source, reports, policy, postgres):
    with psycopg.connect(postgres.fresh_database().url, autocommit=True) as connection:
        connection.execute("CREATE TABLE reports (block bigint, class bigint, exams text)")
        with connection.cursor() as cursor, cursor.copy("COPY reports FROM STDIN") as copy:
            for row in reports.itertuples(index=False):
                copy.write_row(row)
        _same_answers(mq.tally(ibis.postgres.from_connection(connection).table("reports"), policy), source)


def test_spark_answers_as_memory_does(source, reports, policy, spark):
    table = spark.createDataFrame(pa.Table.from_pandas(reports, preserve_index=False))
    _same_answers(mq.tally(table, policy), source)
