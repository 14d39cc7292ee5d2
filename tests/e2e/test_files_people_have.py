"""A messy German file from a draft to a report in four commands; slips told at once; sheets in and out."""

from __future__ import annotations

import random
import re

import openpyxl
import pandas as pd
import pyreadstat
import pytest
from tests.e2e.test_cli_app import ok, refused, run

import masquerade as mq
from masquerade.core.errors import UnknownValue
from masquerade.frames.dialect import Dialect
from masquerade.frames.file_reader import open_batches

NAMES = ["Geschlecht", "Bundesland", "Alter", "Einkommen", "Raucher", "Zufriedenheit"]
SLIPS = {
    21: ("Geschlecht", "Männlich "),
    301: ("Bundesland", "Thürigen"),
    701: ("Alter", "4O"),
    901: ("Raucher", "JA"),
}


def german_people(rows: int = 1500) -> list[list[str]]:
    """Return rows with missing values, two ways to say so, and four slips of the pen."""
    draw = random.Random(7)  # noqa: S311
    people = []
    for row in range(1, rows + 1):
        sex = draw.choice(["männlich", "weiblich"])
        person = [
            sex,
            draw.choice(["Baden-Württemberg", "Thüringen", "Nordrhein-Westfalen"]),
            str(draw.randint(18, 90)),
            "" if row % 97 == 5 else f"{draw.uniform(800, 4900):.2f}".replace(".", ","),
            "" if row % 211 == 9 else "ja" if draw.random() < (0.8 if sex == "männlich" else 0.2) else "nein",
            "k. A." if row % 113 == 7 else draw.choice(["sehr gut", "gut", "mäßig"]),
        ]
        if row in SLIPS:
            name, slip = SLIPS[row]
            person[NAMES.index(name)] = slip
        people.append(person)
    return people


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    path = tmp_path_factory.mktemp("german") / "umfrage.csv"
    lines = [";".join(row) for row in [NAMES, *german_people()]]
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode("latin-1"))
    return path


def test_a_messy_german_file_becomes_a_report_in_four_commands(survey):
    folder = survey.parent
    policy, disguised, page = folder / "policy.yaml", folder / "d.csv", folder / "report.html"
    drafted = ok("policy", "init", survey, "--per-answer", "--epsilon", 2.5, "--out", policy)
    said = "semicolons between fields, decimal commas, Windows-1252 (Latin-1) text"
    assert said in drafted.stderr
    checked = ok("policy", "check", policy, survey)
    assert "1,500 records can be read" in checked.stdout
    ok("disguise", survey, "-p", policy, "--out", disguised, "--accept-gamma", "inf")
    told = ok("report", disguised, "-p", policy, "--out", page).stderr
    assert "1,500 records, 6 variables" in told

    text = policy.read_text()
    assert '"männlich": ["Männlich "]' in text
    assert '"Thüringen": ["Thürigen"]' in text
    assert '"ja": ["JA"]' in text
    assert 'na: ["4O"]' in text
    assert "no place" not in text  # bins do have one for missing values
    assert mq.Policy.load(policy).schema["Einkommen"].categories[-1] == "missing"

    html = page.read_text()
    for part in (
        "Shares",
        "What goes with what",
        "Cross-tables",
        "Tests",
        "The guarantee",
        "Baden-Württemberg",
    ):
        assert part in html
    assert html.count("<svg") >= 6 + 1 + 1 + 1  # shares, links, a cross-table, beliefs
    assert "Raucher by Geschlecht" in html  # p < 1e-6 by far: 80% against 20% of 750 each at ε = 2.5
    assert "exists already" in refused("report", disguised, "-p", policy, "--out", page)
    # the report shows an unbiased share: within 5 standard errors of the truth
    truth = sum(row[0].strip().lower() == "männlich" for row in german_people()) / 1500
    [share, error] = (
        mq.stats.shares(mq.tally(disguised, mq.Policy.load(policy)), "Geschlecht")
        .to_frame()[["share", "stderr"]]
        .iloc[0]
    )
    assert abs(share - truth) < 5 * error


def test_all_slips_are_told_at_once_by_column_and_row_and_never_by_value(survey, tmp_path):
    draft = tmp_path / "draft.yaml"
    ok("policy", "init", survey, "--epsilon", 2, "--out", draft)
    strict = tmp_path / "strict.yaml"
    strict.write_text(re.sub(r"    recode:\n.*\n|    na: .*\n", "", draft.read_text()))
    result = run("policy", "check", strict, survey)
    assert result.exit_code == 2
    for row, (column, slip) in SLIPS.items():
        assert f"column '{column}', row {row}:" in result.stderr
        assert slip not in result.stderr
    assert result.stderr.count("differs only in capitals or blanks") == 2
    assert "5 problems with values" in result.stderr  # four slips, and the mark of empty cells

    target = tmp_path / "d.csv"
    refusal = run("disguise", survey, "-p", strict, "--out", target)
    assert refusal.exit_code == 2
    assert all(f"row {row}:" in refusal.stderr for row in SLIPS)
    assert not target.exists()
    with pytest.raises(UnknownValue) as caught:
        mq.tally(survey, schema=mq.Policy.load(strict))
    assert [problem.rows for problem in caught.value.problems][:4] == [(21,), (301,), (701,), (901,)]


def test_rows_of_a_problem_are_listed_up_to_ten(tmp_path):
    data = tmp_path / "a.csv"
    data.write_text("a\n" + "x\n" * 30 + "y\n" * 40)
    policy = mq.Policy.build({"a": ["x"]}, {})
    with pytest.raises(UnknownValue) as caught:
        mq.tally(data, schema=policy)
    [problem] = caught.value.problems
    assert problem.rows == tuple(range(31, 41))
    assert "31, 32" in str(caught.value)
    assert str(caught.value).endswith("40 and others: the value is not one of the policy's categories")
    assert "70" not in str(caught.value)  # how many there are is nobody's business


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"a,b\n1,2\n", (",", ".", "utf-8")),
        (b"a;b\n1,5;2\n0,25;3\n", (";", ",", "utf-8")),
        (b"a;b\n1.5;2\n0.25;3\n", (";", ".", "utf-8")),
        (b"a\tb\n1,5\tx\n", ("\t", ",", "utf-8")),
        (b"a|b\n1|2\n", ("|", ".", "utf-8")),
        ('a,b\nü,"x;y"\nö,"z;w"\n'.encode(), (",", ".", "utf-8")),
        ("a;b\nü;1\n".encode("latin-1"), (";", ".", "cp1252")),
        ("a;b\nü;1\n".encode("utf-16"), (";", ".", "utf-16")),
        ("\ufeffa;b\nü;1\n".encode(), (";", ".", "utf-8")),
        (b"only\nx;y\nz\n", (",", ".", "utf-8")),
        (b"", (",", ".", "utf-8")),
    ],
)
def test_how_a_file_is_written_is_found_by_looking(content, found):
    dialect = Dialect().detect(content)
    assert (dialect.separator, dialect.decimal, dialect.encoding) == found


def test_what_is_said_comes_before_what_is_found(tmp_path):
    data = tmp_path / "a.csv"
    data.write_bytes(b"a;b\n1.234;x\n1.500;y\n")
    with open_batches(data, dialect=Dialect(decimal=",")) as batches:
        assert next(iter(batches)).to_pydict() == {"a": ["1234", "1500"], "b": ["x", "y"]}
    with open_batches(data) as batches:
        assert next(iter(batches)).to_pydict()["a"] == ["1.234", "1.500"]
    assert "is one of" in refused("policy", "init", data, "--sep", "x")
    assert "no text encoding" in refused("policy", "init", data, "--encoding", "klingon")


PEOPLE = pd.DataFrame(
    {"sex": ["f", "m", "m", "f"], "kids": [0, 1, 2, 1], "town": ["=A1", "Ulm", None, "Ulm"]}
)
SCHEMA = {"sex": ["f", "m"], "kids": [0, 1, 2]}


def excel(path):
    PEOPLE.to_excel(path, index=False)


def spss(path):
    coded = PEOPLE.assign(sex=PEOPLE["sex"].map({"f": 1, "m": 2}))
    pyreadstat.write_sav(coded, str(path), variable_value_labels={"sex": {1: "f", 2: "m"}})


def stata(path):
    coded = PEOPLE.assign(sex=PEOPLE["sex"].map({"f": 1, "m": 2}))
    pyreadstat.write_dta(coded, str(path), variable_value_labels={"sex": {1: "f", 2: "m"}})


def sas(path):
    pyreadstat.write_xport(PEOPLE, str(path))


def tabbed(path):
    PEOPLE.to_csv(path, sep="\t", index=False)


@pytest.mark.parametrize(
    ("name", "write"),
    [("a.xlsx", excel), ("a.sav", spss), ("a.dta", stata), ("a.xpt", sas), ("a.tsv", tabbed)],
)
def test_sheets_and_statistics_files_go_in_and_out(name, write, tmp_path):
    clear = tmp_path / name
    write(clear)
    source = mq.tally(clear, schema=mq.Schema(SCHEMA))
    assert source.answer([mq.Query(by=("sex", "kids"))])[0].values.tolist() == [[1, 1, 0], [0, 1, 1]]

    policy = mq.Policy.build(SCHEMA, {"sex": mq.channels.binary("1/1000000")})
    out = tmp_path / f"out-{name}"
    assert mq.disguise_file(clear, out, policy, keep=["town"]).rows == 4
    again = mq.tally(out, policy)
    assert again.answer([mq.Query(by=("sex",))])[0].values.sum() == pytest.approx(4)
    with pytest.raises(mq.MasqueradeError, match="already"):
        mq.disguise_file(out, tmp_path / f"twice-{name}", policy)


def test_a_text_in_a_sheet_is_no_formula_and_labels_are_kept(tmp_path):
    excel(tmp_path / "a.xlsx")
    policy = mq.Policy.build(SCHEMA, {})
    tabbed(tmp_path / "a.tsv")
    mq.disguise_file(tmp_path / "a.tsv", tmp_path / "b.xlsx", policy, keep=["town"])
    sheet = openpyxl.load_workbook(tmp_path / "b.xlsx").worksheets[0]
    assert sheet["C2"].data_type == "s"
    mq.disguise_file(tmp_path / "a.xlsx", tmp_path / "b.sav", policy)
    _, about = pyreadstat.read_sav(str(tmp_path / "b.sav"))
    assert about.variable_value_labels["sex"] == {1.0: "f", 2.0: "m"}
    (tmp_path / "bad.xlsx").write_bytes(b"no sheet at all")
    assert "not a readable Excel file" in refused("policy", "init", tmp_path / "bad.xlsx")
    (tmp_path / "bad.sav").write_bytes(b"no sheet at all")
    assert "not a readable SPSS file" in refused("policy", "init", tmp_path / "bad.sav")
    assert "only SAS itself" in refused(
        "disguise", tmp_path / "a.xlsx", "-p", saved(policy, tmp_path), "-o", tmp_path / "b.sas7bdat"
    )


def saved(policy, folder):
    policy.save(folder / "p.yaml")
    return folder / "p.yaml"


def test_codes_of_missing_values_and_recodings_stand_in_the_policy(tmp_path):
    values = {
        "masquerade": 1,
        "variables": {
            "sex": {
                "categories": ["f", "m", "?"],
                "missing": "?",
                "na": [9, "k.A."],
                "recode": {"m": ["M", 2], "f": [1]},
            },
            "age": {
                "bins": [0, 50, 100],
                "missing": "none",
                "na": [-9],
                "recode": {"[50, 100]": ["old"], 7: [777]},
            },
        },
    }
    policy = mq.Policy.from_dict(values)
    assert (
        policy.id
        == mq.Policy.from_dict(
            {
                "masquerade": 1,
                "variables": {
                    "sex": {"categories": ["f", "m", "?"], "missing": "?"},
                    "age": {"bins": [0, 50, 100], "missing": "none"},
                },
            }
        ).id
    )
    for name in ("p.yaml", "p.json"):
        policy.save(tmp_path / name)
        assert mq.Policy.load(tmp_path / name).id == policy.id
    again = mq.Policy(policy.fields, {})  # written from code, not from the file it came from
    assert mq.Policy.from_dict(again.to_dict()).id == policy.id

    data = tmp_path / "a.csv"
    data.write_text("sex,age\nf,3\nM,old\n2,-9\n1,777\n9,\nk.A.,99.5\n")
    want = [[2, 0, 0], [0, 1, 1], [0, 1, 1]]
    query = mq.Query(by=("sex", "age"))
    assert mq.tally(data, schema=policy).answer([query])[0].values.tolist() == want
    assert mq.tally(data, schema=policy, engine="duckdb").answer([query])[0].values.tolist() == want
    frame = pd.DataFrame({"sex": ["f", "M", "m", "f"], "age": [3.0, -9, 777, None]})
    columns = [[1, 0, 1], [1, 0, 1], [0, 0, 0]]
    assert mq.tally(frame, schema=policy).answer([query])[0].values.tolist() == columns
    frame.to_parquet(tmp_path / "a.parquet")  # numbers that DuckDB itself puts into bins
    counted = mq.tally(tmp_path / "a.parquet", schema=policy, engine="duckdb").answer([query])[0]
    assert counted.values.tolist() == columns

    for entry, told in (
        ({"categories": ["a", "b"], "na": ["a"]}, "is a category"),
        ({"categories": ["a", "b"], "recode": {"c": ["x"]}}, "not a category"),
        ({"categories": ["a", "b"], "recode": {"a": ["x"], "b": ["x"]}}, "two different readings"),
        ({"bins": [0, 1], "recode": {"5": ["x"]}}, "neither a number inside the bins"),
    ):
        with pytest.raises(mq.MasqueradeError, match=told):
            mq.Policy.from_dict({"masquerade": 1, "variables": {"v": entry}})


@pytest.mark.parametrize("name", ["d.csv", "d.parquet", "d.arrow", "d.xlsx"])
def test_disguised_files_carry_their_policy_along(name, tmp_path):
    (tmp_path / "a.csv").write_text("sex,kids\n" + "f,0\nm,1\nM,2\n" * 50)
    entry = {"categories": ["f", "m"], "channel": {"kind": "binary", "p": 0.1}, "recode": {"m": ["M"]}}
    entry["note"] = "between us"
    values = {"masquerade": 1, "variables": {"sex": entry, "kids": {"categories": [0, 1, 2]}}}
    policy, out = mq.Policy.from_dict(values), tmp_path / name
    mq.disguise_file(tmp_path / "a.csv", out, policy)
    source = mq.tally(out)  # policy.yaml is lost
    assert source.policy.id == policy.id
    assert source.answer([mq.Query(by=("kids",))])[0].values.tolist() == [50, 50, 50]
    assert not source.policy.fields[0].recodes  # an odd clear value is nobody's business
    assert "note" not in source.policy.to_dict()["variables"]["sex"]
    assert "150 records" in ok("estimate", out, "--by", "sex").stdout
    assert "no policy is stored with the records" in refused("estimate", tmp_path / "a.csv", "--by", "sex")
    if name == "d.csv":
        beside = tmp_path / "d.csv.masquerade.json"
        beside.write_text(beside.read_text().replace("0.1", "0.2"))
        with pytest.raises(mq.MasqueradeError, match="not the one they were disguised under"):
            mq.tally(out)


def test_results_go_to_papers_and_models_are_shown(tmp_path):
    (tmp_path / "a.csv").write_text("sex,kids\n" + "f,0\nm,1\nm,2\n" * 50)
    policy = mq.Policy.build(SCHEMA, {"sex": mq.channels.binary("1/10")})
    disguised = tmp_path / "d.parquet"
    mq.disguise_file(
        tmp_path / "a.csv", disguised, saved(policy, tmp_path)
    )  # policies and data by their paths
    assert mq.tally(disguised, tmp_path / "p.yaml").n == 150
    assert mq.privacy(tmp_path / "p.yaml").policy_id == policy.id
    assert mq.disguise(tmp_path / "a.csv", tmp_path / "p.yaml").num_rows == 150
    for command in (("estimate", disguised, "--by", "sex"), ("stats", "shares", disguised, "--of", "sex")):
        paper = tmp_path / f"{command[0]}.tex"
        ok(*command, "--out", paper)
        assert paper.read_text().startswith("\\begin{table}")
        ok(*command, "--out", tmp_path / f"{command[0]}.md")
        assert "| --- |" in (tmp_path / f"{command[0]}.md").read_text()
        assert "must end in" in refused(*command, "--out", tmp_path / "t.docx")
    model = tmp_path / "m.json"
    ok("learn", "naive-bayes", disguised, "--target", "sex", "--out", model)
    assert "Naive Bayes of sex" in ok("show", model).stdout
    ok("show", model, "--plot", tmp_path / "m.png", "--out", tmp_path / "m.html")
    assert (tmp_path / "m.png").stat().st_size > 1000
    assert "<table>" in (tmp_path / "m.html").read_text()


def test_the_demo_overwrites_nothing(tmp_path):
    (tmp_path / "policy.yaml").write_text("mine")
    assert "already exists" in refused("demo", "--out", tmp_path, "--n", 200)
    assert (tmp_path / "policy.yaml").read_text() == "mine"
