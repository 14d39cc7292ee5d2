"""A channel, a source, a learner and a command of another package, used like ours through entry points."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from tests.e2e.test_cli_app import ok, refused, run, world

import masquerade as mq
from masquerade.testing import check_tally

pytestmark = pytest.mark.usefixtures("installed")
POLICY = """\
masquerade: 1
limit: {gamma: 84}
variables:
  smoker: {categories: ["yes", "no"], channel: {kind: lottery, p: 0.5}}
  region: {categories: [n, s, e], channel: {kind: lottery, p: 0.1}}
"""


def people(n=3000):
    generator = np.random.default_rng(5)
    smoker = np.where(generator.random(n) < 0.3, "yes", "no")
    return pd.DataFrame({"smoker": smoker, "region": generator.choice(["n", "s", "e"], n, p=[0.5, 0.3, 0.2])})


def test_a_channel_in_a_policy_file(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    policy = mq.Policy.load(tmp_path / "policy.yaml")
    assert policy.group("smoker").channel.gamma == 3
    assert policy.group("region").channel.gamma == Fraction(28)
    disguised = mq.simulate(people(), policy, seed=1)
    check_tally(mq.tally(disguised, policy), disguised, policy)
    assert "γ = 84" in ok("policy", "check", tmp_path / "policy.yaml").stdout
    assert "over a record γ = 84" in ok(
        "disguise", saved(tmp_path), "-p", tmp_path / "policy.yaml", "-o", tmp_path / "out.csv"
    ).stderr  # fmt: skip


def saved(folder):
    people().to_csv(folder / "people.csv", index=False)
    return folder / "people.csv"


def test_a_command(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    assert "List the variables whose γ is above a bound" in ok("weakest", "--help").stdout
    assert "weakest" in ok("--help").stdout
    result = run("weakest", tmp_path / "policy.yaml")
    assert (result.exit_code, result.stdout) == (1, "region: 28\n")
    ok("weakest", tmp_path / "policy.yaml", "--gamma", 30)
    assert "No such file" in refused("weakest", tmp_path / "none.yaml")


def published(folder, noise, seed=3):
    """Write a table of people with noise, as an office would; return the file and the clear people."""
    clear = people()
    counts = clear.groupby(["smoker", "region"]).size().rename("count").reset_index()
    counts["count"] += np.random.default_rng(seed).normal(0, noise, len(counts))
    counts.assign(stderr=noise).to_csv(folder / "counts.csv", index=False)
    return folder / "counts.csv", clear


def test_a_source_answers_and_is_learnt_from(tmp_path):
    path, clear = published(tmp_path, 20.0)
    schema = mq.Schema({"region": ["e", "n", "s"], "smoker": ["no", "yes"]})
    source = mq.tally(f"published:{path}", schema=schema)
    check_tally(source, truth=clear)
    tree = mq.learn.naive_bayes(source, "smoker")
    assert tree.predict(clear).tolist().count("no") == len(clear)


def test_a_source_on_the_command_line(tmp_path):
    path, _ = published(tmp_path, 20.0)
    _, rules = world(tmp_path, policy=POLICY.replace(", channel", ", note: x, channel"))
    asked = ["estimate", f"published:{path}", "-p", rules, "--clear", "--by", "smoker"]
    assert "smoker" in ok(*asked).stdout
    assert "give its 'schema' alone" in refused(*asked, "--weights", "w")


def test_a_learner_on_every_source(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    ok("disguise", saved(tmp_path), "-p", tmp_path / "policy.yaml", "-o", tmp_path / "out.csv")
    asked = ["learn", "majority", tmp_path / "out.csv", "-p", tmp_path / "policy.yaml", "--target", "smoker"]
    assert ok(*asked, "--out", tmp_path / "model.json").stdout.startswith("smoker: mostly no (")
    assert mq.learn.load(tmp_path / "model.json").label == "no"
    path, _ = published(tmp_path, 20.0)
    found = mq.learn.learner("majority").fit(
        mq.tally(f"published:{path}", schema=mq.Schema({"region": ["e", "n", "s"], "smoker": ["no", "yes"]})),
        {"target": "region"},
    )
    assert (found.label, found.sure > 0.999) == ("n", True)
