"""Comparisons between clear groups in plans."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
from tests.e2e.test_cli_app import ok, refused

import masquerade as mq
from masquerade.core.errors import InputError

SURVEY = {"smoker": ["yes", "no"], "region": ["north", "south", "west"]}
REGIONS = [0.2, 0.3, 0.5]
PEOPLE = 20_000


def made(queries: str = "smoker×region") -> mq.Plan:
    return mq.plan(
        SURVEY, privacy=1.5, n=PEOPLE, queries=queries, clear=["region"], prior={"region": REGIONS}
    )


def test_the_expected_error_of_a_difference_is_that_of_the_estimate() -> None:
    """The smallest groups are compared; sizes of drawn groups change the error by less than 5%."""
    (compared,) = made().comparisons
    assert (compared.outcome, compared.group, compared.between) == ("smoker", "region", ("north", "south"))
    assert compared.people == pytest.approx((4000, 6000))
    rng = np.random.default_rng(7)
    people = pd.DataFrame(
        {
            "smoker": rng.choice(SURVEY["smoker"], PEOPLE),
            "region": rng.choice(SURVEY["region"], PEOPLE, p=REGIONS),
        }
    )
    policy = made().policy
    source = mq.tally(mq.disguise(people, policy), policy)
    shares = mq.stats.shares(source, "smoker", by="region").to_frame()
    errors = shares[shares["smoker"] == "yes"].set_index("region")["stderr"]
    found = math.hypot(errors["north"], errors["south"])
    assert compared.stderr == pytest.approx(found, rel=0.05)
    assert compared.margin == pytest.approx(1.959964 * compared.stderr)


def test_the_least_detectable_difference_has_its_power() -> None:
    (compared,) = made().comparisons
    assert compared.power(compared.detectable(0.8)) == pytest.approx(0.8, abs=1e-4)
    assert compared.power(0.0) == pytest.approx(0.05)
    # by simulation of the test itself: 100,000 draws have a standard error of 0.0013
    drawn = np.random.default_rng(1).normal(compared.detectable(0.8), compared.stderr, 100_000)
    assert np.mean(np.abs(drawn) > compared.margin) == pytest.approx(0.8, abs=5.5 * 0.0013)


def test_a_table_by_a_clear_group_plans_its_disguised_variable() -> None:
    assert made("smoker×region").task.tables == made("smoker").task.tables == (("smoker",),)
    with pytest.raises(InputError, match="region is released in clear"):
        made("region")


def test_the_command_prints_comparisons(tmp_path) -> None:
    (tmp_path / "v.yaml").write_text(
        "variables:\n  smoker: {categories: [yes, no]}\n  region: {categories: [a, b]}\n"
    )
    words = ("plan", tmp_path / "v.yaml", "--n", 2000, "--queries", "smoker×region", "--clear", "region")
    assert "smoker between a and b of region ±" in ok(*words).stdout
    (values,) = json.loads(ok(*words, "--json").stdout)["comparisons"]
    assert values["people"] == [1000, 1000]
    assert values["detectable"] > values["margin"] > 0


def test_a_table_of_an_unknown_variable_names_those_that_exist(tmp_path) -> None:
    many = {f"v{place}": ["a", "b"] for place in range(40)}
    with pytest.raises(InputError, match=r"no variable 'zzz'\. There are v0, v1, .* and 28 more\."):
        mq.plan(many, n=100, queries="zzz")
    (tmp_path / "v.yaml").write_text("variables: {smoker: {categories: [yes, no]}}\n")
    assert "smoker" in refused("plan", tmp_path / "v.yaml", "--n", 100, "--queries", "smokr")
