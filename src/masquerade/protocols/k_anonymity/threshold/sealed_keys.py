"""Keys of open epochs on disk, sealed under a secret that is stored elsewhere: they survive a restart.

Anyone with both the folder and the secret has the keys. A key is destroyed by overwriting and removing its
file. A disk may keep what it replaced, so a removed key is safe only as long as the secret is: use a new one
for every epoch, or one that the operating system does not store, and keep the folder out of backups.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import sync_folder, write_whole
from masquerade.core.util.private_file import read_private
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.keys import stretch
from masquerade.crypto.symmetric import seal, unseal

LEAST_SECRET: Final = 16
_SALT: Final = 16
_CONTEXT: Final = b"masquerade epoch key 1 "
_ENDING: Final = ".sealed"


class SealedKeys:
    """The sealed keys in a folder, by epoch; `secret` is a passphrase or a key, of at least 16 bytes."""

    def __init__(self, folder: Path, secret: bytes) -> None:
        if len(secret) < LEAST_SECRET:
            raise InputError(
                f"The secret that seals keys must have at least {LEAST_SECRET} bytes. Got {len(secret)}."
            )
        self._folder, self._secret = folder, bytearray(secret)

    @staticmethod
    def has(folder: Path, epoch: str) -> bool:
        """Return True if a folder has the sealed key of an epoch."""
        return _place(folder, epoch).exists()

    def keep(self, epoch: str, number: bytes) -> None:
        """Store the key of an epoch; durable on return."""
        salt = os.urandom(_SALT)
        sealed = seal(stretch(self._require_secret(), salt), number, _CONTEXT + epoch.encode())
        write_whole(_place(self._folder, epoch), salt + sealed, private=True)

    def find(self, epoch: str) -> bytes | None:
        """Return the key of an epoch, None if there is none; raise `FileError` if the secret is wrong."""
        place = _place(self._folder, epoch)
        try:
            data = read_private(place, "a sealed key")
        except FileNotFoundError:
            return None
        try:
            return unseal(
                stretch(self._require_secret(), data[:_SALT]), data[_SALT:], _CONTEXT + epoch.encode()
            )
        except (DecodingError, SealBroken):
            raise FileError(
                f"{place}: was sealed under a different secret, or is damaged. With the right secret the "
                "epoch continues; if the file is removed, the key of the epoch is lost and the epoch can "
                "only be closed."
            ) from None

    def _require_secret(self) -> bytes:
        if not any(self._secret):
            raise KeySpent("The secret that seals keys was destroyed in this process.")
        return bytes(self._secret)

    def wipe(self) -> None:
        """Overwrite the secret in memory, so that it cannot seal or open anything more."""
        self._secret[:] = bytes(len(self._secret))

    def destroy(self, epoch: str) -> None:
        """Overwrite and remove the key of an epoch."""
        self.destroy_in(self._folder, epoch)

    @staticmethod
    def destroy_in(folder: Path, epoch: str) -> None:
        """Overwrite and remove the key of an epoch; this needs no secret."""
        place = _place(folder, epoch)
        try:
            with place.open("r+b") as stream:
                stream.write(bytes(place.stat().st_size))
                stream.flush()
                os.fsync(stream.fileno())
            place.unlink()
            sync_folder(place.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            reason = (error.strerror or "input/output error").lower()
            raise FileError(f"{place}: the key cannot be destroyed ({reason}).") from None


def _place(folder: Path, epoch: str) -> Path:
    return folder / f"epoch-key-{hashlib.sha256(epoch.encode()).hexdigest()[:16]}{_ENDING}"
