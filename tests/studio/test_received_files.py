"""Files of a project that another person made: links, pipes, other shapes, markup."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from tests.studio.received import POLICY, set_setting, visiting
from tests.studio.world import DEADLINE

from masquerade.core.errors import InputError
from masquerade.studio.project import Project

pytest.importorskip("fastapi")


@pytest.mark.parametrize(
    "name",
    [
        *("project.json", "policy.yaml", "steps.json", "counts.json", "people.memo", "downloads", "history"),
        *("results", "releases", "releases/1", "releases/1/disguised.csv", "history/000007.json"),
    ],
)
def test_a_project_with_a_link_is_not_opened(received, tmp_path, name):
    mine = tmp_path / "mine"
    mine.write_text("mine", encoding="utf-8")
    path = received / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(mine)
    path.write_text("attack", encoding="utf-8")  # a plain write goes to the link's target
    assert mine.read_text(encoding="utf-8") == "attack"
    mine.write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="is a link"):
        Project(received)
    assert mine.read_text(encoding="utf-8") == "mine"


def test_a_project_with_a_pipe_is_not_opened(received):
    (received / "counts.json").unlink(missing_ok=True)
    os.mkfifo(received / "counts.json")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        Project(received)


def test_a_project_that_would_steer_the_compiler_is_not_opened(received):
    config = received / ".numba_config.yaml"
    config.write_text("cache_dir: cache\n", encoding="utf-8")
    look = "import numba; print(numba.core.config.CACHE_DIR)"
    found = subprocess.run(  # noqa: S603
        [sys.executable, "-c", look], cwd=received, check=True, capture_output=True, timeout=DEADLINE
    )
    assert found.stdout.strip() == b"cache"  # pickles of the folder would be loaded
    with pytest.raises(InputError, match="configures other programs"):
        Project(received)


# values


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("project.json", [], "not a project"),
        ("project.json", {"masquerade_studio": 2}, "not a project"),
        ("project.json", {"masquerade_studio": 1, "run": "x"}, "'run' is not a setting"),
        ("project.json", {"masquerade_studio": 1, "data": 3}, "'data'"),
        ("project.json", {"masquerade_studio": 1, "data": "a\0b"}, "'data'"),
        ("project.json", {"masquerade_studio": 1, "data": "x" * 5000}, "'data'"),
        ("project.json", {"masquerade_studio": 1, "people": "9"}, "'people'"),
        ("project.json", {"masquerade_studio": 1, "people": 10**200}, "'people'"),
        ("project.json", {"masquerade_studio": 1, "people": True}, "'people'"),
        ("project.json", {"masquerade_studio": 1, "records": ["a"]}, "'records'"),
        ("project.json", {"masquerade_studio": 1, "records": {"data": "a", "run": "b"}}, "'records'"),
        ("project.json", {"masquerade_studio": 1, "records": {"data": "a", "url": {}}}, "'records.url'"),
        ("counts.json", {"a": "b"}, "whole number"),
        ("counts.json", [1], "whole number"),
        ("history/index.json", {"at": 5, "words": ["a"]}, "list of versions"),
        ("history/index.json", {"at": 0, "words": [{}]}, "list of versions"),
        ("history/index.json", {"at": "0", "words": ["a"]}, "list of versions"),
        ("steps.json", {}, "list of"),
    ],
)
def test_a_file_of_another_shape_is_refused(received, name, values, words):
    (received / name).write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(InputError, match=words):
        Project(received)


@pytest.mark.parametrize("name", ["project.json", "steps.json", "counts.json", "history/index.json"])
def test_a_file_too_long_or_too_deep_is_refused(received, name):
    (received / name).write_text("[" * 200_000, encoding="utf-8")
    with pytest.raises(InputError, match=r"deeper|valid JSON"):
        Project(received)
    with (received / name).open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(InputError, match="too long"):
        Project(received)


def test_a_version_with_a_policy_that_is_none_is_not_put_in_force(received):
    project = Project(received)
    with project.edit("one") as (settings, _):
        settings["people"] = 7
    before = (received / "policy.yaml").read_bytes()
    kept = json.loads((received / "history/000000.json").read_text(encoding="utf-8"))
    for policy in (3, "a: [", "masquerade: 1\n", "masquerade: 1\nvariables: {a: {categories: [1]}, b: 3}\n"):
        changed = json.dumps(kept | {"policy": policy})
        (received / "history/000000.json").write_text(changed, encoding="utf-8")
        with pytest.raises(InputError):
            project.go_to(0)
    assert (received / "policy.yaml").read_bytes() == before
    assert project.at == 1


def test_a_result_of_another_shape_is_said_on_the_page(received):
    (received / "records.csv").write_text("smoker,region\nyes,north\n", encoding="utf-8")
    set_setting(received, records={"data": "records.csv", "policy": "policy.yaml"})
    places = ("estimate?do=count&by=smoker", "learn?do=structure", "audit?do=policy")
    with visiting(received) as visitor:
        for place in places:
            visitor.page(place)
        for values in ("[]", '"x"', "{}", "[3]", '[{"cells": 3}]', '{"rows": 3}', "7", '{"kind": 3}', "["):
            for path in (received / "results").iterdir():
                path.write_text(values, encoding="utf-8")
            for place in places:
                assert visitor.send("GET", place).status_code == 200
            for step in visitor.studio.project.steps:
                assert visitor.send("GET", f"results/{step.result}.svg").status_code in {200, 400}


def test_markup_in_a_project_is_shown_as_text(received):
    script = "<script>alert(1)</script>"
    policy = POLICY.replace("north", f'"{script}"').replace("region:", f'"{script}":')
    (received / "policy.yaml").write_text(policy, encoding="utf-8")
    index = json.loads((received / "history/index.json").read_text(encoding="utf-8"))
    (received / "history/index.json").write_text(
        json.dumps(index | {"words": [f'"{script}' for _ in index["words"]]}), encoding="utf-8"
    )
    set_setting(received, data=f"{script}.csv", records={"data": f"{script}.csv", "policy": "policy.yaml"})
    name = Project(received).steps[0].result
    (received / "results" / f"{name}.json").write_text(
        json.dumps({"title": script, "contradicted": False, "findings": [], "tables": []}), encoding="utf-8"
    )
    with visiting(received) as visitor:
        for place in ("data", "policy", "estimate", "learn", "audit?do=policy", "release"):
            page = visitor.page(place)
            assert "alert(1)" in page
            assert script not in page
