"""The picture in docs/architecture.md is the import graph; nothing goes in circles; the packages are few."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
GRAPH = runpy.run_path(str(ROOT / "scripts" / "import_graph.py"))


def test_the_picture_in_the_docs_is_the_import_graph():
    assert GRAPH["block"]() in GRAPH["PAGE"].read_text(encoding="utf-8"), (
        "run scripts/import_graph.py --write"
    )


def test_no_modules_import_each_other_in_a_circle_lazily_either():
    assert GRAPH["cycles"]() == []


def test_protocols_import_no_source_and_learners_the_core_only():
    packages = GRAPH["packages"]()
    assert "sources" not in packages["protocols"]
    assert packages["learn"] == packages["stats"] == {"core"}
    assert packages["core"] == set()


def test_there_are_few_packages_and_every_one_is_in_the_table_of_contributing():
    folders = sorted(path.parent.name for path in (ROOT / "src" / "masquerade").glob("*/__init__.py"))
    assert len(folders) <= 24
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in GRAPH["packages"]() if f"`{name}`" not in text] == []


def test_a_circle_would_be_found(monkeypatch):
    around = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    monkeypatch.setitem(GRAPH["cycles"].__globals__, "edges", lambda: around)
    monkeypatch.setitem(GRAPH["cycles"].__globals__, "modules", lambda: dict.fromkeys(around))
    assert GRAPH["cycles"]() == [["a", "b", "c"]]
