"""`masquerade estimate` from end to end."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet
from tests.e2e.test_cli_app import PEOPLE, POLICY, files, ok, process, refused, world

import masquerade as mq


@pytest.fixture
def disguised(tmp_path):
    """Return disguised people and their policy."""
    data, rules = world(tmp_path, people=PEOPLE + "9,Ida,no,s,1,true\n" * 500)
    ok("disguise", data, "-p", rules, "-o", tmp_path / "disguised.csv", "--keep", "id")
    return tmp_path / "disguised.csv", rules


def test_json_is_what_the_library_says(disguised):
    data, rules = disguised
    found = json.loads(
        ok(
            "estimate",
            data,
            "-p",
            rules,
            "--by",
            "smoker,married",
            "--by",
            "region",
            "--where",
            "visits=1",
            "--json",
        ).stdout
    )
    source = mq.tally(data, mq.Policy.load(rules))
    asked = [
        mq.Query(by=("smoker", "married"), where={"visits": 1}),
        mq.Query(by="region", where={"visits": 1}),
    ]
    for table, answer in zip(source.answer(asked), found, strict=True):
        interval = table.conf_int()
        assert answer["by"] == list(table.names)
        assert answer["where"] == {"visits": 1}
        assert answer["n"] == 506
        assert answer["adjusted"] is None
        for name, values in {
            "count": table.values,
            "stderr": table.stderr(),
            "lower": interval.lower,
            "upper": interval.upper,
        }.items():
            assert [cell[name] for cell in answer["cells"]] == values.ravel().tolist()
    assert found[0]["cells"][1]["labels"] == {"smoker": "yes", "married": False}


def test_kind_and_level(disguised):
    data, rules = disguised
    options = ["--by", "region", "--kind", "given_records", "--level", "0.5", "--json"]
    (answer,) = json.loads(ok("estimate", data, "-p", rules, *options).stdout)
    (table,) = mq.tally(data, mq.Policy.load(rules)).answer([mq.Query(by="region")])
    assert [cell["stderr"] for cell in answer["cells"]] == table.stderr("given_records").tolist()
    assert [cell["lower"] for cell in answer["cells"]] == table.conf_int(0.5, "given_records").lower.tolist()


def test_text_shows_labels_and_explains_negative_counts(tmp_path):
    people = "smoker,married\n" + "no,true\n" * 990 + "yes,true\n" * 10
    data, rules = world(
        tmp_path, people=people, policy="\n".join([*POLICY.splitlines()[:5], POLICY.splitlines()[-1]])
    )
    text = ok("estimate", data, "-p", rules, "--by", "smoker,married").stdout
    assert "smoker × married" in text
    assert "95% interval" in text
    assert "Counts below zero are left unchanged" in text
    assert "--nonnegative mle" in text
    assert "1,000 records" in text
    projected = ok("estimate", data, "-p", rules, "--by", "smoker,married", "--nonnegative", "mle").stdout
    assert "Counts below zero" not in projected
    assert "Made nonnegative by 'mle'" in projected


def test_projected_counts_keep_the_errors_of_the_unbiased_ones(tmp_path):
    data, rules = world(tmp_path, people="smoker\n" + "no\n" * 100, policy="\n".join(POLICY.splitlines()[:5]))
    raw, fixed = (
        json.loads(ok("estimate", data, "-p", rules, "--by", "smoker", "--json", *extra).stdout)[0]
        for extra in ([], ["--nonnegative", "clip"])
    )
    assert raw["cells"][0]["count"] == pytest.approx(-50)
    assert fixed["adjusted"] == "clip"
    assert [cell["count"] for cell in fixed["cells"]] == pytest.approx([0, 100])
    for name in ("stderr", "lower", "upper"):
        assert [cell[name] for cell in fixed["cells"]] == [cell[name] for cell in raw["cells"]]


def test_csv_and_files_by_their_ending(disguised, tmp_path):
    data, rules = disguised
    text = ok("estimate", data, "-p", rules, "--by", "visits,married", "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["visits", "married", "count", "stderr", "lower", "upper"]
    assert [row["married"] for row in rows[:2]] == ["true", "false"]
    told = ok("estimate", data, "-p", rules, "--by", "visits,married", "-o", tmp_path / "table.csv")
    assert told.stdout == ""
    assert (tmp_path / "table.csv").read_text() == text
    ok("estimate", data, "-p", rules, "--by", "region", "-o", tmp_path / "table.json")
    assert json.loads((tmp_path / "table.json").read_text())[0]["by"] == ["region"]
    before = files(tmp_path)
    assert "exists already" in refused(
        "estimate", data, "-p", rules, "--by", "region", "-o", tmp_path / "table.csv"
    )
    ok("estimate", data, "-p", rules, "--by", "region", "-o", tmp_path / "table.csv", "--overwrite")
    assert files(tmp_path) == before


def test_without_by_it_is_one_count(disguised):
    data, rules = disguised
    (answer,) = json.loads(ok("estimate", data, "-p", rules, "--where", "married=TRUE", "--json").stdout)
    assert answer["where"] == {"married": True}
    assert len(answer["cells"]) == 1


def test_clear_records_are_counted_exactly(tmp_path):
    data, rules = world(tmp_path)
    parquet.write_table(arrow_csv.read_csv(data), tmp_path / "people.parquet")
    for source in (data, tmp_path / "people.parquet"):
        (answer,) = json.loads(
            ok("estimate", source, "--clear", "-p", rules, "--by", "visits", "--json").stdout
        )
        assert [cell["count"] for cell in answer["cells"]] == [3, 2, 1]
    assert " 3 " in ok("estimate", data, "--clear", "-p", rules, "--by", "visits").stdout


def test_large_tables_are_cut_with_a_note(disguised):
    data, rules = disguised
    text = ok("estimate", data, "-p", rules, "--by", "region,visits", "--rows", "5").stdout
    assert "The first 5 of 12 cells" in text
    assert "The first" not in ok("estimate", data, "-p", rules, "--by", "region,visits", "--rows", "0").stdout


def test_misfit_in_words(tmp_path):
    _, rules = world(tmp_path)
    (tmp_path / "good.csv").write_text("smoker,region,visits,married\n" + "yes,n,0,true\nno,n,0,true\n" * 500)
    (tmp_path / "odd.csv").write_text("smoker,region,visits,married\n" + "yes,n,0,true\n" * 1000)
    asked = ["-p", rules, "--by", "smoker", "--misfit"]
    good = " ".join(ok("estimate", tmp_path / "good.csv", *asked).stdout.split())
    assert (
        "Misfit of smoker: G² = 0.00 on 0 and 1 degrees of freedom, mean p = 1.00: no evidence against"
        in good
    )
    odd = " ".join(ok("estimate", tmp_path / "odd.csv", *asked).stdout.split())
    assert "p < 0.0001: no truth explains these reports" in odd
    told = ok("estimate", tmp_path / "odd.csv", *asked, "--csv")
    assert "Misfit" not in told.stdout
    assert "Misfit of smoker" in told.stderr
    (answer,) = json.loads(ok("estimate", tmp_path / "odd.csv", *asked, "--json").stdout)
    assert answer["misfit"]["degrees"] == 1


def test_records_that_do_not_say_what_they_are(disguised, tmp_path):
    data, rules = disguised
    assert ok("estimate", data, "-p", rules, "--by", "smoker").stderr == ""
    assert "omit --clear" in refused("estimate", data, "-p", rules, "--by", "smoker", "--clear")
    (tmp_path / "bare.csv").write_bytes(data.read_bytes())
    told = ok("estimate", tmp_path / "bare.csv", "-p", rules, "--by", "smoker").stderr
    assert "bare.csv does not say under which policy it was disguised" in told


def test_labels_are_shown_as_they_are(tmp_path):
    policy = 'masquerade: 1\nvariables: {"[red]x": {bins: [0, 10, 20]}}\n'
    data, rules = world(tmp_path, people="[red]x\n5\n15\n", policy=policy)
    text = ok("estimate", data, "--clear", "-p", rules, "--by", "[red]x").stdout
    assert "[red]x" in text
    assert "[0, 10)" in text
    assert "[10, 20]" in text


def test_survey_weights(tmp_path):
    people = "smoker,w\n" + "yes,2.5\n" * 4 + "no,1\n" * 6
    data, rules = world(tmp_path, people=people, policy="\n".join(POLICY.splitlines()[:5]))
    asked = ["--clear", "-p", rules, "--by", "smoker", "--weights", "w", "--json"]
    (answer,) = json.loads(ok("estimate", data, *asked).stdout)
    assert np.allclose([cell["count"] for cell in answer["cells"]], [10, 6])
    assert "takes no --weights" in refused(
        "estimate", data, "-p", rules, "--by", "smoker", "--weights", "w", "--misfit"
    )


def test_a_second_record_of_a_person_is_refused(disguised):
    data, rules = disguised
    assert "repeat a person" in refused("estimate", data, "-p", rules, "--by", "smoker", "--id", "id")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--by", "smokr"], "--by: the policy has no variable 'smokr'. Did you mean 'smoker'?"),
        (["--by", "smoker,"], "variables are given as A,B"),
        (["--by", "smoker,smoker"], "--by names 'smoker' twice"),
        (["--by", "smoker", "--where", "smoker=yes"], "in --by and in --where"),
        (["--where", "smoker=yess"], "'yess' is not a category of 'smoker'. Did you mean 'yes'?"),
        (["--where", "visits=7"], "Known: 0, 1, 2."),
        (["--where", "smoker=yes", "--where", "smoker=no"], "twice"),
        (["--where", "smoker"], "VARIABLE=CATEGORY"),
        (["--where", "=yes"], "VARIABLE=CATEGORY"),
        (["--where", "smokr=yes"], "--where: the policy has no variable 'smokr'"),
        (["--by", "smoker", "--level", "95"], "--level must be between 0 and 1"),
        (["--by", "smoker", "--json", "--csv"], "either --json or --csv"),
        (["--by", "smoker", "--by", "region", "--csv"], "one table"),
        (["--by", "smoker", "--clear", "--misfit"], "--misfit tests a disguise"),
        (["--by", "smoker", "--weights", "wt"], "no column 'wt'"),
        (["--by", "smoker", "-o", "nowhere/t.csv"], "there is no directory"),
    ],
)
def test_bad_questions(disguised, tmp_path, monkeypatch, options, said):
    data, rules = disguised
    monkeypatch.chdir(tmp_path)
    before = files(tmp_path)
    assert said in refused("estimate", data, "-p", rules, *options)
    assert files(tmp_path) == before


def test_another_policy_is_refused(disguised):
    data, rules = disguised
    rules.write_text(POLICY.replace("0.25", "0.2"))
    assert "disguised under policy" in refused("estimate", data, "-p", rules, "--by", "smoker")


def test_a_singular_channel_is_refused_with_the_reason(tmp_path):
    data, rules = world(tmp_path, policy=POLICY.replace("p: 0.25", "p: 0.5"))
    reports = mq.simulate(pd.read_csv(data), mq.Policy.load(rules), seed=1)  # `disguise` refuses to
    reports.to_csv(tmp_path / "out.csv", index=False)
    line = refused("estimate", tmp_path / "out.csv", "-p", rules, "--by", "smoker,region")
    assert "smoker: " in line
    assert "they cannot be distinguished" in line
    ok("estimate", tmp_path / "out.csv", "-p", rules, "--by", "region")


def test_standard_input(disguised):
    data, rules = disguised
    done = process("estimate", "-", "-p", rules, "--by", "smoker", "--json", input=data.read_bytes())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["n"] == 506


def test_a_name_with_a_comma_or_an_equals_sign(tmp_path):
    policy = (
        'masquerade: 1\nvariables:\n  "a,b": {categories: ["x=1", "y"]}\n  "c=d": {categories: ["1", "="]}\n'
    )
    data, rules = world(tmp_path, people='"a,b",c=d\nx=1,1\ny,=\n', policy=policy)
    (answer,) = json.loads(
        ok("estimate", data, "--clear", "-p", rules, "--by", "a,b", "--where", "c=d==", "--json").stdout
    )
    assert [cell["count"] for cell in answer["cells"]] == [0, 1]


def test_intervals_of_all_cells_together(disguised):
    data, rules = disguised
    asked = ("estimate", data, "-p", rules, "--by", "region", "--simultaneous", "bonferroni")
    (answer,) = json.loads(ok(*asked, "--json").stdout)
    (table,) = mq.tally(data, mq.Policy.load(rules)).answer([mq.Query(by="region")])
    assert answer["simultaneous"] == "bonferroni"
    wanted = table.conf_int(simultaneous="bonferroni").upper.tolist()
    assert [cell["upper"] for cell in answer["cells"]] == wanted
    assert "for all cells of the table together (bonferroni)" in ok(*asked).stdout
