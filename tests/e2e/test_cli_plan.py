"""`masquerade plan` from end to end, as a survey researcher would use it."""

from __future__ import annotations

import json
import math
import re

import matplotlib.image
from tests.e2e.test_cli_app import ok, refused

import masquerade as mq

SURVEY = """\
masquerade: 1
variables:
  smoker: {categories: ["yes", "no"], channel: {kind: decide}}
  region: {categories: [north, south, west]}
"""


def survey(folder):
    file = folder / "survey.yaml"
    file.write_text(SURVEY, encoding="utf-8")
    return file


def flat(text):
    return " ".join(text.split())


def test_from_a_purpose_to_a_policy_in_one_command(tmp_path):
    out = tmp_path / "policy.yaml"
    done = ok(
        "plan",
        survey(tmp_path),
        "--epsilon",
        1.5,
        "--error",
        0.03,
        "--n",
        3000,
        "--queries",
        "smoker",
        "--out",
        out,
    )
    text = flat(done.stdout)
    assert "3,000 people; ε = 1.50 a record" in text
    assert "smoker ±2.8" in text
    assert text.startswith("Someone who thought it 5% likely can think it at most 19.1% likely after seeing")
    assert "the policy is in" in done.stderr
    policy = mq.Policy.load(out)
    assert float(policy.group("smoker").channel.epsilon) <= 1.5
    assert "policy" in ok("policy", "check", out).stdout


def test_all_designs_are_compared_and_drawn(tmp_path):
    picture = tmp_path / "curve.png"
    done = ok(
        "plan",
        survey(tmp_path),
        "--breach",
        "5%:50%",
        "--n",
        5000,
        "--compare",
        "--plot",
        picture,
        "--picture",
        "queries",
        "--report",
        tmp_path / "plan.html",
    )
    assert "one joint channel" in done.stdout
    assert "bytes" in done.stdout
    assert matplotlib.image.imread(picture).shape[0] > 100
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 3  # nothing is to be reached: no people needed
    assert "smoker×region" in page
    assert page.count(" ←") == 1
    assert "can think it at most 50% likely" in page
    assert "masquerade: 1" in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)|url\((?!#)|@import|<script', page)
    assert "end in .html" in refused(
        "plan", survey(tmp_path), "--epsilon", 1, "--n", 9, "--report", "plan.pdf"
    )


def test_json_has_everything(tmp_path):
    found = json.loads(ok("plan", survey(tmp_path), "--gamma", 19, "--detect", 0.1, "--json").stdout)
    assert found["n"] > 100
    assert {"design", "queries", "alternatives", "sentence", "cannot", "policy"} <= set(found)


def test_a_data_file_lends_its_columns_only(tmp_path):
    data = tmp_path / "people.csv"
    data.write_text("smoker,region\n" + "yes,north\nno,south\n" * 50, encoding="utf-8")
    done = ok("plan", data, "--epsilon", 1, "--n", 100)
    assert "the categories are those that occur" in flat(done.stderr)
    assert "equally common" in done.stdout


def test_what_cannot_be_is_one_line(tmp_path):
    file = survey(tmp_path)
    assert "Possible:" in refused("plan", file, "--epsilon", 0.5, "--n", 100, "--error", 0.01)
    assert "Give one of --epsilon" in refused("plan", file, "--epsilon", 1, "--gamma", 3, "--n", 10)
    assert "5%:50%" in refused("plan", file, "--breach", "5", "--n", 10)
    assert "Did you mean" in refused("plan", file, "--epsilon", 1, "--n", 10, "--queries", "smokr")
    assert "ends in .yaml" in refused(
        "plan", file, "--epsilon", 1, "--n", 10, "--out", tmp_path / "policy.txt"
    )


def test_a_useless_channel_is_refused_before_the_fieldwork(tmp_path):
    file = tmp_path / "policy.yaml"
    coin = "masquerade: 1\nvariables:\n  coin: {categories: [1, 2], channel: {kind: binary, p: 0.5}}\n"
    file.write_text(coin, encoding="utf-8")
    told = refused("policy", "check", file)
    assert "nothing can be learnt" in told
    assert "the unrelated-question design (kind: unrelated_question) works" in told
    (tmp_path / "clear.csv").write_text("coin\n1\n2\n", encoding="utf-8")
    drawn = refused("disguise", tmp_path / "clear.csv", "--policy", file, "--out", tmp_path / "out.csv")
    assert told.removeprefix(f"masquerade: {file}: ") in drawn
    both = "masquerade: 1\nvariables: {a: {categories: [1, 2]}, b: {categories: [1, 2]}}\n"
    both += "joint: [{variables: [a, b], channel: {kind: flip, theta: 0.5}}]\n"
    file.write_text(both, encoding="utf-8")
    assert "a, b: Two truths give the same reports" in flat(ok("policy", "check", file).stdout)
    file.write_text(coin.replace("0.5", "0.25"), encoding="utf-8")
    assert "±3 points at 95% for every variable: 4,269 people" in flat(ok("policy", "check", file).stdout)
    assert "coin 6.2 4,269" in flat(ok("privacy", file).stdout)
    assert "coin 3.1 4,269" in flat(ok("privacy", file, "--n", 4000).stdout)
    [figures] = json.loads(ok("privacy", file, "--json").stdout)["expected"]
    assert figures["people_for_3_points"] == 4269


def test_a_draft_with_an_epsilon_is_a_policy(tmp_path):
    data, out = tmp_path / "people.csv", tmp_path / "draft.yaml"
    data.write_text("smoker,region\n" + "yes,north\nno,south\n" * 50, encoding="utf-8")
    ok("policy", "init", data, "--epsilon", 1.5, "--out", out)
    policy = mq.Policy.load(out)
    assert policy.limit.to_dict() == {"epsilon": "1.5", "delta": 0}
    assert 1.499 < math.log(policy.record_gamma) <= 1.5
    ok("policy", "init", data, "--epsilon", 1.5, "--per-answer", "--out", out, "--overwrite")
    assert round(mq.privacy(mq.Policy.load(out)).variables[0].epsilon, 5) == 1.5
    assert "above 0" in refused("policy", "init", data, "--epsilon", -1)


def test_people_or_error_alone_are_planned_within_the_default_limit(tmp_path):
    out = tmp_path / "policy.yaml"
    done = ok("plan", survey(tmp_path), "--n", 3000, "--out", out)
    assert "3,000 people; ε = 2.94 a record" in flat(done.stdout)
    assert "γ = 19 ε = 5.00 ε = 8.00 a table of two variables ± 1.8 ± 1.4 ± 1.3" in flat(done.stdout)
    assert mq.Policy.load(out).limit.to_dict() == {"breach": "5%:50%"}
    found = json.loads(ok("plan", survey(tmp_path), "--error", 0.03, "--json").stdout)
    assert json.loads(ok("plan", survey(tmp_path), "--error", "3%", "--json").stdout) == found
    assert "such as 4%" in refused("plan", survey(tmp_path), "--error", "three")
    assert round(found["epsilon"], 2) == 2.94
    assert found["not_usable"] == []
    assert [round(cost["margin"], 3) for cost in found["costs"]] == [0.03, 0.023, 0.023]
    few = ok("plan", survey(tmp_path), "--n", 10)
    assert "warning: NOT USABLE, wider than ±20 points: smoker×region" in few.stderr
    assert "number of people" in refused("plan", survey(tmp_path))
    assert "'privacy' of each variable" in refused("plan", survey(tmp_path), "--n", 10, "--per", "variable")


def test_plan_compares_ways_to_count(tmp_path):
    given = ("plan", survey(tmp_path), "--epsilon", 1, "--n", 5000)
    ways = json.loads(ok(*given, "--counted-by", "3:1", "--json").stdout)["counting"]["ways"]
    assert [way["way"] for way in ways][2:] == ["noise by 3 parties", "noise by people", "noise by a curator"]
    shown = flat(ok(*given, "--counted-by", "3:1").stdout)
    assert "at most 1 of 3 parties collude" in shown
    assert "such as 3:1" in refused(*given, "--counted-by", "three")
