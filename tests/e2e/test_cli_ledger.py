"""`masquerade party ledger` from end to end: what left, and whether the record of it is intact."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction

import pytest
from tests.e2e import test_cli_app

from masquerade.crypto.keys import SigningKey
from masquerade.services.common.release_ledger import FILE, Release, in_state
from masquerade.services.common.state import State

KEY = SigningKey()
COLUMNS = Release(
    session="flu-2026",
    protocol="vertical",
    recipient="miner",
    kind="disguised columns",
    variables=("smoker", "region"),
    rows=12_000,
    policy="ab" * 32,
    gamma=Fraction(19, 2),
    digest="cd" * 32,
    draw="d1",
)
COUNTS = Release("flu-2026", "products", "registry", "counts", ("smoker",), 12_000, None, None)


def ok(*arguments):
    """Show a ledger that must be shown."""
    return test_cli_app.ok("party", "ledger", *arguments).stdout


def refused(*arguments):
    """Show a ledger that must be refused in one line."""
    return test_cli_app.refused("party", "ledger", *arguments)


@pytest.fixture
def folder(tmp_path):
    """The state of a party from which three things left."""
    with State.open(tmp_path / "state") as state, in_state(state, KEY) as ledger:
        for release in (COLUMNS, COLUMNS, COUNTS):
            ledger.append(release)
    return tmp_path / "state"


def test_what_left_is_shown(folder):
    shown = ok(folder)
    table, _, rest = shown.partition("One person: ")
    rows = [line.split() for line in table.splitlines() if line.strip()[:1].isdigit()]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    first = next(line for line in table.splitlines() if line.strip().startswith("1"))
    for word in ("miner", "flu-2026", "disguised columns", "smoker, region", "12,000", "ab" * 6, "9.5"):
        assert word in first
    assert "no bound" in table.splitlines()[-2]
    assert "γ = 9.5 (ε = 2.25), 2 releases, 1 of them repeated." in rest
    assert "registry: a belief about a person can have shifted by any factor (no bound on γ) in all." in rest


def test_a_file_is_shown_like_its_folder(folder):
    assert ok(folder / FILE) == ok(folder)


def test_figures_for_programs(folder):
    figures = json.loads(ok(folder, "--json"))
    assert [item["gamma"] for item in figures["releases"]] == ["19/2", "19/2", None]
    assert figures["spent"] == [
        {
            "recipient": "miner",
            "variables": ["region", "smoker"],
            "gamma": "19/2",
            "releases": 2,
            "repeats": 1,
        },
        {"recipient": "registry", "variables": ["smoker"], "gamma": None, "releases": 1, "repeats": 0},
    ]
    checked = json.loads(ok(folder, "verify", "--json"))
    assert checked["intact"] is True
    assert checked["releases"] == 3
    assert checked["end_known"] is True
    assert checked["last"] == figures["releases"][-1]["hash"]


def test_an_intact_ledger_is_verified_also_while_the_service_runs(folder):
    assert ok(folder, "verify").startswith(f"{folder}: intact, 3 releases. The last: ")
    assert ok("verify", folder) == ok(folder, "verify")
    with State.open(folder) as state, in_state(state, KEY) as ledger:
        ledger.append(COUNTS)
        assert "intact, 4 releases" in ok(folder, "verify")


def test_a_copy_of_a_state_is_not_called_intact(folder, tmp_path):
    """The lines of an earlier ledger follow one another: that says nothing about what left since."""
    backup = tmp_path / "backup"
    shutil.copytree(folder, backup)
    with State.open(folder) as state, in_state(state, KEY) as ledger:
        ledger.append(COUNTS)
    shutil.copytree(backup, folder, dirs_exist_ok=True)
    for place in (backup, folder):
        found = test_cli_app.run("party", "ledger", place, "verify")
        assert found.exit_code == 1
        assert found.stdout.startswith(f"{place}: its lines follow one another, 3 releases. The last: ")
        assert "But the state is not the latest: the files of the anchor were" in found.stdout
        figures = test_cli_app.run("party", "ledger", place, "verify", "--json")
        assert figures.exit_code == 1
        assert json.loads(figures.stdout)["intact"] is False


def test_a_ledger_without_receipts_says_what_would_not_be_noticed(folder):
    said = ok(folder, "verify")
    assert "No peer holds a receipt of its release ledger: a restored snapshot of the whole disk" in said
    assert json.loads(ok(folder, "verify", "--json"))["receipts"] == []


def test_a_copy_alone_cannot_show_a_missing_end_and_says_so(folder, tmp_path):
    shutil.copy(folder / FILE, tmp_path / "copy.jsonl")
    assert "cannot be seen without the service's state folder" in ok(tmp_path / "copy.jsonl", "verify")


@pytest.mark.parametrize("arguments", [(), ("verify",), ("--json",), ("verify", "--json")])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [lines[0].replace(b"12000", b"1"), *lines[1:]], "line 1: was edited"),
        (lambda lines: [lines[0], lines[2]], "line 2: holds release 3"),
        (lambda lines: [lines[1], lines[0], lines[2]], "line 1: holds release 2"),
        (lambda lines: lines[:2], "line 3 is missing: the ledger was shortened, since 3 releases"),
        (lambda _: [], "line 1 is missing"),
    ],
)
def test_a_changed_ledger_is_never_shown(folder, change, said, arguments):
    lines = (folder / FILE).read_bytes().splitlines(keepends=True)
    (folder / FILE).write_bytes(b"".join(change(lines)))
    assert said in refused(folder, *arguments)


def test_places_without_a_ledger_and_other_mistakes(folder, tmp_path):
    assert "there is no release ledger here" in refused(tmp_path)
    assert "there is no release ledger here" in refused(tmp_path / "missing")
    assert "verify" in refused(folder, "check")
    (folder / FILE).unlink()
    assert "is missing, with 3 releases" in refused(folder)


def test_an_empty_ledger(tmp_path):
    with State.open(tmp_path / "state") as state:
        in_state(state, KEY).close()
    assert ok(tmp_path / "state") == "Nothing was released.\n"
    assert "intact, 0 releases.\n" in ok(tmp_path / "state", "verify")
