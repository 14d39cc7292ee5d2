"""Networks in BIF, the format of bnlearn, pgmpy and pyAgrum."""

from __future__ import annotations

from pathlib import Path

from masquerade.core.errors import InputError
from masquerade.core.schema import Schema
from masquerade.core.util.atomic import write_whole
from masquerade.core.util.json_text import read_text
from masquerade.learn.networks.files import bif
from masquerade.learn.networks.network import BayesianNetwork, known_network

__all__ = ["parse_bif", "read_bif", "write_bif"]

MOST_BIF = 1 << 26  # bytes


def parse_bif(text: str, schema: Schema | None = None) -> BayesianNetwork:
    """Parse a network from BIF text; raise InputError with the line of a mistake.

    With a `schema`, categories get the labels of its variables (1 and not "1").
    """
    return known_network(*bif.parse_bif(text, schema))


def read_bif(path: str | Path, schema: Schema | None = None) -> BayesianNetwork:
    """Read a network from a BIF file.

    Parameters
    ----------
    path : str or Path
        File to read.
    schema : Schema, optional
        Variables with the labels of categories that are not texts.

    Returns
    -------
    BayesianNetwork
        The network.

    Raises
    ------
    InputError
        If the file is not valid.

    Examples
    --------
    >>> mq.learn.write_bif(mq.data.seven_nodes(), "seven.bif")
    >>> mq.learn.read_bif("seven.bif").structure["D"]
    ('B', 'C')
    """
    text = read_text(Path(path), most=MOST_BIF)
    try:
        return parse_bif(text, schema)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write_bif(network: BayesianNetwork, path: str | Path, name: str = "unknown") -> None:
    """Write a network to a BIF file, atomically.

    Parameters
    ----------
    network : BayesianNetwork
        A network without negative parameters.
    path : str or Path
        File to write.
    name : str, default "unknown"
        Name of the network in the file.

    Returns
    -------
    None
        The file is complete, or unchanged if writing failed.

    Raises
    ------
    InputError
        If a parameter is negative, or a name cannot be written in BIF.

    Examples
    --------
    >>> mq.learn.write_bif(mq.data.seven_nodes(), "seven.bif", name="seven")
    >>> mq.learn.read_bif("seven.bif").schema.names
    ('A', 'G', 'B', 'C', 'D', 'E', 'F')
    """
    write_whole(Path(path), bif.format_bif(network.usable("BIF"), name))
