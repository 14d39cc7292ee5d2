"""File systems to test on: the one of temporary files, and others that are mounted where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

MIB = 1 << 20
IMAGES = {  # size, and the command that makes the file system
    "ext4": (64 * MIB, ["mkfs.ext4", "-q"]),
    "ext4 with times of a second": (64 * MIB, ["mkfs.ext4", "-q", "-I", "128"]),
    "xfs": (320 * MIB, ["mkfs.xfs", "-q"]),
    "btrfs": (160 * MIB, ["mkfs.btrfs", "-q"]),
}
HERE = "the one here"
ALL = (HERE, "tmpfs", "overlayfs", *IMAGES)


@contextmanager
def mounted(kind: str, place: Path) -> Iterator[Path]:
    """Yield a folder on a new file system of a kind; skip the test where none can be mounted."""
    folder = place / "mounted"
    folder.mkdir()
    with ExitStack() as undo:
        if kind == "tmpfs":
            _mount(undo, folder, "-t", "tmpfs", "tmpfs")
        elif kind == "overlayfs":  # over ext4, which gives an inode's number to the next file again
            below = undo.enter_context(mounted("ext4", _new(place / "below")))
            parts = [f"{name}dir={_new(below / name)}" for name in ("lower", "upper", "work")]
            _mount(undo, folder, "-t", "overlay", "-o", ",".join(parts), "overlay")
        elif kind != HERE:
            mount_image(undo, make_image(place, kind), folder)
        yield folder


def mount_image(undo: ExitStack, image: Path, folder: Path) -> None:
    """Mount the image of a file system until `undo` ends."""
    _mount(undo, folder, "-o", "loop", str(image))


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def make_image(place: Path, kind: str) -> Path:
    """Return the image of a new file system, in a folder."""
    size, command = IMAGES[kind]
    if shutil.which(command[0]) is None:
        pytest.skip(f"no file system to mount: there is no {command[0]}")
    image = place / "image"
    with image.open("wb") as stream:
        stream.truncate(size)
    subprocess.run([*command, str(image)], check=True, capture_output=True)  # noqa: S603
    return image


def _mount(undo: ExitStack, folder: Path, *options: str) -> None:
    if os.geteuid():
        pytest.skip("no file system to mount: only root may")
    done = subprocess.run(  # noqa: S603
        ["mount", *options, str(folder)],  # noqa: S607
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"no file system to mount: {done.stderr.strip()[-200:]}")
    undo.callback(subprocess.run, ["umount", str(folder)], check=True)
