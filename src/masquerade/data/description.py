"""What there is: names, titles, sizes, licences and citations."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from masquerade.core.errors import InputError
from masquerade.data.networks import BASKETS, NETWORKS
from masquerade.data.package_copies import carriers
from masquerade.data.package_readers import NETWORK_PACKAGE
from masquerade.data.tables import SETS

Kind = Literal["table", "network", "baskets"]
CATALOGUE = {"table": tuple(SETS), "network": tuple(NETWORKS), "baskets": tuple(BASKETS)}


def names(kind: Kind = "table") -> tuple[str, ...]:
    """Return what `load` (a table), `network` (a network) or `path` (a file of baskets) can be asked for.

    >>> names("network")
    ('alarm', 'asia', 'cancer', 'earthquake')
    """
    if kind not in CATALOGUE:
        raise InputError(f"The kinds are {', '.join(CATALOGUE)}. Got {kind!r} instead.")
    return CATALOGUE[kind]


def describe() -> pd.DataFrame:
    """Return the catalogue: for every name its kind, title, size, licence, citation, files and packages.

    >>> describe().loc["asia", "licence"]
    'CC BY-SA'
    """
    tables = [
        {
            "name": table.name,
            "kind": "table",
            "title": table.title,
            "size": f"{table.rows:,} rows, {len(table.columns)} columns",
            "licence": table.licence,
            "citation": table.citation,
            "files": ", ".join(file.place for file in table.files),
            "packages": ", ".join(carriers(table.name)),
            "note": table.note,
        }
        for table in SETS.values()
    ]
    networks = [
        {
            "name": network.name,
            "kind": "network",
            "title": network.title,
            "size": f"{network.nodes} nodes, {network.arcs} arcs, {network.parameters} parameters",
            "licence": network.licence,
            "citation": network.citation,
            "files": network.file.place,
            "packages": NETWORK_PACKAGE,
            "note": "",
        }
        for network in NETWORKS.values()
    ]
    baskets = [
        {
            "name": basket.name,
            "kind": "baskets",
            "title": basket.title,
            "size": f"{basket.rows:,} transactions, {basket.items:,} items",
            "licence": basket.licence,
            "citation": basket.citation,
            "files": basket.file.place,
            "packages": "",
            "note": "for masquerade.read_baskets",
        }
        for basket in BASKETS.values()
    ]
    return pd.DataFrame([*tables, *networks, *baskets]).set_index("name")
