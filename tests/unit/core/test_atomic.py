"""Files appear complete or not at all."""

from __future__ import annotations

import stat

import pytest

from masquerade.core.atomic import write_whole
from masquerade.core.errors import FileError


def test_a_file_is_written_and_replaced(tmp_path):
    write_whole(tmp_path / "a.txt", "one")
    write_whole(tmp_path / "a.txt", b"two")
    assert (tmp_path / "a.txt").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_permissions_are_the_usual_ones_or_the_owners_alone(tmp_path):
    (tmp_path / "usual").write_text("")
    write_whole(tmp_path / "open", "x")
    write_whole(tmp_path / "closed", "x", private=True)
    usual = stat.S_IMODE((tmp_path / "usual").stat().st_mode)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == usual
    assert stat.S_IMODE((tmp_path / "closed").stat().st_mode) == 0o600


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("old")

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FileError, match=r"a.txt: cannot be written \(no space left on device\)"):
        write_whole(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_missing_directory_is_one_clear_line(tmp_path):
    with pytest.raises(FileError, match="cannot be written"):
        write_whole(tmp_path / "nowhere" / "a.txt", "x")


def test_an_interruption_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(_handle):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a.txt", "x")
    assert list(tmp_path.iterdir()) == []
