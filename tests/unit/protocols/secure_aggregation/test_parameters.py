"""Neighbours and thresholds against the published values and against scipy's tails."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from scipy.stats import hypergeom

from masquerade.core.errors import InputError
from masquerade.protocols.secure_aggregation.agreement import (
    Parameters,
    committee_size,
    least_unreached,
    neighbourhood,
)


@pytest.mark.parametrize(
    ("users", "server", "neighbours", "threshold"),
    [
        (1_000, "semi-honest", 36, 23),
        (1_000, "malicious", 72, 55),
        (10_000, "semi-honest", 42, 27),
        (10_000, "malicious", 86, 65),
        (100_000, "semi-honest", 46, 29),
        (100_000, "malicious", 98, 74),
    ],
)
def test_neighbours_and_threshold(users, server, neighbours, threshold):
    found = Parameters.of(users, colluders=0.1, dropouts=0.05, server=server)
    assert (found.neighbours, found.threshold) == (neighbours, threshold)


@pytest.mark.parametrize("server", ["semi-honest", "malicious"])
@pytest.mark.parametrize("users", [300, 1_000, 10_000])
def test_the_bounds_hold_and_two_neighbours_fewer_would_not_do(users, server):
    parameters = Parameters.of(users, server=server)
    k, t = parameters.neighbours, parameters.threshold

    def holds(k, t):
        malicious = server == "malicious"
        survive = hypergeom.cdf(t - 1, users - 1, users - 1 - parameters.dropouts, k)
        collude = hypergeom.sf((2 * t - k if malicious else t) - 1, users - 1, parameters.colluders, k)
        gap = (
            hypergeom.sf(t - k / 2 - 2, users, parameters.colluders, k / 2 - 1)
            if malicious
            else 0.15 ** (k / 2)
        )
        rare = 2**-19 if malicious else 2**-20
        return users * survive <= rare and users * collude <= 2**-40 and (users * gap) ** 2 / 2 <= 2**-40

    assert holds(k, t)
    assert not any(holds(k - 2, t) for t in range(1, k - 1))


@pytest.mark.parametrize("users", [300, 1_000, 10_000])
def test_two_quorums_share_an_honest_witness_and_one_witness_fewer_would_not_do(users):
    parameters = Parameters.of(users)

    def holds(m, q):
        collude = hypergeom.sf(2 * q - m - 1, users, parameters.colluders, m)
        survive = hypergeom.cdf(q - 1, users, users - parameters.dropouts, m)
        return collude <= 2**-40 and survive <= 2**-19

    assert holds(parameters.witnesses, parameters.quorum)
    assert not any(holds(parameters.witnesses - 1, q) for q in range(parameters.witnesses))


@pytest.mark.parametrize("users", [3, 12, 100, 299])
def test_below_300_users_everybody_is_a_witness(users):
    found = Parameters.of(users, dropouts=0)
    assert found.witnesses == users
    assert 2 * found.quorum - users > found.colluders
    assert found.quorum <= users
    assert (Parameters.of(users, dropouts=0, server="semi-honest").witnesses, found.neighbours) == (
        0,
        users - 1,
    )


def test_below_300_users_everybody_is_a_neighbour():
    found = Parameters.of(299)
    assert found.complete
    assert found.neighbours == 298
    assert 2 * found.threshold - found.neighbours > found.colluders
    assert found.threshold <= 298 - found.dropouts


def test_neighbours_grow_with_the_logarithm():
    sizes = [Parameters.of(10**power).neighbours for power in (3, 4, 5, 6)]
    steps = [second - first for first, second in pairwise(sizes)]
    assert max(steps) <= 16  # a power of ten adds at most what the first did


def test_a_minimum_that_colluders_could_fill_is_refused():
    assert Parameters.of(1000).minimum == 102
    with pytest.raises(InputError, match="at least 102"):
        Parameters.of(1000, minimum=101)


@pytest.mark.parametrize(
    "wrong", [{"colluders": 1}, {"dropouts": "-0.1"}, {"dropouts": "some"}, {"server": "x"}]
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(InputError, match="must be"):
        Parameters.of(100, **wrong)


def test_shares_that_leave_no_threshold_are_refused():
    with pytest.raises(InputError, match="No threshold"):
        Parameters.of(50, colluders=0.5, dropouts=0.4)


def test_shares_are_the_decimals_that_were_written():
    assert Parameters.of(1000, colluders=0.1, dropouts=0.05).dropouts == 50  # 0.05 as a binary number is more


def test_a_committee_of_colluders_is_out_of_reach():
    size = committee_size(10_000, 1_000)
    chance = math.prod(Fraction(1000 - i, 10_000 - i) for i in range(size))
    assert chance <= Fraction(1, 2**80) < chance * 10
    assert committee_size(100, 0) == 1


def test_nobody_to_collude_needs_no_reach():
    assert least_unreached(99, 99, 0, 100) == 1
    assert neighbourhood(100, Fraction(0), Fraction(0), "semi-honest") == (99, 2)
