"""Uniform bytes from AES-256 in counter mode, keyed by the operating system."""

import os
import threading
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

_ZEROS = bytes(1 << 20)


class Keystream(threading.local):
    """A source of fresh uniform bytes: ``Keystream()(n)`` returns ``n`` of them.

    Every thread and every forked process gets a key of its own, so no byte is ever handed out twice;
    for the same reason an instance cannot be copied or pickled. There is no seed.
    """

    def __init__(self) -> None:
        self._rekey()

    def __call__(self, n: int) -> NDArray[np.uint8]:
        """Return ``n`` bytes that nobody has seen."""
        if self._process != os.getpid():
            self._rekey()
        fresh = np.empty(n, dtype=np.uint8)
        target = fresh.data
        zeros = memoryview(_ZEROS)
        for start in range(0, n, len(_ZEROS)):
            size = min(n - start, len(_ZEROS))
            self._cipher.update_into(zeros[:size], target[start : start + size])
        return fresh

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a Keystream cannot be copied or pickled: its bytes would be handed out twice")

    def _rekey(self) -> None:
        self._process = os.getpid()
        self._cipher = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()
