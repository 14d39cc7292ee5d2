"""`masquerade output`: check results, decide, and the record of both."""

import json

import pytest
from typer.testing import CliRunner

from masquerade.cli.app import app
from masquerade.services.common.release_ledger import inspect


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def towns(a, b):
    cells = [{"labels": {"town": "a"}, "count": a}, {"labels": {"town": "b"}, "count": b}]
    return {"by": ["town"], "where": {}, "n": a + b, "cells": cells}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "good.json").write_text(json.dumps(towns(50, 50)))
    (tmp_path / "bad.json").write_text(
        json.dumps([towns(9, 91), {"type": "model", "n": 30, "parameters": 20}])
    )
    (tmp_path / "acro.yaml").write_text("rules: {profile: acro, least_dof: 11, dominance: {k: 0.85}}\n")
    return tmp_path


def test_check_and_decide(folder):
    record = folder / "outputs"
    run("output", "check", folder / "good.json", "--rules", folder / "acro.yaml", "--record", record)
    failed = run(
        "output", "check", folder / "bad.json", "--rules", "acro", "--record", record, "--json", code=1
    )
    entries = json.loads(failed.stdout)
    assert [(it["id"], it["status"]) for it in entries] == [(2, "fail"), (3, "pass")]
    assert entries[0]["cells"] == [["threshold"], []]
    rules = json.loads((record / "0001.json").read_text())["rules"]
    assert (rules["least_dof"], rules["dominance"]) == (11, {"n": 2, "k": 0.85, "p": 0.1})
    assert record.stat().st_mode & 0o777 == 0o700
    assert (record / "0001.json").stat().st_mode & 0o777 == 0o600
    run("output", "decide", record, 1, "--accept", "--by", "officer-1")
    run("output", "decide", record, 2, "--accept", "--by", "officer-1", code=2)  # without a reason
    run("output", "decide", record, 2, "--reject", "--by", "officer-1", "--reason", "nine people")
    run("output", "decide", record, 2, "--accept", "--by", "officer-2", "--reason", "again", code=2)
    lines, _ = inspect(record / "releases.jsonl")
    assert [(it.release.kind, it.release.protocol, it.release.recipient) for it in lines] == [
        ("output", "output accepted", "officer-1"),
        ("output", "output rejected", "officer-1"),
    ]
    assert lines[0].release.digest == json.loads((record / "0001.json").read_text())["sha256"]
    assert (lines[0].release.gamma, lines[1].release.gamma) == (None, 1)


def test_an_edited_record_and_wrong_input_are_refused(folder):
    record = folder / "outputs"
    run("output", "check", folder / "good.json", "--rules", "cms11", "--record", record)
    text = (record / "0001.json").read_text()
    (record / "0001.json").write_text(text.replace('"count": 50', '"count": 51', 1))
    assert "was edited" in run("output", "decide", record, 1, "--accept", "--by", "me", code=2).stderr
    (folder / "wrong.json").write_text("[1]")
    run("output", "check", folder / "wrong.json", "--rules", "acro", "--record", folder / "more", code=2)
    run("output", "check", folder / "good.json", "--rules", "accro", "--record", folder / "more", code=2)
    run("output", "decide", record, 9, "--accept", "--by", "me", code=2)
    run("output", "decide", record, 1, "--accept", "--reject", "--by", "me", code=2)
    (folder / "open").mkdir()
    (folder / "open").chmod(0o750)
    run("output", "check", folder / "good.json", "--rules", "acro", "--record", folder / "open", code=2)
