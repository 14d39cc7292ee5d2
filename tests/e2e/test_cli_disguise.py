"""`masquerade disguise` from end to end: every format, every notice, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet
from tests.e2e.test_cli_app import COLUMNS, HIDDEN, PEOPLE, POLICY, files, ok, process, refused, run, world

from masquerade.channels.policy import Policy


def typed(data):
    """Return the people as a table with types of their own."""
    return csv.read_csv(data)


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_any_format_to_any_format(tmp_path, ending):
    data, rules = world(tmp_path)
    parquet.write_table(typed(data), tmp_path / "people.parquet")
    feather.write_feather(typed(data), tmp_path / "people.arrow", compression="uncompressed")
    for source in ("people.csv", "people.parquet", "people.arrow"):
        out = tmp_path / f"{source}.out.{ending}"
        told = ok("disguise", tmp_path / source, "-p", rules, "-o", out)
        assert told.stdout == ""
        read = {"csv": csv.read_csv, "parquet": parquet.read_table, "arrow": feather.read_table}[ending](out)
        assert read.column_names == COLUMNS
        assert len(read) == 6
        assert read["visits"].to_pylist() == [0, 1, 2, 0, 0, 1]


def test_the_notice_says_what_was_done(tmp_path):
    data, rules = world(tmp_path)
    told = ok("disguise", data, "-p", rules, "-o", tmp_path / "out.csv").stderr
    assert told.count("\n") == 1
    assert told.startswith("masquerade: Someone who thought it 5% likely can think it at most 90.9% likely")
    assert "6 records disguised into " in told
    assert f"policy {Policy.load(rules).id[:12]};" in told
    assert "γ = 189 (ε = 5.24)" in told
    assert "in clear: visits;" in told
    assert "omitted, not in the policy: id, name." in told


def test_json_tells_the_same_to_programs(tmp_path):
    data, rules = world(tmp_path)
    told = ok("disguise", data, "-p", rules, "-o", tmp_path / "out.csv", "--keep", "id", "--json")
    done = json.loads(told.stdout)
    assert told.stderr == ""
    assert done["rows"] == 6
    assert done["record"]["gamma_exact"] == "189"
    assert done["disguised"] == ["smoker", "region", "married"]
    assert done["disclosed_in_clear"] == ["visits", "id"]
    assert done["left_out"] == ["name"]


def test_a_policy_that_disguises_nothing_is_said_so_loudly(tmp_path):
    data, rules = world(tmp_path, policy='masquerade: 1\nvariables: {smoker: {categories: ["yes", "no"]}}\n')
    assert "NOTHING IS DISGUISED" in ok("disguise", data, "-p", rules, "-o", tmp_path / "out.csv").stderr


def test_several_files_and_patterns(tmp_path):
    data, rules = world(tmp_path)
    (tmp_path / "more.csv").write_text(PEOPLE)
    ok("disguise", data, tmp_path / "more.csv", "-p", rules, "-o", tmp_path / "both.parquet")
    ok("disguise", tmp_path / "[mp]*.csv", "-p", rules, "-o", tmp_path / "pattern.parquet")
    for name in ("both", "pattern"):
        assert parquet.read_metadata(tmp_path / f"{name}.parquet").num_rows == 12


def test_from_standard_input_to_standard_output(tmp_path):
    _, rules = world(tmp_path)
    done = process("disguise", "-", "-p", rules, "-o", "-", input=PEOPLE.encode())
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert len(lines) == 7
    assert b"omitted, not in the policy: id, name." in done.stderr
    assert b"Ann" not in done.stdout + done.stderr


def test_a_memo_repeats_the_reports_and_warns_of_another_policy(tmp_path):
    data, rules = world(tmp_path)
    memo = ["--memo", tmp_path / "memo", "--id", "id"]
    for out, made in (("first.csv", ["--new-memo"]), ("second.csv", [])):
        assert "warning" not in ok("disguise", data, "-p", rules, "-o", tmp_path / out, *memo, *made).stderr
    assert (tmp_path / "first.csv").read_bytes() == (tmp_path / "second.csv").read_bytes()
    rules.write_text(POLICY.replace("0.25", "0.2"))
    told = ok("disguise", data, "-p", rules, "-o", tmp_path / "third.csv", *memo).stderr.splitlines()
    assert len(told) == 3
    assert "was used with another policy before (" in told[0]
    assert told[0].endswith("the γ of the releases multiply.")
    assert f"With the draws that were released before, a whole record has γ = {189 * 252:,} (ε = " in told[1]


def test_a_gamma_without_a_limit_is_accepted_once_per_memo_and_policy(tmp_path):
    no_limit = "".join(line for line in POLICY.splitlines(keepends=True) if not line.startswith("limit: "))
    data, rules = world(tmp_path, policy=no_limit)
    memo = ["--memo", tmp_path / "memo", "--id", "id"]
    first = ["disguise", data, "-p", rules, "-o", tmp_path / "first.csv", *memo, "--new-memo"]
    before = files(tmp_path)
    assert "or accept it with --accept-gamma 189." in refused(*first)
    assert "states no limit" in refused(*first, "--accept-gamma", "188")
    assert files(tmp_path) == before
    ok(*first, "--accept-gamma", "189")
    ok("disguise", data, "-p", rules, "-o", tmp_path / "second.csv", *memo)
    assert (tmp_path / "first.csv").read_bytes() == (tmp_path / "second.csv").read_bytes()
    rules.write_text(no_limit.replace("0.25", "0.2"))
    assert "states no limit" in refused("disguise", data, "-p", rules, "-o", tmp_path / "third.csv", *memo)


def test_a_mistyped_memo_is_refused_and_a_new_one_is_an_act_of_its_own(tmp_path):
    """The attack: everybody is drawn again under a memo that a wrong name made in silence."""
    data, rules = world(tmp_path)
    memo = ["--id", "id", "--memo", tmp_path / "people.memo"]
    ok("disguise", data, "-p", rules, "-o", tmp_path / "first.csv", *memo, "--new-memo")
    before = files(tmp_path)
    wrong = ["--id", "id", "--memo", tmp_path / "peple.memo"]
    said = refused("disguise", data, "-p", rules, "-o", tmp_path / "second.csv", *wrong)
    assert "peple.memo: there is no memo. Check the name" in said
    assert "(--new-memo) creates one. A second memo draws new reports for all people, and the γ of" in said
    twice = refused("disguise", data, "-p", rules, "-o", tmp_path / "second.csv", *memo, "--new-memo")
    assert "people.memo: exists already" in twice
    alone = refused("disguise", data, "-p", rules, "-o", tmp_path / "second.csv", "--new-memo")
    assert "--new-memo creates the file of --memo" in alone
    assert files(tmp_path) == before


def test_a_release_tells_its_memo_and_what_another_memo_multiplies_to(tmp_path):
    data, rules = world(tmp_path)

    def release(name, *options):
        return ok("disguise", data, "-p", rules, "-o", tmp_path / name, "--id", "id", *options)

    one = json.loads(release("one.csv", "--memo", tmp_path / "one", "--new-memo", "--json").stdout)
    assert json.loads((tmp_path / "one.csv.masquerade.json").read_text())["memo"] == one["memo"]
    assert (one["earlier"], one["epsilon_together"]) == ([], None)
    told = release("same.parquet", "--memo", tmp_path / "one").stderr
    assert f"; memo {one['memo']};" in told
    assert told.count("\n") == 1
    kept = parquet.read_schema(tmp_path / "same.parquet").metadata[b"masquerade.memo"]
    assert kept.decode() == one["memo"]
    second = release("two.csv", "--memo", tmp_path / "two", "--new-memo", "--json")
    two = json.loads(second.stdout)
    assert {draw["memo"] for draw in two["earlier"]} == {one["memo"]}
    assert two["epsilon_together"] == pytest.approx(2 * one["record"]["epsilon"])
    assert f"(memo {one['memo']}); they are assumed to be about the same people" in second.stderr
    assert f"γ = {189**2:,} (ε = " in second.stderr


def test_disguising_twice_is_refused(tmp_path):
    data, rules = world(tmp_path)
    ok("disguise", data, "-p", rules, "-o", tmp_path / "out.parquet")
    assert "already" in refused("disguise", tmp_path / "out.parquet", "-p", rules, "-o", tmp_path / "two.csv")
    assert not (tmp_path / "two.csv").exists()


def test_overwrite(tmp_path):
    data, rules = world(tmp_path)
    out = tmp_path / "out.csv"
    out.write_text("precious")
    assert "exists already" in refused("disguise", data, "-p", rules, "-o", out)
    assert out.read_text() == "precious"
    ok("disguise", data, "-p", rules, "-o", out, "--overwrite", "--shuffle")
    assert len(out.read_text().splitlines()) == 7


UNKNOWN = PEOPLE + f"7,Gus,{HIDDEN},n,0,true\n"
BAD = {
    "column missing in the data": (PEOPLE.replace("region", "regions"), POLICY, "no column 'region'"),
    "unknown category": (UNKNOWN, POLICY, "column 'smoker', row 7: the value is not one of"),
    "missing value": (
        PEOPLE + f"7,{HIDDEN},yes,,0,true\n",
        POLICY,
        "column 'region', row 7: the value is missing",
    ),
    "ragged row": (PEOPLE + f"7,{HIDDEN}\n", POLICY, "data row 7 has 2 fields"),
    "empty file": ("", POLICY, "the file is empty"),
    "probabilities": (
        PEOPLE,
        POLICY.replace(
            "{kind: symmetric, p: 0.3}", "{kind: matrix, rows: [[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0.5,0.4]]}"
        ),
        "Row 4 of the channel sums to 0.9, not to 1",
    ),
    "probability out of range": (PEOPLE, POLICY.replace("p: 0.3", "p: 1.3"), "variables.region.channel"),
    "not YAML": (PEOPLE, "masquerade: 1\nvariables: {smoker: [", "not valid YAML"),
    "not a policy": (PEOPLE, "hello", "not a policy"),
    "wrong version": (
        PEOPLE,
        POLICY.replace("masquerade: 1", "masquerade: 7"),
        "policy format 7 is not known",
    ),
    "undecided": (
        PEOPLE,
        POLICY.replace("{kind: symmetric, p: 0.3}", "{kind: decide}"),
        "still to be decided",
    ),
    "unknown kind": (
        PEOPLE,
        POLICY.replace("kind: symmetric", "kind: symetric"),
        "Did you mean 'symmetric'?",
    ),
}


@pytest.mark.parametrize(("people", "policy", "said"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_nothing_is_written(tmp_path, people, policy, said):
    data, rules = world(tmp_path, people=people, policy=policy)
    before = files(tmp_path)
    line = refused(
        "disguise",
        data,
        "-p",
        rules,
        "-o",
        tmp_path / "out.parquet",
        "--memo",
        tmp_path / "memo",
        "--new-memo",
        "--id",
        "id",
    )
    assert said in line
    assert HIDDEN not in line
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "nowhere/out.csv"], "there is no directory"),
        (["-o", "out.ods"], "the file name extension is unknown"),
        (["-o", "people.csv", "--overwrite"], "also the input"),
        (["-o", "."], "file name extension"),
        (["-o", "out.csv", "--keep", "smoker"], "'smoker' is a variable of the policy"),
        (["-o", "out.csv", "--keep", "nme"], "Did you mean 'name'?"),
        (["-o", "out.csv", "--memo", "memo"], "--memo FILE and --id COLUMN go together"),
        (["-o", "out.csv", "--memo", "policy.yaml", "--id", "id"], "others may open a memo"),
        (["-o", "-", "--json"], "choose one"),
    ],
)
def test_bad_options(tmp_path, monkeypatch, options, said):
    data, rules = world(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = files(tmp_path)
    assert said in refused("disguise", data.name, "-p", rules.name, *options)
    assert files(tmp_path) == before
    assert data.read_text() == PEOPLE


def test_files_that_are_not_there(tmp_path):
    data, rules = world(tmp_path)
    assert "no such file" in refused("disguise", tmp_path / "none.csv", "-p", rules, "-o", tmp_path / "o.csv")
    assert "No such file" in refused("disguise", data, "-p", tmp_path / "none.yaml", "-o", tmp_path / "o.csv")
    assert "no file matches" in refused(
        "disguise", tmp_path / "x*.csv", "-p", rules, "-o", tmp_path / "o.csv"
    )
    assert "directory" in refused("disguise", tmp_path, "-p", rules, "-o", tmp_path / "o.csv")


def test_a_truncated_parquet_file(tmp_path):
    data, rules = world(tmp_path)
    whole = tmp_path / "people.parquet"
    parquet.write_table(typed(data), whole)
    whole.write_bytes(whole.read_bytes()[:-20])
    before = files(tmp_path)
    assert "not a readable Parquet file" in refused(
        "disguise", whole, "-p", rules, "-o", tmp_path / "out.parquet"
    )
    assert files(tmp_path) == before


def test_an_unknown_value_in_a_later_batch_leaves_nothing(tmp_path):
    _, rules = world(tmp_path)
    rows = 300_000
    table = pa.table(
        {
            "smoker": ["no"] * rows + [HIDDEN],
            "region": ["n"] * (rows + 1),
            "visits": [0] * (rows + 1),
            "married": [True] * (rows + 1),
        }
    )
    parquet.write_table(table, tmp_path / "many.parquet")
    before = files(tmp_path)
    line = refused("disguise", tmp_path / "many.parquet", "-p", rules, "-o", tmp_path / "out.csv")
    assert "column 'smoker', row 300001" in line
    assert HIDDEN not in line
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, b"masquerade: interrupted.\n"), (signal.SIGTERM, 143, b"")],
)
def test_an_interrupt_leaves_nothing(tmp_path, number, code, said):
    _, rules = world(tmp_path)
    folder = tmp_path / "out"
    folder.mkdir()
    command = [
        sys.executable,
        "-c",
        "from masquerade.cli import main; main()",
        "disguise",
        "-",
        "-p",
        str(rules),
    ]
    running = subprocess.Popen(  # noqa: S603
        [*command, "-o", str(folder / "out.csv")], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdin is not None
    running.stdin.write((PEOPLE + "9,Ida,no,s,1,true\n" * 600_000).encode())  # more than one batch
    running.stdin.flush()
    waited = time.monotonic() + 600
    while not any(file.stat().st_size for file in folder.iterdir()) and time.monotonic() < waited:
        time.sleep(0.01)
    assert any(name.endswith(".part") for name in files(folder))  # it is in the middle of writing
    running.send_signal(number)
    _, errors = running.communicate(timeout=600)
    assert running.returncode == code
    assert errors == said
    assert files(folder) == set()


def test_an_empty_table_is_no_error(tmp_path):
    data, rules = world(tmp_path, people=PEOPLE.splitlines()[0] + "\n")
    assert "0 records disguised" in ok("disguise", data, "-p", rules, "-o", tmp_path / "out.csv").stderr
    assert (tmp_path / "out.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_a_channel_that_tells_nothing_draws_nothing(tmp_path):
    data, rules = world(tmp_path, policy=POLICY.replace("p: 0.25", "p: 0.5"))
    line = refused("disguise", data, "-p", rules, "-o", tmp_path / "out.csv")
    assert "smoker: every report is equally likely under every truth" in line
    assert not (tmp_path / "out.csv").exists()


def test_an_unwritable_folder(tmp_path, monkeypatch):
    data, rules = world(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert "no permission" in refused("disguise", data, "-p", rules, "-o", tmp_path / "out.csv")
    assert run("privacy", rules, "--plot", tmp_path / "p.png").exit_code == 2


def test_blocks_from_the_policy_to_a_table_and_what_does_not_follow(tmp_path):
    rules, data, out = tmp_path / "blocks.yaml", tmp_path / "clear.csv", tmp_path / "out.csv"
    rules.write_text(
        "masquerade: 1\nvariables:\n"
        + "".join(f"  q{i}: {{categories: ['yes', 'no']}}\n" for i in range(4))
        + "blocks:\n- {variables: [q0, q1, q2, q3], k: 2, cells: 0.7, epsilon: 2, order: 2}\n",
        encoding="utf-8",
    )
    rows = ["yes,no,yes,no", "no,no,yes,yes"] * 200
    data.write_text("q0,q1,q2,q3\n" + "\n".join(rows) + "\n", encoding="utf-8")
    assert "dealt in blocks of 2" in ok("policy", "check", rules).stdout
    told = " ".join(ok("privacy", rules).stdout.split())
    assert "dealt in 10 public blocks" in told
    assert "(70% of the records get 2 variables, the others the differences among 3)" in told
    assert "Fresh blocks in a later wave reveal as much again" in told
    assert "over a record γ = 7.389 (ε = 2.00)" in ok("disguise", data, "-p", rules, "-o", out).stderr
    assert out.read_text(encoding="utf-8").startswith("block,class\n")
    table = json.loads(ok("estimate", out, "-p", rules, "--by", "q0,q2", "--json").stdout)
    assert "400" in json.dumps(table)
    refusal = refused("estimate", out, "-p", rules, "--by", "q0,q1,q2")
    assert "nobody reported on these 3 variables together. Tables of up to 2 variables" in refusal
