"""`masquerade simulate` from end to end: words, JSON, pictures, refusals."""

from __future__ import annotations

import json

import pytest
from tests.e2e.test_cli_app import files, ok, refused

PEOPLE = "sex,smokes\n" + "f,yes\nf,no\nm,yes\nm,no\nm,no\n" * 6
POLICY = """\
masquerade: 1
variables:
  sex: {categories: [f, m]}
  smokes: {categories: ["yes", "no"], channel: {kind: binary, p: 1/4}}
"""


def test_people_are_counted_and_the_model_is_that_of_clear_records(tmp_path):
    told = ok(
        "simulate", "users", "--n", 30, "--protocol", "mix", "--learn", "naive-bayes", "--leaders", 3
    ).stdout
    assert "Naive Bayes classifier over 30 people by a mix: 30 counted." in told
    assert "The model equals that of the clear records of the 30 people counted" in told
    assert "P(sex | income)" in told
    for row in ("a person, on average", "a person, at worst", "miner", "leader 3"):
        assert row in told
    assert "at least one of the 3 leaders is honest" in told
    assert files(tmp_path) == set()


def test_items_are_those_of_learning_rules(tmp_path):
    """A basket as 0 and 1 in a file: read without types by a simulation, with a drafted policy by `learn`."""
    rows = ["1,1", "1,0", "1,1", "0,0", "0,1"] * 6
    (tmp_path / "baskets.csv").write_text("\n".join(["milk,bread", *rows]) + "\n")
    draft = ok("policy", "init", tmp_path / "baskets.csv", "--per-answer").stdout
    clear = "".join(line for line in draft.splitlines(keepends=True) if "channel:" not in line)
    (tmp_path / "clear.yaml").write_text(clear)
    options = ("--min-support", "0.1", "--max-len", 3, "--json")
    learnt = json.loads(
        ok(
            "learn", "rules", tmp_path / "baskets.csv", "-p", tmp_path / "clear.yaml", "--clear", *options
        ).stdout
    )
    told = ok(
        "simulate", "users", "--data", tmp_path / "baskets.csv", "--n", 30, "--learn", "rules", "--json"
    )
    simulated = json.loads(told.stdout)["model"]
    for model in (learnt, simulated):
        assert [label for _, _, label in model["itemsets"]["items"]] == ["milk", "bread"]
    assert simulated["lhs"] == learnt["lhs"]
    assert simulated["confidence"] == learnt["confidence"]


def test_cheaters_are_named_or_their_effect_is_shown():
    named = ok("simulate", "users", "--n", 25, "--protocol", "mix", "--cheaters", "0.04").stdout
    assert "Caught: user " in named
    assert "its ciphertext has no valid proof" in named
    options = ("--n", 40, "--cheaters", "0.05", "--dropouts", "0.05", "--server", "semi-honest")
    unnoticed = " ".join(ok("simulate", "users", *options).stdout.split())
    assert "38 counted, 2 left" in unnoticed
    assert "counts differ, the most by +20" in unnoticed
    assert "this cannot be detected" in unnoticed
    assert "Caught" not in unnoticed


def test_frequency_mining_asks_little_of_synthetic_people():
    told = json.loads(ok("simulate", "users", "--n", 16, "--protocol", "frequency", "--json").stdout)
    assert told["compared_with_clear"]["equal"]
    assert told["compared_with_clear"]["counts"] == 12
    assert [feature["name"] for feature in told["model"]["features"]] == ["sex", "hours"]
    assert told["cost"]["rounds"] == 1
    every = ("--features", "age,sex,education,marital,work,hours")
    line = refused("simulate", "users", "--n", 1400, "--protocol", "frequency", *every)
    assert "pairs of keys that every user has to check (at most 50,000)" in line


def test_own_records_disguised_first(tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    given = ("simulate", "users", "--data", tmp_path / "people.csv", "--protocol", "mix", "--learn", "tables")
    clear = json.loads(ok(*given, "--json").stdout)
    assert clear["n"] == 30
    assert [table["values"] for table in clear["model"]["tables"]] == [[12.0, 18.0], [18.0, 12.0]]
    told = ok(*given, "--disguise", tmp_path / "policy.yaml").stdout
    assert "standard errors of the disguise" in told
    assert "of smokes: γ = 3" in told
    assert "has 30 records, fewer than --n 31" in refused(*given, "--n", 31)
    for name in ("network", "parameters"):  # the second is what the first version called it
        network = ("--learn", name, "--structure", "smokes<-sex", "--json")
        assert json.loads(ok(*given[:6], *network).stdout)["compared_with_clear"]["equal"]


def test_a_part_of_the_records_is_said_to_be_one(tmp_path):
    (tmp_path / "people.csv").write_text("sex,smokes\n" + "f,yes\nm,no\n" * 200, encoding="utf-8")
    given = ("--data", tmp_path / "people.csv", "--json")
    told = ok("simulate", "users", "--protocol", "mix", "--learn", "tables", *given)
    assert told.stderr == "masquerade: a random 100 of the 400 records participate; --n changes the number.\n"
    found = json.loads(told.stdout)
    assert (found["n"], found["records"]) == (100, 400)
    assert list(found)[list(found).index("n") + 1] == "records"
    classes = ("simulate", "k-anonymity", *given, "--quasi", "sex", "--sensitive", "smokes")
    told = ok(*classes)
    assert "a random 300 of the 400 records participate" in told.stderr
    assert json.loads(told.stdout)["records"] == 400
    told = ok(*classes, "--n", 40)
    assert told.stderr == ""
    assert (json.loads(told.stdout)["n"], json.loads(told.stdout)["records"]) == (40, 400)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_time_against_people_is_drawn(tmp_path, ending):
    target = tmp_path / f"time.{ending}"
    done = ok("simulate", "users", "--n", 48, "--protocol", "mix", "--plot", target, "--json")
    assert [rung["n"] for rung in json.loads(done.stdout)["ladder"]] == [12, 24, 48]
    assert f"is in {target}" in " ".join(done.stderr.split())
    assert target.read_bytes()[:5] in {b"\x89PNG\r", b"<?xml"}
    assert "exists already" in refused("simulate", "users", "--protocol", "mix", "--plot", target)


def test_questions_are_answered_by_servers_that_do_not_learn_them(tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE)
    asked = ("--ask", "smokes=yes", "--ask", "sex=f", "--ask", "sex=f,smokes=no", "--ask", "sex=m")
    options = ("--data", tmp_path / "people.csv", "--most-overlap", 6, "--least-people", 7, *asked)
    told = json.loads(ok("simulate", "control", *options, "--json").stdout)
    # of 30 people 12 smoke, 12 are women, six of these do not smoke, and six of the men do
    assert [item["count"] for item in told["answers"]] == [12, 12, None, 18]
    assert told["cost"]["rounds"] > 20 < told["cost"]["key_bytes"]
    words = ok("simulate", "control", *options).stdout
    assert "4 questions about 30 people, 1 refused" in words
    assert "never if first and second collude" in words
    assert "Did you mean 'smokes'" in refused("simulate", "control", *options, "--ask", "smoke=yes")
    assert "as 'A=yes,B=no'" in refused("simulate", "control", *options, "--ask", "smokes")


def test_a_tree_and_clusters_on_shares_are_those_of_joined_records():
    tree = ok("simulate", "hidden", "--model", "tree", "--n", 100, "--target", "dysp").stdout
    assert "A tree for dysp over 100 people of north, south, on shares. As on joined records." in tree
    assert "no counts known" in tree
    assert "no count or gain" in " ".join(tree.split())
    starts = ("--start", ",".join("1" * 11), "--start", ",".join("2" * 11))
    options = ("--n", 60, "--partition", "rows", "--least-size", 3, *starts, "--json")
    found = json.loads(ok("simulate", "hidden", "--model", "k-means", *options).stdout)
    assert found["same_as_clear"] is True
    assert found["model"]["centre_stderr"] is None
    assert found["owners"] == ["north", "south"]


def test_k_anonymity_in_both_formulations():
    told = ok("simulate", "k-anonymity", "--n", 60, "-k", 3, "--cheaters", "0.04", "--quasi", "sex",
              "--sensitive", "income").stdout  # fmt: skip
    assert "57 rows of 2 classes are open" in told
    assert "3 not open: its share does not lie on the polynomial of its class." in told
    assert "The opened rows are exactly the rows that the clear table" in " ".join(told.split())
    assert "collector" in told
    faithful = json.loads(ok("simulate", "k-anonymity", "--n", 40, "--mode", "faithful", "--json").stdout)
    assert (faithful["mode"], faithful["as_expected"]) == ("faithful", True)
    second = ok("simulate", "k-anonymity", "--formulation", 2, "--n", 8, "-k", 2, "--quasi", "age,sex").stdout
    assert "8 rows in" in second
    assert "The table equals the table that the algorithm makes from all clear rows." in second
    assert "every participant learns in how many attributes every two people differ" in second


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("users", "--protocol", "mix", "--server", "malicious"), "--server is for --protocol aggregation."),
        (
            ("users", "--protocol", "frequency", "--colluders", "0.1"),
            "--colluders is for --protocol aggregation.",
        ),
        (("users", "--leaders", 3), "--leaders is for --protocol mix."),
        (("users", "--structure", "a<-b"), "--structure is for --learn network."),
        (("hidden", "--k", 3), "--k is for --model k-means."),
        (("hidden", "--model", "tree", "--order", "asia"), "--order is for --model structure."),
        (("hidden", "--model", "tree", "--n", 20, "--target", "dyps"), "'dysp'"),
        (("hidden", "--model", "k-means", "--n", 20, "--start", "1,x"), "a point is given as numbers"),
        (
            ("hidden", "--model", "k-means", "--n", 20, "--start", "1,2"),
            "'start' must be 2 centres of 11 numbers each",
        ),
        (("users", "--n", 20, "--target", "wage"), "There is no variable 'wage'"),
        (("users", "--n", 20, "--features", "wage"), "'wage'"),
        (("users", "--n", 20, "--dropouts", "1.5"), "share of dropouts must be at least 0 and below 1"),
        (("users", "--n", 20, "--plot", "time.gif"), "a plot ends in"),
        (("users", "--data", "nowhere.csv"), "nowhere.csv"),
        (("k-anonymity", "--formulation", 2, "--mode", "faithful"), "--mode is for formulation 1."),
        (("k-anonymity", "--accept-cost"), "--accept-cost is for formulation 2."),
        (("k-anonymity", "--formulation", 2, "--n", 301), "More than 300 people are refused unless"),
        (("k-anonymity", "--mode", "faithful", "--k", 500, "--n", 100), "k = 500 needs at least 500 people."),
        (("k-anonymity", "--k", 500, "--n", 100), "k = 500 needs at least 500 people."),
        (("k-anonymity", "--k", 5, "--n", 4, "--formulation", 2), "k = 5 needs at least 5 people."),
        (("k-anonymity", "--k", 1, "--n", 20), "'k' must be from 2"),
        (("k-anonymity", "--data", "nowhere.csv"), "--quasi"),
        (("k-anonymity", "--quasi", "sex", "--sensitive", "sex", "--n", 20), "named twice"),
    ],
)
def test_what_cannot_be_is_one_line(options, said):
    assert said in refused("simulate", *options)
