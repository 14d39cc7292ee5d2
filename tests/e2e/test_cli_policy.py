"""`masquerade policy init | check | id | schema` from end to end."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.e2e.test_cli_app import PEOPLE, POLICY, files, ok, process, refused, world

from masquerade.anonymity import mgas
from masquerade.channels.policy import Policy


def test_a_draft_is_refused_until_it_is_edited(tmp_path):
    data, _ = world(tmp_path)
    draft = tmp_path / "draft.yaml"
    assert "every DECIDE is settled" in ok("policy", "init", data, "-o", draft).stderr
    out = tmp_path / "out.csv"
    line = refused("disguise", data, "-p", draft, "-o", out)
    assert "still to be decided: smoker, region" in line
    assert not out.exists()
    assert "still to be decided: smoker, region, visits, married. " in refused("policy", "check", draft)
    text = draft.read_text()
    assert "#   id: looks like an identifier" in text
    assert "#   name: looks like an identifier" in text
    draft.write_text(text.replace("{kind: decide}", "{kind: for_gamma, gamma: 19}"))
    ok("disguise", data, "-p", draft, "-o", out)
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
        ("smoker=40,2", "some of its values are none"),
        ("agee=40,2", "Did you mean 'age'"),
        ("age=40", "given as COLUMN=K,WIDTH"),
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
    draft.write_text(draft.read_text().replace("{kind: decide}", "{kind: for_gamma, gamma: 19}"))
    ok("disguise", tmp_path / "t.parquet", "-p", draft, "-o", tmp_path / "out.parquet")
    ok("estimate", tmp_path / "out.parquet", "-p", draft, "--by", "kids,region")


def test_a_draft_to_standard_output_from_standard_input(tmp_path):
    done = process("policy", "init", "-", input=PEOPLE.encode())
    assert done.returncode == 0
    (tmp_path / "draft.yaml").write_bytes(done.stdout)
    assert "still to be decided" in refused("policy", "check", tmp_path / "draft.yaml")


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
    assert "ends in .yaml" in refused("policy", "init", data, "-o", tmp_path / "draft.json")


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
