"""Ledger of a noise budget in an anchored folder, which detects that it was restored from a copy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from masquerade.channels.noise.terms import NoiseTerms
from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.protocols.people.ledger import Claim
from masquerade.services.common.state import State
from masquerade.sources.noise.spent_tables import PROMISE, SPENT, TERMS

# typed by the curator, and stored: part of the format
AGREEMENT: Final = "Tables may have been answered since this copy, and noise drawn again may reveal records."
_RESTORED, _AGREED = "noise ledger restored", "noise ledger agreed"


class NoiseLedger:
    """Ledger of a noise budget in a folder that one process at a time has open.

    Spent tables and answers are durable before an answer leaves. If the folder or one of its files was
    restored from a copy, tables spent since that copy are unknown: answers in the ledger stay available, but
    further tables are refused until the curator agrees. Only a snapshot of the whole disk goes unnoticed.

    Parameters
    ----------
    folder : str or Path
        Folder of the ledger; created if it does not exist.
    agree : str, optional
        The sentence `masquerade.services.common.noise_ledger.AGREEMENT`, to accept a restore.

    Raises
    ------
    FileError
        If the folder is in use, damaged, or of a newer version.

    Examples
    --------
    >>> with mq.NoiseLedger("budget") as ledger:
    ...     source = mq.Noisy(mq.tally(mq.data.students()), epsilon=1, tables=6, ledger=ledger)
    ...     _ = source.answer([mq.Query(by="pills")])
    >>> with mq.NoiseLedger("budget") as ledger:
    ...     mq.Noisy(mq.tally(mq.data.students()), epsilon=1, tables=6, ledger=ledger).tables_spent
    1
    """

    def __init__(self, folder: str | Path, agree: str | None = None) -> None:
        if agree is not None and agree != AGREEMENT:
            raise InputError(f"To agree, repeat these words exactly: {AGREEMENT!r}.")
        self._state = State.open(folder)
        claims = self._state.burnt
        if self._state.restored:
            claims.claim([Claim(_RESTORED, self._state.incarnation.encode(), self._state.problem.encode())])
        if agree is not None and self.doubted:
            first, end = len(claims.values(_AGREED)), len(claims.values(_RESTORED))
            words = AGREEMENT.encode()
            claims.claim([Claim(_AGREED, turn.to_bytes(8, "big"), words) for turn in range(first, end)])

    def promise(self, terms: NoiseTerms) -> None:
        """Store the terms of this ledger, once, before its first use.

        Parameters
        ----------
        terms : NoiseTerms
            The promise to each record.
        """
        if self.terms is not None:
            raise InputError("This ledger of noise already has its terms.")
        self._state.burnt.claim([Claim(PROMISE, b"", json.dumps(terms.to_dict()).encode())])

    @property
    def terms(self) -> NoiseTerms | None:
        """Return the terms stored by `promise` or at the first use, None if there are none."""
        promised = self._state.burnt.find(PROMISE, b"")
        if promised is not None:
            return NoiseTerms.from_dict(json.loads(promised))
        used = self._state.burnt.find(TERMS, b"")
        return None if used is None else NoiseTerms.from_dict(json.loads(used)["terms"])

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of spent tables, oldest first: tables, stage, and the queries `asked`."""
        return [json.loads(value) for value in self._state.burnt.values(SPENT)]

    @property
    def doubted(self) -> bool:
        """Return True if the ledger was restored and the curator has not agreed to the consequences."""
        claims = self._state.burnt
        return len(claims.values(_RESTORED)) > len(claims.values(_AGREED))

    @property
    def problem(self) -> str:
        """Return the reason to consider the ledger restored, empty if there is none."""
        reasons = self._state.burnt.values(_RESTORED)
        return reasons[-1].decode() if self.doubted else ""

    def claim(self, claims: Sequence[Claim]) -> None:
        """Record claims durably; raise QueryRefused for further tables of a restored ledger.

        Parameters
        ----------
        claims : sequence of Claim
            Claims. If one exists already, none is recorded and `KeySpent` is raised.
        """
        if self.doubted and any(claim.kind == SPENT for claim in claims):
            reason = (
                f"This ledger of noise was restored from a copy ({self.problem}), and tables spent since are "
                "unknown. What it contains stays available. Its curator can agree to the consequences: "
                "masquerade noise restored."
            )
            raise QueryRefused([Refusal("restored", reason)])
        self._state.burnt.claim(claims)

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
        return self._state.burnt.find(kind, name)

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
            The values.
        """
        return self._state.burnt.values(kind, prefix)

    def close(self) -> None:
        """Close the files, and unlock the folder."""
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
