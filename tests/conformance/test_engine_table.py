"""The table of engines on docs/howto/large-data.md says what the engines do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.engine_table import COLUMNS, KINDS, row_of

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "large-data.md"


def rows_on_page() -> list[str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(f"| {' | '.join(COLUMNS)} |")
    return lines[start + 2 : start + 2 + len(KINDS)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_row_says_what_the_engine_does(kind, request):
    if kind.needs:
        request.getfixturevalue(kind.needs)
    row = row_of(kind)
    assert "**" not in row
    assert row in rows_on_page()
