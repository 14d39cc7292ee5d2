"""`masquerade noise`, and `--noise` of commands that count."""

import json
import shutil

import pytest
from typer.testing import CliRunner

import masquerade as mq
from masquerade.cli.app import app
from masquerade.services.common.noise_ledger import AGREEMENT


def run(*words, ok=True):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert (result.exit_code == 0) is ok, result.output
    return result


@pytest.fixture
def files(tmp_path):
    students = mq.data.students()
    students.to_csv(tmp_path / "people.csv", index=False)
    mq.Policy.clear(mq.tally(students).schema).save(tmp_path / "schema.yaml")
    run("noise", "init", tmp_path / "budget", "--epsilon", 1, "--tables", 3)
    return tmp_path


def counted(files, by, *more, ok=True):
    records = (files / "people.csv", "--policy", files / "schema.yaml", "--clear")
    return run("estimate", *records, "--by", by, "--noise", files / "budget", *more, ok=ok)


def test_noise_is_spent_shown_and_refused(files):
    first = json.loads(counted(files, "exams,pills", "--json").stdout)
    assert first == json.loads(counted(files, "exams,pills", "--json").stdout)
    shown = json.loads(run("noise", "show", files / "budget", "--json").stdout)
    assert (shown["spent"], shown["asked"], shown["restored"]) == (1, ["exams × pills"], None)
    counted(files, "exams,sleep")
    counted(files, "pills,sleep")
    refused = counted(files, "year,sleep", ok=False)
    assert "budget_spent" in str(refused.exception) or "are left" in str(refused.exception) + refused.output
    assert "3 spent, 0 left" in run("noise", "show", files / "budget").stdout


def test_learners_run_within_a_budget(files):
    records = (files / "people.csv", "--policy", files / "schema.yaml", "--clear")
    model = files / "model.json"
    run("learn", "naive-bayes", *records, "--target", "pills", "--noise", files / "budget", "--out", model)
    assert "3 spent, 0 left" in run("noise", "show", files / "budget").stdout
    assert mq.learn.load(model).summary()


def test_noise_needs_clear_records_and_a_ledger(files):
    records = (files / "people.csv", "--policy", files / "schema.yaml")
    refused = run("estimate", *records, "--by", "pills", "--noise", files / "budget", ok=False)
    assert "also give --clear" in str(refused.exception) + refused.output
    missing = run("estimate", *records, "--clear", "--by", "pills", "--noise", files / "none", ok=False)
    assert "no such ledger" in str(missing.exception) + missing.output
    assert not (files / "none").exists()


def test_a_copied_ledger_is_noticed(files):
    counted(files, "exams,pills")
    shutil.move(files / "budget", files / "before")
    shutil.copytree(files / "before", files / "budget")
    counted(files, "exams,pills")  # what it contains stays
    refused = counted(files, "year,sleep", ok=False)
    assert "restored from a copy" in str(refused.exception) + refused.output
    assert AGREEMENT in run("noise", "restored", files / "budget").stdout
    assert run("noise", "restored", files / "budget", "--agree", AGREEMENT).stdout == "Agreed.\n"
    counted(files, "year,sleep")


def test_plan_prints_errors_before_anything_is_spent(files):
    text = run("noise", "plan", files / "schema.yaml", "--records", 600, "--epsilon", 1).stdout
    assert "6 tables at ε = 1" in text
    assert "exams × year" in text
    options = ("--contributors", 3, "--colluders", 1, "--by", "exams,pills", "--json")
    shown = json.loads(
        run("noise", "plan", files / "schema.yaml", "--records", 600, "--epsilon", 1, *options).stdout
    )
    assert (shown["tables"], shown["terms"]["contributors"]) == (1, 3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--epsilon", 1], "--tables 45"),
        (["--epsilon", 1, "--stage", "x"], "as 45:0.6"),
        (["--epsilon", 1, "--tables", 3, "--delta", 1e-12], "'delta' of noise"),
        (["--epsilon", 0, "--tables", 3], "'epsilon' of noise"),
    ],
)
def test_promises_that_cannot_be_kept_leave_no_ledger(tmp_path, options, text):
    refused = run("noise", "init", tmp_path / "budget", *options, ok=False)
    assert text in str(refused.exception) + refused.output
    assert not (tmp_path / "budget").exists()


def test_stages_are_promised_too(tmp_path):
    run("noise", "init", tmp_path / "budget", "--epsilon", 1, "--stage", "6:0.6", "--stage", "4:0.4")
    shown = json.loads(run("noise", "show", tmp_path / "budget", "--json").stdout)
    assert shown["tables"] == [[6, 0.6], [4, 0.4]]
    assert len(shown["deviations"]) == 2
