"""Frequent itemsets and rules: mlxtend's on clear records, brute force, and right errors under noise."""

import json
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from mlxtend.frequent_patterns import apriori
from mlxtend.frequent_patterns import association_rules as mlxtend_rules
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning, SchemaError
from masquerade.core.supports import SupportAnswer
from masquerade.disguising.seeded import simulate_codes
from masquerade.frames.baskets import basket_policy
from masquerade.learn.rules.association_rules import association_rules
from masquerade.learn.rules.itemsets import Itemsets, frequent_itemsets, items_of
from masquerade.learn.rules.rules_model import AssociationRules
from masquerade.sources.records import Records

METRICS = [
    "antecedent support",
    "consequent support",
    "support",
    "confidence",
    "lift",
    "representativity",
    "leverage",
    "conviction",
    "zhangs_metric",
    "jaccard",
    "certainty",
    "kulczynski",
]


class Slow:
    """The same records, asked query by query."""

    def __init__(self, records):
        self.records, self.schema, self.guarantee = records, records.schema, records.guarantee

    def check(self, queries):
        return self.records.check(queries)

    def answer(self, queries):
        return self.records.answer(queries)


def mushrooms(rows=600, seed=1):
    """Nine categorical variables that hang on a class, two of them constant or nearly so."""
    generator = np.random.default_rng(seed)
    kind = generator.integers(0, 2, rows)
    frame = {"class": np.array(["e", "p"])[kind]}
    for i, size in enumerate((2, 2, 2, 3, 4, 4, 1, 3)):
        shares = generator.dirichlet(np.full(size, 0.4), size=2).cumsum(axis=1)
        frame[f"v{i}"] = np.array(list("abcd"))[(generator.random(rows)[:, None] > shares[kind]).sum(axis=1)]
    return pd.DataFrame(frame)


def one_hot(frame):
    return pd.DataFrame(
        {f"{name}={label}": frame[name] == label for name in frame for label in sorted(frame[name].unique())}
    )


def as_dict(frame):
    return dict(zip(frame["itemsets"], frame["support"], strict=True))


@pytest.fixture(scope="module")
def clear():
    frame = mushrooms()
    records = mq.tally(frame)
    return Records(records.codes, records.policy), one_hot(frame)


@pytest.mark.parametrize("min_support", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("max_len", [None, 1, 3])
def test_itemsets_equal_mlxtend_on_clear_records(clear, min_support, max_len):
    records, hot = clear
    expected = as_dict(apriori(hot, min_support, use_colnames=True, max_len=max_len))
    found = as_dict(frequent_itemsets(records, min_support, max_len=max_len).to_frame())
    assert expected  # the constant variable is always frequent
    assert found == pytest.approx(expected, abs=1e-12)


def test_rules_equal_mlxtend_on_clear_records(clear):
    records, hot = clear
    with np.errstate(invalid="ignore"):  # mlxtend divides by zero before it replaces the result
        expected = mlxtend_rules(apriori(hot, 0.15, use_colnames=True), min_threshold=0.6)
    found = association_rules(records, 0.15, 0.6).to_frame()
    sides = ["antecedents", "consequents"]
    assert list(found.columns[:14]) == [*sides, *METRICS] == list(expected.columns)
    assert len(found) == len(expected) > 500
    both = found.merge(expected, on=sides, suffixes=("", " expected"), validate="1:1")
    assert len(both) == len(expected)
    for metric in METRICS:
        np.testing.assert_allclose(both[metric], both[f"{metric} expected"], rtol=1e-9, atol=1e-12)


def test_one_hot_columns_give_the_same_sets_as_categories(clear):
    records, hot = clear
    in_and_out = frequent_itemsets(mq.tally(hot), 0.2).to_frame()
    assert as_dict(in_and_out) == pytest.approx(as_dict(frequent_itemsets(records, 0.2).to_frame()))


def items_and_sets(schema, sizes):
    items, _ = items_of(schema, None)
    for size in sizes:
        for held in combinations(items, size):
            if len({name for name, _ in held}) == size:
                yield dict(held)


POLICIES = {
    "alone": ((), "0.1"),
    "joint": (("abd", "ce"), "0.15"),
}


def disguised(name, n=4000, seed=2):
    """Six items in the groups of Ma (2006) §7.1.2, drawn from a dependent population."""
    together, p = POLICIES[name]
    policy = basket_policy(
        "abcdef", mq.channels.binary(p), together, lambda cells: mq.channels.symmetric(cells, p)
    )
    codes = population(n, np.random.default_rng(seed))
    return Records(simulate_codes(codes, policy, seed), policy)


def population(n, generator):
    kind = generator.random((n, 1)) < 0.4
    chances = np.where(kind, [0.9, 0.8, 0.7, 0.3, 0.6, 0.1], [0.2, 0.5, 0.6, 0.4, 0.1, 0.1])
    drawn = generator.random((n, 6)) < chances
    return {name: drawn[:, i].astype(np.uint8) for i, name in enumerate("abcdef")}


def expected_share(held):
    high = dict(zip("abcdef", [0.9, 0.8, 0.7, 0.3, 0.6, 0.1], strict=True))
    low = dict(zip("abcdef", [0.2, 0.5, 0.6, 0.4, 0.1, 0.1], strict=True))
    return 0.4 * np.prod([high[i] for i in held]) + 0.6 * np.prod([low[i] for i in held])


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("min_support", [0.05, 0.3])
def test_itemsets_equal_brute_force_under_noise(name, min_support):
    records = disguised(name)
    found = frequent_itemsets(records, min_support)
    frame = found.to_frame().set_index("itemsets")
    brute = {}
    for held in items_and_sets(records.schema, range(1, 7)):
        (table,) = records.answer([mq.Query(where=held)])
        brute[frozenset(held)] = (float(table.values), float(table.stderr()))
    upper = {held: value + 1.97 * error for held, (value, error) in brute.items()}

    def may(held):  # every subset's upper end reaches the threshold; Wilson's is within a hair of normal's
        return all(
            upper[frozenset(s)] >= min_support * records.n
            for k in range(1, len(held) + 1)
            for s in combinations(held, k)
        )

    expected = {h for h, (value, _) in brute.items() if value >= min_support * records.n and may(h)}
    assert set(frame.index) == expected
    assert len(expected) > 5
    for held, row in frame.iterrows():
        value, error = brute[held]
        np.testing.assert_allclose([row["support"], row["stderr"]], np.array([value, error]) / records.n)
        assert row["undecided"] == (row["lower"] < min_support)
    assert found.is_undecided.any() or min_support == 0.3


@pytest.mark.parametrize("name", POLICIES)
def test_printed_candidates_equal_brute_force_under_noise(name):
    """Apriori-Gen as printed: any two extended sets that share all items but one make a candidate."""
    records, least = disguised(name, n=50), 0.05
    supports = {}
    for held in items_and_sets(records.schema, range(1, 7)):
        (table,) = records.answer([mq.Query(where=held)])
        supports[frozenset(held)] = float(table.values) / records.n
    expected, level = {}, [held for held in supports if len(held) == 1 and supports[held] >= least]
    while level:
        expected |= {held: supports[held] for held in level}
        joined = {one | other for one, other in combinations(level, 2) if len(one | other) == len(one) + 1}
        level = [held for held in joined if supports[held] >= least]
    found = frequent_itemsets(records, least, level=1e-9, candidates="join")
    assert as_dict(found.to_frame()) == pytest.approx(expected)
    assert set(frequent_itemsets(records, least, level=1e-9)) <= set(found)
    support = as_dict(found.to_frame())
    assert set(found.maximal_sets()) == {
        held for held in support if not any(held < other for other in support)
    }
    assert Itemsets.from_dict(json.loads(json.dumps(found.to_dict()))).to_dict() == found.to_dict()
    without = Records(population(300, np.random.default_rng(2)), records.policy.without_channels())
    assert set(frequent_itemsets(without, least, candidates="join")) == set(frequent_itemsets(without, least))


def test_a_join_needs_two_facets_and_pruning_all():
    pairs = {(0, 1): (0.06, 1e-6), (0, 2): (0.06, 1e-6), (1, 2): (0.03, 1e-6), (0, 1, 2): (0.055, 1e-6)}
    source = Told({(i,): (0.4, 1e-6) for i in range(3)} | pairs)
    both = {way: set(frequent_itemsets(source, 0.05, candidates=way)) for way in ("prune", "join")}
    assert both["join"] - both["prune"] == {frozenset("abc")}
    assert both["prune"] < both["join"]


@pytest.mark.parametrize("name", POLICIES)
def test_rules_equal_brute_force_under_noise(name):
    records = disguised(name)
    rules = association_rules(records, 0.05, 0.5)
    frame = rules.to_frame()
    supports = as_dict(rules.itemsets.to_frame())
    pairs = {(row.antecedents, row.consequents) for row in frame.itertuples()}
    expected = set()
    for held, support in supports.items():
        for size in range(1, len(held)):
            for left in map(frozenset, combinations(held, size)):
                (base,) = records.answer([mq.Query(where=dict.fromkeys(left, True))])
                if support * records.n / float(base.values) >= 0.5:
                    expected.add((left, held - left))
    assert pairs == expected
    for row in frame.sample(30, random_state=1).itertuples():
        left, right = sorted(row.antecedents), sorted(row.consequents)
        (table,) = records.answer([mq.Query(by=right, where=dict.fromkeys(left, True))])
        cell = np.ravel_multi_index((1,) * len(right), table.values.shape)
        cov = table.covariance.dense()
        value, base = table.values.ravel()[cell], table.total
        gradient = np.full(len(cov), -value / base**2)
        gradient[cell] += 1 / base
        np.testing.assert_allclose(row.confidence, value / base, rtol=1e-9)
        variance = gradient @ cov @ gradient * records.n / (records.n - 1)
        np.testing.assert_allclose(row.confidence_stderr, np.sqrt(variance), rtol=1e-6)


@pytest.mark.parametrize("name", POLICIES)
def test_every_source_gives_the_same_model(name):
    records = disguised(name, n=1500)
    quick, slow = (association_rules(source, 0.1, 0.5) for source in (records, Slow(records)))
    np.testing.assert_array_equal(quick.lhs, slow.lhs)
    np.testing.assert_array_equal(quick.rhs, slow.rhs)
    for column in ("support", "stderr", "lower", "upper", "confidence", "confidence_stderr"):
        np.testing.assert_allclose(getattr(quick, column), getattr(slow, column), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "joint" else pytest.mark.slow) for name in POLICIES]
)
def test_supports_are_unbiased_with_right_standard_errors(name):
    """False alarm ≤ 2e-6 a policy: two checks at 1e-6 over all sets together."""
    n, runs = 400, 300
    together, p = POLICIES[name]
    policy = basket_policy(
        "abcdef", mq.channels.binary(p), together, lambda cells: mq.channels.symmetric(cells, p)
    )
    generator = np.random.default_rng(11)
    sets = [frozenset(s) for k in (1, 2, 3) for s in combinations("abcde", k)]
    values, variances = [], []
    for _ in range(runs):
        records = Records(simulate_codes(population(n, generator), policy, generator), policy)
        # so low a threshold that no set is left out
        found = frequent_itemsets(records, 1e-9, max_len=3, items=list("abcde"), level=1 - 1e-12)
        listed = {
            frozenset(found.labels[i] for i in row): (value, error)
            for held in found.levels
            for row, value, error in zip(held.sets, held.values, held.stderr, strict=True)
        }
        values.append([listed[s][0] / n for s in sets])
        variances.append([(listed[s][1] / n) ** 2 for s in sets])
    assert_unbiased(values, [expected_share(s) for s in sets])
    assert_variance(values, variances)


class Told:
    """A source that answers what it is told: supports and standard errors by number of items."""

    def __init__(self, told, n=1000):
        self.schema = mq.Schema(dict.fromkeys("abc"[: 1 + max(map(max, told))], (False, True)))
        self.guarantee, self.told, self.n = None, told, n

    def check(self, _):
        return []

    def answer(self, _):
        raise AssertionError("supports are asked at once")

    def supports(self, question):
        share, error = (
            np.array(x) * self.n
            for x in zip(*[self.told[tuple(s)] for s in question.itemsets.tolist()], strict=True)
        )
        return SupportAnswer(share, error, self.n, float(self.n), 1.0, np.zeros(len(share)))


def test_one_unlucky_estimate_does_not_lose_larger_sets():
    source = Told({(0,): (0.045, 0.01), (1,): (0.4, 0.01), (0, 1): (0.055, 0.01)})
    found = frequent_itemsets(source, 0.05)
    assert set(found) == {frozenset("b"), frozenset("ab")}  # reported by the estimate, though a alone is not
    assert found.is_undecided.tolist() == [False, True]
    hopeless = Told({(0,): (0.02, 0.01), (1,): (0.4, 0.01)})
    assert set(frequent_itemsets(hopeless, 0.05)) == {frozenset("b")}


def test_a_left_side_estimated_as_nothing_gives_no_rule_but_a_warning():
    source = Told({(0,): (-0.01, 0.05), (1,): (0.4, 0.05), (0, 1): (0.06, 0.05)})
    with pytest.warns(MasqueradeWarning, match="1 rules were omitted"):
        rules = association_rules(source, 0.05, 0.1)
    assert [rules.sides(row) for row in range(len(rules))] == [(("b",), ("a",))]
    frame = rules.to_frame()
    assert np.isinf(frame["lift"]).all()  # the right side is estimated as nothing
    assert not frame.isna().any(axis=None)


def test_maximal_and_closed_sets(clear):
    records, _ = clear
    found = frequent_itemsets(records, 0.1)
    support = as_dict(found.to_frame())
    larger = {held: [other for other in support if held < other] for held in support}
    assert set(found.maximal_sets()) == {held for held in support if not larger[held]}
    closed = {held for held in support if all(support[o] < support[held] - 1e-12 for o in larger[held])}
    assert set(found.closed_sets()) == closed
    assert len(found.maximal_sets()) < len(closed) < len(found)
    loose = {held for held in support if all(support[o] < support[held] - 0.05 for o in larger[held])}
    assert set(found.closed_sets(tolerance=0.05)) == loose


def test_filters_on_both_sides(clear):
    records, _ = clear
    every = association_rules(records, 0.2, 0.6)
    some = association_rules(records, 0.2, 0.6, lhs=["v0", "v1=a", ("v2", "a")], rhs=["class"])
    wanted = {
        sides
        for sides in map(every.sides, range(len(every)))
        if all(i.startswith("v0=") or i in ("v1=a", "v2=a") for i in sides[0])
        and all(i.startswith("class=") for i in sides[1])
    }
    assert {some.sides(row) for row in range(len(some))} == wanted
    assert wanted
    with pytest.raises(InputError, match="Did you mean 'v1=a'"):
        association_rules(records, 0.2, 0.6, lhs=["v1=aa"])


def test_which_items():
    schema = mq.Schema({"x": [False, True], "y": ["in", "out"], "z": [0, 1], "k": ["a", "b"], "w": [1, 2]})
    _, labels = items_of(schema, None)
    assert labels == ("x", "y", "z", "k=a", "k=b", "w=1", "w=2")
    texts = mq.Schema({"x": ["0", "1"], "y": ["FALSE", "TRUE"], "z": ["true", "false"], "k": ["0", "1", "2"]})
    assert items_of(texts, None)[1] == (
        "x",
        "y",
        "z",
        "k=0",
        "k=1",
        "k=2",
    )  # as files without types have them
    lone = mq.Schema({"always": [True], "never": [False], "one": [1]})
    assert items_of(lone, None)[1] == ("always", "one=1")
    assert items_of(schema, [("x", False), "k"])[1] == ("x=False", "k=a", "k=b")
    assert items_of(schema, {"w": [2], "y": ["out", "in"]})[1] == ("y", "y=out", "w=2")
    with pytest.raises(SchemaError):
        items_of(schema, ["nothing"])
    with pytest.raises(SchemaError):
        items_of(schema, [("k", "c")])
    for wrong in ([], "x"):
        with pytest.raises(InputError):
            items_of(schema, wrong)


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan"), True, "0.5"])
def test_thresholds_must_be_shares(clear, share):
    records, _ = clear
    with pytest.raises(InputError, match="min_support"):
        frequent_itemsets(records, share)
    with pytest.raises(InputError, match="min_confidence"):
        association_rules(records, 0.3, share)


def test_other_bad_input(clear, monkeypatch):
    records, _ = clear
    for wrong in (0, 1.5, True):
        with pytest.raises(InputError, match="max_len"):
            frequent_itemsets(records, 0.3, max_len=wrong)
    with pytest.raises(InputError, match="level"):
        frequent_itemsets(records, 0.3, level=1.0)
    with pytest.raises(InputError, match="'candidates' must be one of prune, join"):
        frequent_itemsets(records, 0.3, candidates="joined")
    empty = Records({"a": np.zeros(0, dtype=np.uint8)}, basket_policy("a", mq.channels.binary("0.1")))
    with pytest.raises(InputError, match="no records"):
        frequent_itemsets(empty, 0.3)
    monkeypatch.setattr("masquerade.learn.rules.itemsets.MOST_CANDIDATES", 10)
    with pytest.raises(InputError, match="candidates with 2 items"):
        frequent_itemsets(records, 0.05)


def test_nothing_found(clear):
    rules = association_rules(clear[0], 1.0, 1.0)
    assert len(rules) == 0
    assert rules.to_frame().empty
    assert "0 rules" in rules.summary()
    assert len(AssociationRules.from_dict(rules.to_dict())) == 0


def test_text_is_printed_like_arules():
    rules = association_rules(disguised("alone"), 0.05, 0.5)
    text = rules.summary(max_rows=3).splitlines()
    assert text[0].startswith(f"{len(rules)} rules, support ≥ 0.05, confidence ≥ 0.5, n = 4,000")
    best = int(np.argmax(rules.lift))
    left, right = (",".join(side) for side in rules.sides(best))
    assert text[2].startswith("[1]")
    assert f"{{{left}}}" in text[2]
    assert f"=> {{{right}}}" in text[2]
    assert text[-3] == f"… and {len(rules) - 3} more"
    assert "too good on average" in text[-1]
    assert "{c}" in rules.itemsets.summary()
    with pytest.raises(InputError, match="must be one of lift"):
        rules.summary(by="beauty")


def test_models_are_saved_as_plain_values():
    rules = association_rules(disguised("joint"), 0.05, 0.5)
    again = AssociationRules.from_dict(json.loads(json.dumps(rules.to_dict(), allow_nan=False)))
    pd.testing.assert_frame_equal(again.to_frame(), rules.to_frame())
    pd.testing.assert_frame_equal(again.itemsets.to_frame(), rules.itemsets.to_frame())
    assert set(again.itemsets.maximal_sets()) == set(rules.itemsets.maximal_sets())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda v: v.update(masquerade_model=2), "format"),
        (lambda v: v.update(kind="naive_bayes"), "kind"),
        (lambda v: v.pop("lhs"), "lacks 'lhs'"),
        (lambda v: v["support"].pop(), "support"),
        (lambda v: v["lhs"].__setitem__(0, [99]), "lhs"),
        (lambda v: v["rhs"].pop(), "rhs"),
        (lambda v: v["itemsets"].update(masquerade_model=2), "format"),
        (lambda v: v["itemsets"].update(kind="other"), "kind"),
        (lambda v: v["itemsets"].update(items=[["a"]]), "items"),
        (lambda v: v["itemsets"]["levels"][1]["sets"].__setitem__(0, [0, 77]), "sets"),
        (lambda v: v["itemsets"]["levels"][1]["facets"].__setitem__(0, [0, -1]), "facets"),
        (lambda v: v["itemsets"]["levels"][0]["values"].__setitem__(0, "many"), "values"),
    ],
)
def test_damaged_models_are_refused(change, error):
    values = association_rules(disguised("joint"), 0.1, 0.5).to_dict()
    change(values)
    with pytest.raises(InputError, match=error):
        AssociationRules.from_dict(values)


def test_itemsets_refuse_what_is_none():
    with pytest.raises(InputError, match="not a model"):
        Itemsets.from_dict([1])
