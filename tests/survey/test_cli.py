"""The commands of a survey, from an empty folder to a table of reports."""

from __future__ import annotations

import json

from tests.survey.world import change, free_port, report
from typer.testing import CliRunner

from masquerade.channels.policy import Policy
from masquerade.cli.app import app
from masquerade.plan.person_budget import spend_limit
from masquerade.survey import Survey
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
    assert "no full batch of 10 reports yet, 3 invitations; open" in told
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
        assert store.closed_on


def test_an_open_survey_has_no_invitations_and_wrong_keys_are_refused(tmp_path):
    work = tmp_path / "work"
    run("init", work)
    assert "open to the public" in run("invite", work / "collector.yaml", code=2)
    run("init", tmp_path / "other", "--invited")
    settings = work / "collector.yaml"
    settings.write_text(settings.read_text() + f"token_key: {tmp_path / 'other' / 'token.key'}\n")
    assert "do not match" in run("serve", settings, code=2)
    settings.write_text(settings.read_text().replace("listen: {port: 8765}", "listen: {host: 0.0.0.0}"))
    assert "without tls" in run("serve", settings, code=2)


def test_a_survey_of_ones_own_is_tried_by_synthetic_people(tmp_path):
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
        " reveals: [used], anwers: {daily: Daily}}\n"
    )
    assert "is not a known key. Did you mean 'answers'?" in run("demo", own, "--once", code=2)
    own.write_text(own.read_text().replace("anwers", "answers"))
    told = run("demo", own, "--once", "--n", 60, "--port", free_port())
    assert "Staff: 60 reports; closed on" in told
    shares = {
        line.split()[0]: float(line.split()[-4].rstrip("%")) for line in told.splitlines() if "% to " in line
    }
    assert shares["Daily"] <= shares["Yes"] + 1  # only these are asked, and only some of them say daily


def test_the_demo_serves_and_is_answered():
    told = run("demo", "--once", "--n", 15, "--port", free_port())
    assert "▄" in told
    assert "Health at work: 15 reports; closed on" in told


def test_the_example_spends_its_limit_as_the_planner_would(tmp_path):
    said = " ".join(run("init", tmp_path / "work").split())
    assert "Someone who thought it 5% likely can think it at most 50% likely after seeing everything." in said
    assert "sent in clear: age" in said
    text = (tmp_path / "work" / "policy.yaml").read_text()
    policy = Policy.load(tmp_path / "work" / "policy.yaml")
    assert (policy.limit.gamma, policy.record_gamma) == (19, 19)
    spending = spend_limit(policy, n=1500, clear=["age"], together=[("pills", "told")])
    assert all(f"# {line}".rstrip() in text.splitlines() for line in spending.lines())
    assert [entry["variables"] for entry in spending.parts["joint"]] == [["pills", "told", "nights"]]


def test_a_survey_above_the_usual_limit_is_built_and_served_only_if_accepted(tmp_path):
    run("init", tmp_path / "work")
    policy = tmp_path / "work" / "policy.yaml"
    text = policy.read_text().replace("gamma: 19", "gamma: 400")
    policy.write_text(text)
    build = ("build", tmp_path / "work" / "survey.yaml", "--out", tmp_path / "page")
    assert "above the policy's limit" in run(*build, code=2)
    policy.write_text(text.replace("limit: {breach: 5%:50%}\n", ""))
    assert "--accept-gamma 400" in run(*build, code=2)
    assert "--accept-gamma 400" in run("serve", tmp_path / "work" / "collector.yaml", code=2)
    assert not (tmp_path / "page").exists()
    run(*build, "--accept-gamma", 400)
    assert "protects you less than the standard setting" in (tmp_path / "page" / "letter.html").read_text()


def test_build_and_serve_print_the_bound_first_and_then_warn(tmp_path):
    run("init", tmp_path / "work", "--invited", "--collector", "https://survey.example.org")
    told = run("build", tmp_path / "work" / "survey.yaml", "--out", tmp_path / "page")
    lines = [line for line in told.splitlines() if line.startswith("masquerade:")]
    assert lines[0].startswith("masquerade: Someone who thought it 5% likely can think it at most 50%")
    assert "contact: still has the text to be replaced" in told
    assert "the link is open" not in told
    change(tmp_path / "work" / "survey.yaml", title="Health at work")
    found = json.loads(
        run("build", tmp_path / "work" / "survey.yaml", "--out", tmp_path / "page", "--overwrite", "--json")
    )
    assert "title: has one text for all languages (en, de)." in found["warnings"]
    told = run("dossier", tmp_path / "work" / "survey.yaml", "--out", tmp_path / "d.html")
    assert "title: has one text for all languages" in told
    assert "--language must be one of" in run(
        "dossier", tmp_path / "work" / "survey.yaml", "--out", tmp_path / "e.html", "--language", "fr", code=2
    )


def test_fifteen_hundred_synthetic_people_try_a_survey():
    told = run("try", "--once", "--people", 1500, "--port", free_port())
    assert "Health at work: 1,500 reports; closed on" in told


def test_an_amended_survey_that_anyone_may_answer_again_is_served_only_if_both_draws_are_accepted(tmp_path):
    """γ = 19 and 18: people who answered the first version and answer the second reveal 342."""
    work = tmp_path / "work"
    run("init", work)
    survey = Survey.load(work / "survey.yaml")
    with SurveyStore(work / "collected") as store:
        store.register(survey.policy)
        codes = [0] * len(survey.policy.observed)
        store.add(report(codes, policy=survey.policy.id))
    policy = work / "policy.yaml"
    policy.write_text(policy.read_text().replace("gamma: 19", "gamma: 18"))
    refused = " ".join(run("serve", work / "collector.yaml", code=2).split())
    assert "people who answered 1 earlier version may answer this one too" in refused
    assert "at most 94.7% likely" in refused
    assert "γ = 342" in refused
    assert "an invitation admits one report, or accept it with --accept-gamma 342" in refused
    assert "--accept-gamma 342" in run("serve", work / "collector.yaml", "--accept-gamma", 19, code=2)
    with SurveyStore(work / "collected") as store:
        assert list(store.versions()) == [survey.policy.id]  # nothing is accepted under the amended policy
