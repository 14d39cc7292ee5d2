"""`masquerade stats` from end to end: what the commands print is what the library gives."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from tests.e2e.test_cli_app import ok, refused

import masquerade as mq

POLICY = """\
masquerade: 1
variables:
  group: {categories: [control, treated]}
  sex: {categories: [f, m]}
  dose: {categories: [0, 1, 2]}
  drug: {categories: ["yes", "no"], channel: {kind: binary, p: 0.2}}
  later: {categories: ["yes", "no"], channel: {kind: binary, p: 0.2}}
"""
COMMANDS = {
    "shares": (["--of", "drug", "--by", "group"], lambda s: mq.stats.shares(s, "drug", by="group")),
    "difference": (["--outcome", "drug", "--group", "sex"], lambda s: mq.stats.difference(s, "drug", "sex")),
    "ratio": (["--outcome", "drug", "--group", "sex"], lambda s: mq.stats.ratio(s, "drug", "sex")),
    "odds-ratio": (
        ["--outcome", "drug", "--group", "sex", "--category", "no", "--reference", "m", "--given", "group"],
        lambda s: mq.stats.odds_ratio(s, "drug", "sex", category="no", reference="m", given="group"),
    ),
    "mantel-haenszel": (
        ["--outcome", "drug", "--group", "sex", "--given", "group"],
        lambda s: mq.stats.mantel_haenszel(s, "drug", "sex", "group"),
    ),
    "independence": (["--of", "drug,sex"], lambda s: mq.stats.independence(s, "drug", "sex")),
    "associations": (["--adjust", "bh"], lambda s: mq.stats.associations(s, method="bh")),
    "trend": (["--outcome", "drug", "--over", "dose"], lambda s: mq.stats.trend(s, "drug", "dose")),
    "marginal-homogeneity": (
        ["--of", "drug,later"],
        lambda s: mq.stats.marginal_homogeneity(s, "drug", "later"),
    ),
    "mean": (
        ["--of", "dose", "--by", "drug", "--scores", "0,1,4", "--where", "sex=f"],
        lambda s: mq.stats.mean(s, "dose", "drug", scores=[0, 1, 4], where={"sex": "f"}),
    ),
    "regress": (
        ["--formula", "drug ~ sex + dose", "--reference", "sex=m"],
        lambda s: mq.stats.logistic(s, "drug ~ sex + dose", reference={"sex": "m"}),
    ),
    "loglinear": (["--model", "drug*sex + group"], lambda s: mq.stats.loglinear(s, "drug*sex + group")),
    "quantile": (["--of", "dose", "--q", "0.25"], lambda s: mq.stats.quantile(s, "dose", 0.25)),
    "survival": (
        ["--time", "dose", "--event", "drug", "--by", "group", "--given", "sex"],
        lambda s: mq.stats.survival(s, "dose", "drug", by="group", given="sex"),
    ),
}


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survey")
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    policy = mq.Policy.load(folder / "policy.yaml")
    generator = np.random.default_rng(1)
    people = pd.DataFrame(
        {name: generator.choice(policy.schema[name].categories, 500) for name in policy.schema}
    )
    mq.simulate(people, policy, seed=1).to_csv(folder / "disguised.csv", index=False)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_gives_what_the_library_gives(name, survey, monkeypatch):
    monkeypatch.chdir(survey)
    policy = mq.Policy.load("policy.yaml")
    options, library = COMMANDS[name]
    result = library(mq.tally("disguised.csv", policy))
    where = ["disguised.csv", "-p", "policy.yaml"]
    assert ok("stats", name, *where, *options).stdout == result.summary() + "\n"
    assert json.loads(ok("stats", name, *where, *options, "--json").stdout) == result.to_dict()


def test_results_go_into_files_by_their_names(survey, monkeypatch):
    monkeypatch.chdir(survey)
    asked = ["stats", "shares", "disguised.csv", "-p", "policy.yaml", "--of", "drug"]
    ok(*asked, "--out", "t.csv", "--plot", "t.png")
    assert list(pd.read_csv("t.csv").columns) == ["drug", "share", "stderr", "lower", "upper"]
    assert (survey / "t.png").read_bytes()[:4] == b"\x89PNG"
    ok(*asked, "--out", "t.html")
    assert "<table" in (survey / "t.html").read_text(encoding="utf-8")
    assert "exists" in refused(*asked, "--out", "t.csv")


def test_how_the_people_of_a_survey_were_drawn(survey, monkeypatch):
    monkeypatch.chdir(survey)
    policy = mq.Policy.load("policy.yaml")
    frame = pd.read_csv("disguised.csv")
    place = np.arange(len(frame))
    frame = frame.assign(w=1 + place % 3, h=place % 4, psu=place % 40, units=100)
    frame = frame.assign(**{f"rep{r}": frame["w"] * (1 + 0.5 * np.cos(place * (r + 1))) for r in range(6)})
    frame.to_csv("drawn.csv", index=False)
    asked = ["stats", "shares", "drawn.csv", "-p", "policy.yaml", "--of", "drug", "--json"]
    for typed, design in [
        (["--strata", "h"], {"strata": "h"}),
        (
            ["--weights", "w", "--strata", "h", "--clusters", "psu", "--fpc", "units"],
            {"weights": "w", "strata": "h", "clusters": "psu", "fpc": "units"},
        ),
        (
            ["--weights", "w", "--replicates", "rep[0-3],rep5", "--replicate-method", "jackknife"],
            {"weights": "w", "replicates": [f"rep{r}" for r in (0, 1, 2, 3, 5)], "method": "jackknife"},
        ),
    ]:
        wanted = mq.stats.shares(mq.SurveyRecords("drawn.csv", policy, **design), "drug")
        assert json.loads(ok(*asked, *typed).stdout) == wanted.to_dict()
    assert "Did you mean 'psu'?" in refused(*asked, "--clusters", "psus")
    assert "no column is called 'wt*'" in refused(*asked, "--weights", "w", "--replicates", "wt*")
    assert "omit strata" in refused(*asked, "--weights", "w", "--replicates", "rep*", "--strata", "h")
    assert "name their column" in refused(*asked, "--replicates", "rep*")
    assert "counted in memory" in refused(*asked, "--strata", "h", "--engine", "duckdb")
    # a test of two variables takes a selection, as others do
    chosen = ["stats", "independence", "drawn.csv", "-p", "policy.yaml", "--of", "drug,sex"]
    assert ok(*chosen, "--variables", "drug,sex,group").stdout == ok(*chosen).stdout
    assert "no variable" in refused(*chosen, "--variables", "drug,group")


@pytest.mark.parametrize(
    ("options", "saying"),
    [
        (["shares", "--of", "drugs"], "Did you mean 'drug'?"),
        (["difference", "--outcome", "sex", "--group", "drug"], "Name the category of 'sex'"),
        (["independence", "--of", "sex"], "two variables"),
        (["regress", "--formula", "drug ~ age"], "no variable 'age'"),
        (["mean", "--of", "sex"], "Give 'scores' for 'sex'"),
        (["mean", "--of", "dose", "--scores", "a"], "numbers separated by commas"),
        (["shares", "--of", "drug", "--where", "sex"], "VARIABLE=CATEGORY"),
        (["shares", "--of", "drug", "--level", "95"], "--level must be between 0 and 1"),
    ],
)
def test_mistakes_are_a_line_each(options, saying, survey, monkeypatch):
    monkeypatch.chdir(survey)
    name, *rest = options
    assert saying in refused("stats", name, "disguised.csv", "-p", "policy.yaml", *rest)
