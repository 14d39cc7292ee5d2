"""Keys of people and sessions, and bearer tokens, built on the package `cryptography`."""

from __future__ import annotations

import hmac
import os
import secrets
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Generic, NoReturn, TypeVar, final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_new
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken

T = TypeVar("T")

KEY_SIZE = 32
SIGNATURE_SIZE = 64
TOKEN_SIZE = 32  # random bytes: enough that a digest without salt or stretching cannot be reversed
_P = 2**255 - 19
_ORDER_8 = 0x5FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
# y of the points of order 1, 2, 4 and 8 on edwards25519: as keys, they accept a signature for many messages
_SMALL_ORDER = frozenset({1, _P - 1, 0, _ORDER_8, _P - _ORDER_8})


def derive(secret: bytes, label: str, *context: bytes, size: int = KEY_SIZE) -> bytes:
    """Return `size` bytes derived from a secret for one labelled purpose (HKDF with SHA-256, RFC 5869).

    Label and context enter with their lengths, so two purposes never share a key. `secret` must have the
    entropy of a key: this is not a password hash.
    """
    if len(secret) < 16:
        raise InputError(f"Keys are derived from at least 16 secret bytes. Got {len(secret)} instead.")
    if not 1 <= size <= 255 * 32:
        raise InputError(f"A derived key has from 1 to {255 * 32} bytes. Got {size} instead.")
    return expand(secret, _frame_fields(b"derive", label, context), size)


def expand(secret: bytes, info: bytes, size: int) -> bytes:
    """Return `size` bytes derived from a secret for the purpose `info` (HKDF with SHA-256, RFC 5869).

    `info` is used unchanged: new purposes use `derive`, which frames label and context.
    """
    return HKDF(hashes.SHA256(), size, salt=None, info=info).derive(secret)


def stretch(passphrase: bytes, salt: bytes) -> bytes:
    """Return a key from a passphrase or another secret, by scrypt (RFC 7914).

    Cost: 64 MiB and about a quarter of a second, also for each guess of an attacker.
    """
    return Scrypt(salt=salt, length=KEY_SIZE, n=2**16, r=8, p=1).derive(passphrase)


@final
class AgreementKey:
    """An X25519 key: two people who exchange public keys derive the same secrets (RFC 7748)."""

    __slots__ = ("_key", "public")

    def __init__(self, key: X25519PrivateKey | None = None) -> None:
        self._key = key or X25519PrivateKey.generate()
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def from_seed(cls, seed: bytes) -> AgreementKey:
        """Return the key of a secret seed of at least 31 bytes, which may have been secret-shared."""
        if len(seed) < 31:
            raise InputError(f"A key is made from at least 31 secret bytes. Got {len(seed)} instead.")
        return cls(X25519PrivateKey.from_private_bytes(derive(seed, "X25519 key from a seed")))

    def agree(self, other: bytes, label: str, *context: bytes, size: int = KEY_SIZE) -> bytes:
        """Return the secret shared with the owner of a public key, for one purpose.

        Both public keys enter the derivation, so it is bound to this pair. A key of small order is refused.
        """
        theirs = X25519PublicKey.from_public_bytes(decode_agreement_key(other))
        try:
            shared = self._key.exchange(theirs)
        except ValueError:
            raise DecodingError(
                "The other side's public key has small order, so the shared secret would be known."
            ) from None
        return derive(shared, label, *sorted((self.public, bytes(other))), *context, size=size)

    def __repr__(self) -> str:
        return f"AgreementKey(public={self.public.hex()})"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("an AgreementKey is not pickled; keep its seed sealed instead")


@final
class SigningKey:
    """An Ed25519 identity (RFC 8032)."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey | None = None) -> None:
        self._key = key or Ed25519PrivateKey.generate()
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
        """Return the identity stored as 32 secret bytes."""
        if len(seed) != KEY_SIZE:
            raise InputError(f"An identity is stored as {KEY_SIZE} bytes. Got {len(seed)} instead.")
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    def sign(self, label: str, *fields: bytes) -> bytes:
        """Return a 64-byte signature of labelled fields."""
        return self._key.sign(_frame_fields(b"sign", label, fields))

    def reveal(self) -> bytes:
        """Return the 32 secret bytes, for storage."""
        return self._key.private_bytes_raw()

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public.hex()})"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a SigningKey is not pickled; store what `reveal` returns, sealed")


def verify_signature(public: bytes, signature: bytes, label: str, *fields: bytes) -> None:
    """Raise `SealBroken` unless the owner of `public` signed exactly these labelled fields."""
    if len(signature) != SIGNATURE_SIZE:
        raise DecodingError(f"A signature has {SIGNATURE_SIZE} bytes. Got {len(signature)} instead.")
    key = Ed25519PublicKey.from_public_bytes(decode_identity(public))
    try:
        key.verify(bytes(signature), _frame_fields(b"sign", label, fields))
    except InvalidSignature:
        raise SealBroken("The signature does not belong to this identity and these fields.") from None


def decode_agreement_key(public: bytes) -> bytes:
    """Return an X25519 public key after checking its length and that it is canonical."""
    if len(public) != KEY_SIZE or int.from_bytes(public, "little") >= _P:
        raise DecodingError(f"A public key for agreement has {KEY_SIZE} canonical bytes.")
    return bytes(public)


def decode_identity(public: bytes) -> bytes:
    """Return an Ed25519 public key after checking its length, that it is canonical and not of small order."""
    y = int.from_bytes(public, "little") & ((1 << 255) - 1)
    if len(public) != KEY_SIZE or y >= _P or y in _SMALL_ORDER:
        raise DecodingError(f"An identity has {KEY_SIZE} canonical bytes and is not of small order.")
    return bytes(public)


def _frame_fields(use: bytes, label: str, fields: tuple[bytes, ...]) -> bytes:
    if not label:
        raise InputError("A key needs a label that names its purpose. Got an empty label instead.")
    parts = (b"masquerade 1", use, label.encode(), *fields)
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def create_identity(path: str | Path) -> SigningKey:
    """Create an identity and write it to a new file; an existing file is never replaced."""
    target, key = Path(path), SigningKey()
    write_new(target, key.reveal().hex() + "\n", what="an identity")
    return key


def load_identity(path: str | Path) -> SigningKey:
    """Return the identity in a file; raise FileError if others may read it."""
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
        raise FileError(f"{target}: is not an identity; make one with `create_identity`.") from None


def new_token() -> str:
    """Return a new token: 32 random bytes as text that is safe in headers, files and URLs."""
    return secrets.token_urlsafe(TOKEN_SIZE)


def token_digest(token: str) -> str:
    """Return the digest of a token, which servers store.

    >>> token_digest("a token")[:19]
    'sha256:e3316e2bafeb'
    """
    return "sha256:" + sha256(token.encode()).hexdigest()


def token_matches(token: str, digest: str) -> bool:
    """Return True if a token belongs to a digest, compared in constant time."""
    return hmac.compare_digest(token_digest(token).encode(), digest.strip().lower().encode())


class SingleUse(Generic[T]):
    """A secret that can be taken once.

    `burn` runs first and must leave a durable record. If it raises, the secret is gone nevertheless, because
    it is unknown what was written. Two threads cannot both succeed; copies cannot be made.
    """

    __slots__ = ("_burn", "_lock", "_name", "_value")

    def __init__(self, value: T, name: str, burn: Callable[[str], None]) -> None:
        self._value: T | None = value
        self._name, self._burn, self._lock = name, burn, threading.Lock()

    def take(self) -> T:
        """Burn the key, then return it; a second call raises `KeySpent`."""
        with self._lock:
            value, self._value = self._value, None
        if value is None:
            raise KeySpent(f"The key {self._name!r} may be used once and was used already.")
        self._burn(self._name)
        return value

    def __repr__(self) -> str:
        return f"SingleUse({self._name!r}, {'spent' if self._value is None else 'unused'})"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a key that may be used once cannot be copied or pickled")
