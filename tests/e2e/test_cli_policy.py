"""`masquerade policy init | check | id | schema` from end to end."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.e2e.test_cli_app import PEOPLE, POLICY, files, ok, process, refused, world
from tests.messy_survey import write_messy_survey

from masquerade.anonymity import mgas
from masquerade.channels.policy import Policy


def test_a_draft_per_answer_is_refused_until_it_is_edited(tmp_path):
    data, _ = world(tmp_path)
    draft = tmp_path / "draft.yaml"
    assert "every DECIDE is settled" in ok("policy", "init", data, "--per-answer", "-o", draft).stderr
    out = tmp_path / "out.csv"
    line = refused("disguise", data, "-p", draft, "-o", out)
    assert "still to be decided: smoker, region" in line
    assert not out.exists()
    assert "still to be decided: smoker, region, visits, married. " in refused("policy", "check", draft)
    text = draft.read_text()
    assert "#   id: looks like an identifier" in text
    assert "#   name: looks like an identifier" in text
    draft.write_text(text.replace("{kind: decide}", "{kind: for_gamma, gamma: 19}"))
    assert "states no limit" in refused("disguise", data, "-p", draft, "-o", out)
    ok("disguise", data, "-p", draft, "-o", out, "--accept-gamma", 19**4)
    ok("estimate", out, "-p", draft, "--by", "smoker,married")


def test_numbers_are_grouped_by_mgas(tmp_path):
    ages = [18 + (7 * i) % 60 for i in range(240)]
    path = tmp_path / "people.csv"
    path.write_text(
        "\n".join(["age,smoker", *(f"{age},{'yes' if age % 3 else 'no'}" for age in ages)]) + "\n"
    )
    bins = mgas(ages, 40, 2.0)
    told = json.loads(ok("anonymize", "mgas", path, "--column", "age=40,2", "--json").stdout)
    assert told == {
        "age": {"edges": bins.edges.tolist(), "means": bins.means.tolist(), "records": bins.counts.tolist()}
    }
    shown = ok("anonymize", "mgas", path, "--column", "age=40,2").stdout
    assert f"bins: [{', '.join(map(str, bins.policy_bins()))}]" in shown
    ok("policy", "init", path, "--mgas", "age=40,2", "--epsilon", 1, "--out", tmp_path / "policy.yaml")
    policy = Policy.load(tmp_path / "policy.yaml")
    assert len(policy.schema["age"]) == len(bins) > 3
    ok("policy", "check", tmp_path / "policy.yaml", path)
    for wrong, complaint in (
        ("smoker=40,2", "some values are not numbers"),
        ("agee=40,2", "Did you mean 'age'"),
        ("age=40", "must have the form COLUMN=K,WIDTH"),
        ("age=0,1", "must be"),
    ):
        assert complaint in refused("anonymize", "mgas", path, "--column", wrong)
        assert complaint in refused("policy", "init", path, "--mgas", wrong)


def test_a_draft_from_parquet_reads_that_parquet(tmp_path):
    table = pa.table(
        {
            "kids": pa.array([0, 1, None, 2] * 30),
            "owner": [True, False] * 60,
            "income": [float(i % 97) * 311.7 for i in range(120)],
            "region": pa.array(["n", "s", None, 'no: "x"'] * 30).dictionary_encode(),
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    draft = tmp_path / "draft.yaml"
    ok("policy", "init", tmp_path / "t.parquet", "-o", draft)
    assert Policy.load(draft).record_gamma <= 19
    ok("disguise", tmp_path / "t.parquet", "-p", draft, "-o", tmp_path / "out.parquet")
    ok("estimate", tmp_path / "out.parquet", "-p", draft, "--by", "kids,region")


def test_a_draft_to_standard_output_from_standard_input(tmp_path):
    done = process("policy", "init", "-", input=PEOPLE.encode())
    assert done.returncode == 0
    (tmp_path / "draft.yaml").write_bytes(done.stdout)
    policy = Policy.load(tmp_path / "draft.yaml")
    assert policy.record_gamma <= policy.limit.gamma == 19


def test_a_messy_survey_of_40_columns_stays_within_the_default_limit(tmp_path):
    data, out = tmp_path / "messy.csv", tmp_path / "policy.yaml"
    write_messy_survey(data, 3000)
    drafted = ok("policy", "init", data, "--out", out)
    policy, text = Policy.load(out), out.read_text()
    assert len(policy.schema) == len(policy.disguised) == 32
    assert policy.limit.to_dict() == {"breach": "5%:50%"}
    assert 18.9 < policy.record_gamma <= 19
    assert "Someone who thought it 5% likely can think it at most 50% likely" in text
    assert re.search(r"γ = 19 +ε = 5.00 +ε = 8.00", text)
    assert "tables of more than 2 variables" in text
    # 3,000 people are too few for every pair, and that is said before the draft is written
    assert "warning: NOT USABLE, wider than ±20 points" in drafted.stderr
    assert "NOT USABLE" in text
    ok("disguise", data, "-p", out, "--out", tmp_path / "out.csv")
    ok(
        "policy",
        "init",
        data,
        "--sensitive",
        "Q1,region, home",
        "--clear",
        "null",
        "--out",
        out,
        "--overwrite",
    )
    policy = Policy.load(out)
    assert set(policy.disguised) == {"Q1", "region, home"}
    assert policy.clear_variables == ("null",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sensitive", "smokr"], "Did you mean 'smoker'"),
        (["--sensitive", "smoker", "--clear", "smoker"], "Name each once"),
        (["--clear", "smoker,region,visits,married"], "nothing to plan"),
        (["--sensitive", "name"], "'name' cannot be a variable: more than 50 different texts"),
        (["--clear", "name"], "'name' cannot be a variable: more than 50 different texts"),
        (["--sensitive", "smoker", "--count", "pairs"], "pairs need at least two variables"),
        (["--count", "smoker×regio"], "Did you mean 'region'"),
        (["--people", "0"], "number of people"),
        (["--limit", "50%:5%"], "the second above the first"),
        (["--gamma", "1"], "above 1"),
        (["--gamma", "3", "--epsilon", "1"], "Give one of"),
        (["--per-answer", "--gamma", "3"], "--per-answer takes only --epsilon"),
        (["--epsilon", "-1"], "above 0"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(tmp_path, options, said):
    people = "name,smoker,region,visits,married\n" + "".join(
        f"P{i},{'yes' if i % 3 else 'no'},{'nsew'[i % 4]},{i % 3},{'true' if i % 2 else 'false'}\n"
        for i in range(60)
    )
    data, _ = world(tmp_path, people=people)
    assert said in refused("policy", "init", data, *options, "--out", tmp_path / "draft.yaml")
    assert not (tmp_path / "draft.yaml").exists()


def test_one_variable_and_few_people_are_drafted_with_a_warning(tmp_path):
    data, out = tmp_path / "few.csv", tmp_path / "policy.yaml"
    data.write_text("smoker\nyes\nno\nno\n")
    assert "wider than ±20 points: smoker" in ok("policy", "init", data, "--out", out).stderr
    assert 18.99 < Policy.load(out).record_gamma <= 19
    ok("policy", "init", data, "--people", 5000, "--out", out, "--overwrite")
    assert "Errors with 5,000 people" in out.read_text()


def test_a_terminal_is_asked_what_is_sensitive_until_the_answer_can_be_read(tmp_path):
    data, out = tmp_path / "people.csv", tmp_path / "policy.yaml"
    data.write_text("smoker,region,age\n" + "yes,n,old\nno,s,young\nno,s,old\n" * 20)
    said = at_terminal(
        ("policy", "init", data, "--out", out),
        {
            "Which are sensitive?": ["smokr", "smoker,region"],
            "Which may be released in clear?": ["age"],
            "What will be counted?": ["smoker×aeg", ""],
        },
    )
    assert "Did you mean 'smoker'" in said
    policy = Policy.load(out)
    assert set(policy.disguised) == {"smoker", "region"}
    assert policy.clear_variables == ("age",)
    assert policy.limit.gamma == 19


def at_terminal(arguments, answers):
    """Run a command at a pseudo-terminal, type an answer after each question; return what it showed."""
    parent, child = pty.openpty()
    running = subprocess.Popen(  # noqa: S603  (our own command)
        [sys.executable, "-m", "masquerade", *map(str, arguments)],
        stdin=child,
        stdout=subprocess.DEVNULL,
        stderr=child,
        env=os.environ | {"COLUMNS": "200", "TERM": "dumb"},
    )
    os.close(child)
    shown, seen = "", 0
    left = {question: list(replies) for question, replies in answers.items()}
    while True:
        try:
            more = os.read(parent, 4096)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        shown += more.decode(errors="replace")
        for question, replies in left.items():
            if question in shown[seen:] and shown.rstrip(" ").endswith(":") and replies:
                seen = len(shown)
                os.write(parent, f"{replies.pop(0)}\n".encode())
                break
    os.close(parent)
    assert running.wait() == 0, shown
    return shown


@pytest.mark.parametrize(
    ("people", "said"),
    [
        ("", "the file is empty"),
        ("a,b\n", "no records to draft from"),
        ("id,name\n1,Ann\n2,Bob\n", "No column can be drafted"),
    ],
)
def test_nothing_to_draft_from(tmp_path, people, said):
    data, _ = world(tmp_path, people=people)
    before = files(tmp_path)
    line = refused("policy", "init", data, "-o", tmp_path / "draft.yaml")
    assert said in line
    assert "Ann" not in line
    assert files(tmp_path) == before


def test_a_draft_overwrites_nothing(tmp_path):
    data, rules = world(tmp_path)
    assert "exists already" in refused("policy", "init", data, "-o", rules)
    assert rules.read_text() == POLICY
    assert "end in .yaml" in refused("policy", "init", data, "-o", tmp_path / "draft.json")


def test_check_and_id(tmp_path):
    _, rules = world(tmp_path)
    known = Policy.load(rules).id
    text = ok("policy", "check", rules).stdout
    assert "is a valid policy" in " ".join(text.split())  # a long path wraps the title
    assert known in text
    assert "true, false" in text
    assert ok("policy", "id", rules).stdout == f"{known}\n"
    plain = json.loads(ok("policy", "check", rules, "--json").stdout)
    assert plain["policy"] == known
    assert plain["variables"][2] == {
        "name": "visits",
        "categories": [0, 1, 2],
        "disguised": False,
        "together_with": [],
    }


def test_check_names_the_place_of_an_error(tmp_path):
    _, rules = world(tmp_path, policy=POLICY.replace("p: 0.3", "p: 2"))
    assert "variables.region.channel" in refused("policy", "check", rules)
    assert "No such file" in refused("policy", "check", tmp_path / "none.yaml")


def test_schema(tmp_path):
    printed = json.loads(ok("policy", "schema").stdout)
    assert printed == Policy.json_schema()
    ok("policy", "schema", "-o", tmp_path / "schema.json")
    assert json.loads((tmp_path / "schema.json").read_text()) == printed
