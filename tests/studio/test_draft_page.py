"""The draft of many columns: one limit per person, what it costs, and edits that would exceed it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from tests.messy_survey import write_messy_survey
from tests.studio.world import Visitor

from masquerade.channels.privacy_level import DEFAULT_LIMIT

ROWS = 400


def write_thirty(path):
    rng = np.random.default_rng(30)
    frame = pd.DataFrame({f"q{number}": rng.choice(["yes", "no"], ROWS) for number in range(1, 31)})
    frame.to_csv(path, index=False)


def write_forty(path):
    write_messy_survey(path, ROWS)


@pytest.mark.parametrize("write", [write_thirty, write_forty])
def test_a_draft_of_many_columns_is_within_the_limit_and_states_its_costs(tmp_path, write):
    write(tmp_path / "people.csv")
    came = Visitor(tmp_path / "project")
    try:
        drafted = came.post("data", do="draft", data=str(tmp_path / "people.csv"))
        assert drafted.status_code == 303, drafted.text
        came.page(drafted.headers["location"])
        policy = came.studio.project.policy
        assert policy.limit == DEFAULT_LIMIT
        assert policy.record_gamma <= DEFAULT_LIMIT.gamma
        assert len(policy.disguised) >= 30
        page = came.page("policy")
        assert "Someone who thought it 5% likely can think it at most 50% likely" in page
        assert re.findall(r'<th scope="col">((?:γ|ε) = [0-9.]+)', page) == ["γ = 19", "ε = 5.00", "ε = 8.00"]
        assert page.index("One person") < page.index("Each answer")
        assert "Not usable, wider than ±20 points" in page  # with so few people

        before = came.studio.project.policy_values
        name = policy.disguised[0]
        live = came.send("GET", f"policy/live?name={name.replace('#', '%23')}&stop=29").text
        assert "Beyond the limit for one person" in live
        refused = came.post("policy", do="gamma", name=name, stop="29")  # γ = 999
        assert refused.status_code == 400
        assert "limit" in refused.text
        exposed = came.post("policy", do="clear", name=name)
        assert exposed.status_code == 400
        assert "would be public for every person" in exposed.text
        assert came.studio.project.policy_values == before
        assert came.post("policy", do="split").status_code == 303
        apart = came.studio.project.policy
        assert 0.9 * DEFAULT_LIMIT.gamma < apart.record_gamma <= DEFAULT_LIMIT.gamma
    finally:
        came.close()


def test_a_second_release_beyond_the_limit_is_refused_until_it_is_accepted(tmp_path):
    pd.DataFrame({"a": ["x", "y"] * 50, "b": ["x", "y", "y", "y"] * 25}).to_csv(
        tmp_path / "people.csv", index=False
    )
    came = Visitor(tmp_path / "project")
    try:
        came.page(came.post("data", do="draft", data=str(tmp_path / "people.csv")).headers["location"])
        first = came.post("release", do="disguise", ending="csv")
        assert first.status_code == 303, first.text
        came.page(first.headers["location"])
        page = came.page("release")
        assert "Beyond the limit: refused, unless you accept it." in page
        assert "Seen by anybody" in page
        second = came.post("release", do="disguise", ending="csv")
        assert second.status_code == 400
        assert "beyond the limit for one person" in second.text
        assert not (came.studio.project.folder / "releases/2").exists()
        accepted = came.post("release", do="disguise", ending="csv", accept_gamma="361")  # 19 · 19
        assert accepted.status_code == 303, accepted.text
        assert "beyond the limit" in came.page(accepted.headers["location"])
    finally:
        came.close()
