"""Records and models from elsewhere, and what leaves: databases, collectors, sessions, archives."""

import json
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import psycopg
import pytest
from tests.studio.world import Visitor, found_at, steps_of
from tests.survey.world import collecting

import masquerade as mq
from masquerade.crypto.keys import new_token
from masquerade.studio import releases
from masquerade.survey.collector.example import body_of

POLICY = """masquerade: 1
variables:
  smoker: {categories: ["yes", "no"], channel: {kind: for_gamma, gamma: 9}}
  region: {categories: [north, south]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with made-up people, and a policy that is not the project's."""
    found = tmp_path_factory.mktemp("sources")
    rng = np.random.default_rng(20261117)
    smoker, region = rng.choice(["yes", "no"], 400), rng.choice(["north", "south"], 400)
    pd.DataFrame({"smoker": smoker, "region": region}).to_csv(found / "people.csv", index=False)
    (found / "policy.yaml").write_text(POLICY, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def visitor(folder):
    came = Visitor(folder / "project")
    yield came
    came.close()


def shown(visitor, place):
    """Return the numbers of a page, by the first command that it shows."""
    return dict(next(iter(steps_of(visitor.page(place))))[1])


def test_a_table_of_postgresql_is_counted_where_it_lies(folder, postgres, tmp_path, monkeypatch):
    policy = mq.Policy.load(folder / "policy.yaml")
    disguised = mq.simulate(pd.read_csv(folder / "people.csv"), policy, seed=20261117)
    server = postgres.fresh_database()
    monkeypatch.setenv("PGPASSWORD", server.password)
    with psycopg.connect(server.url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE people (smoker text, region text)")
        with cursor.copy("COPY people FROM STDIN") as copy:
            for row in disguised.itertuples(index=False):
                copy.write_row(row)
    url = f"postgresql://{server.user}@127.0.0.1:{server.port}/{server.database}"
    fields = {"engine": "postgres", "url": url, "policy": str(folder / "policy.yaml")}
    visitor = Visitor(tmp_path / "project")
    try:
        refused = visitor.post("data", do="records", data="people", **fields | {"url": f"{url}?passfile=/x"})
        assert refused.status_code == 400
        assert visitor.post("data", do="records", data="people", **fields).status_code == 303
        assert "region = south" in visitor.page("estimate")  # variables are those of the table's own policy
        numbers = shown(visitor, "estimate?do=count&by=smoker")
    finally:
        visitor.close()
    [table] = mq.tally(disguised, policy).answer([mq.Query(by=("smoker",))])
    assert [numbers[f"0.cells.{i}.count"] for i in range(2)] == pytest.approx(table.values.tolist())
    assert [numbers[f"0.cells.{i}.stderr"] for i in range(2)] == pytest.approx(table.stderr().tolist())
    again = Visitor(tmp_path / "project")  # the address is now one that a file names
    try:
        for needed in (url, str(folder / "policy.yaml")):
            assert f'name="what" value="{needed}"' in again.page("estimate?do=count&by=region")
            again.post("allow", what=needed, page="estimate")
        page = again.page("estimate?do=count&by=region")
        assert "requires a password" in page or "it failed" in page
        assert again.post("data", do="records", data="people", **fields).status_code == 303
        again.post("again", job=re.search(r'name="job" value="(\w+)"', page)[1])
        assert 'data-at="0.cells.0.count"' in again.page("estimate?do=count&by=region")
    finally:
        again.close()


def test_a_collector_is_asked_while_it_collects(visitor, tmp_path):
    (tmp_path / "export.token").write_text(new_token(), encoding="ascii")
    (tmp_path / "export.token").chmod(0o600)
    own = {"export_token": str(tmp_path / "export.token")}
    with collecting(tmp_path / "survey", settings=own) as (collector, _, http):
        for arrived in (13, 33):
            while collector.store.counts()["reports"] < arrived:
                sent = http.post("/v1/reports", content=body_of(collector.survey, (0, 1, 1, 2)))
                assert sent.status_code == 200
            collector.publish()
            published = json.loads(collector.publication.figures_json)["reports"]
            assert arrived - 10 < published <= arrived  # fewer than a batch wait
            answer = visitor.post("data", do="collector", data=str(tmp_path / "survey" / "collector.yaml"))
            assert answer.status_code == 303, answer.text
            visitor.page(answer.headers["location"])
            numbers = shown(visitor, "estimate?do=count&by=pills")
            assert numbers["0.n"] == published
    records = visitor.studio.project.settings["records"]
    assert records["collector"].endswith("collector.yaml")
    assert "Take the reports" in visitor.page("data")


def test_a_model_from_elsewhere_is_shown_and_stays_in_the_project(visitor, folder, tmp_path):
    policy = mq.Policy.load(folder / "policy.yaml")
    data = mq.tally(mq.simulate(pd.read_csv(folder / "people.csv"), policy, seed=20261117), policy)
    model = mq.learn.bayesian_network(data, {"smoker": ("region",), "region": ()})
    path = tmp_path / "session-model.json"
    path.write_text(json.dumps(model.to_dict()), encoding="utf-8")
    answer = visitor.post("learn", model=str(path))
    assert answer.status_code == 303, answer.text
    path.unlink()
    page = visitor.page(answer.headers["location"])
    assert "P(smoker | region)" in page
    tables = visitor.studio.project.result(
        visitor.studio.project.result_id(["show", "models/session-model.json", "--table", "--json"])
    )
    numbers = [pair for _, found in steps_of(page) for pair in found]
    assert len(numbers) >= 12
    assert all(found_at(tables, place) == value for place, value in numbers)
    assert visitor.post("learn", model=str(folder / "people.csv")).status_code == 400
    assert visitor.post("learn", model="none.json").status_code == 400


def test_releases_add_up_and_are_made_ready_for_an_archive_and_for_respondents(visitor, folder):
    project = visitor.studio.project
    with project.edit("policy") as (settings, values):
        settings["data"] = str(folder / "people.csv")
        values.update(mq.Policy.load(folder / "policy.yaml").to_dict())
    visitor.post("allow", what=str(folder / "people.csv"), page="release", query="")
    for accepted in ("9", "81"):
        made = visitor.post("release", do="disguise", ending="csv", accept_gamma=accepted)
        assert made.status_code == 303, made.text
        page = visitor.page(made.headers["location"])
    assert "γ = 81" in page  # 9 · 9: two draws about the same people
    refused = visitor.post("release", do="disguise", ending="csv", accept_gamma="81")  # 9 · 9 · 9
    assert refused.status_code == 400
    assert "beyond the limit for one person" in refused.text
    assert "no bound: in clear" in page
    memo = [
        releases.entries(project.folder, "releases/1/disguised.csv", "releases/1/policy.yaml", 400, memo=m)
        for m in ("0f" * 8, None)
    ]
    assert [(entry.kind, entry.gamma) for entry in memo[0]] == [
        ("disguised records", Fraction(9)),
        ("records in clear", None),
    ]
    assert memo[0][0].draw is not None  # a memo's draw counts once
    assert memo[1][0].draw is None
    made = visitor.post("release", do="package", title="Made-up people")
    assert "Ready for an archive" in visitor.page(made.headers["location"])
    assert (project.folder / "releases/2/package/croissant.json").exists()
    assert visitor.post("release", do="package", title="Twice").status_code == 400
    fields = {"title": "T", "collector": "http://127.0.0.1:8765", "contact": "C", "consent": "D"}
    asked = {"variable": ["smoker", "region"], "question": ["Do you smoke?", ""]}
    made = visitor.post("release", do="page", **fields, **asked)
    assert "The page for respondents" in visitor.page(made.headers["location"])
    assert "Do you smoke?" in (project.folder / "survey/page/survey.html").read_text(encoding="utf-8")
    assert visitor.post("release", do="page", title="T").status_code == 400
    assert visitor.post("release", do="nothing").status_code == 400
