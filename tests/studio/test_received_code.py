"""What another person put next to a project's files: modules, memos, settings of collectors, odd names."""

import json
import os
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pandas as pd
import pytest
from tests.studio.received import set_setting, visiting
from tests.studio.world import DEADLINE

from masquerade.core.errors import InputError
from masquerade.disguising.memo import Memo
from masquerade.studio.allow_list import read_step
from masquerade.studio.engine import run_command
from masquerade.studio.project import Project
from masquerade.studio.reach import NotAllowed, Reach

pytest.importorskip("fastapi")

RUN = "from pathlib import Path; Path('ran').touch()\n"


def write_notebook(folder, out):
    return run_command(["studio", str(folder), "--notebook", str(out)], lambda _done, _total: None)


# code next to a notebook


@pytest.mark.parametrize(
    "name",
    [
        *("masquerade.py", "numpy/__init__.py", "typer.pyc", "cupy/any.py", "jupyter_server_config.py"),
        *("evil-1.0.dist-info/entry_points.txt", "pyproject.toml", ".marimo.toml", "jupyter_config.json"),
    ],
)
def test_no_notebook_is_written_for_a_folder_with_code_in_it(received, tmp_path, name):
    assert write_notebook(received, tmp_path / "before.ipynb").code == 0
    (received / name).parent.mkdir(exist_ok=True)
    (received / name).write_text(RUN, encoding="utf-8")
    if name == "masquerade.py":  # the attack: Jupyter has the folder it starts in on the import path
        attack = "import sys; sys.path.insert(0, ''); import masquerade as mq"
        subprocess.run([sys.executable, "-c", attack], cwd=received, check=True, timeout=DEADLINE)  # noqa: S603
        assert (received / "ran").exists()
    refused = write_notebook(received, tmp_path / "after.ipynb")
    assert (refused.code, (tmp_path / "after.ipynb").exists()) == (2, False)
    assert "a notebook in this folder would run it" in refused.said[0]
    with visiting(received) as visitor:
        assert visitor.send("GET", "notebook.ipynb").status_code == 400
        assert visitor.send("GET", "data").status_code == 200


# a memo of somebody else


def test_a_memo_that_came_with_the_project_is_used_after_the_person_allowed_it(received, tmp_path):
    people = pd.DataFrame({"person": range(300), "smoker": ["yes", "no", "no"] * 100, "region": "north"})
    people.to_csv(tmp_path / "people.csv", index=False)
    Memo.load_or_create(received / "people.memo")  # of the attacker, who kept a copy
    set_setting(received, data=str(tmp_path / "people.csv"))
    form = {"do": "disguise", "ending": "csv", "person": "person", "accept_gamma": "inf"}
    with visiting(received) as visitor:
        visitor.post("allow", what=str(tmp_path / "people.csv"), page="data")
        refused = visitor.post("release", **form)
        assert refused.status_code == 400
        assert "allow it only if you made it" in refused.text
        assert f'name="what" value="{received / "people.memo"}"' in refused.text
        assert not (received / "releases").exists()
        visitor.post("allow", what=str(received / "people.memo"), page="release")
        made = visitor.post("release", **form)
        assert made.status_code == 303, made.text
        visitor.page(made.headers["location"])
    words = ["--policy", "releases/1/policy.yaml", "--memo", "people.memo", "--id", "person"]
    step = read_step(["disguise", "people.csv", *words, "--out", "releases/1/disguised.csv"])
    with pytest.raises(NotAllowed):  # so that no notebook uses it either
        Reach(received).check(step)


# paths


def test_a_path_that_is_another_file_in_another_process_is_refused(received, tmp_path, monkeypatch):
    (tmp_path / "people.csv").write_text("smoker,region\nyes,north\n", encoding="utf-8")
    (tmp_path / "mine.csv").write_text("smoker,region\nno,south\n", encoding="utf-8")
    (received / "people.csv").symlink_to(tmp_path / "mine.csv")
    monkeypatch.chdir(tmp_path)
    path = "/proc/self/cwd/people.csv"
    # the attack: the person allows this path from here, and the step runs in the project's folder
    if Path("/proc/self/cwd").exists():
        assert Path(path).resolve() == tmp_path / "people.csv"
        os.chdir(received)
        assert Path(path).resolve() == tmp_path / "mine.csv"
        os.chdir(tmp_path)
    for word in (path, "//proc/self/cwd/people.csv", "/./proc/1/root/etc/passwd", "/dev/fd/0", "/dev/stdin"):
        with pytest.raises(InputError, match="/proc or /dev"):
            read_step(["estimate", word])
    assert read_step(["estimate", "/dev/shm/people.csv"]).reads  # noqa: S108


@pytest.mark.parametrize("name", ["x\\..\\..\\evil.json", "a\nb.json", "C\\x.json", "a\u202eb.json"])
def test_a_name_that_is_a_path_elsewhere_is_in_no_project(received, name):
    (received / "models").mkdir()
    project = Project(received)
    (received / "models" / name).write_text("{}", encoding="utf-8")
    with zipfile.ZipFile(BytesIO(project.archive())) as file:
        assert f"models/{name}" in file.namelist()  # the attack: it would be passed on
    with pytest.raises(InputError, match="a path on other systems"):
        Project(received)


# collectors


@pytest.mark.parametrize("field", ["export_token", "team_token", "token_key", "invitations"])
def test_a_collector_of_the_project_names_no_secret_outside(received, tmp_path, field):
    secret = tmp_path / "secret"
    secret.write_text("token", encoding="utf-8")
    secret.chmod(0o600)
    (received / "survey.yaml").write_text("x", encoding="utf-8")
    settings = {"masquerade": 1, "survey": "survey.yaml", "state": "state", field: str(secret)}
    (received / "c.yaml").write_text(json.dumps(settings), encoding="utf-8")
    step = read_step(["survey", "export", "c.yaml", "--out", "collected/1.parquet"])
    with pytest.raises(NotAllowed) as refused:
        Reach(received).check(step)
    assert refused.value.needs == (str(secret),)


def test_a_collector_of_the_project_calls_no_host_and_follows_no_link(received, tmp_path):
    (received / "survey.yaml").write_text("x", encoding="utf-8")
    settings = {"masquerade": 1, "survey": "survey.yaml", "state": "state"}
    step = read_step(["survey", "export", "c.yaml", "--out", "collected/1.parquet"])
    (received / "c.yaml").write_text(json.dumps(settings), encoding="utf-8")
    Reach(received).check(step)
    (received / "key.pem").touch(0o600)
    tls = {"certificate": "survey.yaml", "key": "key.pem"}
    host = {"listen": {"host": "name-that-is-looked-up.example", "port": 1}, "tls": tls}
    (received / "c.yaml").write_text(json.dumps(settings | host), encoding="utf-8")
    with pytest.raises(InputError, match="may listen only at"):
        Reach(received).check(step)
    other = settings | {"invitations": "postgresql://h/d"}
    (received / "c.yaml").write_text(json.dumps(other), encoding="utf-8")
    with pytest.raises(NotAllowed, match="postgresql://h/d"):
        Reach(received).check(step)
    (received / "c.yaml").write_text(json.dumps(settings), encoding="utf-8")
    (received / "state").mkdir()
    (received / "state/reports.sqlite").symlink_to(tmp_path / "mine.sqlite")
    with pytest.raises(InputError, match="is a link"):
        Reach(received).check(step)


# tables for others


def test_labels_are_no_markup_in_a_markdown_table(received):
    label = "<img src=x onerror=alert(1)> ![a](http://127.0.0.1:9/b) \\| c"
    policy = {"masquerade": 1, "variables": {"smoker": {"categories": [label, "no"]}}}
    (received / "policy.yaml").write_text(json.dumps(policy), encoding="utf-8")
    pd.DataFrame({"smoker": [label, "no"] * 20}).to_csv(received / "records.csv", index=False)
    set_setting(received, records={"data": "records.csv", "policy": "policy.yaml"})
    with visiting(received) as visitor:
        visitor.page("estimate?do=count&by=smoker")
        name = next(s.result for s in visitor.studio.project.steps if s.command[0] == "estimate")
        table = visitor.send("GET", f"results/{name}.md").text
    assert "\\<img src=x" in table
    assert "![a\\](http" in table
    assert "\\\\\\| c" in table
