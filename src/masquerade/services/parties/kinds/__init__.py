"""Session types, one module each, found by their name in session files.

Another package adds a type by an entry point of the group ``masquerade.session_kinds``, which has the name of
the type and refers to its class. `base` documents the class. A type is loaded when it is first used.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.util.plugins import load_plugin, plugins
from masquerade.services.parties.kinds.base import (
    Convener,
    Outflow,
    Partition,
    Player,
    Role,
    RoleStep,
    SessionKind,
)

__all__ = ["Convener", "Outflow", "Partition", "Player", "Role", "RoleStep", "SessionKind", "find", "names"]

BUILT_IN = {
    "pooled-counts": "pooled.PooledCounts",
    "vertical-with-miner": "with_miner.WithMiner",
    "vertical-without-miner": "without_miner.WithoutMiner",
    "arbitrary-with-miner": "any_cells.AnyCells",
    "arbitrary-without-miner": "any_cells_without_miner.AnyCellsWithoutMiner",
    "revealed-vertical-counts": "products.HelpedCounts",
    "revealed-counts-of-two": "two_party_products.CountsOfTwo",
    "projection": "projection.ProjectedCounts",
    "hidden-structure": "hidden_structure.HiddenStructure",
    "hidden-k-means": "hidden_k_means.HiddenKMeans",
    "hidden-tree": "hidden_tree.HiddenTree",
}
EXAMPLE = "vertical-with-miner"  # default of `masquerade session example`


def names() -> tuple[str, ...]:
    """Return the names of all session types, built-in types first, without loading them.

    Examples
    --------
    >>> mq.parties.names()[:3]
    ('pooled-counts', 'vertical-with-miner', 'vertical-without-miner')
    """
    return tuple(dict.fromkeys((*BUILT_IN, *plugins("session_kinds"))))


def find(name: str) -> SessionKind:
    """Return a session type by its name; a plug-in cannot replace a built-in type.

    Parameters
    ----------
    name : str
        Name of the type, as in the field `protocol` of a session file.

    Returns
    -------
    SessionKind
        The session type.

    Raises
    ------
    InputError
        If there is no session type of that name.

    Examples
    --------
    >>> mq.parties.find("pooled-counts").partition
    <Partition.ROWS: 'different people at each party, all with the same columns; nobody is linked'>
    """
    if name not in names():
        raise InputError(f"There is no session kind {name!r}.{did_you_mean(name, names())}")
    return _load(name)


@cache
def _load(name: str) -> SessionKind:
    if name in BUILT_IN:
        module, _, kind = BUILT_IN[name].partition(".")
        found = getattr(import_module(f"{__name__}.{module}"), kind)
    else:
        found = load_plugin("session_kinds", name, lambda part: _problem(part, name))
    made: SessionKind = found()
    return made


def _problem(part: object, name: str) -> str | None:
    """Return the problem of a plug-in's session type, None if it is valid."""
    if not (isinstance(part, type) and issubclass(part, SessionKind)):
        return "it is not a subclass of SessionKind"
    stated = [item for item in ("name", "why", "partition", "roles") if hasattr(part, item)]
    if part.__abstractmethods__ or len(stated) < 4:
        return "it does not state its name, why, partition, roles and model"
    return None if part.name == name else f"the class calls itself {part.name!r}"
