"""Draws that depend on each other: what an attacker gains by them, and that an audit finds them.

An audit contradicts a sound sampler with a chance of at most 1e-5 unless another alpha is given.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, hypergeom, kstest
from tests.unit.audit import dependent_samplers as samplers
from tests.unit.audit import faults

import masquerade as mq
from masquerade.audit import independence
from masquerade.audit.independence_findings import TESTS
from masquerade.audit.new_processes import PROGRAM, Recipe, draw_in_new_processes, find_recipe
from masquerade.audit.sampler import SHARE_OF_CLAIM, SHARE_OF_TEST
from masquerade.audit.sampler_calls import hash_reports

EPSILON = math.log(3)


def findings(name, **options):
    """Return the findings of an audit: that of ε, and those that are contradicted."""
    found = mq.audit.audit_sampler(getattr(samplers, name), [0, 1], epsilon=1.2, **options)
    (epsilon,) = [one for one in found.findings if one.about == "sampler"]
    return epsilon, [one for one in found.of("contradicted") if one is not epsilon], found


def test_noise_that_two_people_share_is_subtracted():
    first, second = np.random.default_rng().integers(0, 2, (2, 400))
    pairs = [(samplers.seeded_per_call(a, 1)[0], samplers.seeded_per_call(b, 1)[0])
             for a, b in zip(first.tolist(), second.tolist(), strict=True)]  # fmt: skip
    # whoever knows one of them knows the other: the difference of reports is that of truths
    assert all((one ^ other) == (a ^ b) for (one, other), a, b in zip(pairs, first, second, strict=True))


def test_noise_in_antithetic_pairs_is_averaged_away():
    averages = samplers.antithetic_pairs(1, 4000).reshape(-1, 2).mean(axis=1)
    assert set(averages.tolist()) == {0.5, 1.0}  # never is the wrong value reported twice: the truth is 1
    assert 0.0 in samplers.permuted_congruential(1, 4000).reshape(-1, 2).mean(axis=1)


def test_a_quota_tells_the_last_truth():
    reports = samplers.quota_of_a_call(1, 20)
    assert reports[-1] == 15 - reports[:-1].sum()  # whoever knows nineteen reports knows the twentieth
    assert len({int(samplers.permuted_congruential(1, 20).sum()) for _ in range(50)}) > 1


def test_a_seed_in_the_code_is_drawn_from_by_anybody():
    text = "from tests.unit.audit import dependent_samplers as s; print(s.seeded_at_import(1, 40).tolist())"
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    runs = [
        subprocess.run(  # noqa: S603
            [sys.executable, "-c", text],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", samplers.DEPENDENT)
def test_dependent_draws_pass_by_their_counts_and_fail_by_their_dependence(name):
    epsilon, wrong, found = findings(name)
    # counts alone say nothing: this is how such samplers passed
    assert epsilon.verdict == "not contradicted"
    assert any(samplers.DEPENDENT[name] in finding.says for finding in wrong)
    assert all(finding.value < 1e-5 / 12 for finding in wrong)
    assert found.exit_code == 1


@pytest.mark.parametrize("name", samplers.SOUND)
def test_independent_draws_pass(name):
    _, wrong, found = findings(name, draws=20_000)
    assert not wrong
    (finding,) = [one for one in found.findings if one.about == "independence"]
    assert "two new processes" in finding.says
    assert finding.verdict == "not contradicted"
    assert not found.of("not covered")


def test_what_a_finding_says_is_about_people():
    _, (finding,), _ = findings("common_numbers", draws=4000)
    assert finding.about == "independence"
    assert "truths 0 and 1" in finding.says
    assert "removes it, and knows the second truth as soon as the first is known" in finding.says
    assert "fresh entropy" in finding.repair
    _, (finding, *_), _ = findings("antithetic_pairs", draws=20_000)
    assert "1 apart" in finding.says
    assert "cancels: anyone who averages them learns more" in finding.says


def test_vectors_and_sets_that_repeat_are_found():
    generator = np.random.default_rng()

    def vectors(truth, n, rng):
        bits = rng.random((n, 6)) < 0.3
        bits[:, truth] = rng.random(n) < 0.5
        return bits.astype(np.int8)

    def sets(truth, n, rng):
        return [frozenset(np.flatnonzero(row).tolist()) for row in vectors(truth, n, rng)]

    for draw in (vectors, sets):
        wrong = mq.audit.audit_sampler(
            lambda t, n, d=draw: d(t, n, np.random.default_rng(5)), [0, 1], draws=4000
        )
        assert any("two calls" in finding.says for finding in wrong.of("contradicted"))
        sound = mq.audit.audit_sampler(lambda t, n, d=draw: d(t, n, generator), [0, 1], draws=4000)
        assert not sound.contradicted


def test_numbers_that_features_describe_are_tested_too():
    def noisy(truth, n):
        noise = np.random.default_rng().laplace(size=(n + 1) // 2)
        return truth + np.stack([noise, -noise], axis=1).ravel()[:n]

    found = mq.audit.audit_sampler(
        noisy, [0, 1], draws=4000, features=lambda reports: np.asarray(reports)[:, None]
    )
    assert any("1 apart" in finding.says for finding in found.of("contradicted"))


def test_the_parts_of_alpha_add_up():
    assert 2 * SHARE_OF_CLAIM + len(TESTS) * SHARE_OF_TEST == pytest.approx(1)


def test_the_exact_test_is_fishers():
    generator = np.random.default_rng()
    for n in (1, 7, 60):
        x, y = generator.random((2, n)) < 0.4
        spread = hypergeom(n, int(x.sum()), int(y.sum()))
        k = int((x & y).sum())
        expected = min(1.0, 2 * min(spread.cdf(k), spread.sf(k - 1)))
        assert independence.association_p(x, y) == pytest.approx(expected)
    same = np.arange(1000) % 2 == 0
    assert independence.association_p(same, same) < 1e-290  # 2/C(1000, 500), below what numbers hold is 0


def test_p_values_of_blocks_are_uniform():
    generator = np.random.default_rng()
    values = [
        [math.exp(p) for p in independence._log_block_p(generator.random((8, 32)) < 0.3, 8)]
        for _ in range(2000)
    ]
    for side in np.array(values).T:
        assert kstest(side, "uniform").pvalue > 1e-7  # of two: false alarms below 1e-6


def test_a_sampler_without_a_name_is_not_run_in_new_processes():
    assert find_recipe(lambda truth: truth) == "the sampler is not a function of a module"
    assert "not the function" in find_recipe(faults.Path("x").joinpath)  # bound to an object
    assert isinstance(find_recipe(samplers.system), Recipe)
    found = mq.audit.audit_sampler(faults.drawn_from(faults.response(3, 2)), [0, 1], draws=1000)
    (finding,) = found.of("not covered")
    assert "new processes were not searched for a seed" in finding.says


def test_new_processes_import_the_same_file_and_nothing_of_the_folder(tmp_path, monkeypatch):
    trap = "import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch()\n"
    for name in ("json", "sys", "numpy"):
        (tmp_path / f"{name}.py").write_text(trap, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # the attack: a program that is started in a folder imports what lies there
    subprocess.run([sys.executable, "-c", "import json"], check=False, capture_output=True)
    assert (tmp_path / "json.ran").exists()
    (tmp_path / "json.ran").unlink()
    module = tmp_path / "elsewhere" / "mine.py"
    module.parent.mkdir()
    module.write_text("def draw(truth, n):\n    return [truth] * n\n", encoding="utf-8")
    (tmp_path / "mine.py").write_text(trap + "def draw(truth, n):\n    return [9] * n\n", encoding="utf-8")
    drawn = draw_in_new_processes(Recipe("mine", "draw", str(module)), ["a", "b"], 2, 3)
    expected = hash_reports(["a", "a", "a"])
    assert [np.array_equal(one[0, 0], expected) for one in drawn] == [True, True]
    assert not list(tmp_path.glob("*.ran"))
    assert "sys.path[:] = task['path']" in PROGRAM


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise SystemExit\n", "could not import"),
        ("def draw(truth, n):\n    raise ValueError\n", "failed in a new process"),
        ("import os\ndef draw(truth, n):\n    os._exit(3)\n", "failed in a new process"),
        ("def draw(truth, n):\n    print('x' * 99)\n    return [truth] * n\n", ""),
    ],
)
def test_a_new_process_that_fails_or_prints_does_no_harm(text, words, tmp_path):
    module = tmp_path / "theirs.py"
    module.write_text(text, encoding="utf-8")
    drawn = draw_in_new_processes(Recipe("theirs", "draw", str(module)), [0, 1], 2, 3)
    assert words in drawn if words else len(drawn) == 2
    assert draw_in_new_processes(Recipe("theirs", "draw", str(module)), [object()], 1, 1) == (
        "the truths are not plain values"
    )


@pytest.mark.slow
def test_sound_samplers_are_contradicted_no_more_often_than_alpha():
    audits, alpha = 2000, 0.05  # large, so that a rate can be seen; fixed before
    channel = mq.channels.for_epsilon(3, 1)
    alarms = {"ε, 2 truths": 0, "channel of 3": 0, "single draws": 0, "vectors": 0}
    generator = np.random.default_rng()

    def unary(truth, n):
        bits = generator.random((n, 5)) < 1 / (1 + math.e)
        bits[:, truth] = generator.random(n) < 0.5
        return bits.astype(np.int8)

    for i in range(audits):
        name = list(alarms)[i % 4]
        if name == "channel of 3":
            sampler, truths, claim = faults.drawn_from(channel.matrix), range(3), {"channel": channel}
        elif name == "vectors":
            sampler, truths, claim = unary, range(5), {"epsilon": 1.0}
        elif name == "single draws":
            sampler, truths, claim = partial(samplers.system), range(2), {"epsilon": EPSILON}
        else:
            sampler, truths, claim = faults.drawn_from(faults.response(3, 2)), range(2), {"epsilon": EPSILON}
        alarms[name] += mq.audit.audit_sampler(sampler, truths, draws=1000, alpha=alpha, **claim).contradicted
    # false alarms of this test: below 1e-6 for all together, and 1e-6 for each kind
    assert sum(alarms.values()) <= binom.isf(1e-6, audits, alpha), alarms
    assert max(alarms.values()) <= binom.isf(1e-6 / 4, audits // 4, alpha), alarms
