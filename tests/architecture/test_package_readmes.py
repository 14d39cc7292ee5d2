"""Every protocol and service package has a README with the same sections that names all of its messages."""

import ast
import re

import pytest
from tests.architecture.modules import ROOT

PACKAGES = [
    *(f"protocols/{name}" for name in ("secure_aggregation", "frequency_mining", "mixnet")),
    *(f"protocols/k_anonymity/{name}" for name in ("threshold", "suppression")),
    *(f"protocols/{name}" for name in ("linkage", "vertical", "mpc", "people", "wire")),
    *(f"services/{name}" for name in ("parties", "counting", "threshold", "common")),
    *(f"survey/{name}" for name in ("collector", "device", "page")),
]
SECTIONS = [
    "Who takes part",
    "Messages",
    "What each role learns",
    "Paper and assumptions",
    "Where it stops being secure",
]
TAGS = {"tag", "name"}  # keywords of a class that is encoded on the wire
JSON_BASES = {"Strict", "InEpoch"}


def readme(package):
    return (ROOT / package / "README.md").read_text(encoding="utf-8")


def message_classes(package):
    """Yield the classes of a package that travel: with a wire tag, or a JSON model of its messages.py."""
    for path in sorted((ROOT / package).glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.ClassDef):
                continue
            bases = {ast.unparse(base) for base in node.bases}
            is_json = path.name == "messages.py" and bases & JSON_BASES
            if is_json or TAGS & {keyword.arg for keyword in node.keywords}:
                yield node.name


@pytest.mark.parametrize("package", PACKAGES)
def test_readme_has_all_sections_in_order(package):
    assert re.findall(r"^## (.+)$", readme(package), re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("package", PACKAGES)
def test_readme_names_every_message(package):
    text = readme(package)
    missing = [name for name in message_classes(package) if not re.search(rf"\b{name}\b", text)]
    assert not missing, f"{package}/README.md does not name {', '.join(missing)}"


def test_message_classes_are_found():
    """The search must not silently find nothing: these packages define messages."""
    without = [package for package in PACKAGES if not list(message_classes(package))]
    assert without == ["services/common", "survey/collector", "survey/device", "survey/page"]


@pytest.mark.parametrize("package", PACKAGES)
def test_readme_draws_its_messages(package):
    diagrams = re.findall(r"^```mermaid\n(.*?)^```$", readme(package), re.MULTILINE | re.DOTALL)
    assert diagrams
    for diagram in diagrams:
        first, *lines = diagram.splitlines()
        assert first == "sequenceDiagram"
        participants = {m[1] for line in lines if (m := re.match(r"    participant (\w+) as \S", line))}
        arrows = [re.match(r"    (\w+)->>(\w+): \S", line) for line in lines if "participant" not in line]
        assert all(arrow and {arrow[1], arrow[2]} <= participants for arrow in arrows), diagram


def test_every_protocol_package_has_a_readme():
    own = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.rglob("messages.py")}
    assert own <= set(PACKAGES)
