"""Organisations that keep their own records: the types of sessions they run, and their statements.

`names` lists the types that a session file may name, and `find` returns one. Services run the sessions
(`masquerade session`). A plug-in provides a `SessionKind` with its `Role`s, and states by `Outflow` what
leaves a party.
"""

from masquerade.services.parties.kinds import find, names
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
