"""Pages import public names only: a reader may rely on all that a page shows."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from tests.architecture.public_names import PACKAGES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "tests" / "extensions" / "package").rglob("*.py"))
PUBLIC = {*PACKAGES, "masquerade.simulation", "masquerade.survey"}


def private_imports(code):
    """Yield the imports of a text in Python that are not public names of masquerade."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "masquerade"]
            yield from (name for name in names if name not in PUBLIC)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "masquerade":
            for alias in node.names:
                package = importlib.import_module(node.module) if node.module in PUBLIC else None
                names = getattr(package, "__all__", None) or [n for n in vars(package or ast) if n[0] != "_"]
                if package is None or alias.name not in names:
                    yield f"{node.module}.{alias.name}"


def code_of(page):
    """Return the Python of a page."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".py":
        return text
    return "\n".join(re.findall(r"^```py(?:thon)?$(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda page: str(page.relative_to(ROOT)))
def test_page_imports_public_names_only(page):
    assert list(private_imports(code_of(page))) == []


def test_private_import_is_found():
    code = (
        "import masquerade.core.table\n"
        "from masquerade.learn import tables, model_file\n"
        "from masquerade import x\n"
    )
    found = ["masquerade.core.table", "masquerade.learn.model_file", "masquerade.x"]
    assert sorted(private_imports(code)) == found
