"""Reports that do not tell all truths apart: what follows from them, what does not, and how it is said."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError, PolicyError, QueryRefused
from masquerade.core.supports import Supports, from_tables
from masquerade.disguising.seeded import simulate_codes
from masquerade.frames.baskets import check_baskets
from masquerade.simulation import people_from
from masquerade.simulation.mixnet import count as mixed_count
from masquerade.simulation.people import Trouble
from masquerade.sklearn import DisguisedNaiveBayes
from masquerade.sources.records import Records

NAMES = ("a", "b", "c", "d")
YES_NO = {name: {"categories": [False, True]} for name in NAMES}
LABELS = [*(f"pair {i}" for i in range(4)), "no", "yes"]
# half of the people report a and b together, the other half c: eight truths, six reports, rank five
ROWS = [
    [
        *("0.26" if ab == i else "0.08" for i in range(4)),
        *("0.4" if c == i else "0.1" for i in range(2)),
    ]
    for ab in range(4)
    for c in range(2)
]


def joint(rows=ROWS, labels=LABELS, report="abc", **more):
    channel = {"kind": "matrix", "rows": rows, "reports": labels}
    entry = {"variables": list(NAMES[:3]), "channel": channel} | ({"report": report} if report else {})
    return mq.Policy.from_dict({"masquerade": 1, "variables": YES_NO, "joint": [entry], **more})


def blocks(**more):
    entry = {"variables": list(NAMES), "k": 2, "cells": "0.7", "gamma": 6} | more
    return mq.Policy.from_dict({"masquerade": 1, "variables": YES_NO, "blocks": [entry]})


def truth(seed):
    """Return a random distribution over all variables, as dependent as it happens to be."""
    return np.random.default_rng(seed).dirichlet(np.full(16, 0.6))


def drawn(shares, n, generator):
    cells = generator.choice(16, size=n, p=shares)
    return dict(
        zip(NAMES, [code.astype(np.uint8) for code in np.unravel_index(cells, (2,) * 4)], strict=True)
    )


def frame_of(codes):
    return pd.DataFrame({name: column.astype(bool) for name, column in codes.items()})


QUERIES = {
    "joint": [
        mq.Query(by=("b", "d", "a")),
        mq.Query(by="c", where={"d": True}),
        mq.Query(by="a", where={"b": True}),
    ],
    "blocks": [mq.Query(by=("d", "a")), mq.Query(by=("b", "c")), mq.Query(by="a", where={"c": True})],
}


def expected(shares, query):
    table = shares.reshape((2,) * 4)
    index = tuple(1 if dict(query.where).get(name) else slice(None) for name in NAMES)
    left = [name for name in NAMES if name not in dict(query.where)]
    picked = table[index].sum(axis=tuple(i for i, name in enumerate(left) if name not in query.by))
    order = [name for name in left if name in query.by]
    return np.transpose(picked, [order.index(name) for name in query.by])


@pytest.mark.parametrize(("kind", "policy"), [("joint", joint()), ("blocks", blocks())])
def test_estimates_are_unbiased_with_the_covariance_that_they_claim(kind, policy):
    shares, n, generator = truth(3), 600, np.random.default_rng(4)
    values = {query: [] for query in QUERIES[kind]}
    claimed = {query: [] for query in QUERIES[kind]}
    for _ in range(400):
        source = Records(simulate_codes(drawn(shares, n, generator), policy, generator), policy)
        for query, table in zip(QUERIES[kind], source.answer(QUERIES[kind]), strict=True):
            values[query].append([*table.values.ravel(), table.values.ravel() @ np.arange(table.values.size)])
            weights = np.arange(table.values.size).reshape(table.values.shape)
            spread = table.covariance.quadratic(weights)
            claimed[query].append([*table.covariance.diagonal().ravel(), spread])
    for query in QUERIES[kind]:
        true = n * expected(shares, query).ravel()
        assert_unbiased(values[query], [*true, true @ np.arange(true.size)])
        assert_variance(values[query], claimed[query])


@pytest.mark.parametrize(("kind", "policy"), [("joint", joint()), ("blocks", blocks())])
def test_given_the_records_only_the_disguise_varies(kind, policy):
    generator = np.random.default_rng(5)
    records = drawn(truth(6), 400, generator)
    query = QUERIES[kind][0]
    (true,) = mq.tally(frame_of(records), schema=policy).answer([query])
    tables = [
        Records(simulate_codes(records, policy, generator), policy).answer([query])[0] for _ in range(400)
    ]
    assert_unbiased([table.values for table in tables], true.values)
    assert_variance(
        [table.values for table in tables],
        [table.covariance.diagonal("given_records") for table in tables],
    )


def test_conditioning_on_the_dealt_blocks_takes_off_what_they_vary_by():
    """Variance (f² − φ²)/n_u instead of f²/q − φ² over n, for a parity φ near one."""
    policy = blocks(gamma=50)
    n, generator = 1500, np.random.default_rng(7)
    records = dict.fromkeys(NAMES, np.ones(n, dtype=np.uint8))
    tables = [
        Records(simulate_codes(records, policy, generator), policy).answer([mq.Query(by="a")])[0]
        for _ in range(300)
    ]
    found = np.var([table.values[1] for table in tables], ddof=1)
    f, q = Fraction(50 + 3, 49), 0.7 / 2  # a is in half of the cells blocks
    conditioned, unconditioned = n / q * (float(f) ** 2 - 1) / 4, n * (float(f) ** 2 / q - 1) / 4
    assert unconditioned > 4 * conditioned
    assert found < 2 * conditioned
    assert np.mean([table.stderr()[1] ** 2 for table in tables]) == pytest.approx(conditioned, rel=0.1)


@pytest.mark.parametrize("policy", [joint(), blocks()], ids=["joint", "blocks"])
def test_fits_and_misfits_are_of_the_likelihood_of_the_reports(policy):
    n, generator = 20_000, np.random.default_rng(8)
    shares = truth(9)
    source = Records(simulate_codes(drawn(shares, n, generator), policy, generator), policy)
    (table,) = source.answer([mq.Query(by=("a", "b"))])
    saturated, apart = table.fit([["a", "b"]]), table.fit([["a"], ["b"]])
    np.testing.assert_allclose(saturated.expected, table.nonnegative("mle").values, rtol=1e-3, atol=1)
    assert apart.df == saturated.df + 1
    assert apart.deviance > saturated.deviance - 1e-6
    reports = 6 if policy.group("a").response is None else 11
    samples = 1 if policy.group("a").response is None else 5
    told = 5 if policy.group("a").response is None else 4
    assert saturated.df == reports - told - (samples - 1)
    gap = (saturated.expected - n * expected(shares, mq.Query(by=("a", "b")))) / table.stderr()
    assert np.abs(gap).max() < 5.5
    assert source.misfit(["a", "b"]).p_value > 1e-6


def test_a_misfit_is_found_in_reports_that_no_truth_gives():
    policy = blocks()
    generator = np.random.default_rng(10)
    codes = simulate_codes(drawn(truth(1), 20_000, generator), policy, generator)
    codes["class"] = (codes["block"] * 3 + codes["class"]) % 2 * np.uint8(3)
    assert Records(codes, policy).misfit(["a", "b"]).p_value < 1e-6


def test_means_of_functions_are_those_of_tables():
    for policy in (joint(), blocks()):
        generator = np.random.default_rng(11)
        source = Records(simulate_codes(drawn(truth(2), 3_000, generator), policy, generator), policy)
        (table,) = source.answer([mq.Query(by=("a", "b"))])
        value, error = source.expect(lambda codes: codes[:, 0] * codes[:, 1], ["a", "b"])
        assert value == pytest.approx(table.values[1, 1] / source.n)
        assert error == pytest.approx(table.stderr()[1, 1] / source.n, rel=1e-3)


def test_supports_are_those_of_tables():
    items = tuple((name, True) for name in NAMES)
    for policy in (joint(), blocks()):
        generator = np.random.default_rng(12)
        source = Records(simulate_codes(drawn(truth(2), 3_000, generator), policy, generator), policy)
        question = Supports(items, np.array([[0, 1], [1, 3]]))
        found = source.supports(question)
        np.testing.assert_allclose(found.values, from_tables(source, question).values)
        with pytest.raises(QueryRefused, match="does not follow") as refused:
            source.supports(Supports(items, np.array([[0, 1, 2]])))
        assert {item.code for item in refused.value.refusals} == {"not_estimable"}


def test_refusals_say_which_tables_can_be_asked():
    generator = np.random.default_rng(13)
    codes = drawn(truth(2), 100, generator)
    source = Records(simulate_codes(codes, joint(), generator), joint())
    (refusal,) = source.check([mq.Query(by=("a", "c"))])
    assert refusal.code == "not_estimable"
    assert "Of these variables a × b; c can be queried" in refusal.reason
    dealt = Records(simulate_codes(codes, blocks(), generator), blocks())
    (refusal,) = dealt.check([mq.Query(by=("a", "c"), where={"d": True})])
    assert refusal.code == "not_estimable"
    assert "nobody reported on these 3 variables together. Tables of up to 2 variables" in refusal.reason
    wide = blocks(k=3, cells=1)
    assert Records(simulate_codes(codes, wide, generator), wide).check([mq.Query(by=("a", "c", "d"))]) == []


def test_two_sets_of_blocks_are_asked_apart():
    entries = [
        {"variables": ["a", "b"], "k": 1, "cells": "1/2", "gamma": 9, "report": "first"},
        {"variables": ["c", "d"], "k": 2, "gamma": 9, "report": "second"},
    ]
    policy = mq.Policy.from_dict({"masquerade": 1, "variables": YES_NO, "blocks": entries})
    assert mq.privacy(policy).record_gamma == 81
    generator = np.random.default_rng(14)
    source = Records(simulate_codes(drawn(truth(2), 4_000, generator), policy, generator), policy)
    assert source.check([mq.Query(by=("a", "b")), mq.Query(by=("c", "d"))]) == []
    (refusal,) = source.check([mq.Query(by=("a", "c"))])
    assert (refusal.code, "one choice at a time" in refusal.reason) == ("not_estimable", True)


def test_a_square_joint_channel_that_loses_something_answers_what_it_keeps():
    """Each variable alone goes through, their association does not."""
    rows = [
        [
            str(Fraction(1 + 2 * (i >> 1 == j >> 1), 16) + Fraction(1 + 2 * (i % 2 == j % 2), 16))
            for j in range(4)
        ]
        for i in range(4)
    ]
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": YES_NO,
            "joint": [{"variables": ["a", "b"], "channel": {"kind": "matrix", "rows": rows}}],
        }
    )
    generator = np.random.default_rng(15)
    records = drawn(truth(4), 5_000, generator)
    source = Records(simulate_codes(records, policy, generator), policy)
    (table,) = source.answer([mq.Query(by="a")])
    assert abs(table.values[1] - records["a"].sum()) < 5.5 * table.stderr("given_records")[1]
    (refusal,) = source.check([mq.Query(by=("a", "b"))])
    assert refusal.code == "not_estimable"


def test_policies_say_how_a_joint_report_is_named_and_refuse_one_that_tells_nothing():
    policy = joint()
    assert policy.observed.names == ("abc", "d")
    assert policy.observed["abc"].categories == tuple(LABELS)
    assert mq.Policy.from_dict(policy.to_dict()) == policy
    assert policy.id != joint(report="other").id
    built = mq.Policy.build(policy.schema, {NAMES[:3]: policy.group("a").channel}, reports={NAMES[:3]: "abc"})
    assert built == policy == mq.Policy.from_dict(built.to_dict())
    with pytest.raises(PolicyError, match="or a 'report' of their own"):
        joint(report=None)
    with pytest.raises(PolicyError, match="no table can be estimated"):
        joint(rows=[["0.5", "0.5"]] * 8, labels=["x", "y"])
    with pytest.raises(PolicyError, match="'d' names a report and a variable"):
        joint(report="d")


@pytest.mark.parametrize("policy", [joint(), blocks()], ids=["joint", "blocks"])
def test_frames_and_files_are_disguised_and_counted_by_memory_and_duckdb(policy, tmp_path):
    clear = frame_of(drawn(truth(5), 3_000, np.random.default_rng(16))).assign(who=range(3_000))
    clear.to_csv(tmp_path / "clear.csv", index=False)
    mq.disguise_file(tmp_path / "clear.csv", tmp_path / "out.parquet", policy, keep=["who"])
    columns = list(pd.read_parquet(tmp_path / "out.parquet").columns)
    assert columns == [*policy.observed.names, "who"]
    queries = [mq.Query(by=("a", "b")), mq.Query(by="c", where={"d": True})]
    if policy.group("a").response is None:
        assert columns == ["abc", "d", "who"]
    answers = [
        mq.tally(tmp_path / "out.parquet", policy, engine=engine).answer(queries)
        for engine in ("memory", "duckdb")
    ]
    true = mq.tally(clear.drop(columns="who"), schema=policy).answer(queries)
    for ours, theirs, exact in zip(*answers, true, strict=True):
        np.testing.assert_allclose(ours.values, theirs.values, atol=1e-8)
        np.testing.assert_allclose(ours.stderr(), theirs.stderr())
        assert np.abs((ours.values - exact.values) / ours.stderr("given_records")).max() < 5.7
    with pytest.raises(InputError, match="is a report of the policy"):
        mq.disguise(clear.assign(**{columns[0]: 1}), policy, keep=[columns[0]])


@pytest.mark.parametrize("policy", [joint(), blocks()], ids=["joint", "blocks"])
def test_a_memo_repeats_block_and_report_together(policy, tmp_path):
    clear = frame_of(drawn(truth(5), 500, np.random.default_rng(17))).assign(who=range(500))
    memo = {"memo": tmp_path / "memo", "id": "who"}
    waves = [mq.disguise(clear, policy, **memo, new_memo=first) for first in (True, False)]
    pd.testing.assert_frame_equal(*waves)
    fresh = mq.disguise(clear, policy)
    first = policy.group("a").reports[0]
    assert (fresh[first].to_numpy() != waves[0][first].to_numpy()).any()
    if policy.group("a").response is not None:
        changed = mq.disguise(clear.assign(a=~clear["a"]), policy, memo=tmp_path / "memo", id="who")
        assert (changed["block"] == waves[0]["block"]).all()
        counts = waves[0]["block"].value_counts()
        assert len(counts) == policy.group("a").report_sizes[0]


def test_weighted_records_are_estimated_by_the_weights_of_their_blocks():
    policy, generator = blocks(), np.random.default_rng(18)
    shares, n = truth(7), 500
    query = mq.Query(by=("a", "b"))
    values, claimed = [], []
    for _ in range(300):
        weights = generator.uniform(0.5, 1.5, size=n)
        codes = simulate_codes(drawn(shares, n, generator), policy, generator)
        (table,) = Records(codes, policy, weights).answer([query])
        assert table.values.sum() == pytest.approx(weights.sum())
        values.append(table.values)
        claimed.append(table.covariance.diagonal())
    assert_unbiased(values, n * expected(shares, query))
    assert_variance(values, claimed)


def test_baskets_are_not_dealt():
    names = ("x", "y", "z")
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {name: {"categories": [False, True]} for name in names},
            "blocks": [{"variables": list(names), "k": 2, "gamma": 3}],
        }
    )
    with pytest.raises(InputError, match="disguises a frame of true/false columns"):
        check_baskets(policy, names)


def test_samples_of_one_population_are_pooled_whatever_their_reports_tell_apart():
    """A joint report, dealt blocks and clear records: all answer the pair, none in the same way."""
    other = [[str(Fraction(p) * 4 / 5 + Fraction(1, 30)) for p in row] for row in ROWS]
    policies = [joint(), joint(rows=other), blocks(), blocks(k=1, gamma=20)]
    shares, query = truth(12), mq.Query(by=("a", "b"))
    generator = np.random.default_rng(19)
    values, claimed = [], []
    for _ in range(120):
        sources = [
            Records(simulate_codes(drawn(shares, 800, generator), policy, generator), policy)
            for policy in policies
        ]
        (table,) = mq.Merged(sources).answer([query])
        values.append(table.values)
        claimed.append(table.covariance.diagonal())
    assert_unbiased(values, 3_200 * expected(shares, query))
    assert_variance(values, claimed)
    alone = [source.answer([query])[0].covariance.diagonal().sum() for source in sources]
    assert np.sum(claimed[-1]) / 3_200**2 < min(alone) / 800**2


def test_reports_drawn_anew_keep_the_sizes_of_dealt_samples():
    policy, generator = blocks(), np.random.default_rng(20)
    source = Records(simulate_codes(drawn(truth(13), 4_000, generator), policy, generator), policy)
    (table,) = source.answer([mq.Query(by=("a", "b"))])
    anew = [table.evidence.resample(generator) for _ in range(300)]
    sizes = [[each.parts[0].observed[each.parts[0].dealt.of == s].sum() for s in range(5)] for each in anew]
    assert np.ptp(sizes, axis=0).max() <= 1
    assert_unbiased([each.values for each in anew], table.values)
    assert_variance([each.values for each in anew], [each.covariance.diagonal() for each in anew])


def test_a_block_that_nobody_was_dealt_leaves_estimates_with_errors_and_the_total():
    policy = blocks(k=1, cells="0.3", gamma=9)
    shares, query = truth(14), mq.Query(by=("a", "b"))
    generator = np.random.default_rng(22)
    values = []
    for _ in range(600):
        codes = simulate_codes(drawn(shares, 12, generator), policy, generator)
        (table,) = Records(codes, policy).answer([query])
        values.append(table.values)
        assert np.all(np.isfinite(table.stderr()))
    # nothing is lost or counted twice
    assert np.abs(np.mean(values, axis=0).sum() - 12) < 1e-6
    (empty,) = Records({name: column[:0] for name, column in codes.items()}, policy).answer([query])
    assert np.all(empty.values == 0)


def test_estimators_say_that_they_take_a_column_for_each_variable():
    policy = blocks()
    frame = frame_of(drawn(truth(1), 50, np.random.default_rng(23)))
    with pytest.raises(InputError, match="share reports"):
        DisguisedNaiveBayes(policy=policy, target="d").fit(mq.simulate(frame, policy, seed=1), frame["d"])


def test_dealt_blocks_go_through_a_mix():
    policy = blocks()
    people = people_from(frame_of(drawn(truth(1), 12, np.random.default_rng(24))), policy)
    found = mixed_count(
        people, lambda source: (source.n, source.answer([mq.Query(by=("a", "b"))])), Trouble()
    )
    n, (table,) = found.model
    assert n == 12
    assert table.total == pytest.approx(12)


def test_blocks_beside_a_variable_whose_channel_differs_by_stratum():
    variables = {**YES_NO, "s": {"categories": ["x", "y"]}, "z": {"categories": [False, True]}}
    variables["z"]["channel"] = {"kind": "binary", "p": "0.1"}
    entry = {"variables": list(NAMES), "k": 2, "gamma": 6}
    values = {"masquerade": 1, "variables": variables, "blocks": [entry]}
    strata = {"by": "s", "channels": {"y": {"z": {"kind": "binary", "p": "0.3"}}}}
    policy = mq.Policy.from_dict(values | {"strata": strata})
    rng = np.random.default_rng(5)
    a, s = rng.random(3000) < 0.3, rng.random(3000) < 0.5
    flips = {
        "b": a ^ (rng.random(3000) < 0.2),
        "c": rng.random(3000) < 0.5,
        "d": ~a,
        "z": a ^ (rng.random(3000) < 0.1),
    }
    frame = pd.DataFrame({"a": a, **flips, "s": np.where(s, "y", "x")})
    queries = [mq.Query(by=("a", "b")), mq.Query(by=("a", "z"))]
    exact = np.concatenate([table.values.ravel() for table in mq.tally(frame, schema=policy).answer(queries)])
    found, claimed = [], []
    for seed in range(150):
        answers = mq.tally(mq.simulate(frame, policy, seed), policy).answer(queries)
        found.append(np.concatenate([table.values.ravel() for table in answers]))
        claimed.append(np.concatenate([table.stderr("given_records").ravel() ** 2 for table in answers]))
    assert_unbiased(np.array(found), exact)
    assert_variance(np.array(found), np.array(claimed))
    taken = {"by": "s", "channels": {"y": {"a": {"kind": "binary", "p": "0.3"}}}}
    with pytest.raises(PolicyError):
        mq.Policy.from_dict(values | {"strata": taken})
