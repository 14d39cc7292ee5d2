"""The example package, installed: its folder and what an installer writes about it are on the path."""

import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "package"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install the example package for one test."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = tmp_path / "site" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    groups = project["entry-points"].items()
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in parts.items())
        for group, parts in groups
    ]
    (about / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(PACKAGE)
    monkeypatch.syspath_prepend(about.parent)
    yield project
    for name in [name for name in sys.modules if name.partition(".")[0] == "masquerade_example"]:
        del sys.modules[name]
