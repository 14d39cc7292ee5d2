"""The lock has what the package asks for, by hash, and names no index; the bill of materials follows it."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
SETS = {
    "run": (),
    "demo": ("services",),
    "test": ("test", "lint"),
    "test-library": ("test-library",),
    "bench": ("bench",),
    "docs": ("docs", "services", "sklearn"),
    "release": ("release",),
}
PIN = re.compile(r"^(?P<name>[\w.-]+)(?:\[[\w,.-]+\])?==(?P<version>[^\s;]+)(?: ; [^\\]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")
WHY = re.compile(r"^    # via .+$")


def pinned(name):
    """Return the versions that a file pins, with those of the file it begins with."""
    found = {} if name == "run" else pinned("run")
    for line in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if match := PIN.match(line):
            found[match["name"]] = match["version"]
    return found


def asked(extras):
    """Return what the package asks for with some extras, which may name others."""
    requirements = [Requirement(text) for extra in extras for text in EXTRAS[extra]]
    for requirement in requirements:
        if requirement.name == "masquerade":
            yield from asked(sorted(requirement.extras))
        else:
            yield requirement


def test_every_file_belongs_to_a_target():
    assert {file.stem for file in FOLDER.glob("*.txt")} == set(SETS)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in set(SETS) - {"test-library"}:
        assert f"SET := {name}\n" in makefile


@pytest.mark.parametrize("name", SETS)
def test_everything_that_is_asked_for_is_pinned_to_a_version_that_does(name):
    needed = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    needed += [Requirement(text) for text in PROJECT["build-system"]["requires"]]
    pins = pinned(name)
    for requirement in [*needed, *asked(SETS[name])]:
        package = canonicalize_name(requirement.name)
        assert package in pins, f"{package}: run scripts/lock"
        assert requirement.specifier.contains(pins[package]), f"{package}: run scripts/lock"


def test_every_pinned_package_has_a_verdict_in_the_dated_snapshot_of_advisories():
    script = runpy.run_path(str(ROOT / "scripts" / "advisories"))
    kept = json.loads((FOLDER / "advisories.json").read_text(encoding="utf-8"))
    pins = {name: version for file in SETS for name, version in pinned(file).items()}
    assert script["pinned"]() == pins  # none is skipped
    assert not script["problems"](kept, pins), "run scripts/advisories"
    assert date.fromisoformat(kept["asked"]) <= datetime.now(UTC).date()
    assert all(len(said["why"]) > 40 for said in kept["reviewed"].values())
    # what is skipped, affected or unanswered would be told, and so would a source that knows nothing
    name, version = next(iter(pins.items()))
    for packages in (
        {key: entry for key, entry in kept["packages"].items() if key != name},
        kept["packages"] | {name: {"version": "0", "verdict": "none known"}},
        kept["packages"] | {name: {"version": version, "verdict": "affected"}},
        kept["packages"] | {name: {"version": version, "verdict": "unanswered"}},
    ):
        assert script["problems"](kept | {"packages": packages, "reviewed": {}}, {name: version})
    assert script["problems"](kept | {"control": {"verdict": "none known"}}, pins)


@pytest.mark.parametrize("name", SETS)
def test_every_pin_has_hashes_and_no_address_is_written(name):
    first, *lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert first.startswith("# Written by scripts/lock: ")
    if name != "run":
        assert lines.pop(0) == "--requirement run.txt"
    shapes = "".join(
        "p" if PIN.match(line) else "h" if HASH.match(line) else "w" if WHY.match(line) else "?"
        for line in lines
    )
    assert re.fullmatch(r"(?:ph+w)+", shapes)


def test_the_bill_of_materials_is_that_of_the_lock():
    checked = subprocess.run(  # noqa: S603  (our own script)
        [sys.executable, str(ROOT / "scripts" / "sbom"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
