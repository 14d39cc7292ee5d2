"""A project that another person made, and changes to its files."""

import json
import os
from contextlib import contextmanager
from pathlib import Path

from tests.studio.world import Visitor

from masquerade.studio.engine import run_command
from masquerade.studio.project import Project

POLICY = """masquerade: 1
variables:
  smoker: {categories: ["yes", "no"], channel: {kind: for_gamma, gamma: 3}}
  region: {categories: [north, south]}
"""
CHECKED = ["audit", "policy", "policy.yaml", "--no-page", "--json"]


def kept(*argv, result="0" * 16):
    return {"command": list(argv), "result": result, "said": []}


def run_in_folder(folder, argv):
    before = Path.cwd()
    os.chdir(folder)
    try:
        return run_command(argv, lambda _done, _total: None)
    finally:
        os.chdir(before)


def add_step(folder, *argv, **more):
    steps = json.loads((folder / "steps.json").read_text(encoding="utf-8"))
    (folder / "steps.json").write_text(json.dumps([*steps, kept(*argv, **more)]), encoding="utf-8")


def set_setting(folder, **values):
    settings = json.loads((folder / "project.json").read_text(encoding="utf-8"))
    (folder / "project.json").write_text(json.dumps(settings | values), encoding="utf-8")


@contextmanager
def visiting(folder):
    came = Visitor(folder)
    try:
        yield came
    finally:
        came.close()


def make_project(folder):
    """Make a project with one step that is in order."""
    project = Project(folder)
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    printed = run_in_folder(folder, CHECKED).printed
    project.keep_result(CHECKED, project.result_id(CHECKED), printed, [])
