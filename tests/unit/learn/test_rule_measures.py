"""Errors of lift, leverage and conviction against simulation; the test of independence; false discoveries."""

import json

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency
from tests.statistical.checks import assert_coverage, assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.rules.association_rules import association_rules
from masquerade.learn.rules.rule_measures import conviction_interval, false_discovery_rates, lift_interval
from masquerade.learn.rules.rules_model import AssociationRules
from masquerade.sources.records import Records

NAMES = ("a", "b", "c")
SCHEMA = mq.Schema({name: [False, True] for name in NAMES})
POLICY = mq.Policy.build(
    SCHEMA, {"a": mq.channels.binary("0.1", "0.2"), "b": mq.channels.symmetric(2, "0.15")}
)
# P(a, b, c): a and b together more often than by chance, c by itself
JOINT = np.multiply.outer(np.array([[0.35, 0.15], [0.1, 0.4]]), np.array([0.4, 0.6]))


def drawn(n, generator, joint=JOINT):
    cells = generator.choice(8, n, p=joint.ravel())
    return {
        name: code.astype(np.uint8)
        for name, code in zip(NAMES, np.unravel_index(cells, (2, 2, 2)), strict=True)
    }


def found(generator, n=3000, joint=JOINT, policy=POLICY, **options):
    reports = simulate_codes(drawn(n, generator, joint), policy, generator)
    return association_rules(Records(reports, policy), 0.05, 0.01, max_len=2, **options)


def row_of(rules, left, right):
    return next(i for i in range(len(rules)) if rules.sides(i) == ((left,), (right,)))


def test_errors_are_those_of_simulation_and_intervals_cover():
    generator = np.random.default_rng(12)
    truth = {"lift": 0.4 / (0.5 * 0.55), "leverage": 0.4 - 0.5 * 0.55, "conviction": 0.45 / 0.2}
    values, errors, held = ({name: [] for name in truth} for _ in range(3))
    for _ in range(250):
        rules = found(generator)
        row = row_of(rules, "a", "b")
        for name, true in truth.items():
            values[name].append(getattr(rules, name)[row])
            errors[name].append(getattr(rules, f"{name}_stderr")[row] ** 2)
            lower, upper = (end[row] for end in rules.conf_int(name))
            held[name].append([lower <= true <= upper])
    assert_unbiased(np.array(values["leverage"])[:, None], np.array([truth["leverage"]]))
    for name, slack in (("lift", 0.01), ("leverage", 0.01), ("conviction", 0.015)):
        assert_coverage(held[name], 0.95, slack)
    for name in ("lift", "leverage"):  # those of convictions have heavy tails
        assert_variance(np.array(values[name])[:, None], np.array(errors[name])[:, None])


def test_of_two_binary_items_the_test_is_pearsons_of_their_reports():
    codes = drawn(500, np.random.default_rng(3))
    reports = simulate_codes(codes, POLICY, np.random.default_rng(4))
    rules = association_rules(Records(reports, POLICY), 0.05, 0.01, max_len=2)
    table = np.zeros((2, 2))
    np.add.at(table, (reports["a"], reports["b"]), 1)
    wanted = chi2_contingency(table, correction=False).pvalue
    assert rules.p_value[row_of(rules, "a", "b")] == pytest.approx(wanted, rel=1e-6)


def test_independent_sides_are_rejected_as_often_as_stated():
    generator = np.random.default_rng(6)
    independent = np.multiply.outer(np.outer([0.5, 0.5], [0.45, 0.55]), [0.4, 0.6])
    tests = [
        float(rules.p_value[row_of(rules, left, right)])
        for rules in (found(generator, 1000, independent) for _ in range(300))
        for left, right in (("a", "b"),)
    ]
    share = np.mean(np.array(tests) <= 0.05)
    assert abs(share - 0.05) <= 4.9 * np.sqrt(0.05 * 0.95 / 300)


def test_weights_that_depend_on_an_item_make_no_rules():
    """Squares of z have the mean 1, of 200 within 5.2 of their own errors (a false alarm of 1e-6)."""
    generator = np.random.default_rng(7)
    independent = np.multiply.outer(np.outer([0.5, 0.5], [0.45, 0.55]), [0.4, 0.6])
    squares = []
    for _ in range(200):
        codes = drawn(1500, generator, independent)
        weights = np.where(codes["a"] == 1, generator.choice([1.0, 9.0], 1500), 1.0)
        source = Records(simulate_codes(codes, POLICY, generator), POLICY, weights)
        rules = association_rules(source, 0.02, 0.01, max_len=2)
        squares.append(chi2.isf(rules.p_value[row_of(rules, "a", "b")], 1))
    assert abs(np.mean(squares) - 1) <= 5.2 * np.std(squares) / np.sqrt(200) + 0.03


def test_rates_are_benjaminis_and_yekutielis():
    p = np.array([0.001, 0.2, 0.012, 0.03])
    harmonic = 1 + 1 / 2 + 1 / 3 + 1 / 4
    rates = false_discovery_rates(p, 4)
    assert rates == pytest.approx(np.array([0.004, 0.2, 0.024, 0.04]) * harmonic)
    # tests whose rules are not shown count too
    more = sum(1 / j for j in range(1, 11))
    assert false_discovery_rates(p, 10)[0] == pytest.approx(0.01 * more)
    assert false_discovery_rates(np.zeros(0), 3).size == 0
    assert false_discovery_rates(np.full(2, 0.9), 2).tolist() == [1, 1]


def test_only_discoveries_are_returned():
    rules = found(np.random.default_rng(8), 5000, fdr=0.05)
    pairs = {rules.sides(i) for i in range(len(rules))}
    assert {(("a",), ("b",)), (("b",), ("a",))} <= pairs
    assert np.all(rules.q_value <= 0.05)
    assert rules.fdr == 0.05
    assert "false discoveries at most 0.05" in rules.summary()
    again = AssociationRules.from_dict(json.loads(json.dumps(rules.to_dict())))
    np.testing.assert_allclose(again.q_value, rules.q_value)
    assert again.fdr == 0.05


def test_files_without_the_later_columns_open():
    rules = found(np.random.default_rng(9))
    values = rules.to_dict()
    for name in ("confidence_lower", "confidence_upper", "lift_stderr", "p_value", "q_value"):
        del values[name]
    again = AssociationRules.from_dict(values)
    assert np.isnan(again.p_value).all()
    assert np.all(again.conf_int().lower < again.confidence)
    assert not again.is_undecided.all()


def test_confidences_of_clear_records_have_wilsons_interval():
    codes = drawn(2000, np.random.default_rng(2))
    rules = association_rules(Records(codes, mq.Policy.clear(SCHEMA)), 0.05, 0.01, max_len=2)
    row = row_of(rules, "a", "b")
    z = 1.959963984540054
    records = 2000 * rules.lhs_support[row]
    for end in rules.conf_int():
        gap = (rules.confidence[row] - end[row]) ** 2
        assert gap == pytest.approx(z * z * end[row] * (1 - end[row]) / records, rel=0.002)


def test_intervals_of_what_is_not_known_are_everything():
    infinite = np.array([np.inf])
    assert lift_interval(infinite, infinite, 0.95) == ([0.0], [np.inf])
    assert conviction_interval(infinite, infinite, 0.95) == ([0.0], [np.inf])
    # 1/conviction = 0.5 ± 1.96·0.1·0.25
    lower, upper = conviction_interval(np.array([2.0]), np.array([0.4]), 0.95)
    assert (1 / lower[0], 1 / upper[0]) == pytest.approx((0.5 + 0.196, 0.5 - 0.196), abs=1e-4)


def test_unknown_measures_and_rates_are_refused():
    with pytest.raises(InputError, match="must be one of lift"):
        found(np.random.default_rng(1)).conf_int("jaccard")
    with pytest.raises(InputError, match="'fdr' must be above 0"):
        found(np.random.default_rng(1), fdr=0)
