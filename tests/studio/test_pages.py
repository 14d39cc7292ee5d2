"""The pages over real commands: every number is the command's, nothing is lost, nobody else is let in."""

import functools
import json
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
import zipfile
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from tests.studio.world import DEADLINE, Visitor, found_at, steps_of

from masquerade.core.errors import InputError
from masquerade.learn.catalogue import LEARNERS
from masquerade.services.common.release_ledger import inspect
from masquerade.studio import notebook, pages, releases, steps
from masquerade.studio.allow_list import read_step
from masquerade.studio.project import Project
from masquerade.studio.server import listening_socket

pytest.importorskip("fastapi")

ASKED = [
    "data",
    "policy",
    "trade-off?epsilon=2&n=4000&queries=pairs",
    "estimate?do=count&by=smoker&by=region&misfit=1",
    "estimate?do=count&by=smoker&where=region%3Dnorth&kind=given_records&nonnegative=mle",
    "estimate?do=shares&of=smoker&by=region",
    "estimate?do=independence&of=smoker&group=ill",
    "estimate?do=odds-ratio&of=smoker&group=ill",
    "estimate?do=associations",
    "learn?do=structure",
    "learn?do=link&parent=smoker&child=ill",
    "learn?do=network",
    "learn?do=naive-bayes&target=ill",
    "learn?do=tree&target=ill",
    "learn?do=linear&target=ill",
    "learn?do=rules",
    "learn?do=regress&formula=ill+~+smoker",
    "audit?do=policy",
    "audit?do=release",
]
NOT_SHOWN = {"tables"}  # the page Estimate counts tables
DRAWN = {("plan", "policy.yaml"), ("learn", "structure"), ("estimate", "releases/1/disguised.csv")}
RUN = """import json, sys
from masquerade.studio.engine import run_command
asked = json.load(sys.stdin)
print(json.dumps([run_command(argv, lambda done, total: None).printed for argv in asked]))
"""


@pytest.fixture(scope="module")
def visitor(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studio")
    rng = np.random.default_rng(20261117)
    n = 4000
    region = rng.choice(["north", "south", "west"], n)
    smoker = np.where(rng.random(n) < np.where(region == "north", 0.45, 0.2), "yes", "no")
    ill = np.where(rng.random(n) < np.where(smoker == "yes", 0.6, 0.1), "yes", "no")
    frame = pd.DataFrame(
        {"region": region, "smoker": smoker, "ill": ill, "secret": [f"p{i}" for i in range(n)]}
    )
    frame.to_csv(folder / "people.csv", index=False)
    came = Visitor(folder / "project")
    answer = came.post("data", do="draft", data=str(folder / "people.csv"))
    assert answer.status_code == 303, answer.text
    came.page(answer.headers["location"])
    for change in (
        {"do": "limit", "kind": "gamma", "limit": "400"},
        {"do": "clear", "name": "region", "clear_accepted": "1"},
        {"do": "gamma", "name": "smoker", "stop": "17"},
        {"do": "gamma", "name": "ill", "stop": "17"},
    ):
        changed = came.post("policy", **change)
        assert changed.status_code == 303, changed.text
    made = came.post("release", shuffle="1", ending="csv")
    assert made.status_code == 303, made.text
    came.made = made.headers["location"]
    assert "Released" in came.page(came.made)
    yield came
    came.close()


def test_every_number_on_every_screen_is_the_commands_in_a_copy_of_the_project(visitor, tmp_path):
    shown = [step for place in [*ASKED, visitor.made] for step in steps_of(visitor.page(place))]
    commands = list(dict.fromkeys(command for command, _ in shown))
    argvs = [shlex.split(command)[1:] for command in commands]
    verbs = {argv[0] for argv in argvs}
    assert verbs == {
        *("policy", "anonymize", "privacy", "plan", "estimate"),
        *("stats", "learn", "show", "audit", "disguise", "party"),
    }
    drawn = [command for command in commands if read_step(shlex.split(command)[1:]).draws]
    assert {shlex.split(command)[1] for command in drawn} == {"disguise", "audit"}
    commands = [command for command in commands if command not in drawn]
    argvs = [shlex.split(command)[1:] for command in commands]
    with zipfile.ZipFile(BytesIO(visitor.send("GET", "project.zip").content)) as file:
        file.extractall(tmp_path / "copy")
    run = subprocess.run(  # noqa: S603  (the command that the page shows)
        [sys.executable, "-c", RUN],
        input=json.dumps(argvs),
        cwd=tmp_path / "copy",
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE,
    )
    texts = dict(zip(commands, json.loads(run.stdout), strict=True))
    project = visitor.studio.project
    kept = {steps.format_command(step.command): step.result for step in project.steps}
    again = [
        (texts[c], (tmp_path / "copy/results" / f"{kept[c]}.json").read_text()) for c in texts if c in kept
    ]
    assert len(again) > 15
    assert all(printed == before for printed, before in again)  # byte for byte
    printed = {command: json.loads(text) for command, text in texts.items()}
    kept = {steps.format_command(step.command): project.result(step.result) for step in project.steps}
    printed |= {command: kept[command] for command in drawn}  # what draws prints other figures each time
    compared = 0
    for command, numbers in shown:
        for place, value in numbers:
            assert found_at(printed[command], place) == value, (command, place)
            compared += 1
    assert compared > 300


def test_learners_of_the_catalogue_are_on_the_page(visitor):
    shown = re.findall(r'name="do" value="([^"]+)"', visitor.page("learn"))
    listed = [name for name, learner in LEARNERS.items() if learner.command and name not in NOT_SHOWN]
    assert shown == [*listed, "regress"]
    model = visitor.page("learn?do=linear&target=ill")
    assert "(intercept)" in model


def test_the_shown_digits_are_those_of_the_number(visitor):
    page = visitor.page("estimate?do=count&by=smoker")
    cells = re.findall(r'<data value="([^"]*)" data-at="0\.cells[^"]*">([^<]*)</data>', page)
    assert len(cells) == 8
    assert all(f"{float(value):,.1f}" == words for value, words in cells)


def test_the_notebook_gives_the_same_figures(visitor, monkeypatch):
    visitor.page("estimate?do=shares&of=smoker&by=region")
    monkeypatch.chdir(visitor.studio.project.folder)
    kept = visitor.studio.project.steps
    cells = visitor.send("GET", "notebook.ipynb").json()["cells"]
    known = {}
    exec(cells[0]["source"], known)  # noqa: S102  (a line of ours)
    lines = [cell["source"] for cell in cells[1:] if cell["cell_type"] == "code"]
    assert len(lines) == len(kept)
    compared = 0
    for step, line in zip(kept, lines, strict=True):
        if step.step.draws:
            continue
        found = eval(line, known)  # noqa: S307  (a line of ours)
        assert found is not None
        if step.command[0] == "stats":
            told, before = found.to_dict(), visitor.studio.project.result(step.result)
            assert told["rows"] == before["rows"], line
            compared += 1
    assert compared > 0
    marimo = notebook.marimo(kept)
    compile(marimo, "steps.py", "exec")
    assert marimo.count("@app.cell") == len(kept) + 1


def test_nothing_in_any_answer_leads_elsewhere_or_has_a_style_of_its_own(visitor):
    places = [
        *ASKED,
        visitor.made,
        "enter",
        *(f"assets/{name}" for name in ("page.css", "studio.css", "studio.js")),
    ]
    known = (visitor.studio.access.origin, "http://www.w3.org/2000/svg")  # a name: nobody is asked
    for place in [*places, "assets/htmx.min.js", "assets/icon.svg"]:
        answer = visitor.send("GET", place)
        text = functools.reduce(lambda text, name: text.replace(name, ""), known, answer.text)
        assert not re.findall(r"https?://|//[a-z]+\.", text), place
        assert " style=" not in answer.text
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"


def test_nobody_else_is_let_in(visitor):
    door = visitor.studio.access
    assert visitor.send("GET", "data", cookie="").status_code == 403
    assert visitor.send("GET", "data", cookie=f"{door.cookie}=guess").status_code == 403
    assert visitor.send("GET", "data", host="rebound.example:5559").status_code == 421
    assert visitor.send("GET", "data", host=f"localhost:{door.port}").status_code == 421
    for origin in ("http://127.0.0.1:5560", "http://127.0.0.1", "null", "https://127.0.0.1:5559"):
        assert visitor.send("POST", "undo", "to=0", origin=origin).status_code == 403
    assert visitor.send("POST", "undo", "to=0", origin="").status_code == 403
    assert visitor.send("GET", "../data").status_code in {403, 404}


def test_a_token_lets_in_once_and_only_its_owner_can_read_it(visitor):
    door, token = visitor.studio.access, visitor.token()
    assert stat.S_IMODE(door.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(door.file.parent.stat().st_mode) == 0o700
    first, second = (visitor.send("POST", "enter", content=token) for _ in range(2))
    assert (first.status_code, second.status_code) == (204, 403)
    cookie = first.headers["set-cookie"]
    assert cookie.startswith("masquerade-")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert f"Path={door.prefix}/" in cookie
    assert visitor.token() != token
    assert stat.S_IMODE(door.file.stat().st_mode) == 0o600


def test_two_tabs_lose_nothing_and_every_change_can_be_taken_back(tmp_path):
    came = Visitor(tmp_path / "project")
    try:
        for name in ("a", "b"):
            came.post("policy", do="add", name=name, categories="x, y, z")
        first, second = (came.post("policy", do="gamma", name=name, stop="3") for name in ("a", "b"))
        assert first.status_code == second.status_code == 303
        after = came.studio.project.policy_values
        assert [after["variables"][name]["channel"]["gamma"] for name in "ab"] == ["1.75", "1.75"]
        came.post("policy", do="matrix", name="a", kept=["90", "80", "70"])
        came.post("policy", do="join", names=["a", "b"], gamma="9")
        texts = []
        while came.studio.project.at > 0:
            texts.append(came.studio.project.policy_values)
            assert came.post("undo", to=came.studio.project.at - 1, page="policy").status_code == 303
        assert came.studio.project.policy is None
        for text in reversed(texts):
            came.post("undo", to=came.studio.project.at + 1, page="policy")
            assert came.studio.project.policy_values == text
        assert came.post("policy", do="gamma", name="c", stop="3").status_code == 400
        assert came.post("policy", do="matrix", name="a", kept=["900", "1", "1"]).status_code == 400
        assert came.studio.project.policy_values == texts[0]
    finally:
        came.close()


def test_a_job_is_cancelled_and_the_next_one_works(visitor):
    engine = visitor.studio.engine
    data = ["releases/1/disguised.csv", "--policy", "releases/1/policy.yaml"]
    job = engine.submit("long", ["learn", "structure", *data, "--resample", "100000", "--json"])
    until = time.monotonic() + DEADLINE
    while job.state != "running":
        assert time.monotonic() < until
        time.sleep(0.01)
    waiting = engine.submit("next", ["policy", "check", "policy.yaml", "--json"])
    visitor.post("cancel", job="long")
    assert job.state == "cancelled"
    assert waiting.over.wait(DEADLINE)
    assert waiting.state == "done"


def test_a_project_is_all_in_its_folder(visitor, tmp_path):
    place = "estimate?do=count&by=smoker"
    before = [numbers for _, numbers in steps_of(visitor.page(place))]
    archive = visitor.send("GET", "project.zip").content
    with zipfile.ZipFile(BytesIO(archive)) as file:
        names = file.namelist()
        assert not [name for name in names if b"p3999" in file.read(name)]  # no clear record anywhere
        file.extractall(tmp_path / "copy")
    assert "releases/1/disguised.csv" in names
    (kept,) = [s for s in Project(tmp_path / "copy").steps if s.command[-3:] == ["--by", "smoker", "--json"]]
    assert kept.result in "".join(names)
    again = Visitor(visitor.studio.project.folder)  # as after a kill: nothing but the files
    try:
        assert [numbers for _, numbers in steps_of(again.page(place))] == before
        assert again.studio.engine.job(kept.result) is None  # it was kept, not computed anew
    finally:
        again.close()


def test_a_release_that_a_kill_kept_out_of_the_ledger_is_written_down(visitor, tmp_path):
    copy = tmp_path / "killed"
    shutil.copytree(visitor.studio.project.folder, copy)
    shutil.copytree(copy / "releases" / "1", copy / "releases" / "2")
    (before, _), known = inspect(copy / releases.LEDGER), "releases/2/disguised.csv"
    assert known not in {entry.release.session for entry in before}
    for _ in range(2):  # and once only
        Visitor(copy).close()
        found = [entry.release for entry in inspect(copy / releases.LEDGER)[0][len(before) :]]
        assert [one.session for one in found] == [known, known]
        assert {one.kind: one.rows for one in found} == {"disguised records": 4000, "records in clear": 4000}
        assert found[0].gamma == before[0].release.gamma
        assert found[0].draw is None


def test_downloads_are_what_the_command_writes(visitor):
    visitor.page("estimate?do=count&by=smoker")
    (kept,) = [s for s in visitor.studio.project.steps if s.command[-3:] == ["--by", "smoker", "--json"]]
    forms = {e: visitor.send("GET", f"results/{kept.result}.{e}") for e in ("json", "csv", "tex", "svg")}
    assert all(answer.status_code == 200 for answer in forms.values())
    cells = json.loads(forms["json"].text)[0]["cells"]
    assert forms["csv"].text.splitlines()[1].split(",")[1:] == [str(cells[0][k]) for k in list(cells[0])[1:]]
    assert "\\begin{table}" in forms["tex"].text
    assert "<svg" in forms["svg"].text
    visitor.page("learn?do=structure")
    visitor.page("trade-off?epsilon=2&n=4000&queries=pairs")
    pictures = {
        tuple(s.command[:2]): s.result for s in visitor.studio.project.steps if tuple(s.command[:2]) in DRAWN
    }
    assert pictures.keys() == DRAWN
    for result in pictures.values():
        answer = visitor.send("GET", f"results/{result}.svg")
        ElementTree.fromstring(answer.text)  # noqa: S314  (ours)
        assert "<a " not in answer.text
    assert visitor.send("GET", "results/none.json").status_code == 400


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("estimate?do=count&by=smokr", "smokr"),
        ("estimate?do=shares", "Choose the variable"),
        ("estimate?do=count&where=smoker%3Dperhaps", "perhaps"),
        ("learn?do=regress&formula=ill+~+nobody", "nobody"),
        ("data?folder=/no/such/folder", "is not a folder"),
    ],
)
def test_a_mistake_is_said_on_the_page(visitor, place, words):
    page = visitor.page(place)
    (said,) = re.findall(r'class="problem" role="alert"><p>(.*?)</p>', page, re.DOTALL)
    assert words in said


def test_a_password_in_an_address_is_refused(visitor):
    answer = visitor.post("data", do="records", data="t", engine="postgres", url="postgresql://me:secret@h/d")
    assert answer.status_code == 400
    assert "PGPASSWORD" in answer.text
    assert "secret" not in answer.text


def test_words_of_a_slider_are_those_of_the_policy_that_it_makes(visitor):
    live = visitor.send("GET", "policy/live?name=smoker&stop=17").text
    assert "γ = 19" in live
    assert "at most 50%" in live  # 19 · 5/95
    assert "±" in live
    assert visitor.send("GET", "policy/live?name=smoker&stop=99").status_code == 400


def test_no_number_is_shown_as_a_negative_zero():
    assert str(pages.number(-0.00001, "x", ",.1f")).endswith(">0.0</data>")


def test_who_comes_before_the_server_has_started_waits():
    with listening_socket() as early, socket.create_connection(early.getsockname()) as visitor:
        assert visitor.getpeername() == early.getsockname()
        with pytest.raises(InputError, match="is in use; omit --port"):
            listening_socket(early.getsockname()[1])
