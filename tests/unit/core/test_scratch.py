"""Long columns: the same as in memory, in files that have no name, and gone with the last array over them."""

import os
import resource
import stat
from pathlib import Path

import numpy as np
import pytest

from masquerade.core.errors import FileError
from masquerade.core.util import scratch
from masquerade.core.util.scratch import MEMORY_ONLY, Scratch, release_pages


def unnamed():
    """Return the sizes and modes of the files without a name that this process has open or mapped."""
    with Path("/proc/self/maps").open(encoding="utf-8") as lines:
        return [line for line in lines if "(deleted)" in line and "masquerade-scratch-test" in line]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "IN_MEMORY", 1000)
    place = tmp_path / "masquerade-scratch-test"
    place.mkdir(mode=0o700)
    return place


@pytest.mark.parametrize("rows", [0, 3, 5000])
@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_a_column_is_what_was_added_wherever_it_is_held(folder, rows, kind):
    values = np.random.default_rng().integers(0, 200, (rows, 3)).astype(kind)
    for place in (Scratch(folder), MEMORY_ONLY):
        column = place.column()
        for at in range(0, rows, 700):
            column.append(values[at : at + 700])
        assert column.rows == rows
        found = column.array()
        release_pages()
        if rows:
            np.testing.assert_array_equal(found, values)
            assert found.dtype == kind
        filled = place.empty((rows, 3), kind)
        filled[:] = values
        release_pages()  # what was written stays
        np.testing.assert_array_equal(filled, values)


def test_files_have_no_name_and_go_with_their_arrays(folder):
    place = Scratch(folder)
    with place.file() as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    column = place.column()
    column.append(np.arange(5000))
    found, filled = column.array(), place.empty((5000,), np.int64)
    assert not list(folder.iterdir())
    assert len(unnamed()) == 2
    del column, found, filled
    assert not unnamed()
    release_pages()


def test_pieces_of_another_type_are_refused(folder):
    column = Scratch(folder).column()
    column.append(np.zeros(3, np.uint8))
    with pytest.raises(TypeError, match=r"uint8\. Got uint16"):
        column.append(np.zeros(3, np.uint16))


def test_short_columns_are_in_memory(folder):
    column = Scratch(folder).column()
    column.append(np.arange(10))
    assert column.array().base is None
    assert not unnamed()


def test_a_disk_that_takes_no_more_is_an_error_before_anything_is_written(folder):
    """A mapped file that the disk has no room for would end the process when it is written to."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(FileError, match="no space for long columns"):
            Scratch(folder).empty((1 << 20,), np.uint8)
        column = Scratch(folder).column()
        with pytest.raises(FileError, match="no space for long columns"):
            column.append(np.zeros(1 << 20, np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not unnamed()


def test_a_folder_that_takes_nothing_is_an_error_that_says_so(tmp_path):
    place = Scratch(tmp_path / "missing")
    with pytest.raises(FileError, match="no space for long columns"):
        place.empty((1 << 21,), np.uint8)
    column = place.column()
    with pytest.raises(FileError, match="no space for long columns"):
        column.append(np.zeros(1 << 21, np.uint8))
