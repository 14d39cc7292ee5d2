"""Fixtures of the tests of threshold reporting."""

import copy
from functools import cache

import pytest

from masquerade.services.common import settings


@pytest.fixture(autouse=True, scope="module")
def _texts_read_once():
    """Parse each text of settings once: the form has 2,000 categories, and every start reads it again."""
    read = settings.read

    @cache
    def parsed(path, _text):
        return read(path)

    def read_once(path):
        return copy.deepcopy(parsed(path, path.read_bytes() if path.is_file() else None))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(settings, "read", read_once)
        yield
