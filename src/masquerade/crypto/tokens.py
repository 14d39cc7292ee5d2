"""Bearer tokens: random text that its holder shows; servers keep a digest only."""

from __future__ import annotations

import secrets
from hashlib import sha256

from masquerade.crypto.symmetric import same

SIZE = 32  # random bytes, so a digest without salt or stretching cannot be reversed


def make() -> str:
    """Return a new token: 32 random bytes as text that is safe in a header, a file or an address."""
    return secrets.token_urlsafe(SIZE)


def digest(token: str) -> str:
    """Return what a server keeps of a token.

    >>> digest("a token")[:19]
    'sha256:e3316e2bafeb'
    """
    return "sha256:" + sha256(token.encode()).hexdigest()


def matches(token: str, kept: str) -> bool:
    """Tell whether a token belongs to a digest, in a time that does not depend on where they differ."""
    return same(digest(token).encode(), kept.strip().lower().encode())
