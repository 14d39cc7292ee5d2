"""Meng et al. (2004) and the k-anonymity tables of Wright (2005): what must come out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import assert_unbiased

from masquerade.core.plots.style import house_style
from masquerade_experiments.meng_2004 import asia, double, table_6, table_7, table_8
from masquerade_experiments.wright_2005 import k_anonymity_tables

QUICK = True
FAR_OFF = ["P(E− | T+, L−)", "P(D− | B−, E−)", "P(D− | B−, E+)"]  # as docs/from-the-papers.md says of Table 8
TABLES = {6: table_6, 7: table_7, 8: table_8}


def run(experiment, runs, first=0):
    return pd.DataFrame(
        [
            {**setting, "run": run, **row}
            for setting in experiment.settings(QUICK)
            for run in range(runs)
            for row in experiment.measure(setting, first + run)
        ]
    )


@pytest.fixture(scope="module")
def rotation():
    return run(table_6.EXPERIMENT, 6)


@pytest.fixture(scope="module")
def twice():
    return {7: run(table_7.EXPERIMENT, 30), 8: run(table_8.EXPERIMENT, 12)}


def test_the_printed_arrays_are_read_as_the_paper_lays_them_out():
    # the paper's Table 4: P(E = −1 | T, L) with T toggling fastest
    network = asia.network()
    assert network["E"].probabilities[:, :, 0].tolist() == [[0.9, 0.1], [0.1, 0.01]]
    assert network["D"].probabilities[0, 1, 0] == 0.8  # B = −1, E = +1
    assert network["D"].probabilities[1, 0, 0] == 0.2
    for table in (asia.TABLE_5, table_6.PRINTED):
        for text in table.values():
            np.testing.assert_allclose(asia.array(text).sum(axis=-1), 1.0, atol=0.011)
    assert asia.printed(table_8.PRINTED)["P(E− | T+, L−)"] == 1.0


def test_sampling_errors_are_those_of_the_network():
    records = asia.network().sample(200_000, 3)
    share = ((records["T"] == 1) & (records["L"] == -1)).mean()
    assert asia.sampling_errors()["P(E− | T+, L−)"] == pytest.approx(np.sqrt(0.09 / (2000 * share)), rel=0.02)


def test_table_6_counts_are_exact_and_near_the_truth(rotation):
    assert (rotation["estimate"] == rotation["clear"]).all()
    means = rotation.groupby("parameter", sort=False)[["estimate", "true"]].mean()
    distance = (means["estimate"] - means["true"]).abs()
    # six samples of 2,000, seeds fixed: the worst of the means has a standard error of 0.013
    assert (distance <= 0.03).all()
    assert {item.verdict for item in table_6.EXPERIMENT.compare(rotation)} == {"matches"}


def test_table_6_notices_a_bias_that_no_parameter_shows_by_itself(rotation):
    """One and a half standard errors of a mean: print, from one sample, is much further off."""
    errors = rotation["parameter"].map(asia.sampling_errors()) / np.sqrt(rotation["run"].nunique())
    biased = rotation.assign(estimate=rotation["true"] + 1.5 * errors + 1e-9, clear=rotation["true"])
    found = {item.what: item for item in table_6.EXPERIMENT.compare(biased)}
    together = found["mean square of the differences of means from Table 5, in standard errors"]
    assert together.ours == pytest.approx(2.25, rel=1e-3)
    alone = [found[name] for name in asia.sampling_errors()]
    assert {item.verdict for item in alone} == {"matches"}
    worse = rotation.assign(estimate=rotation["true"] + 2 * errors)
    found = {item.what: item.verdict for item in table_6.EXPERIMENT.compare(worse)}
    assert found[together.what] == "differs"


def test_a_wrong_table_would_be_told(rotation):
    worse = rotation.assign(estimate=rotation["estimate"] + 0.2)
    verdicts = [item.verdict for item in table_6.EXPERIMENT.compare(worse)]
    assert verdicts.count("differs") == len(verdicts)


@pytest.mark.parametrize("number", [7, 8])
def test_a_table_of_one_half_is_told_from_the_printed_ones(number):
    """Every parameter that one party counts alone and that is not one half differs."""
    experiment = TABLES[number].EXPERIMENT
    frame = run(experiment, 4)
    half = {item.what: item for item in experiment.compare(frame.assign(clipped=0.5, estimate=0.5))}
    alone = frame.loc[~frame["node"].isin([*asia.CROSS, "S"]), "parameter"].unique()
    assert len(alone) == 9
    assert {half[name].verdict for name in alone} == {"differs"}
    right = {item.what: item.verdict for item in experiment.compare(frame)}
    assert {right[name] for name in alone} == {"matches"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [7, 8])
def test_double_projection_has_its_theoretical_variance(twice, number):
    frame = twice[number]
    surprises = frame.groupby("run")["surprise"].first().to_numpy()
    assert_unbiased(surprises, np.array(1.0))
    assert 0.1 < surprises.mean() < 10  # and the spread is not so wide that anything would pass


@pytest.mark.slow
@pytest.mark.parametrize("number", [7, 8])
def test_double_projection_is_far_off_only_where_both_parties_are_needed(twice, number):
    frame = twice[number]
    alone = frame[~frame["node"].isin(asia.CROSS)]
    assert (alone["estimate"] == alone["clear"]).all()
    assert double.mean_error(frame, "clipped").mean() > 3 * double.mean_error(frame, "clear").mean()
    assert frame["clipped"].between(0, 1).all()
    verdicts = {item.what: item for item in TABLES[number].EXPERIMENT.compare(frame)}
    differing = [item for item in verdicts.values() if item.verdict == "differs"]
    expected = {7: [], 8: [*FAR_OFF, "mean absolute error of the eight parameters of E and D"]}[number]
    assert [item.what for item in differing] == expected
    assert all(item.why for item in differing)


@pytest.mark.slow
def test_four_times_the_trials_halve_the_standard_error(twice):
    # reported standard errors of a parameter with many records, where the ratio is nearly linear
    label = "P(D− | B−, E+)"
    errors = {
        number: frame[frame["parameter"] == label]["stderr"].median() for number, frame in twice.items()
    }
    assert errors[7] / errors[8] == pytest.approx(2.0, rel=0.15)


def test_runs_depend_on_their_seed_alone():
    (setting,) = table_7.EXPERIMENT.settings(QUICK)
    first, again, other = (table_7.EXPERIMENT.measure(setting, seed) for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_one_run_of_double_projection_is_compared_only_where_it_can_be():
    (item,) = table_7.EXPERIMENT.compare(run(table_7.EXPERIMENT, 1))
    assert item.verdict == "matches"


def test_the_k_anonymity_tables_come_out_as_printed():
    frame = run(k_anonymity_tables.EXPERIMENT, 1)
    assert frame["ours"].tolist() == frame["printed"].tolist()
    assert (frame["ours"] != frame["original"]).sum() == 5 + 2 + 3
    assert all(item.verdict == "matches" for item in k_anonymity_tables.EXPERIMENT.compare(frame))
    broken = frame.assign(ours=frame["original"])
    assert any(item.verdict == "differs" for item in k_anonymity_tables.EXPERIMENT.compare(broken))
    assert k_anonymity_tables.EXPERIMENT.table(frame).shape == (15, 6)


@pytest.mark.slow
def test_everything_can_be_drawn_and_tabulated(rotation, twice):
    frames = {table_6: rotation, table_7: twice[7], table_8: twice[8]}
    with house_style():
        for module, frame in frames.items():
            assert len(module.EXPERIMENT.table(frame)) == len(asia.PARAMETERS)
            assert module.EXPERIMENT.draw(frame).axes
            assert module.EXPERIMENT.draw(frame[frame["run"] == 0]).axes
        assert len(k_anonymity_tables.EXPERIMENT.draw(run(k_anonymity_tables.EXPERIMENT, 1)).axes) == 3
