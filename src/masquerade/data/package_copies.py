"""Copies in installed packages, taken only if every count and the digest are those of the published data."""

from __future__ import annotations

import pandas as pd

from masquerade.data.catalogue_types import DataSet, RawFile
from masquerade.data.facts import digest, wrong_count
from masquerade.data.file_lookup import Found, Search
from masquerade.data.locations import difference
from masquerade.data.package_readers import (
    COPIES,
    NETWORK_PACKAGE,
    UNREADABLE,
    Copy,
    home,
    network_bytes,
    release,
)
from masquerade.data.tables import SETS


def carriers(name: str) -> list[str]:
    """Return the packages, by the names they are installed under, that carry a table."""
    return [copy.installs for copy in COPIES.get(name, ())]


def frame_from_package(table: DataSet, search: Search) -> tuple[pd.DataFrame, str] | None:
    """Return a table from the first package with a right copy, and which that was."""
    copies = COPIES.get(table.name, ())
    if not search.where.packages or not copies:
        search.note("installed packages: none is known to carry it")
        return None
    for copy in copies:
        place = f"{release(copy.package)}, {copy.file}"
        frame = read(copy, table)
        if not isinstance(frame, str):
            return frame, place
        search.note(f"the package {place}: {frame}")
    return None


def read(copy: Copy, table: DataSet) -> pd.DataFrame | str:
    """Return a table from a package, or why it cannot be had from there."""
    folder = home(copy.package)
    if folder is None:
        return "not installed"
    try:
        frame = copy.read(folder / copy.file)
    except UNREADABLE as error:
        return f"no copy that can be read ({type(error).__name__})"
    fault = wrong_count(table, frame)
    if not fault and digest(frame) == table.content:
        return frame
    if copy.whole and holds_whole(copy):
        return (
            f"it has all the records, but not in the order of the published files, which is needed to tell "
            f"which are in {table.name!r}; load {copy.whole!r} if the order does not matter"
        )
    return (
        f"an altered copy: {fault or 'the counts are right, but not all values or not the order of the rows'}"
    )


def holds_whole(copy: Copy) -> bool:
    """Tell whether the package has the whole table of which another is a part."""
    return any(
        other.package == copy.package and isinstance(read(other, SETS[copy.whole]), pd.DataFrame)
        for other in COPIES[copy.whole]
    )


def network_from_package(file: RawFile, search: Search) -> Found | None:
    """Return a network's file from the package that carries it."""
    folder = home(NETWORK_PACKAGE) if search.where.packages else None
    if folder is None:
        search.note(f"the package {NETWORK_PACKAGE}: not installed")
        return None
    try:
        content, path = network_bytes(folder, file.name)
    except UNREADABLE as error:
        search.note(
            f"the package {release(NETWORK_PACKAGE)}: no copy that can be read ({type(error).__name__})"
        )
        return None
    if fault := difference(content, file):
        search.note(f"the package {release(NETWORK_PACKAGE)}: an altered copy: {fault}")
        return None
    return Found(file, content, "package", f"{release(NETWORK_PACKAGE)}, {path.relative_to(folder)}")
