"""Commands and sessions call nothing that they do not need: limits on calls that scripts/walks counts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
ROOT = Path(__file__).parents[2]
SECONDS = 1800  # of scripts/walks, which starts five services; a machine ten times slower gets there too


@pytest.fixture(scope="module")
def calls():
    """Return the counts by journey; the programs of a session are started once for all tests here."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, ROOT / "scripts" / "walks", "--json"],
        capture_output=True,
        timeout=SECONDS,
        check=True,
    )
    return json.loads(done.stdout)


def test_disguise_computes_the_gamma_that_it_prints(calls):
    counts = calls["disguise"]
    assert counts["γ of a channel"] == 2  # of two variables, whose product is printed
    assert "other privacy figures" not in counts
    assert counts["policy file read"] == 1
    assert counts["hashing loaded"] == []  # without a memo nothing is hashed


def test_session_run_waits_by_long_polls(calls):
    assert 1 <= calls["session run"]["requests of the operator: status"] <= 20


def test_a_party_reads_its_files_once(calls):
    counts = calls["party of a session"]
    # once at the start of the service, which checks them, and once in the session
    assert 1 <= counts["memo read"] <= 2
    # and once more at the start, where the γ of what the consents let leave is held against the limit
    assert 1 <= counts["policy file read"] <= 3
    assert counts["policy built"] == counts["policy file read"] + 2  # of the two other parties
    assert counts["session text digested"] == 1
