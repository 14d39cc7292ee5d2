from __future__ import annotations
from pathlib import Path
import pytest
from tests.e2e.docs_runner import run_page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_page(page, tmp_path):
    run_page(page, tmp_path)
