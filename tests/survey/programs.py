"""The programs that tests of the page run: Node, and Debian's Chromium by Playwright."""

from __future__ import annotations

import shutil

import pytest
from tests.skips import in_ci

HOW = "run scripts/install-servers as root, or install it yourself"


def node() -> str:
    """Return where Node is; where it is missing the test is left out, in CI it fails."""
    return _found("node", ("node", "nodejs"))


def chromium() -> str:
    """Return where Chromium is; where it is missing the test is left out, in CI it fails."""
    return _found("chromium", ("chromium", "chromium-browser", "google-chrome"))


def _found(what: str, names: tuple[str, ...]) -> str:
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    reason = f"Browser: {what} is missing: {HOW}"
    if in_ci():
        pytest.fail(reason)
    pytest.skip(reason)
