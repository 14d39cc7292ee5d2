"""ε from draws: limits that hold, faults that are found, other people's functions."""

import math

import numpy as np
import pytest
from scipy.special import bdtr, bdtrc
from tests.unit.audit import faults

import masquerade as mq
from masquerade.audit.epsilon_bracket import channel_p_value, clopper_pearson, epsilon_bracket, one_run_bound
from masquerade.audit.sampler import import_sampler
from masquerade.core.errors import InputError

GAMMA = math.e


def counts(matrix, draws):
    generator = np.random.default_rng()
    return np.array([generator.multinomial(draws, row) for row in matrix])


def test_limits_are_those_of_clopper_and_pearson():
    for k, n in ((0, 10), (3, 10), (10, 10), (500, 1000)):
        low, high = clopper_pearson(k, n, 0.025)
        if k:  # as many successes, or more, would be just that rare
            assert bdtrc(k - 1, n, float(low)) == pytest.approx(0.025)
        if k < n:
            assert bdtr(k, n, float(high)) == pytest.approx(0.025)
    assert clopper_pearson(0, 10, 0.025)[0] == 0
    assert clopper_pearson(10, 10, 0.025)[1] == 1


@pytest.mark.parametrize(("truths", "epsilon"), [(2, 1), (5, 1), (5, 3)])
def test_epsilon_lies_between_its_limits_and_these_are_close(truths, epsilon):
    matrix = faults.response(math.exp(epsilon), truths)
    found = epsilon_bracket(counts(matrix, 500_000), counts(matrix, 500_000), 1e-6, matrix)
    assert found.lower <= epsilon <= found.upper
    assert found.upper - found.lower < 0.12


def test_a_set_that_tells_nothing_shows_nothing():
    matrix = np.full((3, 3), 1 / 3)
    found = epsilon_bracket(counts(matrix, 5000), counts(matrix, 5000), 1e-6)
    assert found.lower == 0
    assert 0 < found.upper < 0.5


def test_one_run_of_guesses_bounds_epsilon():
    assert one_run_bound(731, 1000, 0.05) == pytest.approx(0.88, abs=0.02)  # logit(.731) = 1
    assert one_run_bound(500, 1000, 0.05) == 0
    assert one_run_bound(0, 0, 0.05) == 0


def test_draws_of_a_channel_are_recognised_and_others_are_not():
    matrix = faults.response(GAMMA, 4)
    assert channel_p_value(counts(matrix, 20_000), matrix) > 1e-6
    assert channel_p_value(counts(faults.response(1.1 * GAMMA, 4), 200_000), matrix) < 1e-6
    never = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0]])
    assert channel_p_value(np.array([[50, 49, 1], [20, 80, 0]]), never) == 0


@pytest.mark.parametrize("name", faults.SAMPLERS)
def test_a_faulty_sampler_is_found(name):
    truths = 6  # 64 is no multiple of the five others
    sampler = faults.drawn_from(faults.SAMPLERS[name](GAMMA, truths))
    channel = mq.channels.for_epsilon(truths, 1)
    options = {"epsilon": 1.0} if name.startswith("rare") else {"channel": channel}
    found = mq.audit.audit_sampler(sampler, range(truths), draws=500_000, **options)
    assert found.contradicted
    assert found.exit_code == 1


def test_a_sound_sampler_is_not_contradicted():
    channel = mq.channels.for_epsilon(4, 1)
    sampler = faults.drawn_from(channel.matrix)
    found = mq.audit.audit_sampler(sampler, range(4), channel=channel, draws=50_000)
    assert not found.contradicted
    (finding,) = [one for one in found.findings if one.about == "sampler"]
    # limits at 95%: five standard errors, 0.02 each, on their wrong side come up less often than 1e-6
    assert channel.epsilon - 0.2 < finding.low < channel.epsilon + 0.1
    assert channel.epsilon - 0.1 < finding.high < channel.epsilon + 0.2


def test_functions_of_a_truth_alone_and_reports_of_any_kind_are_drawn():
    generator = np.random.default_rng()

    def one(truth):
        return {truth} if generator.random() < 0.75 else frozenset({"a", "b"} - {truth})

    found = mq.audit.audit_sampler(one, ["a", "b"], epsilon=math.log(3), draws=4000)
    assert not found.contradicted
    assert "2 reports" in found.title


def test_sets_of_large_reports_are_chosen_by_a_classifier():
    generator = np.random.default_rng()

    def unary(truth, n):  # 16 bits: 65,536 reports
        bits = generator.random((n, 16)) < 1 / (1 + math.e)
        bits[:, truth] = generator.random(n) < 0.5
        return bits.astype(np.int8)

    sound = mq.audit.audit_sampler(unary, range(2), epsilon=1.0, draws=40_000)
    assert not sound.contradicted
    # a limit at 95%, its standard error is 0.02; the set that was chosen may cost some of ε
    assert 0.6 < sound.findings[0].low < 1.1
    assert mq.audit.audit_sampler(unary, range(2), epsilon=0.4, draws=40_000).contradicted


def test_every_position_of_a_large_vector_is_audited_for_every_truth():
    generator = np.random.default_rng()
    bits = 20  # a million reports: none is counted, and six pairs of truths are classified

    def unary(truth, n, *, last_is_clear=False):
        drawn = generator.random((n, bits)) < 1 / (1 + math.e)
        drawn[:, truth] = generator.random(n) < 0.5
        if last_is_clear:
            drawn[:, -1] = truth == bits - 1
        return drawn.astype(np.int8)

    def leaking(truth, n):
        return unary(truth, n, last_is_clear=True)

    # the attack: whoever has the last truth is known by the last bit, all others are not told apart
    assert (leaking(bits - 1, 1000)[:, -1] == 1).all()
    assert (leaking(0, 1000)[:, -1] == 0).all()
    wrong = mq.audit.audit_sampler(leaking, range(bits), epsilon=1.0, draws=4000)
    (finding,) = [one for one in wrong.findings if one.about == "sampler"]
    assert finding.verdict == "contradicted"
    assert finding.low > 4
    assert "Position 20 of the report shows it on its own" in finding.says
    sound = mq.audit.audit_sampler(unary, range(bits), epsilon=1.0, draws=4000)
    assert not sound.contradicted


def test_what_cannot_be_audited_is_refused():
    def short(truth, n):
        return [truth] * (n - 1)

    def broken(truth):
        raise ZeroDivisionError(f"oh {truth}")

    for wrong, words in (
        (lambda: mq.audit.audit_sampler(short, range(2), draws=1000), "must return 500 reports. Got 499"),
        (lambda: mq.audit.audit_sampler(broken, range(2), draws=1000), "ZeroDivisionError: oh 0"),
        (lambda: mq.audit.audit_sampler(short, range(1)), "two truths or more"),
        (lambda: mq.audit.audit_sampler(short, range(2), draws=10), "1,000 or more"),
        (lambda: mq.audit.audit_sampler(short, range(3), channel=mq.channels.binary(0.25)), "has 2 truths"),
        (lambda: mq.audit.foreign_sampler("pure-ldp:OEU", 2, 1.0), "Did you mean"),
        (lambda: import_sampler("no.such.module:f"), "cannot be imported"),
        (lambda: import_sampler("math:tau"), "not a function"),
        (lambda: import_sampler("math:nothing"), "no 'nothing'"),
        (lambda: import_sampler("math"), "module:function"),
    ):
        with pytest.raises(InputError, match=words):
            wrong()
