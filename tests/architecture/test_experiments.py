"""The experiments use the public interface only: names that packages list in their `__all__`."""

import ast
import tomllib
from importlib import import_module
from pathlib import Path

from tests.architecture.modules import for_each

FOLDER = Path(__file__).parents[2] / "experiments" / "src" / "masquerade_experiments"
MODULES = sorted(FOLDER.rglob("*.py"))


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "masquerade":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.startswith("masquerade."))


def test_the_walk_finds_the_experiments():
    assert len(MODULES) > 60
    assert any(list(imported(path)) for path in MODULES)


@for_each(MODULES)
def test_an_experiment_imports_public_names_only(path):
    for module, name in imported(path):
        assert name in import_module(module).__all__ or name == "__version__", f"{module}: {name}"


def test_the_package_has_the_version_of_the_library():
    text = (FOLDER.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["project"]["version"] == import_module("masquerade").__version__
