"""Networks from disguised records: Ma & Sivakumar (2005) and chapter 5 of Ma (2006).

Seeds are fixed. Where a figure is compared with its standard error, the bound is 4.9 of them: one false alarm
in 10⁶ for a normal figure, had the seed not been fixed.
"""

import zlib
from itertools import product

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.plots.style import house_style
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes, eleven_nodes_policy
from masquerade_experiments.ma_2006 import (
    figure_5_1,
    figure_5_4,
    figure_5_5,
    figure_5_7,
    figure_5_8,
    figure_5_9,
    figure_5_10,
    networks,
    structures,
    table_5_2,
)
from masquerade_experiments.ma_sivakumar_2005 import (
    accuracy,
    figure_4,
    figure_5,
    parameters,
    seven_nodes,
    table_2,
)
from masquerade_experiments.ma_sivakumar_2005.distance import (
    clipped,
    expected_ckl,
    parameter_covariance,
)
from masquerade_experiments.ma_sivakumar_2005.runs import mean_of, over_runs
from masquerade_experiments.ma_sivakumar_2005.two_models import (
    learnt,
    party_policy,
    taken_for_clear,
    with_miner,
    without_miner,
)

MODULES = (
    table_2,
    figure_4,
    figure_5,
    figure_5_1,
    table_5_2,
    figure_5_4,
    figure_5_5,
    figure_5_7,
    figure_5_8,
    figure_5_9,
    figure_5_10,
)
MOST = 4.9
QUICK = True


def frame_of(experiment, settings, runs):
    """Run an experiment here: one row for every row of every run."""
    return pd.DataFrame(
        [
            {**setting, "run": run, **row}
            for setting in settings
            for run in range(runs)
            for row in experiment.measure(setting, zlib.crc32(f"{experiment.id} {setting} {run}".encode()))
        ]
    )


def drawn(experiment, frame):
    with house_style():
        figure = experiment.draw(frame)
        figure.canvas.draw()
    return figure


def assert_matches(comparisons):
    """Nothing differs, and most is shown: so few runs leave some claims undecided."""
    judged = [comparison for comparison in comparisons if comparison.paper is not None]
    assert judged
    for comparison in judged:
        values = {"matches"} if comparison.rule == "equal" else {"matches", "undecided"}
        assert comparison.verdict in values, comparison
    assert 2 * sum(comparison.verdict == "matches" for comparison in judged) > len(judged)


@pytest.fixture(scope="module")
def tables():
    return frame_of(table_2.EXPERIMENT, table_2.EXPERIMENT.settings(QUICK), 2)


@pytest.fixture(scope="module")
def growing():
    """Distances at p = 0.1 and 0.3, up to 40,000 records."""
    chosen = [s for s in figure_5.EXPERIMENT.settings(QUICK) if s["p"] in {0.1, 0.3}]
    return frame_of(figure_5.EXPERIMENT, chosen, 6)


@pytest.fixture(scope="module")
def found():
    """Structures at p = 0.1, 0.2 and 0.3 by both scores."""
    return {
        module: frame_of(module.EXPERIMENT, module.EXPERIMENT.settings(QUICK), 3)
        for module in (figure_5_9, figure_5_10)
    }


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.EXPERIMENT.id)
def test_a_run_depends_on_its_setting_and_seed_alone(module):
    experiment = module.EXPERIMENT
    quick, full = experiment.settings(QUICK), experiment.settings(not QUICK)
    assert set(quick[0]) == set(full[0])
    assert 1 <= experiment.quick_runs <= experiment.runs
    first = experiment.measure(quick[0], 7)
    assert list(first) == list(experiment.measure(quick[0], 7))
    assert list(first) != list(experiment.measure(quick[0], 8))


def test_every_experiment_has_its_own_name():
    assert len({module.EXPERIMENT.id for module in MODULES}) == len(MODULES)


# parameters (Table 2, Table 5.2)


@pytest.mark.parametrize("module", [table_2, table_5_2])
def test_printed_parameters_are_within_four_combined_standard_errors(module, tables):
    comparisons = module.EXPERIMENT.compare(tables)
    values = [c for c in comparisons if c.what.startswith("P(")]
    assert len(values) == (34 if module is table_2 else 64)
    assert_matches(comparisons)
    for comparison in values:  # rounding in print is far from what makes them match
        assert abs(comparison.z) < 4 or abs(comparison.ours - comparison.paper) < comparison.reading
    drawn(module.EXPERIMENT, tables)
    beside = module.EXPERIMENT.table(tables)
    assert len(beside) == len(values)
    assert (beside["its standard error"] <= beside["standard error"] * (1 + 1e-12)).all()


def test_the_papers_error_is_sampling_once_and_a_fifth_of_the_disguise(tables):
    by_name = {c.what: c for c in table_2.EXPERIMENT.compare(tables)}
    assert by_name["P(S=1)"].paper_stderr == pytest.approx(np.sqrt(0.25 / 20_000), rel=1e-4)
    name = "P(A=1)"  # one binary symmetric variable with p = 1/4: (1−p)p/(1−2p)² beside θ(1−θ)
    expected = (0.7 * 0.3 + 0.75 * 0.25 / 0.25 / 5) / 20_000
    assert by_name[name].paper_stderr == pytest.approx(np.sqrt(expected), rel=1e-3)
    own = (0.7 * 0.3 + 0.75 * 0.25 / 0.25) / 20_000 / 2
    assert by_name[name].stderr == pytest.approx(np.sqrt(own), rel=1e-3)


def test_disguised_records_taken_for_clear_ones_do_not_match_the_table(tables):
    disguised = mq.simulate(eleven_nodes().sample(20_000, 3), eleven_nodes_policy(), seed=4)
    naive = taken_for_clear(disguised, eleven_nodes_policy(), ELEVEN_NODES)
    values = {
        name: naive[node].probabilities[cell]
        for node in ELEVEN_NODES
        for name, cell in parameters.parameters(node).items()
    }
    wrong = tables.assign(estimate=tables["parameter"].map(values))
    verdicts = [c.verdict for c in table_2.EXPERIMENT.compare(wrong) if c.what.startswith("P(")]
    assert verdicts.count("differs") > 15


def test_printed_text_is_read_by_parameter():
    table = parameters.printed(table_5_2.PRINTED)
    assert table["P(L=2 | S=1)"][:2] == (0.39, pytest.approx(0.0064))
    assert table["P(D=1 | E=2, B=3)"].value == 0.39
    assert table["P(B=2 | S=1)"].rounding == pytest.approx(0.0005)
    for node, line in table_5_2.PRINTED.items():
        assert len(line.split()) == len(parameters.parameters(node))


# the two models


def test_without_a_miner_local_nodes_are_exact_and_only_foreign_parents_are_disguised():
    policy = seven_nodes.uniform_policy(tuple(seven_nodes.STRUCTURE), 0.2)
    clear = seven_nodes.network().sample(4000, 1)
    disguised = mq.simulate(clear, policy, seed=2)
    reference = learnt(mq.tally(clear, schema=policy), seven_nodes.STRUCTURE)
    miner = with_miner(disguised, policy, seven_nodes.STRUCTURE)
    parties = without_miner(clear, disguised, policy, seven_nodes.STRUCTURE, seven_nodes.SITES)
    assert party_policy(policy, seven_nodes.SITES[0]).disguised == ("G", "D", "E", "F")
    for node in seven_nodes.STRUCTURE:
        own, other = parties[node], miner[node]
        assert np.all(own.stderr <= other.stderr)
        local = node not in {"C", "D"}
        same = np.allclose(own.probabilities, reference[node].probabilities, rtol=0, atol=1e-12)
        assert same == local


# distances (Fig. 4, Fig. 5)


def test_theorem_2_is_the_librarys_error_given_the_records():
    counts = np.array([[160, 320], [480, 1600]])
    channel = mq.channels.binary("1/4").matrix
    reports = (
        np.kron(channel, channel).T @ counts.ravel()
    )  # whole numbers: estimates are the counts themselves
    cells = list(product([1, 2], [1, 2]))
    frame = pd.DataFrame(
        [cell for cell, many in zip(cells, reports, strict=True) for _ in range(round(many))],
        columns=["X2", "X1"],
    )
    policy = seven_nodes.uniform_policy(("X2", "X1"), 0.25)
    table = mq.learn.bayesian_network(mq.tally(frame, policy), figure_5_1.STRUCTURE)["X1"]
    shares = counts / counts.sum(axis=1, keepdims=True)
    assert table.probabilities == pytest.approx(shares)
    sampling = shares * (1 - shares) / counts.sum(axis=1, keepdims=True)
    given = np.diag(parameter_covariance(counts, [channel, channel])).reshape(2, 2)
    assert table.stderr**2 == pytest.approx(given + sampling, rel=1e-9)


def test_the_expected_distance_is_that_of_normal_errors():
    counts = np.array([[1600.0, 3200.0], [4800.0, 16_000.0]])
    channel = mq.channels.binary("0.2").matrix
    theory = expected_ckl(counts, [channel, channel])
    errors = np.random.default_rng(1).multivariate_normal(
        np.zeros(4), parameter_covariance(counts, [channel, channel]), 40_000, method="eigh"
    )
    shares = counts / counts.sum(axis=1, keepdims=True)
    weights = np.repeat(counts.sum(axis=1) / counts.sum(), 2)
    values = (weights * errors**2 / shares.ravel()).sum(axis=1) / 2
    mean = mean_of(values)
    assert abs(mean.value - theory.mean) < MOST * mean.stderr
    fourth = np.sqrt(((values - values.mean()) ** 4).mean() - values.var() ** 2)
    assert abs(values.var() - theory.deviation**2) < MOST * fourth / np.sqrt(len(values))


def test_negative_estimates_are_projected_and_the_distance_stays_finite():
    policy = seven_nodes.uniform_policy(tuple(seven_nodes.STRUCTURE), 0.4)
    clear = seven_nodes.network().sample(1000, 5)
    reference = learnt(mq.tally(clear, schema=policy), seven_nodes.STRUCTURE)
    miner = with_miner(mq.simulate(clear, policy, seed=6), policy, seven_nodes.STRUCTURE)
    assert sum(clipped(table) for table in miner.tables) > 0
    assert min(table.probabilities.min() for table in miner.tables) < 0
    for table in miner.tables:
        rows = mq.evaluate.positive_rows(table)
        assert np.all(rows > 0)
        assert rows.sum(axis=-1) == pytest.approx(1)
        kept = np.all(table.probabilities > 0, axis=-1)
        assert np.array_equal(rows[kept], table.probabilities[kept])
        assert np.isfinite(mq.evaluate.ckl(reference[table.child.name], table))
    assert [mq.evaluate.ckl(table, table) for table in reference.tables] == pytest.approx(
        [0.0] * len(reference.tables)
    )


def test_the_distance_falls_as_one_over_n_where_nothing_was_clipped(growing):
    slopes = [c for c in figure_5.slopes(growing) if "p = 0.1" in c.what]
    assert len(slopes) == len(seven_nodes.SHOWN)
    for comparison in slopes:
        assert comparison.paper == -1
        assert comparison.stderr < 0.3
        assert abs(comparison.z) < MOST
    # a distance that levels off, as it does for records taken for clear ones, is told apart
    naive = growing.assign(ckl=growing["ckl_naive"], clipped_rows=0)
    flat = [c for c in figure_5.slopes(naive) if "p = 0.1" in c.what]
    assert [c.verdict for c in flat if c.stderr < 0.25] == ["differs"] * sum(c.stderr < 0.25 for c in flat)
    assert all(abs(c.ours) < 0.1 for c in flat)
    assert_matches(figure_5.EXPERIMENT.compare(growing))


def test_values_worked_out_by_theorem_2_are_not_called_the_papers(growing):
    assert {item.kind for item in figure_5.slopes(growing)} == {"printed formula"}
    assert {item.kind for item in figure_5.many_records(growing)} <= {"claim as read"}
    rows = pd.DataFrame(
        {"panel": "a", "p": 0.1, "n": 8000, "run": range(3), "estimate": 0.5, "variance_given_records": 1e-5}
    ).assign(uneven_estimate=0.8)
    found = list(figure_5_1.comparisons(rows))
    assert [item.kind for item in found] == ["printed formula"] * 4
    distances = pd.DataFrame(
        [{"node": node, "p": 0.1, "run": run, "ckl": 0.001} for node in seven_nodes.SHOWN for run in (0, 1)]
    )
    assert [item.kind for item in figure_4.by_theory(distances)] == ["printed formula"] * 3


def test_printed_deviations_fit_the_other_order_of_parents_better():
    table = parameters.printed(table_2.PRINTED)
    assert parameters.misfit(table, "first") == pytest.approx(0.34, abs=0.005)
    assert parameters.misfit(table, "last") == pytest.approx(0.39, abs=0.005)


def test_slopes_leave_out_sizes_near_clipped_ones():
    sizes = [5000, 10_000, 20_000, 40_000, 80_000]
    rows = pd.DataFrame(
        [
            {"run": r, "n": n, "ckl": 3.0 / n, "clipped_rows": int(n == 5000 and r == 1)}
            for n in sizes
            for r in (0, 1)
        ]
    )
    assert sorted(set(figure_5.unclipped(rows)["n"])) == [20_000, 40_000, 80_000]
    assert figure_5.slope(rows, 1.0).value == pytest.approx(-1)


def test_the_standard_error_of_a_slope_allows_for_shared_records():
    sizes, runs, repeats = np.array([1, 2, 4, 8]), 50, 200
    generator = np.random.default_rng(2)
    steps = generator.normal(size=(repeats, runs, 4)) * np.sqrt(np.diff(sizes, prepend=0))
    errors = np.cumsum(steps, axis=2) / sizes
    index = pd.MultiIndex.from_product([range(runs), sizes], names=["run", "n"])
    found = [
        figure_5.slope(pd.DataFrame({"ckl": (one**2).ravel()}, index=index).reset_index(), np.sqrt(2))
        for one in errors
    ]
    values = np.array([one.value for one in found])
    assert values.mean() == pytest.approx(-1, abs=MOST * found[0].stderr / np.sqrt(repeats))
    # log of a mean over 50: its variance is trigamma(25)·25 = 1.02 times the delta method's
    assert values.std() == pytest.approx(found[0].stderr, rel=MOST / np.sqrt(2 * repeats) + 0.01)


def test_distances_are_those_of_theorem_2_and_smaller_without_a_miner():
    chosen = [s for s in figure_4.EXPERIMENT.settings(QUICK) if s["p"] in {0.1, 0.3}]
    frame = frame_of(figure_4.EXPERIMENT, chosen, 5)
    comparisons = figure_4.EXPERIMENT.compare(frame)
    assert len(comparisons) == 4 * len(seven_nodes.SHOWN)
    assert_matches(comparisons)
    least = frame[frame["p"] == figure_4.LEAST].groupby("node")
    assert (least["ckl"].mean() < least["ckl_naive"].mean() / 10).all()
    local = frame.loc[frame["node"] == "F", "ckl_without_miner"]
    assert local.to_numpy() == pytest.approx(0, abs=1e-12)
    drawn(figure_4.EXPERIMENT, frame)


def test_a_figure_of_distances_against_the_sample_size_is_drawn(growing):
    table = figure_5.EXPERIMENT.table(growing)
    assert len(table) == 2 * 4 * len(seven_nodes.SHOWN)  # a line for every p, size and node
    figure = drawn(figure_5.EXPERIMENT, growing)
    assert [axes.get_xscale() for axes in figure.axes] == ["log"] * 3


def test_smaller_sizes_of_a_run_are_the_beginning_of_the_largest():
    both = accuracy.distances(0.2, [2000, 5000], seed=3)
    assert {row["n"] for row in both} == {2000, 5000}
    alone = accuracy.distances(0.2, [5000], seed=3)
    assert [row for row in both if row["n"] == 5000] == alone


# one node's parameters (Fig. 5.1, 5.4, 5.5)


def test_the_normal_approximation_holds_in_mean_and_spread():
    frame = frame_of(figure_5_1.EXPERIMENT, figure_5_1.EXPERIMENT.settings(QUICK)[:3], 40)
    comparisons = figure_5_1.EXPERIMENT.compare(frame)
    assert len(comparisons) == 12
    for comparison in comparisons:
        assert abs(comparison.z) < MOST
    assert figure_5_1.deviation(0.3, 8000) > figure_5_1.deviation(0.2, 8000)
    assert figure_5_1.deviation(0.25, 4000) == pytest.approx(2 * figure_5_1.deviation(0.25, 16_000))
    drawn(figure_5_1.EXPERIMENT, frame)


def test_the_spread_over_runs_is_what_the_standard_errors_say():
    frame = frame_of(figure_5_4.EXPERIMENT, figure_5_4.EXPERIMENT.settings(QUICK), 6)
    assert_matches(figure_5_4.EXPERIMENT.compare(frame))
    shifted = frame.assign(estimate=frame["estimate"] + 2 * frame["stderr"])
    assert figure_5_4.calibration(shifted).verdict == "differs"
    # unbiased estimates with errors far larger than “almost no error” differ, whatever they claim
    wide = frame.assign(estimate=frame["estimate"] + np.where(frame["run"] % 2, 0.5, -0.5), stderr=0.5)
    assert {item.verdict for item in figure_5_4.sizes(wide)} == {"differs"}
    more = pd.concat([frame, frame.assign(run=frame["run"] + 6)])  # the error does not depend on the runs
    assert [item.ours for item in figure_5_4.sizes(more)] == pytest.approx(
        [item.ours for item in figure_5_4.sizes(frame)]
    )
    drawn(figure_5_4.EXPERIMENT, frame)


def test_p_star_is_where_the_error_crosses():
    at = [0.1, 0.2, 0.3]
    assert figure_5_5.crossing(at, np.array([0.01, 0.03, 0.05]), 0.02) == pytest.approx(0.15)
    assert figure_5_5.crossing(at, np.array([0.04, 0.05, 0.06]), 0.02) == pytest.approx(0.05)
    assert np.isnan(figure_5_5.crossing(at, np.array([0.0, 0.01, 0.01]), 0.02))


def test_p_star_grows_with_the_records_as_theorem_2_says():
    frame = frame_of(figure_5_5.EXPERIMENT, figure_5_5.EXPERIMENT.settings(QUICK), 4)
    comparisons = figure_5_5.EXPERIMENT.compare(frame)
    assert len(comparisons) == 10
    assert_matches(comparisons)
    theory = [c for c in comparisons if c.rule == "equal" and c.paper is not None]
    assert all(c.stderr < 0.05 for c in theory)
    table = figure_5_5.EXPERIMENT.table(frame)
    assert table["by Theorem 2"].tolist() == [c.paper for c in theory]
    assert table["with a miner (Model II)"].tolist() == [c.ours for c in theory]
    # records that are not disguised at all have no p*: their comparisons stay, and differ
    exact = frame.assign(error=0.0, without_miner=0.0)
    spoilt = figure_5_5.EXPERIMENT.compare(exact)
    assert [c.what for c in spoilt] == [c.what for c in comparisons]
    assert [c.verdict for c in spoilt] == ["differs"] * 8 + ["no figure to compare"] * 2
    drawn(figure_5_5.EXPERIMENT, frame)


# structures (Fig. 5.9, 5.10)


def learnt_structure(**parents):
    structure = {name: tuple(parents.get(name, networks.STRUCTURE[name])) for name in networks.ORDER}
    return mq.learn.LearnedStructure(structure, (), "bic", {})


def test_wrong_links_are_extra_missing_or_turned_round():
    assert networks.wrong_links(learnt_structure()) == (0, 0, 0)
    assert networks.wrong_links(learnt_structure(D="ABC")) == (1, 0, 0)
    assert networks.wrong_links(learnt_structure(D="B")) == (0, 1, 0)
    assert networks.wrong_links(learnt_structure(F="", E="DF")) == (0, 0, 1)
    assert networks.wrong_links(learnt_structure(F="A", E="DF")).total == 2


def test_the_joint_distribution_is_that_of_the_larger_network():
    whole = networks.joint(networks.network())
    assert whole.sum() == pytest.approx(1)
    larger = seven_nodes.network().query(networks.ORDER).probabilities
    # C's second parent G occurs nowhere else, so that summing it out keeps the structure
    assert whole == pytest.approx(larger)
    assert networks.kl_from_truth(networks.network()) == pytest.approx(0)


@pytest.mark.slow
@pytest.mark.parametrize("module", [figure_5_9, figure_5_10])
def test_noise_adds_links_and_the_design_effect_takes_them_away(module, found):
    frame = found[module]
    assert_matches(module.EXPERIMENT.compare(frame))
    means = frame.groupby(["p", "rule"])[["extra", "missing", "wrong", "kl"]].mean()
    plain = next(iter(module.RULES))
    assert frame["reversed"].eq(0).all()
    assert frame["wrong"].equals(frame["extra"] + frame["missing"])
    for p in (0.2, 0.3):
        uncorrected, ours = means.loc[(p, plain)], means.loc[(p, structures.OURS)]
        assert uncorrected["extra"] > means.loc[(0.1, plain), "extra"]
        assert uncorrected["extra"] > 10 * uncorrected["missing"]
        assert ours["extra"] < uncorrected["extra"]
        assert ours["wrong"] < uncorrected["wrong"]
        assert ours["kl"] < uncorrected["kl"]
    drawn(module.EXPERIMENT, frame)


def test_the_threshold_that_varies_is_the_papers():
    values = [figure_5_9.varied(p).value for p in (0.1, 0.15, 0.2, 0.25, 0.3)]
    assert values == [0.99, 0.99, 0.98, 0.98, 0.97]


# figures over runs


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(3).normal(size=12)
    frame = pd.DataFrame({"run": range(12), "x": values})
    found = over_runs(frame, lambda rows: float(rows["x"].mean()))
    assert found == pytest.approx(mean_of(values))
    assert np.isnan(over_runs(frame.head(1), lambda rows: float(rows["x"].mean())).stderr)


def test_a_single_run_has_no_error_over_runs_to_compare_with():
    frame = frame_of(figure_4.EXPERIMENT, figure_4.EXPERIMENT.settings(QUICK), 1)
    comparisons = figure_4.EXPERIMENT.compare(frame)
    assert comparisons
    assert all(np.isfinite(c.stderr) for c in comparisons)
