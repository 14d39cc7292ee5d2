"""The commands of a survey, from an empty folder to a table of reports."""

from __future__ import annotations

import json

from tests.survey.world import free_port
from typer.testing import CliRunner

from masquerade.cli.app import app
from masquerade.survey.collector.store import SurveyStore


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
    told = run("status", settings)
    assert "no whole batch of 10 reports yet, 3 invitations; open" in told
    assert "No collector of this survey answers" in told
    assert "The survey is open" in run("export", settings, "--out", tmp_path / "none.csv", code=2)
    run("close", settings)
    found = json.loads(run("status", settings, "--json"))
    assert (found["reports"], found["invited"], found["begun"], found["estimates"]) == (0, 3, 0, [])
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


def test_a_survey_of_ones_own_is_tried_by_made_up_people(tmp_path):
    """Whoever is not asked answers all the same; what limits the real one does not limit the trial."""
    (tmp_path / "policy.yaml").write_text(
        "masquerade: 1\nvariables:\n"
        "  used: {categories: ['Yes', 'No', not stated], channel: {kind: for_gamma, gamma: 1000000}}\n"
        "  often: {categories: [daily, seldom]}\n"
    )
    own = tmp_path / "survey.yaml"
    own.write_text(
        "masquerade_survey: 1\ntitle: Staff\npolicy: policy.yaml\ncollector: https://survey.example.org\n"
        "closes: 2020-01-01\ncontact: us\nconsent: Two questions.\nquestions:\n"
        "- {variable: used, text: Ever}\n"
        "- {variable: often, text: How often, show_if: {used: ['Yes']}, not_asked: seldom,"
        " anwers: {daily: Daily}}\n"
    )
    assert "is not a known key. Did you mean 'answers'?" in run("demo", own, "--once", code=2)
    own.write_text(own.read_text().replace("anwers", "answers"))
    told = run("demo", own, "--once", "--n", 60, "--port", free_port())
    assert "Staff: 60 reports; closed on" in told
    shares = {
        line.split()[0]: float(line.split()[-4].rstrip("%")) for line in told.splitlines() if " to " in line
    }
    assert shares["Daily"] <= shares["Yes"] + 1  # only these are asked, and only some of them say daily


def test_the_demo_serves_and_is_answered():
    told = run("demo", "--once", "--n", 15, "--port", free_port())
    assert "▄" in told
    assert "Health at work: 15 reports; closed on" in told
