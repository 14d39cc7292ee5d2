"""Organisations that keep their own records: the kinds of sessions they hold, and what a kind states.

`names` lists the kinds that a session file may name, `find` returns one. Sessions themselves are held by
services (`masquerade session`); a kind of another package is a `SessionKind` with its `Role`s, and says by
`Outflow` what leaves a party.
"""

from masquerade.services.parties.kinds import find, names
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
