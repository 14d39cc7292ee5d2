"""Nodes of the first version, and their sessions: what is done stays done, what was interrupted goes on."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import yaml
from tests.compatibility.deployments import deployed, serving
from tests.compatibility.first_version import copied, expected
from tests.e2e.test_cli_app import ok, run
from tests.services.parties.deployments import Deployment, started

SAID = expected("sessions")
PARTIES = ("north", "south", "registry")
FACTS = ("session", "protocol", "parties", "state", "records")


def facts(statuses):
    return [{name: status[name] for name in FACTS} for status in statuses["sessions"]]


def model_at(folder, node, session):
    return json.loads((folder / node / "state" / "models" / f"{session}.json").read_text())


def assert_as_then(model, then):
    """Check a network of the first version's records: its errors divided by n where ours do by n − 1."""
    assert len(model["nodes"]) == len(then["nodes"])
    for now, before in zip(model["nodes"], then["nodes"], strict=True):
        assert now.keys() == before.keys()
        for name in now.keys() - {"stderr", "probabilities", "evidence"}:
            assert now[name] == before[name]
        np.testing.assert_allclose(now["probabilities"], before["probabilities"], rtol=1e-12)
        assert_near(now["stderr"], before["stderr"])
        # the first version kept no spread
        assert now["evidence"].keys() - {"spread"} == before["evidence"].keys()
        for name, figures in before["evidence"].items():
            assert_near(now["evidence"][name], figures)


def assert_near(now, before):
    found, then = (np.array(figures, dtype=float) for figures in (now, before))  # "inf" is a text
    np.testing.assert_allclose(found, then, rtol=0.02, atol=1e-9)


@pytest.mark.parametrize("part", ["vertical", "pool", "tokens"])
def test_settings_files_are_valid_once_consents_name_what_they_are_to(part, tmp_path):
    """A consent of the first version may name a session alone: it is refused, and a command completes it."""
    folder = copied(f"sessions/{part}", tmp_path)
    settings = [*folder.rglob("party.yaml"), *folder.rglob("miner.yaml")]
    assert settings
    for file in settings:
        if "consents" in yaml.safe_load(file.read_text()):
            told = run("config", "check", file, "--kind", file.stem)
            assert told.exit_code == 2
            assert "needs spec, the digest of what is learnt, from what and by whom" in told.stderr
    completed(folder)
    for file in settings:
        ok("config", "check", file, "--kind", file.stem)


def completed(folder):
    """Let consents of the first version name the digest of their session, as the command prints it."""
    sessions = {yaml.safe_load(file.read_text()).get("session"): file for file in folder.glob("*.yaml")}
    for file in folder.rglob("party.yaml"):
        values = yaml.safe_load(file.read_text())
        for consent in values.get("consents", []):
            session = sessions[consent["session"]]
            printed = json.loads(ok("session", "consent", session, "--node", file, "--json").stdout)
            assert printed.keys() - consent.keys() == {"spec"}
            consent["spec"] = printed["spec"]
        file.write_text(yaml.safe_dump(values))
    return folder


@pytest.mark.parametrize("part", ["vertical", "pool"])
@pytest.mark.parametrize("party", PARTIES)
def test_a_ledger_is_intact_and_lists_what_left(part, party, tmp_path):
    state = copied(f"sessions/{part}", tmp_path) / party / "state"
    said = SAID[part]["ledgers"][party]
    found = json.loads(ok("party", "ledger", state, "--json").stdout)
    assert [release["hash"] for release in found["releases"]] == [
        release["hash"] for release in said["releases"]
    ]
    assert "intact" in ok("party", "ledger", state, "verify").stdout
    ledger = state / "releases.jsonl"
    ledger.write_text(ledger.read_text().replace('"rows":', '"rows": 1', 1))
    assert run("party", "ledger", state, "verify").exit_code != 0


def test_a_finished_session_stays_finished_and_an_interrupted_one_goes_on(tmp_path):
    folder = completed(deployed("sessions/vertical", tmp_path))
    node = folder / "university" / "miner.yaml"
    with started(Deployment(folder)):
        before = json.loads(ok("session", "status", "--node", node, "--json").stdout)
        assert facts(before) == facts(SAID["vertical"]["status"])
        ok("session", "run", "example", "--node", node, "--out", tmp_path / "example.json")
        assert json.loads((tmp_path / "example.json").read_text()) == SAID["vertical"]["example"]
        ok("session", "run", "second", "--node", node, "--out", tmp_path / "second.json")
    # people are disguised as they were: the memo decides
    second = json.loads((tmp_path / "second.json").read_text())
    assert_as_then(second, SAID["vertical"]["second"])
    for party in PARTIES:
        assert model_at(folder, party, "second") == second
        found = json.loads(ok("party", "ledger", folder / party / "state", "--json").stdout)
        number = len(SAID["vertical"]["ledgers"][party]["releases"])
        assert len(found["releases"]) > number or party == "north"
        hashes = [release["hash"] for release in SAID["vertical"]["ledgers"][party]["releases"]]
        assert [release["hash"] for release in found["releases"]][:number] == hashes


def test_a_restored_copy_begins_anew_and_keeps_what_is_done(tmp_path):
    folder = deployed("sessions/vertical", tmp_path, moved=True)
    node = folder / "university" / "miner.yaml"
    with serving(folder, "miner serve university/miner.yaml"):
        found = json.loads(ok("session", "status", "--node", node, "--json").stdout)
        assert [status["state"] for status in found["sessions"]] == ["done", "interrupted"]
        ok("session", "run", "example", "--node", node, "--out", tmp_path / "example.json")
    assert json.loads((tmp_path / "example.json").read_text()) == SAID["vertical"]["example"]


def test_exact_results_are_about_the_same_people_as_before(tmp_path):
    folder = completed(deployed("sessions/pool", tmp_path))
    node = folder / "university" / "miner.yaml"
    with started(Deployment(folder)) as nodes:
        status = json.loads(ok("session", "status", "--node", node, "--json").stdout)
        assert facts(status) == facts(SAID["pool"]["status"])
        ok("session", "create", folder / "again.yaml", "--node", node)
        ok("session", "run", "again", "--node", node, "--out", tmp_path / "again.json")
        assert_as_then(json.loads((tmp_path / "again.json").read_text()), SAID["pool"]["example"])
        nodes.stop()
        file = folder / "north" / "records.parquet"
        pd.read_parquet(file).iloc[1:].to_parquet(file, index=False)
        nodes.start()
        ok("session", "create", folder / "later.yaml", "--node", node)
        assert run("session", "run", "later", "--node", node).exit_code == 1
        later = json.loads(ok("session", "status", "later", "--node", node, "--json").stdout)
    assert later["state"] == "interrupted"
    assert "The people are not the same as in session" in later["reason"]


@pytest.mark.parametrize("part", ["vertical", "pool"])
def test_session_files_are_read(part, tmp_path):
    folder = copied(f"sessions/{part}", tmp_path)
    for file in folder.glob("*.yaml"):
        assert yaml.safe_load(file.read_text())["masquerade"] == 1
        ok("config", "check", file, "--kind", "session")
