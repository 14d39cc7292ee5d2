"""`masquerade reproduce`: lists, refusals, verdicts; and everything once, in a hurry."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest
from tests.e2e.test_cli_app import files, ok, refused, run
from tests.e2e.test_demo import Page
from tests.experiments.test_runner import COIN, FAILING, HUNGRY, LATER, ODD

from masquerade.core.errors import DataMissing
from masquerade_experiments import catalogue, runner

QUICK = 2 * 180  # core-seconds: what two cores have in three minutes, whoever else uses them
FILES = {"data.csv", "comparison.csv", "comparison.json", "figure.svg", "figure.png"}


@pytest.fixture
def toys(monkeypatch):
    """Let the catalogue hold toys."""
    monkeypatch.setattr(catalogue, "ENTRIES", (COIN, ODD, HUNGRY, FAILING, LATER))


def test_the_list_of_all_experiments():
    listed = ok("reproduce", "--list").stdout
    for entry in catalogue.ENTRIES:
        assert entry.id in listed
    assert listed.count("(pending)") == len(catalogue.PENDING)


@pytest.mark.usefixtures("toys")
def test_the_list_of_some_as_json():
    listed = json.loads(ok("reproduce", "toy-later", "toy-coin", "--list", "--json").stdout)
    assert [(item["id"], item["pending"]) for item in listed] == [("toy-coin", False), ("toy-later", True)]
    assert listed[0]["title"] == "Heads & tails"


@pytest.mark.usefixtures("toys")
def test_a_command_tells_verdicts_and_reasons(tmp_path):
    out = tmp_path / "new" / "out"
    told = ok(
        "reproduce", "toy-c*", "toy-o*", "toy-h*", "toy-l*", "--quick", "--jobs", 1, "--out", out
    ).stdout
    rows = {line.split()[0]: line.split() for line in told.splitlines() if line.strip().startswith("toy-")}
    assert rows["toy-coin"][1:7] == ["matches", "printed", "numbers", "1", "of", "1"]
    assert rows["toy-odd"][1:5] == ["differs", "0", "of", "1"]
    assert rows["toy-hungry"][1:3] == ["not", "run"]
    assert rows["toy-later"][1] == "pending"
    words = " ".join(told.split())
    assert "4 experiments: 1 matches printed numbers, 1 differs, 1 pending, 1 not run." in words
    assert "- toy-odd differs: The paper counts from three. Check: masquerade reproduce toy-odd" in words
    assert "- toy-hungry: The data set 'fodder' was not found." in words
    assert "- toy-later: It waits for better times." in words
    assert f"Report: {out / 'index.html'}" in words
    assert files(out) == {"work", "index.html", "toy-coin", "toy-odd"}
    assert files(out / "toy-coin") == FILES


@pytest.mark.usefixtures("toys")
def test_a_command_tells_json(tmp_path):
    told = json.loads(
        ok("reproduce", "toy-coin", "--runs", 3, "--jobs", 2, "--out", tmp_path, "--json").stdout
    )
    assert Path(told["report"]) == tmp_path / "index.html"
    (found,) = told["experiments"]
    assert (found["id"], found["verdict"], found["runs"], found["settings"]) == (
        "toy-coin",
        "matches printed numbers",
        3,
        5,
    )
    assert found["comparisons"][0]["paper"] == 0.5


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "No experiment is named"),
        (["toy-coim"], "Did you mean 'toy-coin'?"),
        (["toy-hungry"], "toy-hungry cannot run. The data set 'fodder' was not found."),
        (["toy-later"], "toy-later cannot run. It waits for better times."),
        (["toy-later", "toy-coin", "--jobs", 1], "toy-later cannot run."),
        (["toy-coin", "--runs", 0], "--runs"),
        (["toy-coin", "--jobs", 0], "--jobs"),
        (["toy-coin", "--data", "nowhere"], "--data nowhere: there is no such folder."),
        (["toy-coin", "--out", "a-file"], "a-file: cannot be written into: this is a file."),
        (["toy-coin", "--out", "a-file/below"], "a-file/below"),
        (["toy-coin", "--nonsense"], "--nonsense"),
    ],
)
def test_what_is_refused_writes_nothing(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("mine")
    assert said in refused("reproduce", *arguments)
    assert {name for name in files(tmp_path) if name != "reproduction"} == {"a-file"}
    assert not list(tmp_path.glob("reproduction/*.html"))


def test_data_that_are_missing_are_noticed_before_anything_is_written(tmp_path, monkeypatch):
    def nowhere(name):
        raise DataMissing(name, ["everywhere"], "Set MASQUERADE_DATA.")

    monkeypatch.setattr(runner, "fetch", nowhere)
    said = refused("reproduce", "zhan-2004-fig-1", "ma-2006-fig-3.1", "--out", tmp_path / "out")
    assert "zhan-2004-fig-1 cannot run. The data set 'adult' was not found." in said
    assert "zhan-2004-fig-1 cannot run" in refused("reproduce", "zhan-2004", "--out", tmp_path / "out")
    assert files(tmp_path) == set()


@pytest.mark.usefixtures("toys")
def test_a_run_that_fails_is_one_line(tmp_path):
    line = refused("reproduce", "toy-failing", "--out", tmp_path, "--jobs", 2)
    assert "toy-failing: the run at q=2 with seed " in line
    assert "ZeroDivisionError at failing.py:" in line


@pytest.mark.usefixtures("toys")
def test_the_data_folder_reaches_the_runs(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "masquerade_experiments.runner.measure_all",
        lambda *_: seen.append(os.environ["MASQUERADE_DATA"]),
    )
    monkeypatch.setenv("MASQUERADE_DATA", "elsewhere")
    run("reproduce", "toy-coin", "--data", tmp_path, "--out", tmp_path / "out")
    assert seen == [str(tmp_path.resolve())]
    assert os.environ["MASQUERADE_DATA"] == "elsewhere"


def core_seconds() -> float:
    """Return the processor time of this process and of those that it has seen end."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in used)


@pytest.mark.slow
def test_quick_reproduction_of_everything(tmp_path):
    before = core_seconds()
    told = json.loads(ok("reproduce", "all", "--quick", "--jobs", 2, "--out", tmp_path, "--json").stdout)
    assert core_seconds() - before < QUICK
    found = {item["id"]: item for item in told["experiments"]}
    assert list(found) == [entry.id for entry in catalogue.ENTRIES]
    page = Page((tmp_path / "index.html").read_text(encoding="utf-8"))
    for identity, item in found.items():
        assert identity in page.ids
        if item["verdict"] in {"pending", "not run"}:
            assert item["reason"]
            assert (item["verdict"] == "pending") == (identity in {entry.id for entry in catalogue.PENDING})
            assert item["verdict"] == "pending" or "was not found" in item["reason"]
            continue
        judged = {"matches", "agrees with theory", "undecided", "differs"}
        assert item["verdict"] in judged, identity  # every experiment can fail
        assert files(tmp_path / identity) == FILES
        for comparison in item["comparisons"]:
            if comparison["verdict"] == "differs":
                assert comparison["why"], (identity, comparison)
                assert comparison["check"].startswith("masquerade "), (identity, comparison)
            assert comparison["what"] in page.text
