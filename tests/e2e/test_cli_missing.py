"""Missing answers on the command line: earlier policies, drafts, and what is sent in clear."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from tests.e2e.test_cli_app import ok, refused

import masquerade as mq
from masquerade.core.errors import MasqueradeWarning

ROWS = 20_000
SIGMAS = 6  # false alarms below 2e-9 a comparison
OLD = """
masquerade: 1
variables:
  visits: {categories: [-1, 0, 1, 2, 3], missing: -1, channel: {kind: for_gamma, gamma: 9}}
  sex: {categories: [f, m]}
"""


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Return a folder with a policy of an earlier version and records with empty cells and −1."""
    folder = tmp_path_factory.mktemp("missing")
    generator = np.random.default_rng(34)
    visits = pd.Series(generator.choice([0, 1, 2, 3], ROWS, p=[0.1, 0.2, 0.3, 0.4]), dtype="Int64")
    holes = generator.random(ROWS) < 0.25
    frame = pd.DataFrame({"visits": visits, "sex": generator.choice(["f", "m"], ROWS)})
    frame.loc[holes, "visits"] = pd.NA
    frame.loc[np.flatnonzero(holes)[::2], "visits"] = -1  # half of them are written as a number
    frame.to_csv(folder / "people.csv", index=False)
    (folder / "old.yaml").write_text(OLD)
    return folder, float(visits[~holes].mean())


def mean_of(folder, reports, policy):
    told = json.loads(
        ok("stats", "mean", folder / reports, "-p", folder / policy, "--of", "visits", "--json").stdout
    )
    assert any("Only people who answered are counted." in note for note in told["notes"])
    (row,) = told["rows"]
    return row["mean"], row["stderr"]


def test_a_policy_in_which_a_number_is_missing_opens_warns_and_is_converted_by_one_command(people):
    folder, truth = people
    old, new, data = folder / "old.yaml", folder / "new.yaml", folder / "people.csv"
    assert "policy convert" in ok("policy", "check", old, data).stderr
    ok("disguise", data, "-p", old, "-o", folder / "before.csv")
    mean, error = mean_of(folder, "before.csv", "old.yaml")
    assert abs(mean - truth) < SIGMAS * error

    said = ok("policy", "convert", old, "-o", new).stderr
    assert "missing values of visits are now called 'missing'" in said
    assert "already" in refused("policy", "convert", old, "-o", new)
    assert "nothing to convert" in refused("policy", "convert", new)
    with pytest.warns(MasqueradeWarning):
        before = mq.Policy.load(old)
    converted = mq.Policy.load(new)  # without a warning: they are errors in tests
    assert converted.schema["visits"].categories == ("missing", 0, 1, 2, 3)
    assert converted.schema["visits"].missing == ("missing",)
    assert converted.record_gamma == before.record_gamma

    checked = ok("policy", "check", new, data)
    assert "stands for missing values" not in checked.stderr
    assert "Missing answers: visits 2" in checked.stdout  # about 25%
    ok("disguise", data, "-p", new, "-o", folder / "after.csv", "--accept-gamma", "81")
    mean, error = mean_of(folder, "after.csv", "new.yaml")
    assert abs(mean - truth) < SIGMAS * error
    mean_of(folder, "before.csv", "old.yaml")  # earlier reports are read with the earlier policy


def test_missing_answers_in_clear_are_said_before_everything_else(people, tmp_path):
    folder, _ = people
    policy = tmp_path / "policy.yaml"
    masked = "{categories: [0, 1, 2, 3, none], missing: none, na: [-1], channel: {kind: for_gamma, gamma: 9}"
    policy.write_text(
        f"masquerade: 1\nlimit: {{gamma: 9}}\nclear: accepted\nvariables:\n  visits: {masked}, "
        "clear_missing: accepted}\n  sex: {categories: [f, m]}\n"
    )
    first = "Sent in clear: whether visits is missing."
    assert ok("policy", "check", policy).stdout.startswith(first)
    assert ok("privacy", policy).stdout.startswith(first)
    assert json.loads(ok("privacy", policy, "--json").stdout)["missing_in_clear"] == ["visits"]
    done = ok("disguise", folder / "people.csv", "-p", policy, "-o", tmp_path / "out.csv").stderr
    assert done.startswith(f"masquerade: {first}")
    assert "in clear: whether visits is missing, sex" in done
    ok("report", tmp_path / "out.csv", "-p", policy, "--out", tmp_path / "report.html")
    page = " ".join((tmp_path / "report.html").read_text().split())
    assert page.index(first) < page.index("Someone who thought it 5% likely")
    policy.write_text(policy.read_text().replace(", clear_missing: accepted", ""))
    assert "Sent in clear" not in ok("policy", "check", policy).stdout


def test_a_draft_has_missing_as_a_category_with_its_share(people):
    folder, _ = people
    text = ok("policy", "init", folder / "people.csv", "--sensitive", "visits", "--count", "singles").stdout
    assert 'missing: "missing"' in text
    assert "% of the values are missing; they become this category" in text
    assert 'categories: [-1, 0, 1, 2, 3, "missing"]' in text  # that -1 is missing a person has to say
