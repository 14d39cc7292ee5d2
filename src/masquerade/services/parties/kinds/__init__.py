"""The kinds of sessions: one module each, found by the name that session files have for them.

Another package adds a kind of its own by an entry point of the group ``masquerade.session_kinds``, named as
the kind is and leading to its class; `base` says what a kind states. A kind is loaded when it is named.
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
    SessionKind,
    Step,
)

__all__ = ["Convener", "Outflow", "Partition", "Player", "Role", "SessionKind", "Step", "find", "names"]

OURS = {
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
EXAMPLE = "vertical-with-miner"  # of `masquerade session example`, unless another one is named


def names() -> tuple[str, ...]:
    """Return the names of all kinds, our own first; nothing is loaded.

    >>> mq.parties.names()[:3]
    ('pooled-counts', 'vertical-with-miner', 'vertical-without-miner')
    """
    return tuple(dict.fromkeys((*OURS, *plugins("session_kinds"))))


def find(name: str) -> SessionKind:
    """Return a kind by its name; nobody else's kind takes the place of one of ours.

    >>> mq.parties.find("pooled-counts").partition
    <Partition.ROWS: 'different people at each party, all with the same columns; nobody is linked'>
    """
    if name not in names():
        raise InputError(f"There is no session kind {name!r}.{did_you_mean(name, names())}")
    return _loaded(name)


@cache
def _loaded(name: str) -> SessionKind:
    if name in OURS:
        module, _, kind = OURS[name].partition(".")
        found = getattr(import_module(f"{__name__}.{module}"), kind)
    else:
        found = load_plugin("session_kinds", name, lambda part: _problem(part, name))
    made: SessionKind = found()
    return made


def _problem(part: object, name: str) -> str | None:
    """Return what is wrong with somebody's kind."""
    if not (isinstance(part, type) and issubclass(part, SessionKind)):
        return "it is no subclass of SessionKind"
    said = [item for item in ("name", "why", "partition", "roles") if hasattr(part, item)]
    if part.__abstractmethods__ or len(said) < 4:
        return "it does not state its name, why, partition, roles and model"
    return None if part.name == name else f"the class calls itself {part.name!r}"
