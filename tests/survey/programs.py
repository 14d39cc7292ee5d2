"""The programs that tests of the page run: Node with its packages, and Debian's Chromium and Firefox."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from tests.skips import in_ci


def node() -> str:
    """Return where Node is; where it is missing the test is left out, in CI it fails."""
    return _found("node", ("node", "nodejs"))


def chromium() -> str:
    """Return where Chromium is; where it is missing the test is left out, in CI it fails."""
    return _found("chromium", ("chromium", "chromium-browser", "google-chrome"))


def firefox() -> str:
    """Return where Firefox is; where it is missing the test is left out, in CI it fails."""
    return _found("firefox", ("firefox-esr", "firefox"))


def packages() -> Path:
    """Return the folder with the packages of Node that tests/survey/node locks."""
    place = Path(sys.prefix) / "node"
    if not (place / "installed.json").exists():
        _missing("packages of Node", f"run scripts/install-servers {place}")
    return place


def _found(what: str, names: tuple[str, ...]) -> str:
    found = [path for path in map(shutil.which, names) if path is not None]
    return (
        found[0] if found else _missing(what, "run scripts/install-servers as root, or install it yourself")
    )


def _missing(what: str, how: str) -> NoReturn:
    reason = f"Browser: {what} missing: {how}"
    if in_ci():
        pytest.fail(reason)
    pytest.skip(reason)
