"""Receipts: peers store the end of a node's release ledger, which reveals whether the ledger was rolled back.

A node that was rolled back with its whole disk (a snapshot of a disk or of a virtual machine) cannot detect
this from its own files, but its peers can. At the start and at the end of every session, nodes exchange the
signed ends of their ledgers. A peer answers with the last end that it has stored, and signs it. A node whose
ledger lacks this end was restored, and refuses the same requests as any restored node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from masquerade.core.errors import InputError, MasqueradeError, RoundAborted
from masquerade.core.util.json_text import parse_json
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.services.common.release_ledger import WITNESS, WITNESSED, SignedMark, check_known_end
from masquerade.services.common.restores import Restores

PLACE: Final = "receipts"
ENDS: Final = "ends of ledgers"  # the last end of each peer's ledger that this node has seen
SHOWN: Final = "a peer has seen a later end of the release ledger"
MOST_BYTES: Final = 2000
NOBODY: Final = (
    "no peer holds a receipt of its release ledger: a restored snapshot of the whole disk would not be "
    "noticed"
)


class Receipts:
    """The receipts that a node issues for its peers' ledgers, and those that peers issue for its own ledger.

    `identities` are the public keys of peers by name.
    """

    def __init__(self, restores: Restores, identity: SigningKey, identities: Mapping[str, bytes]) -> None:
        self._restores, self._identity, self._identities = restores, identity, identities
        self._notes = restores.state.notes

    def known_end(self, peer: str) -> SignedMark | None:
        """Return the last end of a peer's ledger that this node has seen."""
        return SignedMark.decode(self._notes.get(ENDS, peer))

    def keep_end(self, peer: str, end: SignedMark) -> SignedMark:
        """Store an end of a peer's ledger unless a later one is known; return the later of the two."""
        previous = self.known_end(peer)
        if previous is not None and (previous.epoch, previous.mark.number) > (end.epoch, end.mark.number):
            return previous
        if previous != end:
            self._notes.put(ENDS, peer, end.encode())
        return end

    def answer(self, peer: str, body: bytes) -> bytes:
        """Store the end of a peer's ledger, and return a receipt for the latest end stored here."""
        end, identity = read_receipt(body)[0], self._identities.get(peer)
        if identity is None:
            raise InputError(f"No identity is known for {peer!r}.")
        end.verify(identity)  # before anything is stored
        latest = self.keep_end(peer, end)
        return _encode(latest, self._identity.sign(WITNESS, latest.encode()).hex())

    def exchange(self, peer: str, send: Callable[[bytes], bytes]) -> None:
        """Send a peer the end of this node's ledger, and store its receipt.

        Raises
        ------
        RoundAborted
            If the ledger lacks the end in the peer's receipt: the state was restored.
        """
        identity = self._identities.get(peer)
        if identity is None:
            return
        end, signature = read_receipt(send(_encode(self._restores.ledger.end)))
        verify_signature(identity, bytes.fromhex(signature), WITNESS, end.encode())
        self.take(peer, end, signature)

    def take(self, peer: str, end: SignedMark, signature: str) -> None:
        """Store a peer's receipt for an end of this node's ledger.

        Raises
        ------
        RoundAborted
            If the ledger lacks that end: the state was restored.
        """
        restores = self._restores
        try:
            check_known_end(restores.ledger, end, self._identity.public)
        except RoundAborted as error:
            if not restores.doubted:
                restores.notice(SHOWN)
            raise RoundAborted(f"{error} ({restores.command})", spent=False) from None
        self._notes.put(WITNESSED, peer, end.encode() + b" " + signature.encode())

    def describe_holders(self) -> str:
        """Return a sentence that names the peers with receipts of this node's ledger."""
        holders = self._notes.names(WITNESSED)
        return f"receipts of its release ledger are with {', '.join(holders)}" if holders else NOBODY


def _encode(end: SignedMark, signature: str = "") -> bytes:
    return json.dumps({"end": end.encode().decode("ascii"), "signature": signature}).encode()


def read_receipt(data: bytes) -> tuple[SignedMark, str]:
    """Return the signed end in a message, and the peer's signature of it, empty if it is not signed yet.

    Raises
    ------
    DecodingError
        If the message has a different form.
    """
    values: Any = None
    try:
        values = parse_json(data) if len(data) <= MOST_BYTES else None
        end = SignedMark.decode(values["end"].encode())
        signature = str(values["signature"])
        bytes.fromhex(signature)
    except (MasqueradeError, ValueError, TypeError, KeyError, AttributeError):
        end = None
    if end is None or not end.signature or set(values) != {"end", "signature"}:
        raise DecodingError("The message is not a receipt of a release ledger.")
    return end, signature
