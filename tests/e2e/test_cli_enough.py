"""`masquerade enough` and frequency tables, as their users type them."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.e2e.test_cli_app import ok, refused

import masquerade as mq
from masquerade.plan import visible_pairs

POLICY = """masquerade: 1
limit: {gamma: 40}
variables:
  a: {categories: ["no", "yes"], channel: {kind: binary, p: 0.2}}
  b: {categories: ["no", "yes"], channel: {kind: binary, p: 0.2}}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    (folder / "policy.yaml").write_text(POLICY)
    draw = np.random.default_rng(2)
    frame = pd.DataFrame({name: draw.choice(["no", "yes"], 900) for name in "ab"})
    frame.to_csv(folder / "people.csv", index=False)
    mq.simulate(frame, mq.Policy.load(folder / "policy.yaml"), seed=3).to_csv(
        folder / "disguised.csv", index=False
    )
    frame.value_counts().rename("n").reset_index().to_csv(folder / "table.csv", index=False)
    return folder


def test_enough_prints_what_the_function_computes(world):
    rules = world / "policy.yaml"
    wanted = visible_pairs(mq.tally(world / "disguised.csv", mq.Policy.load(rules)))
    asked = ["enough", world / "disguised.csv", "-p", rules]
    assert ok(*asked).stdout == wanted.summary() + "\n"
    assert json.loads(ok(*asked, "--json").stdout) == json.loads(json.dumps(wanted.to_dict()))
    ok(*asked, "--out", world / "enough.html", "--plot", world / "enough.svg")
    assert "least_phi" in (world / "enough.html").read_text()
    assert (world / "enough.svg").read_text().startswith("<?xml")
    assert "between 0 and 1" in refused(*asked, "--power", "80")


def test_a_frequency_table_counts_its_records(world):
    rules = ["-p", world / "policy.yaml", "--clear", "--json"]
    rows = json.loads(ok("estimate", world / "people.csv", "--by", "a,b", *rules).stdout)
    assert (
        json.loads(ok("estimate", world / "table.csv", "--by", "a,b", "--counts", "n", *rules).stdout) == rows
    )
    shares = ["stats", "shares", world / "table.csv", "--of", "a", *rules]
    assert json.loads(ok(*shares, "--counts", "n").stdout)["title"].endswith("n = 900")
    assert "row represents several records" in refused(*shares, "--counts", "n", "--weights", "n")
    frame = pd.read_csv(world / "table.csv").assign(n=lambda rows: rows["n"] / 2 + 0.25)
    frame.to_csv(world / "weighted.csv", index=False)
    line = refused("stats", "shares", world / "weighted.csv", "--of", "a", *rules, "--counts", "n")
    assert "survey weights" in line
