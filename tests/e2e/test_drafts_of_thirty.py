"""Thirty yes/no questions: the studio, `policy init` and `survey init` draft the plan that was measured.

`benchmarks/results/person_limit.json` has the errors and coverage of that plan, over 2,000 runs.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from benchmarks import person_limit
from tests.e2e.test_cli_app import ok
from tests.studio.world import Visitor

import masquerade as mq


@pytest.fixture(scope="module")
def measured():
    """Return the mechanism whose errors were measured."""
    (group,) = person_limit.planned(person_limit.QUESTIONS).policy.groups
    return group.channel


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    path = tmp_path_factory.mktemp("thirty") / "people.csv"
    draw = np.random.default_rng(30)
    columns = {f"q{i}": draw.choice(["yes", "no"], 200) for i in range(person_limit.QUESTIONS)}
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_policy_init_drafts_the_measured_plan_and_states_its_error(people, measured, tmp_path):
    out = tmp_path / "policy.yaml"
    ok("policy", "init", people, "--people", person_limit.PEOPLE, "--out", out)
    (group,) = mq.Policy.load(out).groups
    assert group.channel == measured
    (line,) = [line for line in out.read_text().splitlines() if "a table of two variables" in line]
    assert line.split("±")[1].strip() == "1.8"


def test_the_studio_drafts_the_measured_plan(people, measured, tmp_path):
    came = Visitor(tmp_path / "project")
    try:
        drafted = came.post("data", do="draft", data=str(people))
        came.page(drafted.headers["location"])
        (group,) = came.studio.project.policy.groups
        assert group.channel == measured
    finally:
        came.close()


def test_survey_init_drafts_the_measured_plan(measured, tmp_path):
    form = tmp_path / "form.json"
    questions = [
        {"type": "radiogroup", "name": f"q{i}", "title": f"Question {i}?", "choices": ["yes", "no"]}
        for i in range(person_limit.QUESTIONS)
    ]
    form.write_text(json.dumps({"title": "T", "elements": questions}))
    ok("survey", "init", tmp_path / "work", "--from", form)
    policy = mq.Policy.load(tmp_path / "work" / "policy.yaml")
    assert policy.record_gamma == policy.limit.gamma == 19  # exactly, where the plan has e^2.94444
    (group,) = policy.groups
    assert replace(group.channel, gamma=measured.gamma) == measured
    assert 0 < 19 - measured.gamma < 2e-5
