"""Catalogue of data sets: published files with checksums; tables, networks and baskets with their counts.

The entries are in ``catalogue.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, ClassVar

UCI, BNLEARN, FIMI = "uci", "bif", "fimi"  # folders of a data directory, one per origin


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file as published, byte for byte. `addresses` are relative to the origin."""

    name: str
    folder: str
    size: int
    sha256: str
    addresses: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Path of the file in a data directory."""
        return f"{self.folder}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """Common fields of all entries: name, title, files, citation and licence."""

    kind: ClassVar[str]
    name: str
    title: str
    files: tuple[RawFile, ...]
    citation: str
    licence: str = "CC BY 4.0"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet(CatalogueEntry):
    """A table: its columns and checks.

    Attributes
    ----------
    classes : mapping of str to int
        Number of rows with each label of `target`.
    unknown : mapping of str to int
        Number of "?" in every column that has some.
    content : str
        Digest of the frame (see `packages.digest`), which identifies a copy in another format.

    A table of several files is sorted by all columns.
    """

    kind = "table"
    columns: tuple[str, ...]
    target: str
    rows: int
    classes: Mapping[str, int]
    content: str
    unknown: Mapping[str, int] = field(default_factory=dict)
    separator: str = ","

    @property
    def size(self) -> str:
        """Size as text."""
        return f"{self.rows:,} rows, {len(self.columns)} columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFile(CatalogueEntry):
    """A Bayesian network in a file."""

    kind = "network"
    nodes: int
    arcs: int
    parameters: int

    @property
    def size(self) -> str:
        """Size as text."""
        return f"{self.nodes} nodes, {self.arcs} arcs, {self.parameters} parameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class BasketFile(CatalogueEntry):
    """A file of transactions, for `masquerade.read_baskets`."""

    kind = "baskets"
    rows: int
    items: int

    @property
    def size(self) -> str:
        """Size as text."""
        return f"{self.rows:,} transactions, {self.items:,} items"


_TEXT = resources.files(__package__).joinpath("catalogue.toml").read_text(encoding="utf-8")
_SAID: dict[str, dict[str, dict[str, Any]]] = tomllib.loads(_TEXT)
FILES: Mapping[str, RawFile] = {
    name: RawFile(name, **said | {"addresses": tuple(said.get("addresses", ()))})
    for name, said in _SAID["files"].items()
}


def _entry(section: str, name: str) -> dict[str, Any]:
    """Return the fields of an entry, including those inherited from the entry named in `like`."""
    said = dict(_SAID[section][name])
    said = _SAID[section].get(said.pop("like", ""), {}) | said
    lists = {key: tuple(value) for key, value in said.items() if isinstance(value, list)}
    return said | lists | {"name": name, "files": tuple(FILES[file] for file in said["files"])}


SETS: Mapping[str, DataSet] = {name: DataSet(**_entry("tables", name)) for name in _SAID["tables"]}
NETWORKS: Mapping[str, NetworkFile] = {
    name: NetworkFile(**_entry("networks", name)) for name in _SAID["networks"]
}
BASKETS: Mapping[str, BasketFile] = {name: BasketFile(**_entry("baskets", name)) for name in _SAID["baskets"]}
