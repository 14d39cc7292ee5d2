"""`masquerade privacy` from end to end."""

from __future__ import annotations

import json

import matplotlib.image
import pytest
from tests.e2e.test_cli_app import POLICY, files, ok, refused, world

import masquerade as mq
from masquerade.channels import binary, symmetric
from masquerade.cli.privacy import channel_words

MIXED = """\
masquerade: 1
variables:
  sex: {categories: [m, f]}
  zone: {categories: [n1, n2, s1, s2], channel: {kind: grouped, groups: [[n1, n2], [s1, s2]], p: 0.2}}
  forced: {categories: [true, false], channel: {kind: forced_response, p_yes: 0.1, p_no: 0}}
  grade: {categories: [1, 2, 3], channel: {kind: for_gamma, gamma: 19}}
  coin: {categories: ["y", "n"], channel: {kind: binary, p: 0.5}}
  i1: {categories: [0, 1]}
  i2: {categories: [0, 1]}
  cards: {categories: ["y", "n"], channel: {kind: kuk, p1: 0.2, p2: 0.7, cards: 3}}
joint:
  - {variables: [i1, i2], channel: {kind: symmetric, p: 0.3}}
"""


def flat(text):
    return " ".join(text.split())


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_policy_of_disguised_records_is_read_from_their_file(tmp_path, ending):
    data, rules = world(tmp_path)
    released = str(tmp_path / f"released.{ending}")
    ok("disguise", data, "--policy", rules, "--out", released)
    assert ok("privacy", released).stdout == ok("privacy", rules).stdout
    assert "does not include the policy of its records" in refused("privacy", data)
    assert "no such file" in refused("privacy", str(tmp_path / "typo.parquet"))
    assert "a policy file ends in .yaml" in refused("privacy", str(tmp_path / "policy.html"))


def test_a_person_can_read_it(tmp_path):
    _, rules = world(tmp_path)
    text = flat(ok("privacy", rules).stdout)
    assert "smoker kept with 75%, else swapped 3 1.10 13.6% 75% (50%)" in text
    assert "region kept with 70%, else one of 3 others, equally likely 7 1.95 26.9% 70% (25%)" in text
    assert "smoker 0.81 of 1.00 bits 2 0.19 bits" in text
    assert "Whole record, all disguised variables together: γ = 189 (ε = 5.24)" in text
    assert "Disclosed in clear: visits." in text
    assert "anyone who sees the disguised records learns disguised values of smoker" in text
    assert "How to read this" in text


def test_what_is_unbounded_joint_grouped_and_useless_is_said(tmp_path):
    _, rules = world(tmp_path, policy=MIXED)
    text = flat(ok("privacy", rules, "--rho", "0.05", "--rho", "0.2").stdout)
    assert (
        "a report reveals with certainty which group the value is in (n1, n2 | s1, s2); within a group γ = 4"
        in text
    )
    assert "forced: no bound: a report can exclude a value for certain." in text
    assert "Disguised together, through one channel: i1, i2." in text
    assert "coin: nothing can be estimated from the reports." in text
    assert "Of grade, coin, i1, i2, cards alone, together: γ = " in text
    assert "grade kept with 90.5%, else one of 2 others, equally likely 19 2.94 50% 82.6%" in text
    assert "cards 2 truths reported as one of 4 codes" in text


def test_priors_and_thresholds_reach_the_figures(tmp_path):
    _, rules = world(tmp_path)
    plain = json.loads(
        ok("privacy", rules, "--json", "--prior", "smoker=0.1,0.9", "--threshold", "0.05").stdout
    )
    figures = mq.privacy(mq.Policy.load(rules), {"smoker": [0.1, 0.9]}, [0.05], 0.05).to_dict()
    for entry in plain["variables"]:
        assert entry.pop("channel")
    expected = [item["variable"] for item in plain.pop("expected")]
    assert expected == [entry["variables"][0] for entry in plain["variables"]]
    assert plain == json.loads(json.dumps(figures))
    assert "(90%)" in ok("privacy", rules, "--prior", "smoker=1/10,9/10").stdout


def test_infinity_is_null_in_json(tmp_path):
    _, rules = world(tmp_path, policy=MIXED)
    assert json.loads(ok("privacy", rules, "--json").stdout)["record"]["gamma"] is None


def test_nothing_disguised(tmp_path):
    _, rules = world(tmp_path, policy='masquerade: 1\nvariables: {a: {categories: ["x", "y"]}}\n')
    assert "NOTHING IS DISGUISED" in ok("privacy", rules, "--plot", tmp_path / "p.png").stdout


def test_channels_by_stratum_are_told_apart(tmp_path):
    policy = POLICY + "strata: {by: visits, channels: {0: {smoker: {kind: binary, p: 0.1}}}}\n"
    _, rules = world(tmp_path, policy=policy)
    text = flat(ok("privacy", rules).stdout)
    assert "smoker (stratum 0) kept with 90%, else swapped 9" in text
    ok("policy", "check", rules)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_plot(tmp_path, ending):
    _, rules = world(tmp_path, policy=MIXED)
    plot = tmp_path / f"curve.{ending}"
    told = ok("privacy", rules, "--plot", plot)
    assert "curve is drawn in" in told.stderr
    if ending == "png":
        assert matplotlib.image.imread(plot).shape[0] > 500
    else:
        assert plot.read_text().startswith("<?xml")
    assert "exists already" in refused("privacy", rules, "--plot", plot)
    ok("privacy", rules, "--plot", plot, "--overwrite")
    assert not any(name.endswith(".part") for name in files(tmp_path))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--prior", "smoker"], "VARIABLE=0.2,0.8"),
        (["--prior", "smoker=a,b"], "VARIABLE=0.2,0.8"),
        (["--prior", "smoker=0.5"], "2 probabilities that sum to 1 are needed"),
        (["--prior", "smoker=0.5,0.6"], "sum to 1.1"),
        (["--prior", "smokr=0.5,0.5"], "Did you mean 'smoker'?"),
        (["--rho", "5"], "--rho is a belief between 0 and 1"),
        (["--threshold", "1"], "--threshold"),
        (["--plot", "curve.pdf"], "a plot ends in .png or .svg"),
        (["--plot", "nowhere/curve.png"], "there is no directory"),
    ],
)
def test_bad_options(tmp_path, monkeypatch, options, said):
    _, rules = world(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = files(tmp_path)
    assert said in refused("privacy", rules, *options)
    assert files(tmp_path) == before


def test_channels_in_words():
    assert channel_words(binary(0, 0)) == "not disguised"
    assert channel_words(binary("0.1", "0.25")) == "kept with 75% to 90%, else swapped"
    assert channel_words(symmetric(5, "0.4")) == "kept with 60%, else one of 4 others, equally likely"


def test_hundreds_of_variables_do_not_overflow(tmp_path):
    variables = "".join(
        f"  v{i}: {{categories: [a, b], channel: {{kind: binary, p: 0.25}}}}\n" for i in range(700)
    )
    (tmp_path / "policy.yaml").write_text(f"masquerade: 1\nvariables:\n{variables}")
    # 700 variables with γ = 3: 3^700 = 10^333.98, beyond floating point; ε = 700·ln 3 = 769.0
    text = ok("privacy", tmp_path / "policy.yaml", "--plot", tmp_path / "breach.png").stdout
    assert "γ = 9.66×10^333 (ε = 769)" in text
    assert (tmp_path / "breach.png").stat().st_size > 1000
