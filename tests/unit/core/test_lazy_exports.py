"""Public names are found in one line, and in brackets where the line is too long."""

import sys

import pytest

from masquerade.core.util.lazy_exports import lazy_exports

TEXT = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from json import dumps as dumps
    from json import (
        loads as loads,
    )
"""


def test_lazy_exports_read_long_lines_in_brackets(tmp_path, monkeypatch):
    (tmp_path / "exporting_example.py").write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    __import__("exporting_example")
    load, names, public = lazy_exports("exporting_example")
    assert names() == public == ["dumps", "loads"]
    assert load("loads")("1") == 1
    with pytest.raises(AttributeError):
        load("dump")
    sys.modules.pop("exporting_example")
