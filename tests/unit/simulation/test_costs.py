"""Ladders, slopes, durations and the picture of time against people."""

import pytest

from masquerade.core.util.formatting import duration
from masquerade.simulation.costs import MeanAndWorst, Meter, PopulationCost, ladder, slope, timing_plot


def cost(**roles):
    return PopulationCost(
        MeanAndWorst(0.002, 0.003), 3, MeanAndWorst(100, 120), MeanAndWorst(50, 60), roles, 1.0, 1
    )


def test_ladders():
    assert ladder(1600, 50) == [100, 200, 400, 800, 1600]
    assert ladder(100, 50) == [50, 100]
    assert ladder(30, 50) == [30]


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_slopes(power):
    sizes = [10, 40, 160]
    assert slope(sizes, [3 * n**power for n in sizes]) == pytest.approx(power)


def test_durations():
    assert [duration(s) for s in (1e-5, 0.02, 1, 90, 600, 10_000)] == [
        "0.01 ms", "20 ms", "1 s", "90 s", "10 min", "2.78 h",
    ]  # fmt: skip


def test_a_line_for_each_role_named_at_its_end_and_leaders_as_one():
    roles = {n: {"miner": n / 100, "leader 1": n / 50, "leader 2": n / 25} for n in (400, 100, 200)}
    axes = timing_plot({n: cost(**some) for n, some in roles.items()}, "Title", "note")
    ends = {line.get_label(): line.get_xydata() for line in axes.lines}
    assert len(ends) == 3
    labels = [text.get_text() for text in axes.texts]
    assert labels == ["one person\n2 ms", "miner\n4 s", "one leader\n12 s", "note"]
    assert list(axes.get_xticks()) == [100, 200, 400]
    heights = sorted(text.xy[1] for text in axes.texts[:3])
    assert axes.get_ylim()[0] < heights[0] < heights[-1] < axes.get_ylim()[1]


def test_one_rung_is_drawn_too():
    assert timing_plot({100: cost(server=1.0)}, "Title").lines


def test_a_meter_charges_users_and_roles_apart():
    meter = Meter(2, rounds=2)
    with meter.charge("miner"):
        with meter.charge(1):
            sum(range(2_000_000))
        sum(range(100_000))
    assert meter.seconds[0] == 0
    assert meter.seconds[1] > 0
    assert 0 < meter.roles["miner"] < meter.seconds[1]
    meter.sent[:] = (10, 30)
    found = meter.cost([1], [0, 1])
    assert found.sent == MeanAndWorst(20, 30)
    assert (found.measured_on, found.rounds) == (1, 2)
