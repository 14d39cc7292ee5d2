"""Files of the first version, copied to where a test may change them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import struct
import tarfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent / "v0_1"
GENERATION = 0x80087601  # Linux: the generation of an inode


def expected(part: str) -> dict[str, Any]:
    """Return what the first version said about a part of the files."""
    return json.loads((FILES / "expected.json").read_text(encoding="utf-8"))[part]


def copied(part: str, to: Path) -> Path:
    """Return a copy of a part of the files, which are private as their user had them."""
    place = to / part
    place.parent.mkdir(parents=True, exist_ok=True)
    archive = FILES / f"{part}.tar.gz"
    if archive.exists():
        with tarfile.open(archive) as files:
            # the filter came with Python 3.11.4, the files are our own
            chosen = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
            files.extractall(place.parent, **chosen)  # noqa: S202
        return place
    shutil.copytree(FILES / part, place)
    for path in place.rglob("*"):
        path.chmod(0o600)
    return place


def never_moved(state: Path) -> None:
    """Let a copied state be taken for the original, as after an upgrade on its own machine.

    The first version binds a state to the inodes of two files, so that a copy is told from the original: here
    the state is told the inodes of the copy.
    """
    chosen, _epoch = (state / "once" / "incarnation").read_text("ascii").split()
    marks = [
        _body(state / "once" / name, written_to=written)
        for name, written in (("incarnation", False), ("burnt.sqlite", True))
    ]
    with closing(sqlite3.connect(state / "state.sqlite")) as store, store:
        change = "UPDATE facts SET value = ? WHERE name = 'incarnation'"
        assert store.execute(change, ("/".join([chosen, *marks]),)).rowcount == 1


def _body(path: Path, *, written_to: bool) -> str:
    with path.open("rb") as stream:
        found = os.fstat(stream.fileno())
        with suppress(OSError):
            told = fcntl.ioctl(stream.fileno(), GENERATION, b"\0" * 8)
            return f"{found.st_ino}.{struct.unpack('=I4x', told)[0]}"
        return f"{found.st_ino}" if written_to else f"{found.st_ino}.{found.st_ctime_ns}"
