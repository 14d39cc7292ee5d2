"""Keys that may be used once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

from masquerade.crypto.errors import KeySpent

T = TypeVar("T")


class SingleUse(Generic[T]):
    """Holds a secret that comes out once.

    `burn` runs before it does and must leave a durable record: if it raises, the secret is gone all the same,
    since nobody can tell what was written. Two threads cannot both succeed; copies cannot be made.
    """

    __slots__ = ("_burn", "_lock", "_name", "_value")

    def __init__(self, value: T, name: str, burn: Callable[[str], None]) -> None:
        self._value: T | None = value
        self._name, self._burn, self._lock = name, burn, threading.Lock()

    @property
    def is_spent(self) -> bool:
        """Return whether the secret has come out or was burnt."""
        return self._value is None

    def take(self) -> T:
        """Burn the key, then return it; a second call raises `KeySpent`."""
        with self._lock:
            value, self._value = self._value, None
        if value is None:
            raise KeySpent(f"The key {self._name!r} may be used once and was used already.")
        self._burn(self._name)
        return value

    def __repr__(self) -> str:
        return f"SingleUse({self._name!r}, {'spent' if self.is_spent else 'unused'})"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a key that may be used once cannot be copied or pickled")
