"""Fixtures of the studio's tests."""

import pytest


@pytest.fixture
def received(tmp_path):
    """Return the folder of a project, with one step that is in order."""
    pytest.importorskip("fastapi")
    from tests.studio.received import make_project  # noqa: PLC0415  (needs FastAPI)

    make_project(tmp_path / "received")
    return tmp_path / "received"
