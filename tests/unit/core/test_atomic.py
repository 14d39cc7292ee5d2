"""Files appear complete or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from masquerade.core.errors import FileError
from masquerade.core.util.atomic import AtomicFile, check_replaceable, write_new, write_whole


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


@pytest.mark.parametrize("private", [True, False])
def test_write_whole_replaces_a_link_and_never_what_it_leads_to(tmp_path, private):
    """The attack: a link with the name that will be written leads to a file that the writer may write."""
    (tmp_path / "precious").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    with (tmp_path / "link").open("w") as through:  # as any other program writes
        through.write("overwritten")
    assert (tmp_path / "precious").read_text() == "overwritten"
    os.link(tmp_path / "precious", tmp_path / "second name")
    for name in ("link", "second name"):
        write_whole(tmp_path / name, "new", private=private)
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_text() == "new"
        assert (tmp_path / "precious").read_text() == "overwritten"
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    write_whole(tmp_path / "dangling", "new", private=private)
    assert not (tmp_path / "nowhere").exists()


def test_what_is_not_a_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "to folder").symlink_to(tmp_path / "folder")
    for name in ("pipe", "folder", "to folder"):
        with pytest.raises(FileError, match="this is"):
            write_whole(tmp_path / name, "new")
    for name in ("/dev/null", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        before = os.lstat(name).st_mode
        with pytest.raises(FileError, match="not a regular file"):
            check_replaceable(Path(name))
        assert os.lstat(name).st_mode == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe", "to folder"]


@pytest.mark.parametrize("links", [True, False])
def test_a_secret_is_written_once(tmp_path, monkeypatch, links):
    if not links:

        def refused(*_):
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr("os.link", refused)
    write_new(tmp_path / "key", "one", what="a key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")  # put there by somebody who wants to have it
    for name in ("key", "link"):
        with pytest.raises(FileError, match=f"{name}: exists already; a key is never overwritten"):
            write_new(tmp_path / name, "two", what="a key")
    with pytest.raises(FileError, match="cannot be written"):
        write_new(tmp_path / "nowhere" / "key", "one", what="a key")
    assert (tmp_path / "key").read_text() == "one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "link"]


def test_a_file_is_its_owners_alone_until_it_is_published(tmp_path):
    with AtomicFile(tmp_path / "a") as file:
        file.stream.write(b"x")
        (hidden,) = tmp_path.iterdir()
        assert stat.S_IMODE(hidden.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_needed_that_windows_lacks(tmp_path, monkeypatch):
    """There no folder can be opened, and no mode be changed of an open file."""
    real = os.open

    def opened(path, flags, *rest, **options):
        if os.path.isdir(path):  # noqa: PTH112
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *rest, **options)

    monkeypatch.delattr("os.O_DIRECTORY")
    monkeypatch.delattr("os.fchmod")
    monkeypatch.setattr("os.open", opened)
    write_whole(tmp_path / "a.txt", "one")
    write_whole(tmp_path / "a.txt", "two")
    write_new(tmp_path / "key", "three", what="a key")
    assert (tmp_path / "a.txt").read_text() == "two"
    assert (tmp_path / "key").read_text() == "three"
