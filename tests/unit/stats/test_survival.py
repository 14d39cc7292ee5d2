"""Survival from counts: published figures, a second implementation, disguised records, limits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused

# remission in weeks under 6-mercaptopurine and placebo (Freireich et al. 1963); negative numbers are censored
DRUG = [6, 6, 6, -6, 7, -9, 10, -10, -11, 13, 16, -17, -19, -20, 22, 23, -25, -32, -32, -34, -35]
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
TIMES = 6


def remissions():
    weeks = DRUG + PLACEBO
    return pd.DataFrame(
        {
            "week": [abs(week) for week in weeks],
            "relapse": ["yes" if week > 0 else "no" for week in weeks],
            "arm": ["drug"] * len(DRUG) + ["placebo"] * len(PLACEBO),
        }
    )


def simulate(generator, n, beta):
    """Return records with hazard .25·exp(beta·group) a period, some censored at the end of a period."""
    group = generator.integers(0, 2, n)
    event = generator.exponential(1 / (0.25 * np.exp(beta * group)))
    ends = np.where(generator.random(n) < 0.3, np.ceil(generator.uniform(0, TIMES, n)), TIMES)
    happened = event <= ends
    period = np.where(
        happened, np.minimum(event, TIMES - 1e-9).astype(int), np.maximum(ends.astype(int) - 1, 0)
    )
    return pd.DataFrame(
        {"time": period, "event": np.where(happened, "yes", "no"), "arm": np.where(group == 1, "b", "a")}
    )


def masks():
    return mq.Policy.build(
        {"time": list(range(TIMES)), "event": ["no", "yes"], "arm": ["a", "b"]},
        {"event": mq.channels.binary("0.1"), "arm": mq.channels.binary("0.2")},
    )


def test_survival_of_clear_records_equals_published_figures():
    curves = mq.stats.survival(mq.tally(remissions()), "week", "relapse", by="arm")
    assert curves.logrank().statistic == pytest.approx(16.792941, abs=1e-6)
    frame = curves.to_frame()
    row = frame[(frame.arm == "drug") & (frame.week == 6)].iloc[0]
    # Kaplan–Meier and Greenwood's error after six weeks, as textbooks print them
    assert row.survival == pytest.approx(18 / 21)
    assert row.stderr == pytest.approx(np.sqrt((18 / 21) ** 2 * 3 / (21 * 18)))
    breslow = curves.hazard_ratio("breslow")
    assert np.log(breslow.values[0]) == pytest.approx(1.5092, abs=5e-5)
    assert breslow.stderr[0] / breslow.values[0] == pytest.approx(0.4096, abs=5e-5)
    assert np.log(curves.hazard_ratio().values[0]) == pytest.approx(1.659, abs=5e-4)


def test_survival_equals_a_second_implementation_with_strata():
    """Stratified log-rank and Breslow's partial likelihood, record by record."""
    generator = np.random.default_rng(3)
    records = simulate(generator, 400, 0.4).assign(site=generator.integers(0, 3, 400))
    source = mq.tally(records)
    curves = mq.stats.survival(source, "time", "event", by="arm", given="site")
    gap, variance = 0.0, 0.0
    for _, site in records.groupby("site"):
        for time in range(TIMES):
            risk = site[site.time >= time]
            hit = risk[(risk.time == time) & (risk.event == "yes")]
            n, d, n1 = len(risk), len(hit), (risk.arm == "b").sum()
            gap += (hit.arm == "b").sum() - d * n1 / n
            variance += d * (n1 / n) * (1 - n1 / n) * (n - d) / max(n - 1, 1)
    assert curves.logrank().statistic == pytest.approx(gap**2 / variance, rel=1e-10)

    def score(beta):
        total = 0.0
        for _, site in records.groupby("site"):
            for time in range(TIMES):
                risk = site[site.time >= time]
                hit = risk[(risk.time == time) & (risk.event == "yes")]
                b, a = (risk.arm == "b").sum() * np.exp(beta), (risk.arm == "a").sum()
                total += (hit.arm == "b").sum() - len(hit) * b / (a + b)
        return total

    assert score(np.log(curves.hazard_ratio("breslow").values[0])) == pytest.approx(0.0, abs=1e-6)


def test_curves_of_one_group_sum_over_strata():
    generator = np.random.default_rng(4)
    records = simulate(generator, 300, 0.2).assign(site=generator.integers(0, 3, 300))
    plain = mq.stats.survival(mq.tally(records), "time", "event", by="arm")
    layered = mq.stats.survival(mq.tally(records), "time", "event", by="arm", given="site")
    np.testing.assert_allclose(plain.values, layered.values)
    np.testing.assert_allclose(plain.stderr, layered.stderr)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_disguised_survival_is_unbiased_with_true_errors(beta):
    """60 runs of 3,000 people. |z| of a mean above 6, and ratios of errors outside .55–1.6: below 1e-6."""
    policy, generator, runs = masks(), np.random.default_rng(11), 60
    logs, errors, curves, spreads, statistics = [], [], [], [], []
    for run in range(runs):
        reports = mq.simulate(simulate(generator, 3000, beta), policy, seed=run)
        result = mq.stats.survival(mq.tally(reports, policy), "time", "event", by="arm")
        ratio = result.hazard_ratio()
        logs.append(np.log(ratio.values[0]))
        errors.append(ratio.stderr[0] / ratio.values[0])
        curves.append(result.values[3, 1])
        spreads.append(result.stderr[3, 1])
        statistics.append(result.logrank().statistic)
    true_curve = np.exp(-0.25 * np.exp(beta) * 4)
    for values, stated, truth in ((logs, errors, beta), (curves, spreads, true_curve)):
        spread = np.std(values, ddof=1)
        assert abs(np.mean(values) - truth) < 6 * spread / np.sqrt(runs)
        assert 0.55 < spread / np.mean(stated) < 1.6
    rejected = np.sum(np.array(statistics) > 3.841)
    assert rejected > 40 if beta else rejected < 20  # a level of 5% rejects 20 of 60 with a chance of 2e-11


def test_disguised_curves_end_where_noise_hides_the_people_at_risk():
    policy = masks()
    records = simulate(np.random.default_rng(5), 200, 0.0)
    reports = mq.simulate(records, policy, seed=1)
    result = mq.stats.survival(mq.tally(reports, policy), "time", "event", by="arm")
    assert len(result.time) < TIMES
    assert any("Follow-up ends" in note for note in result.notes)
    few = mq.simulate(simulate(np.random.default_rng(5), 8, 0.0), policy, seed=1)
    with pytest.raises(InputError, match="disguise hides them"):
        mq.stats.survival(mq.tally(few, policy), "time", "event", by="arm")


def test_the_steps_of_a_curve_go_through_the_rules():
    """A step at which one person relapses is a count of one; in wider bins all steps are of five or more."""
    rules = mq.Rules(most_variables=9, data_dependent=mq.DataDependentRules(5, show_empty=True))
    frame = remissions()
    with pytest.raises(QueryRefused, match="fewer than 5 people"):
        mq.stats.survival(mq.Controlled(mq.tally(frame), rules), "week", "relapse", by="arm")
    wide = pd.concat([frame.assign(week=frame["week"] // 12)] * 9, ignore_index=True)
    source = mq.Controlled(mq.tally(wide), rules)
    curves = mq.stats.survival(source, "week", "relapse", by="arm")
    plain = mq.stats.survival(mq.tally(wide), "week", "relapse", by="arm")
    assert curves.values == pytest.approx(plain.values)
    # numbers at risk and events are known now: a further count is refused if their difference is of few
    few = mq.Controlled(mq.tally(wide.assign(odd=["no"] * (len(wide) - 2) + ["yes"] * 2)), rules)
    mq.stats.survival(few, "week", "relapse", by="arm")
    with pytest.raises(QueryRefused, match="fewer than 5 people"):
        few.answer([mq.Query(by=("relapse",), where={"odd": "no"})])


def test_survival_of_a_table_and_of_a_source_agree_and_show_themselves(tmp_path):
    source = mq.tally(remissions())
    [table] = source.answer([mq.Query(by=("arm", "relapse", "week"))])
    curves = table.survival("week", "relapse", by="arm")
    assert "Log-rank test: chi2 16.79" in curves.summary()
    assert "Hazard ratio of placebo" in curves._repr_html_()
    assert curves.to_dict()["result"] == "Survival"
    axes = curves.plot()
    axes.get_figure().savefig(tmp_path / "curves.png")
    assert len(axes.get_lines()) == 2


def test_groups_without_events_have_no_finite_hazard_ratio():
    records = remissions()
    records.loc[records.arm == "drug", "relapse"] = "no"
    ratio = mq.stats.survival(mq.tally(records), "week", "relapse", by="arm").hazard_ratio()
    assert np.isnan(ratio.values).all()
    assert any("No finite estimate" in note for note in ratio.notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "week"}, "different variables"),
        ({"event": "arm"}, "Name the category"),
        ({"time": "nowhere"}, "nowhere"),
    ],
)
def test_survival_refuses_what_it_cannot_use(options, message):
    asked = {"time": "week", "event": "relapse", **options}
    with pytest.raises(mq.MasqueradeError, match=message):
        mq.stats.survival(mq.tally(remissions()), **asked)


def test_one_curve_compares_nothing():
    curves = mq.stats.survival(mq.tally(remissions()), "week", "relapse")
    with pytest.raises(InputError, match="groups to compare"):
        curves.logrank()
    with pytest.raises(InputError, match="groups to compare"):
        curves.hazard_ratio()
    two = mq.stats.survival(mq.tally(remissions()), "week", "relapse", by="arm")
    with pytest.raises(InputError, match="'grouped' or 'breslow'"):
        two.hazard_ratio("efron")


def test_times_must_rise():
    schema = mq.Schema({"week": [2, 1], "relapse": ["no", "yes"]})
    records = pd.DataFrame({"week": [1, 2], "relapse": ["yes", "no"]})
    with pytest.raises(InputError, match="must rise"):
        mq.stats.survival(mq.tally(records, schema=schema), "week", "relapse")
