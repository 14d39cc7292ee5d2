"""Tables, networks and files by name, each loaded once per process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from masquerade.core.errors import FileError, InputError, did_you_mean
from masquerade.data.catalogue import BASKETS, BNLEARN, FILES, NETWORKS, SETS, RawFile
from masquerade.data.lookup import DataSearch, FoundFile, Places, places
from masquerade.data.packages import (
    NETWORK_PACKAGE,
    carriers,
    frame_from_package,
    network_from_package,
    parse_table,
    wrong_count,
)
from masquerade.learn.networks.network import BayesianNetwork
from masquerade.learn.networks.network_files import parse_bif

SOURCE = "source"  # the key in a frame's attrs
CATALOGUE: dict[str, Mapping[str, Any]] = {"table": SETS, "network": NETWORKS, "baskets": BASKETS}
Kind = Literal["table", "network", "baskets"]


def names(kind: Kind = "table") -> tuple[str, ...]:
    """List the names of the catalogue.

    Parameters
    ----------
    kind : {"table", "network", "baskets"}, optional
        Tables for `load`, networks for `network`, or files of baskets for `path`.

    Returns
    -------
    tuple of str
        The names.

    Raises
    ------
    InputError
        If the kind is unknown.

    Examples
    --------
    >>> mq.data.names("network")
    ('alarm', 'asia', 'cancer', 'earthquake')
    """
    if kind not in CATALOGUE:
        raise InputError(f"'kind' must be one of {', '.join(CATALOGUE)}. Got {kind!r} instead.")
    return tuple(CATALOGUE[kind])


def describe() -> pd.DataFrame:
    """Return the catalogue as a frame.

    Returns
    -------
    pandas.DataFrame
        For every name its kind, title, size, licence, citation, files and packages.

    Examples
    --------
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
    """Load a public table by name.

    The table is searched for in `directory`, in the cache, in installed packages and at its origin. Every
    copy is verified. Labels are text, "?" stays "?", and rows are in the order of the file.

    Parameters
    ----------
    name : str
        Name of the table; see `names`.
    directory : path, optional
        Directory with data sets. Without it, the environment variable MASQUERADE_DATA.

    Returns
    -------
    pandas.DataFrame
        The table. ``frame.attrs["source"]`` states where it was found.

    Raises
    ------
    InputError
        If the catalogue has no such table.
    DataMissing
        If the table is not found anywhere.
    FileError
        If the directory has a different file under its name.

    Examples
    --------
    >>> iris = mq.data.load("iris")
    >>> iris.shape
    (150, 5)
    """
    _check_name(name, SETS, "table")
    return frame_of(name, places(directory)).copy()


def network(name: str, directory: str | Path | None = None) -> BayesianNetwork:
    """Load a public Bayesian network by name.

    The file is searched for as by `load`, and read by `masquerade.learn.read_bif`.

    Parameters
    ----------
    name : str
        Name of the network; see `names`.
    directory : path, optional
        Directory with data sets. Without it, the environment variable MASQUERADE_DATA.

    Returns
    -------
    BayesianNetwork
        The network.

    Raises
    ------
    InputError
        If the catalogue has no such network.
    DataMissing
        If the file is not found anywhere.

    Examples
    --------
    >>> mq.data.network("asia").structure["xray"]
    ('either',)
    """
    _check_name(name, NETWORKS, "network")
    return network_of(name, places(directory))


def path(name: str, directory: str | Path | None = None) -> Path:
    """Return the local path of a published file, such as "retail.dat" for `read_baskets`.

    The file is searched for as by `load`. A downloaded file is stored in the cache.

    Parameters
    ----------
    name : str
        Name of the file.
    directory : path, optional
        Directory with data sets. Without it, the environment variable MASQUERADE_DATA.

    Returns
    -------
    pathlib.Path
        Path of the file.

    Raises
    ------
    InputError
        If the catalogue has no such file.
    DataMissing
        If the file is not found anywhere.

    Examples
    --------
    >>> from masquerade.core.errors import InputError
    >>> try:
    ...     mq.data.path("iris")
    ... except InputError as error:
    ...     print(error)
    ...
    The catalogue has no file 'iris'. Did you mean 'iris.data'?
    """
    short = str(name).rpartition("/")[2]
    _check_name(short, FILES, "file")
    return path_of(FILES[short], places(directory))


def _check_name(name: str, names: Iterable[str], kind: str) -> None:
    listed = tuple(names)
    if name not in listed:
        raise InputError(f"The catalogue has no {kind} {name!r}.{did_you_mean(name, listed)}")


@lru_cache
def frame_of(name: str, where: Places) -> pd.DataFrame:
    """Return a table from the first place that has it."""
    table, search = SETS[name], DataSearch(name, where)
    found = [search.on_disk(file) for file in table.files]
    if not all(found):
        if copy := frame_from_package(table, search):
            frame, place = copy
            return _frame_with_source(frame, name, "package", place)
        found = [had or search.at_origin(file) for had, file in zip(found, table.files, strict=True)]
    have = [item for item in found if item is not None]
    if len(have) < len(table.files):
        raise search.missing(table.files, carriers(name))
    frame = parse_table(table, [item.content for item in have])
    if fault := wrong_count(table, frame):
        raise FileError(f"{have[0].place}: read as {fault}.")  # the checksum is right, so the parser is wrong
    kinds = ", ".join(dict.fromkeys(item.kind for item in have))
    return _frame_with_source(frame, name, kinds, ", ".join(item.place for item in have))


def _frame_with_source(frame: pd.DataFrame, name: str, kind: str, place: str) -> pd.DataFrame:
    frame.attrs = {SOURCE: {"name": name, "kind": kind, "place": place}}
    return frame


@lru_cache
def network_of(name: str, where: Places) -> BayesianNetwork:
    """Return a network from the first place that has its file."""
    return parse_bif(_raw(NETWORKS[name].files[0], DataSearch(name, where)).content.decode())


@lru_cache
def path_of(file: RawFile, where: Places) -> Path:
    """Return the path of a file on disk, storing it in the cache if necessary."""
    search = DataSearch(file.name, where)
    found = _raw(file, search)
    kept = found.path or search.keep(file, found.content)
    if kept is None:
        raise FileError(f"{file.name}: found ({found.place}), but the cache {where.cache} cannot be written.")
    return kept


def _raw(file: RawFile, search: DataSearch) -> FoundFile:
    """Return a published file, unchanged, from the first place that has it."""
    carried = [NETWORK_PACKAGE] if file.folder == BNLEARN else []
    found = search.on_disk(file)
    if found is None and carried:
        found = network_from_package(file, search)
    if found is None:
        found = search.at_origin(file)
    if found is None:
        raise search.missing([file], carried)
    return found
