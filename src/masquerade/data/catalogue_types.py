"""What the catalogue lists: published files by checksum, tables, networks and baskets with their facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

UCI, BNLEARN, FIMI = "uci", "bif", "fimi"  # the folders of a data directory, one for each origin
CC_BY = "CC BY 4.0"
CC_BY_SA = "CC BY-SA"


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file as its origin publishes it, byte for byte; `addresses` are relative to the origin."""

    name: str
    folder: str
    size: int
    sha256: str
    addresses: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Return where the file lies in a data directory."""
        return f"{self.folder}/{self.name}"


@dataclass(frozen=True, slots=True)
class DataSet:
    """A table: what it is called, which file holds it, what its columns are, and what must be true of it.

    `classes` counts the rows of every label of the `target`; `unknown` counts the "?" of every column that
    has some; `content` is the digest of the frame (see `facts.digest`), by which a copy in another form is
    recognised. A table of several files is sorted by all columns.
    """

    name: str
    title: str
    files: tuple[RawFile, ...]
    columns: tuple[str, ...]
    target: str
    rows: int
    classes: Mapping[str, int]
    content: str
    citation: str
    unknown: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    separator: str = ","
    licence: str = CC_BY
    note: str = ""


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """A Bayesian network: its file and what must be true of it."""

    name: str
    title: str
    file: RawFile
    nodes: int
    arcs: int
    parameters: int
    citation: str
    licence: str = CC_BY_SA


@dataclass(frozen=True, slots=True)
class BasketFile:
    """A file of transactions, for `masquerade.read_baskets`."""

    name: str
    title: str
    file: RawFile
    rows: int
    items: int
    citation: str
    licence: str
