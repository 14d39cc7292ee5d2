"""Ledger of facts that a person's device must never lose: used keys, sent votes, signed rosters.

A ledger only grows. A claim is durable before the message that depends on it leaves, and cannot be made
again, not even by a second process or after a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from masquerade.core.errors import InputError
from masquerade.core.util.processes import ResourceOwner
from masquerade.crypto.errors import KeySpent
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.wire.durable_store import Claim, Claims, DurableStore

__all__ = ["Claim", "Enrolled", "FileLedger", "MemoryLedger", "PersonLedger"]


class PersonLedger(Protocol):
    """Interface of ledgers. Two implementations follow; a device may have a different one."""

    def claim(self, claims: Sequence[Claim], /) -> None:
        """Record all claims durably; if one exists already, record none and raise `KeySpent`."""

    def find(self, kind: str, name: bytes, /) -> bytes | None:
        """Return the value of a claim, None if there is none."""

    def values(self, kind: str, prefix: bytes = b"", /) -> list[bytes]:
        """Return the values of the claims of a kind whose name starts with `prefix`, oldest first."""


class MemoryLedger:
    """A ledger that ends with its process: for simulations and tests.

    >>> ledger = mq.people.MemoryLedger()
    >>> source = mq.Controlled(mq.tally(mq.data.students()[["exams", "pills"]]), mq.Rules(), ledger)
    >>> _ = source.answer([mq.Query(by="exams")])
    >>> len(source.control.history.entries())
    1
    """

    def __init__(self) -> None:
        self._owner = ResourceOwner("A ledger in memory", "FileLedger(path) is one that several may share.")
        self._entries: dict[tuple[str, bytes], bytes] = {}
        self._lock = threading.Lock()

    def claim(self, claims: Sequence[Claim]) -> None:
        """Record all claims, or none and raise `KeySpent`."""
        self._owner.check()  # the copy in a forked process would not see other processes' claims
        with self._lock:
            names = [(one.kind, one.name) for one in claims]
            if len(set(names)) < len(names) or any(name in self._entries for name in names):
                raise KeySpent(Claims.SPENT)
            self._entries |= {(one.kind, one.name): one.value for one in claims}

    def find(self, kind: str, name: bytes) -> bytes | None:
        """Return the value of a claim.

        Parameters
        ----------
        kind : str
            Type of the claim.
        name : bytes
            Name of the claim.

        Returns
        -------
        bytes or None
            None if there is no such claim.
        """
        return self._entries.get((kind, name))

    def values(self, kind: str, prefix: bytes = b"") -> list[bytes]:
        """Return the values of all claims of a type, oldest first.

        Parameters
        ----------
        kind : str
            Type of the claims.
        prefix : bytes, optional
            Only claims whose name starts with this.

        Returns
        -------
        list of bytes
        """
        return [v for (k, name), v in list(self._entries.items()) if k == kind and name.startswith(prefix)]


class FileLedger(Claims):
    """A ledger in a SQLite file, readable by its owner only; several processes may share it.

    >>> ledger = mq.people.FileLedger("answers.ledger")
    >>> source = mq.Controlled(mq.tally(mq.data.students()[["exams", "pills"]]), mq.Rules(), ledger)
    >>> _ = source.answer([mq.Query(by="exams")])
    >>> len(source.control.history.entries())
    1
    >>> ledger.close()
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(DurableStore(path, self.ALONE))


class Enrolled:
    """A person enrolled under a name with an identity; the ledger belongs to the device, permanently."""

    def __init__(
        self, name: str, identity: SigningKey, members: Mapping[str, bytes], ledger: PersonLedger | None
    ) -> None:
        if members.get(name) != identity.public:
            raise InputError(f"{name!r} is not enrolled in these terms with this identity.")
        self.name, self._identity = name, identity
        self._ledger: PersonLedger = MemoryLedger() if ledger is None else ledger

    def __repr__(self) -> str:
        """Show the name, never the record."""
        return f"{type(self).__name__}({self.name!r})"
