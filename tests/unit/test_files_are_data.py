"""Files that others wrote are data: reading them imports, runs and contacts nothing, and opens no other file.

Every documented reader is given a hostile specimen in a process whose audit hook notes what it does.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import masquerade as mq
from masquerade.interop.release_folder import check_release
from masquerade.survey.forms.survey_file import Survey

ROOT = Path(mq.__file__).parents[1]
DEADLINE = 240  # seconds: a slow machine is no failure
RUNNER = Path(__file__).with_name("file_readers.py")
POLICY = (
    "masquerade: 1\nvariables:\n  smoker: {categories: ['yes', 'no'], channel: {kind: for_gamma, gamma: 3}}\n"
)
CODE = "def draw(truth, n):\n    return [truth] * n\n"
SURVEY = (
    "masquerade_survey: 1\ntitle: T\npolicy: {}\ncollector: http://127.0.0.1:9\ncontact: c\nconsent: d\n"
    "questions: [{{variable: smoker, text: 'Do you smoke?'}}]\n"
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return a folder of hostile specimens, next to files of the person that they name."""
    base = tmp_path_factory.mktemp("world")
    mine, folder = base / "mine", base / "received"
    mine.mkdir()
    folder.mkdir()
    (mine / "policy.yaml").write_text(POLICY, encoding="utf-8")
    (mine / "people.csv").write_text("smoker\nyes\nno\n", encoding="utf-8")
    (mine / "model.json").write_text("{}", encoding="utf-8")

    def write(name, text):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")

    # a module of the folder, which is a plug-in of every group as well
    groups = ("channels", "learners", "sources", "commands", "session_kinds")
    write("codebook.py", CODE)
    write("codebook-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: codebook\nVersion: 1.0\n")
    write(
        "codebook-1.0.dist-info/entry_points.txt",
        "".join(f"[masquerade.{group}]\ncodebook = codebook:draw\n" for group in groups),
    )
    write("policy.yaml", POLICY)
    kind = POLICY.replace("kind: for_gamma, gamma: 3", "kind: codebook, file: ../mine/people.csv")
    write("plugin.yaml", kind)
    tag = "masquerade: 1\nvariables: !!python/object/apply:os.system ['touch ran']\n"
    write("tag.yaml", tag)
    write("include.yaml", POLICY + "data: ../mine/people.csv\nextends: http://127.0.0.1:9/policy.yaml\n")
    write("model.json", {"masquerade_model": 1, "kind": "codebook", "path": "../mine/model.json"})
    write("module.json", {"masquerade_model": 1, "kind": "codebook:draw"})
    write("records.csv", "smoker\nyes\nno\n")
    channel = {"kind": "codebook", "file": "../mine/people.csv"}
    variables = {"smoker": {"categories": ["yes", "no"], "channel": channel}}
    carried = json.dumps({"masquerade": 1, "variables": variables})
    write("records.csv.masquerade.json", {"policy": "0" * 64, "policy_text": carried, "data": "../mine"})
    write("outside.yaml", SURVEY.format("../mine/policy.yaml"))
    write("absolute.yaml", SURVEY.format(mine / "policy.yaml"))
    write("survey.yaml", SURVEY.format("policy.yaml"))
    write("surveyjs.json", {
        "elements": [{
            "type": "radiogroup", "name": "a", "choicesByUrl": {"url": "http://127.0.0.1:9"},
            "choices": ["y", "n"], "visibleIf": "__import__('os').system('touch ran')",
        }],
        "navigateToUrl": "http://127.0.0.1:9", "logo": "../mine/people.csv",
    })  # fmt: skip
    write("limesurvey.lss", (
        f'<!DOCTYPE d [<!ENTITY e SYSTEM "file://{mine}/people.csv">]><document>'
        "<LimeSurveyDocType>Survey</LimeSurveyDocType>&e;</document>"
    ))  # fmt: skip
    write("levels.yaml", "hierarchies: 1\ncolumns: {a: {file: ../mine/people.csv}}\n")
    write("session.yaml", (
        "masquerade: 1\nsession: s\nprotocol: codebook\nconvener: c\nparties: [a, b]\nlearn: {goal: tables}\n"
        "url: http://127.0.0.1:9\n"
    ))  # fmt: skip
    entity = f'<!DOCTYPE BIF [<!ENTITY e SYSTEM "file://{mine}/people.csv">]>'
    write("network.xml", f"<?xml version='1.0'?>{entity}<BIF><NETWORK>&e;</NETWORK></BIF>")
    write("network.bif", 'network n { property include "../mine/people.csv"; }\n')
    write("terms.json", {"masquerade_gather": 1, "collector": "http://127.0.0.1:9"})
    write("dap.json", {"masquerade_dap": 1, "url": "http://127.0.0.1:9"})
    _write_release(folder, mine)
    _write_project(folder / "project", mine)
    return base


def _write_release(folder, mine):
    policy = mq.Policy.load(folder / "policy.yaml")
    frame = pd.DataFrame({"smoker": ["yes", "no"] * 100})
    frame.to_csv(folder / "people.csv", index=False)
    mq.disguise_file(folder / "people.csv", folder / "reports.csv", policy)
    mq.interop.write_release(folder / "reports.csv", policy, folder / "release", attacker=False)
    described = json.loads((folder / "release/croissant.json").read_text(encoding="utf-8"))
    for item in described["distribution"]:
        item["contentUrl"] = "http://127.0.0.1:9/data.csv"
    (folder / "release/croissant.json").write_text(json.dumps(described), encoding="utf-8")
    with (folder / "release/SHA256SUMS").open("a", encoding="utf-8") as file:
        file.write(f"{'0' * 64}  ../../mine/people.csv\n{'0' * 64}  {mine}/people.csv\n")
    mq.interop.write_release(folder / "reports.csv", policy, folder / "linked", attacker=False)
    (folder / "linked/audit.html").unlink()
    (folder / "linked/audit.html").symlink_to(mine / "people.csv")


def _write_project(folder, mine):
    from masquerade.studio.project import Project  # noqa: PLC0415  (needs the services)

    Project(folder)
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    (folder / "codebook.py").write_text(CODE, encoding="utf-8")
    url = "postgresql://me@127.0.0.1:9/d"
    settings = {"masquerade_studio": 1, "data": str(mine / "people.csv"), "people": None}
    records = {"data": "t", "policy": "policy.yaml", "engine": "postgres", "url": url}
    (folder / "project.json").write_text(json.dumps(settings | {"records": records}), encoding="utf-8")
    commands = {
        "code": ["audit", "sampler", "--sampler", "codebook:draw", "--import-path", "."],
        "file": ["estimate", str(mine / "people.csv"), "--policy", "policy.yaml", "--json"],
        "up": ["show", "../../mine/model.json", "--json"],
        "address": ["estimate", "t", "--policy", "policy.yaml", "--engine", "postgres", "--url", url],
    }
    for name, argv in commands.items():
        steps = [{"command": argv, "result": "0" * 16, "said": []}]
        (folder / f"{name}.steps").write_text(json.dumps(steps), encoding="utf-8")


@pytest.fixture(scope="module")
def noted(world):
    """Return what every reader did, by its name."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PGPASSWORD": "mine", "HOME": str(world / "mine")}
    run = subprocess.run(  # noqa: S603
        [sys.executable, "-P", str(RUNNER)],
        cwd=world / "received",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


ATTACKS = (
    "attack: import",
    "attack: open",
    "attack: connect",
    "attack: run",
    "attack: yaml",
    "attack: entity",
)


def test_the_hook_sees_what_an_attack_does(noted):
    for name in ATTACKS:
        assert noted[name]["did"], name


def test_no_reader_imports_runs_contacts_or_opens_what_a_file_names(noted, world):
    readers = noted.keys() - set(ATTACKS)
    assert len(readers) >= 25
    assert {name: noted[name]["did"] for name in readers if noted[name]["did"]} == {}
    assert not list(world.rglob("ran"))


def test_readers_refuse_in_their_own_words(noted):
    ends = {name: noted[name]["end"] for name in noted if name not in ATTACKS}
    assert {name: end for name, end in ends.items() if end.startswith("internal")} == {}
    for name in ("code", "file", "up", "address"):
        assert "Step 1 of steps.json" in ends[f"studio --check, {name}"]
        # a module in the folder is refused as well: a notebook beside it would import it
        end = ends[f"studio --notebook, {name}"]
        assert "Step 1 of steps.json" in end or "codebook.py: a notebook in this folder would run it" in end
    assert "in or below the folder" in ends["survey outside"]
    assert "is a link" in ends["release check, link"]


def test_a_survey_names_a_policy_of_its_own_folder(world):
    assert Survey.load(world / "received/survey.yaml").policy.disguised == ("smoker",)
    (world / "received/linked.yaml").symlink_to(world / "mine/policy.yaml")
    linked = SURVEY.format("linked.yaml")
    (world / "received/other.yaml").write_text(linked, encoding="utf-8")
    for name in ("outside.yaml", "absolute.yaml", "other.yaml"):
        with pytest.raises(mq.core.errors.InputError, match="in or below the folder"):
            Survey.load(world / "received" / name)


def test_a_release_with_a_link_is_not_whole(world):
    assert check_release(world / "received/linked") == [
        "audit.html: is a link; a release must contain files only."
    ]
