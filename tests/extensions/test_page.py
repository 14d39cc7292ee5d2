"""The page shows the files of the example package as they are."""

from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent / "package"
PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = [path for path in sorted(PACKAGE.rglob("*")) if path.suffix in {".py", ".toml"}]


@pytest.mark.parametrize("path", [path for path in FILES if path.name != "__init__.py"], ids=lambda p: p.name)
def test_a_file_of_the_package_stands_on_the_page(path):
    assert path.read_text(encoding="utf-8").strip() in PAGE
