"""k-anonymity without a trusted collector: exactly the rows of large classes, bad shares named."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import masquerade as mq
from masquerade.simulation import PEOPLE, Trouble, k_anonymity, suppression, synthetic_people
from masquerade.simulation.people import QUASI, SENSITIVE
from masquerade.simulation.threshold import BAD


def classes_of(people, quasi):
    return Counter(zip(*(people.codes[name].tolist() for name in quasi), strict=True))


@pytest.mark.parametrize("mode", ["production", "faithful"])
def test_rows_of_large_classes_open_and_no_others(mode):
    people = synthetic_people(80)
    found = k_anonymity(people, 4, QUASI, SENSITIVE, mode)
    sizes = [size for size in classes_of(people, QUASI).values() if size >= 4]
    assert (found.opened, found.classes, found.as_expected) == (sum(sizes), len(sizes), True)
    assert sum(found.closed.values()) == 80 - found.opened > 0
    assert found.faults == ()
    assert found.cost.measured_on == 80
    assert set(found.cost.roles) == (
        {"randomness server", "collector"} if mode == "production" else {"dealer", "miner"}
    )
    assert found.to_dict()["opened"] == found.opened


def test_bad_shares_are_isolated_and_named():
    trouble = Trouble(0.05, 0.05)
    leaving, cheating = trouble.among(100)
    for mode in ("production", "faithful"):
        found = k_anonymity(synthetic_people(100), 3, ("sex",), ("income",), mode, trouble=trouble)
        assert found.left == len(leaving) == 5
        assert found.as_expected
        assert found.opened == 100 - 5 - 5
        assert len(found.faults) == 5
        if mode == "faithful":
            assert {one.name for one in found.faults} == {f"user {place + 1}" for place in cheating}
            assert {one.why for one in found.faults} == {BAD}
        else:  # reports have no names: their places are told
            assert all(one.name.startswith("report ") for one in found.faults)
            assert {one.why for one in found.faults} == {
                "its share does not lie on the polynomial of its class"
            }


def test_formulation_2_makes_the_table_of_the_algorithm_and_names_who_cannot_prove_a_row():
    trouble = Trouble(0.08, 0.08)
    leaving, cheating = trouble.among(12)
    found = suppression(synthetic_people(12), 3, ("age", "sex", "hours"), trouble=trouble)
    assert found.as_expected
    assert (len(leaving), found.left, len(found.rows)) == (1, 1, 10)
    assert [one.name for one in found.faults] == [f"user {place + 1}" for place in cheating]
    assert min(Counter(found.rows).values()) >= 3
    assert found.to_dict()["suppressed"] == sum(value is None for row in found.rows for value in row)
    assert found.cost.sent.mean > 0
    assert found.cost.received.mean > found.cost.sent.mean


def test_what_cannot_be_is_refused():
    people = synthetic_people(20)
    disguised = synthetic_people(20, mq.Policy.build(PEOPLE, {"sex": mq.channels.binary("1/4")}))
    for call, said in (
        (lambda: k_anonymity(people, 3, ("sex",), ("sex",)), "named twice"),
        (lambda: k_anonymity(people, 3, ("shoe",), ("sex",)), "no variable 'shoe'"),
        (lambda: k_anonymity(people, 1, ("sex",), ("income",)), "'k' must be from 2"),
        (lambda: k_anonymity(people, 3, ("sex",), ("income",), "careless"), "must be one of production"),
        (lambda: k_anonymity(disguised, 3, ("sex",), ("income",)), "must not disguise"),
        (lambda: suppression(disguised, 3, ("sex",)), "must not disguise"),
        (lambda: suppression(synthetic_people(301), 3, ("sex",)), "More than 300 people are refused"),
    ):
        with pytest.raises(mq.MasqueradeError, match=said):
            call()


def test_the_order_of_reports_is_not_that_of_people():
    # a bad share each time by the same person: its place among the reports is not always the same
    trouble = Trouble(0, 0.02)
    places = {
        k_anonymity(synthetic_people(40), 3, ("sex",), ("income",), trouble=trouble).faults[0].name
        for _ in range(6)
    }
    assert len(places) > 1  # the same six times: a chance of 40^-5, 1e-8
    assert np.all([name.startswith("report ") for name in places])
