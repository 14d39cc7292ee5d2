"""`masquerade privacy --ledger`: what all releases reveal about one person; ledgers, projects, folders."""

from __future__ import annotations

import json
from fractions import Fraction

import pandas as pd
import pytest
from tests.e2e.test_cli_app import ok, refused

import masquerade as mq
from masquerade.crypto.keys import SigningKey
from masquerade.services.common.release_ledger import CLEAR, FILE, Release, ReleaseLedger, in_state
from masquerade.services.common.state import State

POLICY = """
masquerade: 1
limit: {gamma: 12}
clear: accepted
variables:
  region: {categories: [n, s]}
  smoker: {categories: ['yes', 'no'], channel: {kind: binary, p: 1/4}}
"""


def reports(number, gamma, draw=None, recipient="miner", kind="disguised columns"):
    bound = None if gamma is None else Fraction(gamma)
    return Release(f"s{number}", "vertical", recipient, kind, ("a", "b"), 40, None, bound, None, draw)


@pytest.fixture
def waves(tmp_path):
    """A folder with one draw under a memo, released twice, and a second draw without one."""
    folder = tmp_path / "waves"
    folder.mkdir()
    frame = pd.DataFrame({"person": range(40), "region": ["n", "s"] * 20, "smoker": ["yes", "no"] * 20})
    frame.assign(weight=1.5).to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "policy.yaml").write_text(POLICY)
    disguise = ["disguise", tmp_path / "people.csv", "-p", tmp_path / "policy.yaml"]
    memo = ["--memo", tmp_path / "memo.json", "--id", "person"]
    ok(*disguise, "-o", folder / "1.csv", *memo, "--new-memo")
    ok(*disguise, "-o", folder / "2.parquet", *memo, "--keep", "weight")
    ok(*disguise, "-o", folder / "3.arrow")
    return folder


def test_a_folder_of_disguised_files_is_added_up(waves, tmp_path):
    """γ = 3 a draw: the memo's draw counts once, the other one multiplies; kept columns are in clear."""
    shown = ok("privacy", "--ledger", waves, "--plot", tmp_path / "ledger.png").stdout
    text = " ".join(shown.split())
    assert text.startswith("Someone who thought it 5% likely can think it at most 32.1% likely after seeing")
    assert "Over 6 releases, 2 draws: γ = 9 (ε = 2.20)." in text
    assert "In clear: region, weight." in text
    assert "The limit for one person is γ = 19" in text
    assert "γ = 2.111" in text  # left of 19
    assert (tmp_path / "ledger.png").read_bytes().startswith(b"\x89PNG")
    person = json.loads(ok("privacy", "--ledger", waves, "--json").stdout)["person"]
    assert (person["gamma"], person["draws"], person["clear"]) == (9, 2, ["region", "weight"])
    assert (person["is_within"], person["left"]) == (True, pytest.approx(19 / 9))
    text = " ".join(ok("privacy", tmp_path / "policy.yaml", "--ledger", waves).stdout.split())
    assert "The limit for one person is γ = 12" in text


def test_a_file_whose_policy_cannot_be_read_has_no_bound(waves):
    sidecar = waves / "1.csv.masquerade.json"
    sidecar.write_text(json.dumps({"policy": "ab" * 32}))
    text = " ".join(ok("privacy", "--ledger", waves).stdout.split())
    assert "Without a bound: its policy cannot be read." in text
    assert "This is beyond the limit for one person" in text


def test_a_folder_without_releases_is_refused(tmp_path):
    assert "no release ledger here, and no disguised file" in refused("privacy", "--ledger", tmp_path)
    assert "there is no release ledger here" in refused("privacy", "--ledger", tmp_path / FILE)


def test_a_state_folder_says_what_is_spent_left_and_seen_by_whom(tmp_path):
    """γ = 3 to the miner, the same draw to the registry, and another draw of γ = 2 to the registry."""
    key = SigningKey()
    lines = [reports(1, 3, "d1"), reports(2, 3, "d1", "registry"), reports(3, 2, "d2", "registry")]
    with State.open(tmp_path / "state") as state, in_state(state, key) as ledger:
        for line in lines:
            ledger.append(line)
    values = json.loads(ok("privacy", "--ledger", tmp_path / "state", "--json").stdout)
    assert values["person"]["gamma"] == 6
    assert {one["recipient"]: one["gamma"] for one in values["recipients"]} == {"miner": 3, "registry": 6}
    assert values["person"]["left"] == pytest.approx(19 / 6)
    rows = [line.split() for line in ok("privacy", "--ledger", tmp_path / "state").stdout.splitlines()]
    table = {row[0]: row[-5:] for row in rows if row[:1] in (["miner"], ["registry"], ["all"])}
    assert table["miner"] == ["1", "1", "3", "1.10", "6.333"]
    assert table["registry"] == ["2", "2", "6", "1.79", "3.167"]
    assert table["all"] == ["3", "2", "6", "1.79", "3.167"]


def test_a_project_of_the_studio_and_its_ledger_are_the_same(tmp_path):
    (tmp_path / "project" / "releases").mkdir(parents=True)
    with ReleaseLedger.open(tmp_path / "project" / "releases" / FILE) as ledger:
        ledger.append(reports(1, 19, kind="disguised records", recipient="anybody"))
        ledger.append(reports(2, None, kind=CLEAR, recipient="anybody"))
    by_folder = ok("privacy", "--ledger", tmp_path / "project").stdout
    assert by_folder == ok("privacy", "--ledger", tmp_path / "project" / "releases" / FILE).stdout
    assert "In clear: a, b." in by_folder
    assert "nothing is left." in " ".join(by_folder.split())


def test_noise_of_sums_adds_to_what_is_spent(tmp_path):
    noisy = Release(
        "s", "sum", "analyst", "noisy sum", ("a",), 40, None, Fraction(1), None, "n1", Fraction(1, 2), None
    )
    with ReleaseLedger.open(tmp_path / FILE) as ledger:
        ledger.append(reports(1, 3, "d1"))
        ledger.append(noisy)
    person = json.loads(ok("privacy", "--ledger", tmp_path / FILE, "--json").stdout)["person"]
    assert person["gamma"] == pytest.approx(3 * 2.718281828459045**0.5)
    assert person["is_within"]


def test_a_ledger_of_noise_counts_its_whole_promise(tmp_path):
    """ε = 1 for all tables together, of which one is spent: the rest may follow at any time."""
    frame = pd.DataFrame({"smoker": ["yes", "no"] * 20})
    with mq.NoiseLedger(tmp_path / "budget") as ledger:
        source = mq.Noisy(mq.tally(frame), epsilon=1, tables=3, delta=0, ledger=ledger)
        source.answer([mq.Query(by="smoker")])
    values = json.loads(ok("privacy", "--ledger", tmp_path / "budget", "--json").stdout)
    assert values["person"]["gamma"] == pytest.approx(2.718281828459045)
    assert values["person"]["is_within"]
    assert [one["recipient"] for one in values["recipients"]] == ["analyst"]
    assert "smoker" in ok("privacy", "--ledger", tmp_path / "budget").stdout
