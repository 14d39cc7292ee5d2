"""The talk's timing curves: every form counts right, and what is judged can fail."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from masquerade.core.plots.style import house_style
from masquerade.protocols.frequency_mining.messages import MOST_PROOFS
from masquerade.simulation.frequency import mine_frequencies
from masquerade_experiments.wright_2005 import bayes_timing, curves, frequency_timing

MODULES = {"frequency": (frequency_timing, 1), "bayes": (bayes_timing, bayes_timing.COUNTS)}


def made_up(counts, miner=1.0, runs=3, wrong=0):
    """Return rows with points of the miner that grow by a power of n, and times that are noise."""
    generator = np.random.default_rng(1)
    return pd.DataFrame(
        [
            {
                "form": form,
                "users": n,
                "run": run,
                "miner": generator.uniform(0.1, 10),
                "user": generator.uniform(0.1, 10),
                "miner_operations": 2 * counts * n**miner if form == curves.PUBLISHED else None,
                "user_operations": 2 * counts if form == curves.PUBLISHED else None,
                "sent": 66.0 * counts,
                "wrong": wrong,
            }
            for form in curves.FORMS
            for n in (250, 500, 1000, 2000)
            for run in range(runs)
        ]
    )


def verdicts(module, frame):
    return [item.verdict for item in module.EXPERIMENT.compare(frame) if item.paper is not None]


@pytest.mark.parametrize("bits", [[[1], [0], [1]], [[0, 1, 1]] * 4, [[0]] * 2])
def test_the_primitive_counts(bits):
    found = mine_frequencies(bits)
    assert found.counts == tuple(np.sum(bits, axis=0).tolist())
    assert found.sent == 66 * len(bits[0])  # m and h
    assert found.user_operations == 2 * len(bits[0])
    assert found.miner_operations == 2 * len(bits[0]) * len(bits)
    assert found.miner_seconds > 0
    assert found.user_seconds > 0


@pytest.mark.parametrize("name", MODULES)
def test_every_form_counts_right(name):
    module, counts = MODULES[name]
    for form, n in ((curves.PUBLISHED, 20), (curves.PROVED, 12), (curves.PRODUCTION, 30)):
        (row,) = module.EXPERIMENT.measure({"form": form, "users": n}, 5)
        assert row["wrong"] == 0
        assert row["miner"] > 0
        assert row["user"] > 0
        if form == curves.PUBLISHED:
            assert row["sent"] == 66 * counts


@pytest.mark.parametrize("name", MODULES)
def test_counts_and_bytes_are_judged(name):
    module, counts = MODULES[name]
    for runs in (1, 3):
        assert verdicts(module, made_up(counts, runs=runs)) == ["matches"] * 3
    assert verdicts(module, made_up(counts, wrong=1)) == ["differs", "matches", "matches"]
    longer = made_up(counts)
    longer.loc[longer["users"] == 2000, "sent"] += 1
    assert verdicts(module, longer) == ["matches", "differs", "matches"]
    assert verdicts(module, made_up(counts).assign(sent=99.0 * counts)) == ["matches", "matches", "differs"]


@pytest.mark.parametrize("name", MODULES)
def test_points_and_times_are_shown_and_not_judged(name):
    """Points follow from the protocol's construction, and times from the machine: neither can fail."""
    module, counts = MODULES[name]
    found = {
        item.what: item
        for item in module.EXPERIMENT.compare(made_up(counts, miner=1.3))
        if "power" in item.what
    }
    assert len(found) == 4
    assert {item.verdict for item in found.values()} == {"no figure to compare"}
    assert found["as published: power of n by which the points of the miner grow"].ours == pytest.approx(1.3)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("quick", [True, False])
def test_settings_keep_to_what_each_form_is_for(name, quick):
    module, counts = MODULES[name]
    listed = module.EXPERIMENT.settings(quick)
    assert {setting["form"] for setting in listed} == set(curves.FORMS)
    for setting in listed:
        if setting["form"] == curves.PROVED:
            assert setting["users"] * counts <= MOST_PROOFS
        if setting["form"] == curves.PRODUCTION:
            assert setting["users"] >= 300  # below, everybody is everybody's neighbour


def test_both_are_drawn():
    with house_style():
        for module, counts in MODULES.values():
            for axes in module.EXPERIMENT.draw(made_up(counts)).axes:
                assert [line.get_label() for line in axes.lines] == list(curves.FORMS)
