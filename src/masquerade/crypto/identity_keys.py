"""The key that a node signs with, in a file that only its owner can read."""

from __future__ import annotations

import os
from pathlib import Path

from masquerade.core.atomic import write_new
from masquerade.core.errors import FileError
from masquerade.crypto.keys import SigningKey


def create(path: str | Path) -> SigningKey:
    """Make a new identity and write it to a new file; one that is there is never replaced."""
    target, key = Path(path), SigningKey()
    write_new(target, key.reveal().hex() + "\n", what="an identity")
    return key


def load(path: str | Path) -> SigningKey:
    """Return the identity in a file; one that others may read is refused."""
    target = Path(path)
    try:
        with target.open("rb") as stream:
            mode, content = os.fstat(stream.fileno()).st_mode, stream.read(1024)
    except OSError as error:
        raise FileError(f"{target}: cannot be read ({os.strerror(error.errno or 5).lower()}).") from None
    if mode & 0o077:
        raise FileError(f"{target}: others may read it; make it private with: chmod 600 {target}")
    try:
        return SigningKey.from_seed(bytes.fromhex(content.decode("ascii").strip()))
    except ValueError:
        raise FileError(f"{target}: is not an identity; make one with `create`.") from None


def public_text(key: SigningKey) -> str:
    """Return the public part as others write it down: 64 hexadecimal digits."""
    return key.public.hex()
