"""What is released: an archive and a wheel of it, installed into an empty environment, which then runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

import masquerade

ROOT = Path(__file__).parents[2]
TOGETHER = (
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "SECURITY.md",
    "pyproject.toml",
    "sbom.cdx.json",
)
NOTHING = shutil.ignore_patterns("__pycache__", "*.egg-info")


def run(*command, **options):
    """Run a command that must succeed, apart from this process's own path, and return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(  # noqa: S603  (our own tools)
        [str(word) for word in command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Return the archive and the wheel, made as `make dist` makes them: the wheel from the archive."""
    source = tmp_path_factory.mktemp("source")
    for name in TOGETHER:
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=NOTHING)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", source / "dist", source)
    [archive], [wheel] = (source / "dist").glob("*.tar.gz"), (source / "dist").glob("*.whl")
    return archive, wheel


@pytest.fixture(scope="module")
def installed(released, tmp_path_factory):
    """Return the programs of an environment that has the wheel, beside the packages that it needs."""
    place = tmp_path_factory.mktemp("environment") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", place)
    programs = place / "bin"
    here = run(programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    # its dependencies are those of the tests: a line in a .pth file does not bring our own package along
    (Path(here) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", programs / "python", "install", *options, released[1])
    return programs


def test_the_version_stands_in_one_place(released):
    archive, wheel = released
    version = masquerade.__version__
    assert archive.name == f"masquerade-{version}.tar.gz"
    assert wheel.name == f"masquerade-{version}-py3-none-any.whl"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    assert f"\n## {version.partition('.dev')[0]}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_a_release_says_where_it_comes_from():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    if ".dev" not in masquerade.__version__:
        assert {"Source", "Documentation", "Issues"} <= set(urls)
        assert "date-released" in citation
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)


def test_the_wheel_says_what_it_is(released):
    with zipfile.ZipFile(released[1]) as wheel:
        names = wheel.namelist()
        [metadata] = [message_from_bytes(wheel.read(name)) for name in names if name.endswith("/METADATA")]
    assert {name.split("/")[0] for name in names} == {
        "masquerade",
        f"masquerade-{masquerade.__version__}.dist-info",
    }
    assert {"masquerade/py.typed", "masquerade/report/templates/page.css"} <= set(names)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Programming Language :: Python :: 3.14" in metadata.get_all("Classifier")


def test_every_file_of_the_package_is_in_the_wheel_and_the_archive(released):
    tracked = run("git", "ls-files", "src", cwd=ROOT).splitlines()
    with zipfile.ZipFile(released[1]) as wheel:
        assert {name.removeprefix("src/") for name in tracked if (ROOT / name).exists()} <= set(
            wheel.namelist()
        )
    with tarfile.open(released[0]) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {*TOGETHER} <= inside


def test_an_empty_environment_with_the_wheel_runs_the_main_job(installed, tmp_path):
    found = run(installed / "python", "-c", "import masquerade; print(masquerade.__file__)", cwd=tmp_path)
    assert str(installed.parent) in found  # the wheel's, not the checkout's
    said = run(installed / "masquerade", "--version", cwd=tmp_path).strip()
    assert said == f"masquerade {masquerade.__version__}"
    run(installed / "masquerade", "demo", "--out", "demo", "--n", "2000", cwd=tmp_path)
    assert "</html>" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert run(installed / "masquerade", "policy", "id", "demo/policy.yaml", cwd=tmp_path).strip()
