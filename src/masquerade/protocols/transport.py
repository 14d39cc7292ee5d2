"""How messages travel: one method that somebody else implements, over a network or within one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from masquerade.core.errors import InputError, MasqueradeError, RoundAborted, did_you_mean
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.codec import Message

LARGEST = 1 << 30  # bytes of a message

M = TypeVar("M", bound=Message)


class Transport(Protocol):
    """The seam between protocols and networks."""

    def exchange(self, party: str, message: bytes) -> bytes:
        """Deliver a message to a party and return its reply."""


class LocalTransport:
    """Parties in this process, each a function from message to reply; messages are bytes all the same.

    >>> LocalTransport({"hospital": bytes.upper}).exchange("hospital", b"hello")
    b'HELLO'
    """

    def __init__(self, parties: Mapping[str, Callable[[bytes], bytes]], *, largest: int = LARGEST) -> None:
        self._parties, self._largest = dict(parties), largest

    def exchange(self, party: str, message: bytes) -> bytes:
        """Hand a message over and return the reply; either beyond the limit is refused unread."""
        if party not in self._parties:
            raise InputError(f"There is no party {party!r}.{did_you_mean(party, self._parties)}")
        reply = self._parties[party](self._fitting(message))
        return self._fitting(reply)

    def _fitting(self, message: bytes) -> bytes:
        if len(message) > self._largest:
            raise InputError(f"A message has at most {self._largest:,} bytes. Got {len(message):,} instead.")
        return bytes(message)


def ask(transport: Transport, party: str, message: Message, reply: type[M], *, spent: bool) -> M:
    """Return a party's decoded reply; whatever it refuses or garbles aborts the round and names it.

    `spent` tells whether something about the records may have left a party by then.
    """
    try:
        return reply.decode(transport.exchange(party, message.encode()))
    except DecodingError:
        reason = f"Party {party!r} sent a reply that cannot be read."
    except RoundAborted:
        raise
    except MasqueradeError as error:
        named = str(error).startswith(f"Party {party!r}")
        reason = str(error) if named else f"Party {party!r} refused: {error}"
    raise RoundAborted(reason, spent=spent, culprits=(party,))
