"""The tally: learners run on people's records unchanged, the disguise is corrected, refusals come first."""

import numpy as np
import pytest
from tests.conformance.cases import QUERIES, SPECS, queries_of
from tests.statistical.checks import assert_unbiased, assert_variance
from tests.unit.protocols.secure_aggregation.people import (
    CLEAR,
    DISGUISED,
    InTheOpen,
    codes_of,
    people,
)

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused, RoundAborted, SchemaError
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.classifiers.bayes import naive_bayes
from masquerade.protocols.people.roster import enrol
from masquerade.protocols.secure_aggregation.agreement import AggregationTerms, Parameters
from masquerade.protocols.secure_aggregation.messages import Endorsements
from masquerade.simulation.aggregation import Aggregation
from masquerade.sources.people.aggregation import AggregationTally
from masquerade.sources.records import Records

TERMS = {}


def terms_for(policy):
    """Return terms for 40 users; enrolling them is not what is tested here."""
    roster, _ = TERMS.setdefault("roster", enrol([f"user {i}" for i in range(40)]))
    return AggregationTerms(roster, Parameters.of(40), policy)


def rows_of(codes, policy):
    return np.column_stack([codes[name] for name in policy.observed]).tolist()


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("queries", [QUERIES, QUERIES[:8], QUERIES[4:8]], ids=["all", "small", "conditioned"])
def test_answers_are_those_of_the_disguised_records(name, queries):
    policy = mq.Policy.from_dict({"masquerade": 1, **SPECS[name]})
    queries = [query for query in queries if query in queries_of(name)]
    generator = np.random.default_rng(3)
    clear = {v: generator.integers(0, len(policy.schema[v]), 300).astype(np.uint8) for v in policy.schema}
    reports = simulate_codes(clear, policy, 5)
    rounds = InTheOpen(rows_of(reports, policy), terms_for(policy))
    tally = AggregationTally(rounds, policy)
    for ours, theirs in zip(tally.answer(queries), Records(reports, policy).answer(queries), strict=True):
        assert ours.axes == theirs.axes
        assert ours.n == theirs.n
        np.testing.assert_allclose(ours.values, theirs.values, atol=1e-8)
        for kind in ("population", "given_records"):
            np.testing.assert_allclose(ours.stderr(kind), theirs.stderr(kind), atol=1e-6)
        for method in ("simplex", "clip"):
            projected = ours.nonnegative(method).values, theirs.nonnegative(method).values
            np.testing.assert_allclose(*projected, atol=1e-8)
        # EM stops where the likelihood is within 1e-6 of its best, which leaves the counts some slack
        np.testing.assert_allclose(ours.nonnegative("mle").values, theirs.nonnegative("mle").values, atol=0.3)
    assert len(rounds.asked) == 1


def test_what_was_counted_is_not_asked_again():
    rounds = InTheOpen(rows_of(codes_of(50), CLEAR), terms_for(CLEAR))
    tally = AggregationTally(rounds, CLEAR)
    tally.answer([mq.Query(by="a"), mq.Query(by=("b", "a")), mq.Query(by="b", where={"a": "x"})])
    assert [batch.length for batch in rounds.asked] == [6]  # the largest table covers the others
    tally.answer([mq.Query(by=("a", "b")), mq.Query(), mq.Query(where={"b": 3})])
    assert len(rounds.asked) == 1


def test_conditions_on_clear_values_shorten_the_vote():
    rounds = InTheOpen(rows_of(codes_of(50), CLEAR), terms_for(CLEAR))
    (table,) = AggregationTally(rounds, CLEAR).answer([mq.Query(by="b", where={"a": "y"})])
    assert rounds.asked[0].length == 3
    codes = codes_of(50)
    assert table.values.tolist() == np.bincount(codes["b"][codes["a"] == 1], minlength=3).tolist()


@pytest.fixture(scope="module")
def study():
    """Return the same records as a population of users and as clear records in memory."""
    generator = np.random.default_rng(12)
    schema = mq.Schema({"y": ["no", "yes"], "u": [0, 1, 2], "v": ["p", "q"]})
    policy = mq.Policy.clear(schema)
    y = generator.integers(0, 2, 16)
    codes = {
        "y": y.astype(np.uint8),
        "u": ((y + generator.integers(0, 2, 16)) % 3).astype(np.uint8),
        "v": (y ^ (generator.random(16) < 0.2)).astype(np.uint8),
    }
    return policy, codes, Records(codes, policy)


def tally_of(study):
    policy, codes, _ = study
    return AggregationTally(Aggregation(codes, policy, Parameters.of(16, minimum=4)), policy)


def test_naive_bayes_takes_one_round_and_is_the_clear_model(study):
    tally = tally_of(study)
    ours, theirs = naive_bayes(tally, "y"), naive_bayes(study[2], "y")
    for one, other in zip(ours.probabilities, theirs.probabilities, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert tally.rounds.meter.rounds == 1


def test_structure_tree_and_rules_run_unchanged(study):
    tally = tally_of(study)
    order = ["y", "u", "v"]
    ours, theirs = (mq.learn.structure(source, order=order, max_parents=2) for source in (tally, study[2]))
    assert ours.summary() == theirs.summary()
    ours, theirs = (mq.learn.decision_tree(source, target="y") for source in (tally, study[2]))
    assert ours.summary() == theirs.summary()
    ours, theirs = (
        mq.learn.association_rules(source, min_support=0.2, min_confidence=0.6)
        for source in (tally, study[2])
    )
    assert ours.summary() == theirs.summary()
    assert tally.rounds.meter.rounds >= 2  # K2 asks as it goes


def test_disguise_first_is_the_disguised_records_through_the_protocol():
    population = people(policy=DISGUISED)
    tally = AggregationTally(population, DISGUISED)
    reports = np.array([list(user._reports.values()) for user in population.users], dtype=np.uint8)
    beside = Records({"a": reports[:, 0], "b": reports[:, 1]}, DISGUISED)
    query = mq.Query(by=("a", "b"))
    ours, theirs = tally.answer([query])[0], beside.answer([query])[0]
    np.testing.assert_allclose(ours.values, theirs.values, atol=1e-9)
    np.testing.assert_allclose(ours.stderr(), theirs.stderr(), atol=1e-9)


def test_disguise_first_is_unbiased_and_its_variance_is_right():
    """400 populations of 80 people; false alarm 1e-6 (`assert_unbiased`, `assert_variance`)."""
    clear = codes_of(80, seed=4)
    queries = [mq.Query(by=("a", "b")), mq.Query(by="b", where={"a": "x"})]
    truths = [table.values for table in Records(clear, CLEAR).answer(queries)]
    values, variances = ([], []), ([], [])
    terms = terms_for(DISGUISED)
    for run in range(400):
        rows = rows_of(simulate_codes(clear, DISGUISED, run), DISGUISED)
        for i, table in enumerate(AggregationTally(InTheOpen(rows, terms), DISGUISED).answer(queries)):
            values[i].append(table.values)
            variances[i].append(table.covariance.diagonal("given_records"))
    for found, claimed, truth in zip(values, variances, truths, strict=True):
        assert_unbiased(found, truth)
        assert_variance(found, claimed)


def test_the_guarantee_says_who_learns_what():
    population = people()
    clear = AggregationTally(population, CLEAR).guarantee
    assert {item.role for item in clear.disclosures} == {"miner"}  # users learn nothing
    assert clear.disclosures[0].gamma is None
    assert "sums of clear values over at least 5 users" in clear.summary()
    assert clear.integrity == "none"
    assert any("one user can shift any count" in text for text in clear.assumptions)
    assert (clear.colluders, clear.dropouts) == (2, 2)
    assert clear.adversaries["miner"] == "malicious"
    assert clear.excluded_coalitions == (("miner", "more than 2 users"),)
    first = AggregationTally(people(policy=DISGUISED), DISGUISED).guarantee
    assert [item.gamma for item in first.disclosures] == [
        DISGUISED.group(name).channel.gamma for name in ("a", "b")
    ]
    assert any("even if all other users help" in text for text in first.assumptions)


def test_refusals_come_before_anything_leaves():
    population = people()
    tally = AggregationTally(population, CLEAR, most_counts=5)
    queries = [mq.Query(by="a"), mq.Query(by=("a", "b"))]
    (refusal,) = tally.check(queries)
    assert refusal.code == "too_many_cells"
    with pytest.raises(QueryRefused, match="6 cells"):
        tally.answer(queries)
    assert population.meter.sent.sum() == 0
    assert tally.check([mq.Query(by="a")]) == []
    with pytest.raises(SchemaError, match="no variable 'z'"):
        tally.check([mq.Query(by="z")])


def test_small_rosters_are_refused():
    tally = AggregationTally(Aggregation(codes_of(12), CLEAR, Parameters.of(12)), CLEAR)
    assert [refusal.code for refusal in tally.check([mq.Query(by="a")])] == ["roster_too_small"]


def test_a_dropout_between_rounds_is_refused_and_known_answers_stay():
    population = people()
    tally = AggregationTally(population, CLEAR)
    (table,) = tally.answer([mq.Query(by="a")])
    population.gone.add(3)
    assert [refusal.code for refusal in tally.check([mq.Query(by="b")])] == ["departed_too_few"]
    with pytest.raises(QueryRefused, match="1 of the 12 users counted before left"):
        tally.answer([mq.Query(by="a"), mq.Query(by="b")])
    assert tally.answer([mq.Query(by="a")])[0].values.tolist() == table.values.tolist()


def test_an_aborted_round_is_told_and_not_repeated():
    population = people()
    tally = AggregationTally(population, CLEAR)
    population.leaving = dict.fromkeys(range(6), Endorsements)
    with pytest.raises(RoundAborted) as aborted:
        tally.answer([mq.Query(by="a")])
    assert aborted.value.spent
    population.gone.clear()
    assert [refusal.code for refusal in tally.check([mq.Query(by="a")])] == ["already_spent"]


def test_tables_know_how_many_users_stand_behind_them():
    population = people(policy=DISGUISED)
    tally = AggregationTally(population, DISGUISED)
    first = tally.answer([mq.Query(by="a")])[0]
    population.gone.add(3)
    second = tally.answer([mq.Query(by="b")])[0]
    assert (first.n, second.n) == (12, 11)
    assert tally.answer([mq.Query(by="a")])[0].n == 12


def test_singular_channels_are_refused_where_asked_for():
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "a": {"categories": ["x", "y"]},
                "b": {"categories": [1, 2], "channel": {"kind": "binary", "p": 0.5}},
            },
        }
    )
    tally = AggregationTally(InTheOpen([(0, 1)] * 30, terms_for(policy)), policy)
    assert tally.check([mq.Query(by="a")]) == []
    assert [refusal.code for refusal in tally.check([mq.Query(by="b")])] == ["singular"]


def test_wrong_arguments_are_refused():
    population = people()
    with pytest.raises(InputError, match="a different policy"):
        AggregationTally(population, DISGUISED)
    with pytest.raises(InputError, match="between 1 and"):
        AggregationTally(population, CLEAR, most_counts=0)
    tally = AggregationTally(population, CLEAR)
    assert isinstance(tally, mq.Tally)
    assert "12 users" in repr(tally)
    with pytest.raises(InputError, match="answer"):
        tally.answer(mq.Query(by="a"))
    with pytest.raises(InputError, match="one column of codes"):
        Aggregation({"a": np.zeros(3)}, CLEAR)
