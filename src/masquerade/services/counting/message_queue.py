"""Queue of pending messages, one per person: a message is handed out until the person has answered it.

The queue does not check replies: `MinerService` verifies their signatures first.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Final

from masquerade.services.counting.messages import LETTER_ID, MESSAGE, OVER, WAIT, Letter

HOLD_SECONDS: Final = 2.0
# milliseconds of pause for a device whose request cannot be held open: minimum, and addition per person
_SHORTEST, _EACH = 100, 4


class MessageQueue:
    """Messages to people and their replies; up to `held` requests are held open until a message arrives."""

    def __init__(self, people: int, held: int, patience: float) -> None:
        self._people, self._held, self._patience = people, held, patience
        self._letters: dict[str, bytes] = {}
        self._id = bytes(LETTER_ID)
        self._replies: dict[str, bytes] = {}
        lock = threading.Lock()
        # two conditions: a reply wakes the round that collects replies, not all requests that are held open
        self._changed, self._replied = threading.Condition(lock), threading.Condition(lock)
        self._waiting = 0
        self._over = False

    def letter(self, person: str) -> Letter:
        """Return the pending message of a person; wait a short time if there is none."""
        with self._changed:
            if self._waiting < self._held:
                self._waiting += 1
                try:
                    self._changed.wait_for(lambda: self._over or person in self._letters, HOLD_SECONDS)
                finally:
                    self._waiting -= 1
                pause = 0
            else:
                pause = _SHORTEST + _EACH * self._people
            if person in self._letters:
                return Letter(MESSAGE, 0, self._letters[person], self._id)
            return Letter(OVER) if self._over else Letter(WAIT, pause)

    def take(self, person: str, letter: bytes, content: bytes) -> bool:
        """Accept a reply to the pending message of a person; return False if it answers another message.

        The caller has verified the person's signature.
        """
        with self._changed:
            if self._id != letter or person not in self._letters:
                return False
            self._replies[person] = content
            del self._letters[person]
            self._replied.notify_all()
            return True

    def replies(
        self, letters: Mapping[str, bytes], patience: float | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """Hand out messages, and yield replies until all have arrived or `patience` seconds have passed."""
        with self._changed:
            self._letters, self._replies = dict(letters), {}
            self._id = secrets.token_bytes(LETTER_ID)
            self._changed.notify_all()
        until, left = time.monotonic() + (self._patience if patience is None else patience), len(letters)
        try:
            while left:
                with self._replied:
                    here = self._replied.wait_for(lambda: bool(self._replies), until - time.monotonic())
                    came, self._replies = self._replies, {}
                if not here:
                    return
                left -= len(came)
                yield from came.items()
        finally:
            with self._changed:
                self._letters, self._replies = {}, {}

    def end(self) -> None:
        """Answer all further requests of devices with the message that counting is over."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
