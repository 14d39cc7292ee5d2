"""The commands of a survey, from an empty folder to a table of reports."""

from __future__ import annotations

import json

from tests.survey.world import free_port
from typer.testing import CliRunner

from masquerade.cli.app import app
from masquerade.services.survey.store import SurveyStore


def run(*words, code=0):
    result = CliRunner().invoke(app, ["survey", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def test_a_survey_by_invitation(tmp_path):
    work, page = tmp_path / "work", tmp_path / "page"
    run("init", work, "--invited", "--collector", "https://survey.example.org")
    assert "exists already" in run("init", work, code=2)
    built = json.loads(run("build", work / "survey.yaml", "--out", page, "--json"))
    assert built["files"]["survey.html"] == (page / "survey.html").stat().st_size
    assert "--overwrite replaces it" in run("build", work / "survey.yaml", "--out", page, code=2)
    assert built["sha256"] in run("build", work / "survey.yaml", "--out", page, "--overwrite")
    settings = work / "collector.yaml"
    links = run("invite", settings, "--n", 3).split()
    assert len(set(links)) == 3
    assert all(link.startswith("https://survey.example.org/#") for link in links)
    kept = b"".join(path.read_bytes() for path in (work / "collected").iterdir())
    assert links[0].partition("#")[2].encode() not in kept
    assert "0 of 3 invitations used; open" in run("status", settings)
    found = json.loads(run("status", settings, "--json"))
    assert (found["reports"], found["invited"], found["estimates"]) == (0, 3, [])
    run("export", settings, "--out", tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text().strip() == "age,pills,told,nights,mode"
    assert "closed on" in run("close", settings, "--erase")
    with SurveyStore(work / "collected") as store:
        assert store.counts()["invited"] == 0
        assert store.closed


def test_an_open_survey_has_no_invitations_and_wrong_keys_are_refused(tmp_path):
    work = tmp_path / "work"
    run("init", work)
    assert "open to anybody" in run("invite", work / "collector.yaml", code=2)
    run("init", tmp_path / "other", "--invited")
    settings = work / "collector.yaml"
    settings.write_text(settings.read_text() + f"token_key: {tmp_path / 'other' / 'token.key'}\n")
    assert "do not belong together" in run("serve", settings, code=2)
    settings.write_text(settings.read_text().replace("listen: {port: 8765}", "listen: {host: 0.0.0.0}"))
    assert "without tls" in run("serve", settings, code=2)


def test_the_demo_serves_and_is_answered():
    told = run("demo", "--once", "--n", 15, "--port", free_port())
    assert "▄" in told
    assert "Health at work: 15 reports; open." in told
