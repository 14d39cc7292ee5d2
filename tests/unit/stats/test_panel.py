"""A panel under a memo: draws that go together, change with its standard error."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq
from masquerade.core.errors import InputError

WAVE = {"masquerade": 1, "variables": {"smoker": {"categories": ["yes", "no"]}}}
WAVE["variables"]["smoker"]["channel"] = {"kind": "binary", "p": 0.25}
PANEL = {
    "masquerade": 1,
    "variables": {"first": {"categories": ["yes", "no"]}, "second": {"categories": ["yes", "no"]}},
    "joint": [
        {
            "variables": ["first", "second"],
            "channel": {"kind": "panel", "wave": {"kind": "binary", "p": 0.25}},
        }
    ],
}
MOVES = np.array([[0.22, 0.08], [0.02, 0.68]])


def test_two_releases_under_one_memo_are_the_panel_channel(tmp_path):
    """Real releases: reports of both waves fall as the channel says, to a chance of 1e-6."""
    n = 20_000
    codes = np.random.default_rng(2).choice(4, n, p=MOVES.ravel())
    labels = np.array(["yes", "no"])
    wave, person = mq.Policy.from_dict(WAVE), np.arange(n)
    reports = [
        mq.disguise(
            pd.DataFrame({"person": person, "smoker": labels[part]}),
            wave,
            memo=tmp_path / "memo.json",
            id="person",
            new_memo=first,
        )["smoker"].to_numpy()
        for part, first in ((codes // 2, True), (codes % 2, False))
    ]
    stayed = codes // 2 == codes % 2
    assert (reports[0] == reports[1])[stayed].all()
    panel = mq.Policy.from_dict(PANEL)
    source = mq.tally(pd.DataFrame({"first": reports[0], "second": reports[1]}), panel)
    found = mq.stats.change(source, "first", "second")
    truth = ((codes % 2 == 0).sum() - (codes // 2 == 0).sum()) / n
    assert abs(found.values[0] - truth) < 5 * found.stderr[0]
    assert source.misfit(["first", "second"]).p_value > 1e-6
    test = mq.stats.marginal_homogeneity(source, "first", "second")
    assert test.p_value == pytest.approx(found.p_values[0], rel=0.5)


def test_the_change_is_unbiased_and_its_error_is_right_and_smaller_than_of_fresh_draws():
    generator = np.random.default_rng(7)
    n, runs = 3000, 200
    panel = mq.Policy.from_dict(PANEL)
    chances = MOVES.ravel() @ panel.group("first").matrix_channel.matrix
    values, errors = np.empty(runs), np.empty(runs)
    for run in range(runs):
        seen = np.repeat(np.arange(4), generator.multinomial(n, chances))
        frame = pd.DataFrame({"first": seen // 2, "second": seen % 2}).replace({0: "yes", 1: "no"})
        found = mq.stats.change(mq.tally(frame, panel), "first", "second")
        values[run], errors[run] = found.values[0], found.stderr[0]
    assert_unbiased(values, MOVES[1, 0] - MOVES[0, 1])
    assert_variance(values, errors**2)
    waves = {"first": ["yes", "no"], "second": ["yes", "no"]}
    fresh = mq.Policy.build(waves, {name: mq.channels.binary("0.25") for name in waves})
    people = pd.DataFrame({"first": seen // 2, "second": seen % 2}).replace({0: "yes", 1: "no"})
    independent = mq.stats.change(mq.tally(mq.simulate(people, fresh, seed=1), fresh), "first", "second")
    assert errors.mean() < 0.6 * independent.stderr[0]


def test_other_categories_have_no_change():
    frame = pd.DataFrame({"a": ["yes", "no"], "b": ["often", "never"]})
    with pytest.raises(InputError, match="must have the same categories"):
        mq.stats.change(mq.tally(frame), "a", "b")
    assert mq.privacy(mq.Policy.from_dict(PANEL)).record_gamma == float("inf")
