"""Tables, networks and files by name, each found once per process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from masquerade.core.errors import FileError, InputError, did_you_mean
from masquerade.data.catalogue import BASKETS, BNLEARN, FILES, NETWORKS, SETS, RawFile
from masquerade.data.lookup import Found, Places, Search, places
from masquerade.data.packages import (
    NETWORK_PACKAGE,
    carriers,
    frame_from_package,
    network_from_package,
    parsed,
    wrong_count,
)
from masquerade.learn.networks.network import BayesianNetwork, parse_bif

SOURCE = "source"  # the key in a frame's attrs
CATALOGUE: dict[str, Mapping[str, Any]] = {"table": SETS, "network": NETWORKS, "baskets": BASKETS}
Kind = Literal["table", "network", "baskets"]


def names(kind: Kind = "table") -> tuple[str, ...]:
    """Return what `load` (a table), `network` (a network) or `path` (a file of baskets) can be asked for.

    >>> mq.data.names("network")
    ('alarm', 'asia', 'cancer', 'earthquake')
    """
    if kind not in CATALOGUE:
        raise InputError(f"The kinds are {', '.join(CATALOGUE)}. Got {kind!r} instead.")
    return tuple(CATALOGUE[kind])


def describe() -> pd.DataFrame:
    """Return the catalogue: for every name its kind, title, size, licence, citation, files and packages.

    >>> mq.data.describe().loc["asia", "licence"]
    'CC BY-SA'
    """
    rows = [
        {
            "name": entry.name,
            "kind": entry.kind,
            "title": entry.title,
            "size": entry.size,
            "licence": entry.licence,
            "citation": entry.citation,
            "files": ", ".join(file.place for file in entry.files),
            "packages": NETWORK_PACKAGE if kind == "network" else ", ".join(carriers(entry.name)),
            "note": entry.note,
        }
        for kind, entries in CATALOGUE.items()
        for entry in entries.values()
    ]
    return pd.DataFrame(rows).set_index("name")


def load(name: str, directory: str | Path | None = None) -> pd.DataFrame:
    """Return a public table by name: labels as text, "?" as "?", numbers as numbers, in the file's order.

    Looked for in `directory` (or MASQUERADE_DATA), in the cache, in installed packages, at its origin; every
    copy is verified. ``frame.attrs["source"]`` tells where it came from; `describe` lists what there is.
    Errors: `DataMissing` if it is nowhere, `FileError` if the directory has another file under its name.

    >>> iris = mq.data.load("iris")
    >>> iris.shape
    (150, 5)
    """
    _known(name, SETS, "table")
    return frame_of(name, places(directory)).copy()


def network(name: str, directory: str | Path | None = None) -> BayesianNetwork:
    """Return a public Bayesian network by name, looked for like a table; see `masquerade.learn.read_bif`.

    >>> mq.data.network("asia").structure["xray"]
    ('either',)
    """
    _known(name, NETWORKS, "network")
    return network_of(name, places(directory))


def path(name: str, directory: str | Path | None = None) -> Path:
    """Return where a published file lies on this machine, such as "retail.dat" for `read_baskets`.

    Looked for like a table; a file that has to be fetched is put into the cache.

    >>> from masquerade.core.errors import InputError
    >>> try:
    ...     mq.data.path("iris")
    ... except InputError as error:
    ...     print(error)
    ...
    There is no file 'iris' in the catalogue. Did you mean 'iris.data'?
    """
    short = str(name).rpartition("/")[2]
    _known(short, FILES, "file")
    return path_of(FILES[short], places(directory))


def _known(name: str, names: Iterable[str], kind: str) -> None:
    listed = tuple(names)
    if name not in listed:
        raise InputError(f"There is no {kind} {name!r} in the catalogue.{did_you_mean(name, listed)}")


@lru_cache
def frame_of(name: str, where: Places) -> pd.DataFrame:
    """Return a table from the first place that has it."""
    table, search = SETS[name], Search(name, where)
    found = [search.on_disk(file) for file in table.files]
    if not all(found):
        if copy := frame_from_package(table, search):
            frame, place = copy
            return _frame_with_source(frame, name, "package", place)
        found = [had or search.at_origin(file) for had, file in zip(found, table.files, strict=True)]
    have = [item for item in found if item is not None]
    if len(have) < len(table.files):
        raise search.missing(table.files, carriers(name))
    frame = parsed(table, [item.content for item in have])
    if fault := wrong_count(table, frame):
        raise FileError(f"{have[0].place}: read as {fault}.")  # the file is right, so that its reading is not
    kinds = ", ".join(dict.fromkeys(item.kind for item in have))
    return _frame_with_source(frame, name, kinds, ", ".join(item.place for item in have))


def _frame_with_source(frame: pd.DataFrame, name: str, kind: str, place: str) -> pd.DataFrame:
    frame.attrs = {SOURCE: {"name": name, "kind": kind, "place": place}}
    return frame


@lru_cache
def network_of(name: str, where: Places) -> BayesianNetwork:
    """Return a network from the first place that has its file."""
    return parse_bif(_raw(NETWORKS[name].files[0], Search(name, where)).content.decode())


@lru_cache
def path_of(file: RawFile, where: Places) -> Path:
    """Return a file's place on disk, after putting it there if need be."""
    search = Search(file.name, where)
    found = _raw(file, search)
    kept = found.path or search.keep(file, found.content)
    if kept is None:
        raise FileError(f"{file.name}: found ({found.place}), but the cache {where.cache} cannot be written.")
    return kept


def _raw(file: RawFile, search: Search) -> Found:
    """Return a published file from the first place that has it as it is."""
    carried = [NETWORK_PACKAGE] if file.folder == BNLEARN else []
    found = search.on_disk(file)
    if found is None and carried:
        found = network_from_package(file, search)
    if found is None:
        found = search.at_origin(file)
    if found is None:
        raise search.missing([file], carried)
    return found
