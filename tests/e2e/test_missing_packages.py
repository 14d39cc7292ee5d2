"""A base install says which extra is needed; what no extra brings is still called a bug."""

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from masquerade.cli.app import EXTRAS, missing_package

ROOT = Path(__file__).parents[2]
# packages that are called otherwise than their modules, or that come with another one
PACKAGES = {"ibis": "ibis-framework", "sklearn": "scikit-learn", "starlette": "fastapi"}
BASE = """
import sys
sys.modules.update(dict.fromkeys({names}))  # imports of them fail, and importlib finds none
from masquerade.cli.app import app
for line in {lines}:
    try:
        app(line.split())
    except SystemExit as ended:
        print(ended.code, file=sys.stderr)
"""


def said(names, lines):
    """Return what commands say, and their exit codes, where some modules are not installed."""
    program = BASE.format(names=set(names), lines=list(lines))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    return done.stderr


@pytest.mark.parametrize("missing", [EXTRAS, ["rbcl"]], ids=["all", "rbcl"])
def test_services_without_their_packages_name_the_extra(missing):
    lines = [
        "party serve party.yaml", "miner serve miner.yaml", "collect collector serve collector.yaml",
        "survey demo --once", "gather serve gather.yaml",
    ]  # fmt: skip
    if missing is EXTRAS:  # reads settings of services, and draws nothing
        lines.append("config check party.yaml")
    told = said(missing, lines)
    line = (
        "masquerade: Services need packages that are not installed: pip install 'masquerade[services]'\n2\n"
    )
    assert told == line * len(lines)


def test_every_extra_that_is_named_brings_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for module, extra in EXTRAS.items():
        brought = {re.split(r"[\[<>=]", package)[0].replace("-", "_").lower() for package in extras[extra]}
        assert PACKAGES.get(module, module).replace("-", "_") in brought, module
    # a service is told its extra whatever is missing first
    needed = {re.split(r"[<>=]", package)[0] for package in extras["crypto"]}
    assert needed <= {re.split(r"[<>=]", package)[0] for package in extras["services"]}


def test_the_home_page_lists_the_extras_of_users():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    told = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    developers = {"bench", "docs", "lint", "release", "test", "test-library"}
    assert not [name for name in extras.keys() - developers if f"`{name}`" not in told]


def test_what_no_extra_brings_is_a_bug_of_ours():
    with pytest.raises(ImportError) as raised:
        import_module("masquerade.no_such_module")
    assert missing_package(raised.value) is None
