"""A project that somebody else made is data: what its files name is not run, read, contacted or written."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from html import unescape
from io import BytesIO
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest
from tests.studio.received import CHECKED, add_step, set_setting, visiting
from tests.studio.world import DEADLINE, Visitor

from masquerade.cli.app import own_command
from masquerade.core.errors import InputError
from masquerade.studio.allow_list import RULES, read_step, read_steps
from masquerade.studio.engine import run_command
from masquerade.studio.project import Project

pytest.importorskip("fastapi")

PLAN = ["plan", "policy.yaml", "--n", "9", "--queries", "pairs"]
CODE = "from pathlib import Path\nPath({!r}).write_text('ran')\ndef draw(truth, n):\n    return [truth] * n\n"


@pytest.fixture
def checked(monkeypatch, tmp_path):
    """Return a function that runs `masquerade studio FOLDER --check`, as its command line does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")

    def run(folder, *more):
        outcome = run_command(["studio", str(folder), "--check", *more], lambda _done, _total: None)
        os.chdir(tmp_path)
        return outcome.code, "\n".join(outcome.said)

    return run


def test_check_runs_the_steps_that_the_studio_writes(received, checked):
    assert checked(received) == (0, "1 of 1 results are the same, byte for byte.")
    add_step(received, *CHECKED, result="1" * 16)
    assert checked(received)[0] == 1


def test_check_imports_no_module_of_the_project(received, tmp_path):
    mark = tmp_path / "ran"
    (received / "codebook.py").write_text(CODE.format(str(mark)), encoding="utf-8")
    # the attack: a function of the folder is looked for with the folder on the import path
    attack = (
        "import sys; sys.path.insert(0, '')\n"
        "from masquerade.audit.sampler import import_sampler\nimport_sampler('codebook:draw')"
    )
    subprocess.run([sys.executable, "-c", attack], cwd=received, check=True, timeout=DEADLINE)  # noqa: S603
    assert mark.read_text() == "ran"
    mark.unlink()

    add_step(received, "audit", "sampler", "--sampler", "codebook:draw", "--json")
    for folder, place in ((tmp_path, "received"), (received, ".")):
        refused = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "masquerade", "studio", place, "--check"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE,
        )
        assert refused.returncode == 2
        assert "Step 2 of steps.json" in refused.stderr
        assert "`audit sampler` is not a command of the studio" in refused.stderr
        assert not mark.exists()


def test_a_sampler_of_the_working_directory_needs_its_own_option(tmp_path):
    mark, command = tmp_path / "ran", ["-m", "masquerade", "audit", "sampler", "--sampler", "codebook:draw"]
    (tmp_path / "codebook.py").write_text(CODE.format(str(mark)), encoding="utf-8")
    script = Path(sys.executable).with_name("masquerade")  # where the package is installed
    starts = [[sys.executable, str(script), *command[2:]]] if script.exists() else []
    for start in ([sys.executable, *command], *starts):
        run = subprocess.run(  # noqa: S603
            start, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=DEADLINE
        )
        assert run.returncode == 2
        assert "--import-path FOLDER" in run.stderr
        assert not mark.exists()
    more = ["--import-path", ".", "--draws", "1000"]
    run = subprocess.run(  # noqa: S603
        [sys.executable, *command, *more], cwd=tmp_path, capture_output=True, check=False, timeout=DEADLINE
    )
    assert run.returncode in {0, 1}
    assert mark.exists()


def test_python_m_masquerade_imports_nothing_from_the_working_directory(tmp_path):
    mark = tmp_path / "ran"
    (tmp_path / "typer.py").write_text(CODE.format(str(mark)), encoding="utf-8")
    attack = "import sys; sys.path.insert(0, ''); import typer"
    subprocess.run([sys.executable, "-c", attack], cwd=tmp_path, check=True, timeout=DEADLINE)  # noqa: S603
    assert mark.exists()
    mark.unlink()
    command = [sys.executable, "-m", "masquerade", "--version"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=DEADLINE)  # noqa: S603
    assert not mark.exists()


SPAWNED = """import multiprocessing, os, sys
from pathlib import Path
from urllib.parse import urlencode
from masquerade.studio.engine import CommandRunner

if __name__ == "__main__":
    os.chdir(sys.argv[2])
    if sys.argv[1] == "plain":
        process = multiprocessing.get_context("spawn").Process(target=print)
        process.start()
        process.join()
    else:
        engine = CommandRunner(Path(sys.argv[2]))
        job = engine.submit("one", ["policy", "check", "policy.yaml", "--json"])
        assert job.over.wait(240) and job.state == "done", job.words
        engine.close()
"""


def test_the_working_process_imports_nothing_from_the_folder_it_starts_in(received, tmp_path):
    mark, script = tmp_path / "ran", tmp_path / "spawn.py"
    (received / "multiprocessing").mkdir()
    (received / "multiprocessing/__init__.py").write_text(CODE.format(str(mark)), encoding="utf-8")
    script.write_text(SPAWNED, encoding="utf-8")
    for kind, runs in (("plain", True), ("engine", False)):
        subprocess.run(  # noqa: S603
            [sys.executable, str(script), kind, str(received)],
            capture_output=True,
            check=kind == "engine",
            timeout=DEADLINE,
        )
        assert mark.exists() == runs
        mark.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["audit", "sampler", "--sampler", "codebook:draw"], "not a command"),
        (["reproduce", "all"], "not a command"),
        (["session", "run", "session.yaml"], "not a command"),
        (["survey", "serve", "collector.yaml"], "not a command"),
        (["audit", "canaries", "make"], "not a command"),
        (["disguise", "people.csv", "--policy", "releases/1/policy.yaml", "--out", "/x.csv"], "--out"),
        (["estimate", "people.csv", "--sampler", "codebook:draw"], "--sampler"),
        (["estimate", "people.csv", "-p", "policy.yaml"], "-p"),
        (["estimate", "people.csv", "--policy=policy.yaml"], "not an option"),
        (["estimate", "people.csv", "--plot", "x.png"], "--plot"),
        (["estimate", "people.csv", "other.csv"], "takes 1 argument"),
        (["estimate", "-"], "'-'|-"),
        (["estimate", "people.csv", "--engine", "spark"], "one of postgres"),
        (["estimate", "people.csv", "--url", "postgresql://h/d"], "goes with --engine"),
        (["estimate", "t", "--engine", "postgres", "--url", "postgresql://h/d?passfile=/x"], "an address"),
        (["estimate", "t", "--engine", "postgres", "--url", "postgresql://a,b/d"], "an address"),
        (["estimate", "t", "--engine", "postgres", "--url", "postgresql://me:secret@h/d"], "an address"),
        (["estimate", "t", "--engine", "postgres", "--url", "postgresql://%2Ftmp/d"], "an address"),
        (["estimate", "../people.csv"], "without"),
        (["estimate", "results/../../people.csv"], "without"),
        (["estimate", "people.csv", "--level", "1); import os"], "a number"),
        (["estimate", "people.csv", "--level", "1e999"], "a number"),
        (["estimate", "people.csv", "--level", "--json"], "a number"),
        (["estimate", "people.csv", "--where", "a\nb=c"], "one line"),
        (["estimate", "people.csv", "--where", "a=\u2028"], "one line"),
        (["estimate", "people.csv", "--by"], "has no value"),
        (["estimate", "people.csv", "--by", "a", "--by", "b"], "given twice"),
        (["estimate", "people.csv", "--out", "downloads/0000000000000000.csv"], "does not write"),
        ([*PLAN, "--epsilon", "1}, n=__import__('os').getpid("], "a number"),
        (["plan", "other.yaml", *PLAN[2:], "--epsilon", "1"], "policy.yaml"),
        (["plan", "policy.yaml"], "needs --epsilon"),
        (["policy", "init", "people.csv"], "never stored"),
        ([], "a list of"),
        ("estimate", "a list of"),
        (["estimate", 3], "texts"),
        (["estimate", "x" * 5000], "texts"),
        (None, "a list of"),
    ],
)
def test_a_step_that_is_not_in_the_allow_list_is_refused_before_any_step_runs(received, checked, argv, words):
    with pytest.raises(InputError, match=words):
        read_steps([{"command": argv, "result": "0" * 16, "said": []}])
    steps = json.loads((received / "steps.json").read_text(encoding="utf-8"))
    steps.append({"command": argv, "result": "0" * 16, "said": []})
    (received / "steps.json").write_text(json.dumps(steps), encoding="utf-8")
    (received / "results").rename(received / "gone")  # a step that ran would differ
    code, said = checked(received)
    assert code == 2
    assert "Step 2 of steps.json" in said
    assert "differs" not in said
    assert "secret" not in said or "me:secret" in str(argv)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"command": CHECKED, "result": "../../../etc/passwd", "said": []}, "16 hexadecimal"),
        ({"command": CHECKED, "result": None, "said": []}, "16 hexadecimal"),
        ({"command": CHECKED, "result": "0" * 16, "said": "x"}, "list of texts"),
        ({"command": CHECKED, "result": "0" * 16}, "must have command"),
        ([], "must have command"),
    ],
)
def test_a_step_of_another_shape_is_refused(step, words):
    with pytest.raises(InputError, match=words):
        read_steps([step])
    with pytest.raises(InputError, match="not a list"):
        read_steps({"0": step})


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["estimate", "/etc/hostname"], "--allow /etc/hostname"),
        (["show", "/etc/hostname"], "--allow /etc/hostname"),
        (["estimate", "people.csv", "--policy", "/etc/hostname"], "--allow /etc/hostname"),
        (["estimate", "t", "--engine", "postgres"], "--allow postgresql://"),
        (["estimate", "t", "--engine", "postgres", "--url", "postgresql://h/d"], "--allow postgresql://h/d"),
        (["show", "link.json"], "inside a linked folder"),
        (["show", "elsewhere/model.json"], "inside a linked folder"),
        (["show", "*.json"], "not the name of one file"),
        (["show", "plugin:thing"], "not the name of one file"),
        (["show", "https://h/model.json"], "not the name of one file"),
    ],
)
def test_a_step_with_files_or_addresses_outside_the_folder_is_refused(received, checked, argv, words):
    (received / "link.json").symlink_to("/etc/hostname")
    (received / "elsewhere").symlink_to("/etc")
    add_step(received, *argv)
    (received / "results").rename(received / "gone")
    code, said = checked(received)
    assert code == 2
    assert words in said
    assert "differs" not in said


def test_a_file_outside_is_read_after_the_person_named_it(received, checked, tmp_path):
    outside = tmp_path / "records.csv"
    outside.write_text("smoker,region\nyes,north\nno,south\n", encoding="utf-8")
    add_step(received, "estimate", str(outside), "--policy", "policy.yaml", "--json")
    assert checked(received)[0] == 2
    code, said = checked(received, "--allow", str(outside))
    assert code == 1  # it ran, and the made-up result differs
    assert "1 of 2 results are the same" in said


def test_a_notebook_names_a_file_outside_after_the_person_named_it(received, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outside = tmp_path / "records.csv"
    add_step(received, "estimate", str(outside), "--policy", "policy.yaml", "--json")
    argv = ["studio", str(received), "--notebook", "steps.py"]
    refused = run_command(argv, lambda _done, _total: None)
    assert (refused.code, Path("steps.py").exists()) == (2, False)
    assert f"--allow {outside}" in refused.said[0]
    assert run_command([*argv, "--allow", str(outside)], lambda _done, _total: None).code == 0
    assert repr(str(outside)) in Path("steps.py").read_text(encoding="utf-8")


def test_the_table_names_commands_and_options_that_there_are():
    for name, rule in RULES.items():
        command = own_command(name[0])
        for part in name[1:]:
            command = command.commands[part]
        options = {text: it for it in command.params for text in it.opts if text.startswith("--")}
        for option, value in rule.options.items():
            assert f"--{option}" in options, (name, option)
            assert options[f"--{option}"].is_flag == (value is None), (name, option)
        arguments = [it for it in command.params if it.param_type_name == "argument"]
        assert len(arguments) >= len(rule.arguments)


# databases


class Listener:
    """A host that speaks as much of PostgreSQL as it takes to be told a password."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.heard, self.calls = b"", 0
        self.ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self):
        return f"postgresql://me@127.0.0.1:{self.socket.getsockname()[1]}/d?sslmode=disable"

    def _serve(self):
        while True:
            try:
                caller, _ = self.socket.accept()
            except OSError:
                return
            self.calls += 1
            with caller:
                caller.settimeout(DEADLINE)
                self.heard += caller.recv(4096)
                caller.sendall(b"R\0\0\0\x08\0\0\0\x03")  # send the password as it is
                self.heard += caller.recv(4096)
            self.ended.set()


@pytest.fixture
def listener():
    found = Listener()
    yield found
    found.socket.close()


def test_an_address_in_a_project_is_called_only_after_the_person_allowed_it(
    received, listener, checked, monkeypatch
):
    monkeypatch.setenv("PGPASSWORD", "s3cret-of-mine")
    # the attack: whoever connects to the address tells the host the password
    with pytest.raises(psycopg.Error):
        psycopg.connect(listener.url)
    assert b"s3cret-of-mine" in listener.heard
    assert listener.calls == 1
    listener.heard, listener.calls = b"", 0

    records = {"data": "people", "policy": "policy.yaml", "engine": "postgres", "url": listener.url}
    set_setting(received, records=records)
    visitor = Visitor(received)
    place = "estimate?do=count&by=smoker"
    try:
        for name in ("data", "policy", "estimate", place, "learn?do=structure", "audit", "release"):
            page = visitor.page(name)
        assert listener.calls == 0
        page = unescape(visitor.page(place))
        assert f'name="what" value="{listener.url}"' in page
        refused = visitor.send("POST", "allow", f"what={listener.url}", cookie="")
        assert refused.status_code == 403
        assert visitor.send("POST", "allow", f"what={listener.url}", origin="http://h").status_code == 403
        other = visitor.post("allow", what=listener.url.replace("/d", "/other"), page="estimate")
        assert other.status_code == 303
        visitor.page(place)
        assert listener.calls == 0  # it was another address that was allowed
        visitor.post("allow", what=listener.url, page="estimate")
        visitor.page(place)
        assert listener.ended.wait(DEADLINE)
        assert listener.calls > 0
        assert b"s3cret-of-mine" not in listener.heard
    finally:
        visitor.close()
    listener.calls = 0
    options = ["people", "--policy", "policy.yaml", "--engine", "postgres", "--url"]
    add_step(received, "estimate", *options, listener.url)
    code, said = checked(received)
    assert (code, listener.calls) == (2, 0)
    assert f"--allow '{listener.url}'" in said


def test_a_collector_of_the_project_names_no_database_and_no_folder_outside(received, listener, tmp_path):
    survey = "survey: survey.yaml\nmasquerade: 1\n"
    (received / "survey.yaml").write_text("x", encoding="utf-8")
    store, state = received / "a.yaml", received / "b.yaml"
    store.write_text(f"{survey}store: {listener.url}\n", encoding="utf-8")
    state.write_text(f"{survey}state: {tmp_path / 'state'}\n", encoding="utf-8")
    with visiting(received) as visitor:
        for path, needed in ((store, listener.url), (state, str(tmp_path / "state"))):
            answer = visitor.post("data", do="collector", data=str(path))
            assert answer.status_code == 400
            assert f'name="what" value="{needed}"' in answer.text
    assert listener.calls == 0


# files


def test_data_that_a_project_names_are_read_after_the_person_allowed_it(received, tmp_path):
    people = tmp_path / "people.csv"
    people.write_text("smoker,region\nyes,north\nno,south\n", encoding="utf-8")
    set_setting(received, data=str(people), records={"data": str(people), "policy": str(people)})
    with visiting(received) as visitor:
        page = visitor.page("data")
        assert "records can be read by the policy" not in page
        assert f'name="what" value="{people}"' in page
        assert "A file on this machine" in page
        assert f'name="what" value="{people}"' in visitor.page("estimate")
        refused = visitor.post("release", do="disguise", ending="csv")
        assert refused.status_code == 400
        assert not (received / "releases").exists()
        assert visitor.studio.project.people == 1000  # nothing was counted
        visitor.post("allow", what=str(people), page="data")
        assert "records can be read by the policy" in visitor.page("data")


# a copy for others


def test_the_download_tells_no_path_of_the_data(tmp_path, monkeypatch):
    home = tmp_path / "home" / "Erika Musterfrau"
    folder = home / 'secret "clinic" é'
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    rows = "".join(f"{'yes' if n % 3 else 'no'},{'north' if n % 2 else 'south'}\n" for n in range(200))
    for name in ("people.csv", "again.csv"):
        (folder / name).write_text(f"smoker,region\n{rows}", encoding="utf-8")
    with visiting(folder / "project") as visitor:
        for name in ("people.csv", "again.csv"):
            answer = visitor.post("data", do="draft", data=str(folder / name))
            visitor.page(answer.headers["location"])
            visitor.page("data")
            ending = "parquet" if name == "again.csv" else "csv"
            made = visitor.post("release", shuffle="1", ending=ending, accept_gamma="361")  # 19 · 19
            visitor.page(made.headers["location"])
        (folder / "more").mkdir()
        (folder / "more/records.csv").write_text(f"smoker,region\n{rows}", encoding="utf-8")
        shutil.copy(visitor.studio.project.folder / "policy.yaml", folder / "more/rules.yaml")
        chosen = {"data": str(folder / "more/records.csv"), "policy": str(folder / "more/rules.yaml")}
        assert visitor.post("data", do="records", **chosen).status_code == 303
        visitor.page("estimate?do=count&by=smoker")
        kept = (visitor.studio.project.folder / "steps.json").read_text(encoding="utf-8")
        assert json.dumps(str(folder), ensure_ascii=False)[1:-1] in kept  # the precondition: it is there
        content = visitor.send("GET", "project.zip").content
    hidden = [str(home), str(folder), "Musterfrau", "clinic"]
    with zipfile.ZipFile(BytesIO(content)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    assert {"project.json", "steps.json", "counts.json", "history/000000.json"} <= members.keys()
    for name, member in members.items():
        for text in hidden:
            for written in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
                assert written.encode() not in member, (name, written)
    for name, member in members.items():  # and opens as a project
        (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / name).write_bytes(member)
    copied = Project(tmp_path / "copy")
    assert copied.settings["data"] is None
    assert {step.command[1] for step in copied.steps if step.command[0] == "disguise"} == {
        "people.csv",
        "again.csv",
    }
    assert copied.settings["records"]["data"] == "records.csv"


def test_a_link_is_in_no_download(received, tmp_path):
    (tmp_path / "mine.json").write_text("mine", encoding="utf-8")
    project = Project(received)
    (received / "models").mkdir()
    (received / "models/mine.json").symlink_to(tmp_path / "mine.json")
    with zipfile.ZipFile(BytesIO(project.archive())) as file:
        assert "models/mine.json" not in file.namelist()


def test_read_step_gives_what_a_command_line_gives():
    step = read_step(["estimate", "a.csv", "--where", "a=b", "--where", "c=d", "--misfit", "--json"])
    assert (step.command, step.arguments) == (("estimate",), ("a.csv",))
    assert step.options == {"where": ("a=b", "c=d"), "misfit": (), "json": ()}
    assert step.reads == ("a.csv",)
    assert re.match("postgresql", read_step(["estimate", "t", "--engine", "postgres"]).database or "")


def test_check_runs_no_code_of_a_formula(received, checked, tmp_path):
    (received / "records.csv").write_text("smoker,region\nyes,north\nno,south\n", encoding="utf-8")
    attack = f"smoker ~ region + np.savetxt('{tmp_path / 'ran'}', [1.0])"  # formulaic evaluates it as Python
    add_step(received, "stats", "regress", "records.csv", "--policy", "policy.yaml", "--formula", attack)
    assert checked(received)[0] == 1
    set_setting(received, records={"data": "records.csv", "policy": "policy.yaml"})
    with visiting(received) as visitor:
        page = visitor.page(f"learn?{urlencode({'do': 'regress', 'formula': attack})}")
    assert "np.savetxt is not allowed in a formula" in page
    assert not (tmp_path / "ran").exists()
