"""`masquerade anonymize` and `masquerade anonymize check` from end to end: formats, words, refusals."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.e2e.test_cli_app import HIDDEN, files, ok, refused

PEOPLE = """\
name,age,sex,zip,illness
Ann,30,f,07030,flu
Bob,31,m,07030,flu
Cyd,30,f,07029,cold
Dee,,m,07028,flu
Eve,31,m,07030,cold
Flo,30,f,07030,flu
"""
QUASI = ["age", "sex", "zip"]


def people(folder, text=PEOPLE):
    path = folder / "people.csv"
    path.write_text(text, encoding="utf-8")
    return path


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_the_table_is_k_anonymous_and_says_what_is_released(tmp_path):
    out = tmp_path / "shown.csv"
    told = ok(
        "anonymize", people(tmp_path), "-k", 2, "--quasi", "age,sex,zip", "--sensitive", "illness", "-o", out
    )
    assert told.stdout == ""
    shown, given = rows_of(out.read_text(encoding="utf-8")), rows_of(PEOPLE)
    assert list(shown[0]) == ["age", "sex", "zip", "illness"]
    assert [row["illness"] for row in shown] == [row["illness"] for row in given]
    assert min(Counter(tuple(row[name] for name in QUASI) for row in shown).values()) >= 2
    assert all(row[name] in {"*", old[name]} for row, old in zip(shown, given, strict=True) for name in QUASI)
    stars = sum(row[name] == "*" for row in shown for name in QUASI)
    assert f"2-anonymous in age, sex, zip: {stars} of 18 cells suppressed" in told.stderr
    assert "in clear: illness; omitted: name." in told.stderr
    assert files(tmp_path) == {"people.csv", "shown.csv"}


def test_check_reads_stars_back_with_the_same_meaning(tmp_path):
    out = tmp_path / "shown.csv"
    done = ok("anonymize", people(tmp_path), "-k", 2, "--quasi", "age,sex,zip", "--sensitive", "illness",
              "--out", out, "--json")  # fmt: skip
    before = json.loads(done.stdout)
    after = json.loads(
        ok("anonymize", "check", out, "--quasi", "age,sex,zip", "--sensitive", "illness", "--json").stdout
    )
    assert before["check"] == after
    assert after["k"] >= 2
    assert before["left_out"] == ["name"]
    assert before["disclosed_in_clear"] == ["illness"]
    assert before["utility"]["classes"] == after["classes"]
    text = ok("anonymize", "check", out, "--quasi", "age", "--quasi", "sex,zip").stdout
    assert f"k = {after['k']} over age, sex, zip" in text
    assert "not differential privacy" in text


def test_a_value_that_a_class_shares_is_warned_of(tmp_path):
    data = people(tmp_path, "zip,illness\n1,flu\n1,flu\n2,flu\n2,cold\n")
    told = ok(
        "anonymize", data, "-k", 2, "--quasi", "zip", "--sensitive", "illness", "--out", tmp_path / "a.csv"
    )
    assert "warning: illness: 2 rows in classes with only one value" in told.stderr


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_any_format_to_any_format(tmp_path, ending):
    table = pa.table({"age": [30, 31, 30, None], "zip": ["a", "b", "a", "b"], "visits": [1, 2, 3, 4]})
    parquet.write_table(table, tmp_path / "people.parquet")
    out = tmp_path / f"out.{ending}"
    ok("anonymize", tmp_path / "people.parquet", "-k", 2, "--quasi", "age,zip", "--keep", "visits", "-o", out)
    back = json.loads(ok("anonymize", "check", out, "--quasi", "age,zip", "--json").stdout)
    assert (back["k"], back["rows"]) == (2, 4)
    if ending == "parquet":
        shown = parquet.read_table(out)
        assert shown["age"].to_pylist() == ["30", "*", "30", "*"]  # a column with a star is text
        assert shown.schema.field("visits").type == pa.int64()


def test_streams_in_and_out():
    told = ok("anonymize", "-", "-k", 2, "--quasi", "age,sex", "--out", "-", stdin=PEOPLE)
    assert len(rows_of(told.stdout)) == 6
    assert "standard output is 2-anonymous" in told.stderr


def test_a_hierarchy_for_another_column_is_refused(tmp_path):
    levels = tmp_path / "levels.yaml"
    levels.write_text("hierarchies: 1\ncolumns: {age: {ranges: [10]}}\n", encoding="utf-8")
    line = refused(
        "anonymize", people(tmp_path), "-k", 3, "--quasi", "zip", "--hierarchies", levels, "-o", "-"
    )
    assert "'age', which is not a quasi-identifier" in line


def test_hierarchies_generalise_before_they_star(tmp_path):
    levels = tmp_path / "levels.yaml"
    levels.write_text("hierarchies: 1\ncolumns:\n  zip: {prefixes: [4, 3]}\n", encoding="utf-8")
    told = ok(
        "anonymize", people(tmp_path), "-k", 2, "--quasi", "zip", "--hierarchies", levels, "-o", "-"
    ).stdout
    assert [row["zip"] for row in rows_of(told)] == ["07030", "07030", "0702*", "0702*", "07030", "07030"]


def test_the_report_is_a_page_with_pictures(tmp_path):
    page = tmp_path / "page.html"
    told = ok("anonymize", "check", people(tmp_path), "--quasi", "age,sex", "--sensitive", "illness,zip",
              "--report", page)  # fmt: skip
    assert f"the report is in {page}" in told.stderr
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 3
    assert "How anonymous is people.csv?" in text
    assert "not differential privacy" in text
    assert "://" not in text  # nothing from outside
    assert "already; --overwrite" in refused(
        "anonymize", "check", people(tmp_path), "--quasi", "age", "--report", page
    )


def test_numbers_written_in_a_csv_have_an_order(tmp_path):
    data = people(tmp_path)
    own = json.loads(
        ok("anonymize", "check", data, "--quasi", "sex", "--sensitive", "zip,name", "--json").stdout
    )
    assert own["sensitive"][0]["t_ordered"] is not None
    assert own["sensitive"][1]["t_ordered"] is None


def test_texts_that_are_equal_as_numbers_stay_apart(tmp_path):
    data = people(tmp_path, "sex,zip\nf,07030\nf,7030\n")
    own = json.loads(ok("anonymize", "check", data, "--quasi", "sex", "--sensitive", "zip", "--json").stdout)
    assert own["sensitive"][0]["distinct_l"] == 2


def test_an_empty_table_passes_through(tmp_path):
    told = ok("anonymize", people(tmp_path, "age,sex\n"), "-k", 5, "--quasi", "age", "--out", "-")
    assert told.stdout == "age\n"
    assert told.stderr == "masquerade: standard output has no rows, since there are none to anonymize.\n"


def test_a_table_without_rows_is_told_in_a_line(tmp_path):
    data = people(tmp_path, "age,sex\n")
    told = ok("anonymize", "check", data, "--quasi", "age", "--sensitive", "sex").stdout
    assert told == "The table has no rows, so there is nothing to report on age.\n"


def test_order_is_kept_and_said_or_hidden(tmp_path):
    text = "born,name\n" + "".join(f"{1900 + i // 2},p{i}\n" for i in range(400))
    given = ("anonymize", people(tmp_path, text), "-k", 2, "--quasi", "born", "--keep", "name", "-o", "-")
    kept, mixed, again = (ok(*given, *options) for options in ([], ["--shuffle"], ["--shuffle"]))
    assert kept.stdout.splitlines()[1:] == text.splitlines()[1:]
    assert "rows are in the order of the input; --shuffle hides it." in kept.stderr
    assert "in the order" not in mixed.stderr
    assert sorted(mixed.stdout.splitlines()) == sorted(kept.stdout.splitlines())
    assert len({kept.stdout, mixed.stdout, again.stdout}) == 3


def test_one_of_each_is_told_as_one(tmp_path):
    told = ok(
        "anonymize", "check", people(tmp_path, "age,sex\n30,f\n"), "--quasi", "age", "--sensitive", "sex"
    )
    assert "1 class of 1 row\n1 row unique" in told.stdout
    assert "1 homogeneous class, of 1 row\n" in told.stdout


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["-k", 2, "--quasi", "age"], "--out FILE is missing"),
        (["-k", 2, "--out", "x.csv"], "--quasi COLUMNS is missing"),
        (["--quasi", "age", "--out", "x.csv"], "-k K is missing"),
        (["-k", 0, "--quasi", "age", "--out", "x.csv"], "at least 1"),
        (["-k", "two", "--quasi", "age", "--out", "x.csv"], "-k"),
        (["-k", 7, "--quasi", "age", "--out", "x.csv"], "no classes of 7"),
        (["-k", 2, "--quasi", "age,agee", "--out", "x.csv"], "no column 'agee'"),
        (["-k", 2, "--quasi", "age,age", "--out", "x.csv"], "listed twice"),
        (["-k", 2, "--quasi", "age,,sex", "--out", "x.csv"], "single commas"),
        (["-k", 2, "--quasi", "age", "--sensitive", "age", "--out", "x.csv"], "is a quasi-identifier"),
        (["-k", 2, "--quasi", "age", "--keep", "age", "--out", "x.csv"], "is a quasi-identifier"),
        (["-k", 2, "--quasi", "age", "--out", "x.doc"], "file name extension"),
        (["-k", 2, "--quasi", "age", "--out", "people.csv", "--overwrite"], "also the input"),
        (["-k", 2, "--quasi", "age", "--hierarchies", "no.yaml", "--out", "x.csv"], "cannot be read"),
        (["-k", 2, "--quasi", "age", "--out", "-", "--json"], "choose one"),
        (["-k", 2, "--quasi", "age", "--bogus", "--out", "x.csv"], "No such option"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, options, complaint):
    people(tmp_path, PEOPLE.replace("Dee,,m", f"{HIDDEN},,m"))
    monkeypatch.chdir(tmp_path)
    line = refused("anonymize", "people.csv", *options)
    assert complaint in line
    assert HIDDEN not in line
    assert files(tmp_path) == {"people.csv"}


def test_a_value_without_a_place_is_named_by_row_and_never_shown(tmp_path):
    data = people(tmp_path, PEOPLE.replace("Cyd,30,f,07029", f"Cyd,{HIDDEN},f,07029"))
    levels = tmp_path / "levels.json"
    levels.write_text('{"hierarchies": 1, "columns": {"age": {"ranges": [10]}}}', encoding="utf-8")
    out = tmp_path / "x.csv"
    line = refused("anonymize", data, "-k", 2, "--quasi", "age", "--hierarchies", levels, "--out", out)
    assert "column 'age', row 3: the value is not a number" in line
    assert HIDDEN not in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "--quasi COLUMNS is missing"),
        (["--quasi", "age", "--report", "x.pdf"], "end in .html"),
        (["--quasi", "age", "--sensitive", "nothing"], "no column 'nothing'"),
    ],
)
def test_check_refuses_in_one_line(tmp_path, options, complaint):
    assert complaint in refused("anonymize", "check", people(tmp_path), *options)


def test_help_is_honest():
    told = " ".join(ok("anonymize", "--help").stdout.split())
    assert "not differential privacy" in told
    assert "check" in told
    assert "DATA" in ok("anonymize", "check", "--help").stdout


def test_diversity_and_closeness_are_enforced_and_the_column_stays_as_it_was_written(tmp_path):
    text = "zip,illness,income\n" + "".join(
        f"{i // 4},{'flu' if i < 8 or i % 2 else 'cold'},0{i % 7}\n" for i in range(32)
    )
    out = tmp_path / "shown.csv"
    done = ok("anonymize", people(tmp_path, text), "-k", 4, "--quasi", "zip", "--sensitive", "illness,income",
              "--diverse", "illness=2", "--close", "income=ordered:0.4", "--out", out, "--json")  # fmt: skip
    told = json.loads(done.stdout)
    assert told["required"] == {"illness": ["2-diverse"], "income": ["0.4-close in order"]}
    illness, income = told["check"]["sensitive"]
    assert illness["distinct_l"] == 2
    assert income["t_ordered"] <= 0.4
    shown = rows_of(out.read_text(encoding="utf-8"))
    assert [row["income"] for row in shown] == [f"0{i % 7}" for i in range(32)]
    assert 0 < told["utility"]["suppressed_cells"] < 32
    plain = ok("anonymize", people(tmp_path, text), "-k", 4, "--quasi", "zip", "--sensitive", "illness",
               "--diverse", "illness=entropy:1.2", "--out", "-")  # fmt: skip
    assert "illness 1.2-diverse by entropy" in plain.stderr


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--diverse", "age=2"], "'age' is not among --sensitive"),
        (["--diverse", "2"], "'2' is not among --sensitive"),
        (["--diverse", "illness=two"], "'two' cannot be read"),
        (["--diverse", "illness=entropi:2"], "give illness=… or illness=entropy:…"),
        (["--close", "illness=ordered:0.1"], "have an order"),
        (["--close", "illness=2"], "'t' must be a number, from 0 to 1"),
        (["--diverse", "illness=9"], "the whole table is not 9-diverse"),
    ],
)
def test_what_cannot_be_enforced_is_refused_and_nothing_is_written(tmp_path, asked, words):
    told = refused("anonymize", people(tmp_path), "-k", 2, "--quasi", "sex,zip", "--sensitive", "illness",
                   *asked, "--out", tmp_path / "shown.csv")  # fmt: skip
    assert words in told
    assert files(tmp_path) == {"people.csv"}


def test_the_risk_of_records_is_told_for_all_and_written_for_each(tmp_path):
    data = people(tmp_path, "zip,people,home\n1,10,a\n2,1,a\n2,1,b\n")
    out = tmp_path / "risks.csv"
    done = ok("anonymize", "risk", data, "--quasi", "zip", "--weight", "people", "--household", "home",
              "--out", out, "--json")  # fmt: skip
    told, risks = json.loads(done.stdout), rows_of(out.read_text(encoding="utf-8"))
    assert told["expected"] == pytest.approx(sum(float(row["risk"]) for row in risks))
    assert [float(row["risk"]) for row in risks[1:]] == [0.5, 0.5]
    assert float(risks[0]["household_risk"]) == pytest.approx(1 - (1 - float(risks[0]["risk"])) / 2)
    assert "3 records expected" in ok("anonymize", "risk", data, "--quasi", "zip").stdout
    bad = refused("anonymize", "risk", data, "--quasi", "zip", "--weight", "home")
    assert "'home', row 1: a weight must be a number of people" in bad
    assert "--quasi COLUMNS is missing" in refused("anonymize", "risk", data)
