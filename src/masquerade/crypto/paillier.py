"""Paillier's encryption, which adds under encryption: just what a scalar product between two parties needs.

The owner of a key encrypts and decrypts modulo the squares of its primes (Chinese remainders); everybody else
works modulo n². gmpy2 makes all of it about ten times faster where it is installed; nothing here takes
constant time.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from math import gcd
from typing import NamedTuple, NoReturn

from cryptography.hazmat.primitives.asymmetric import rsa

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError

try:
    from gmpy2 import mpz, powmod  # type: ignore[import-untyped,import-not-found,unused-ignore]
except ImportError:
    mpz, powmod = int, pow

BITS = 3072


class PaillierPublic(NamedTuple):
    """The public half of a key: encrypt, add, hide."""

    n: int

    @property
    def size(self) -> int:
        """Return the bytes of a plaintext; a ciphertext has twice as many."""
        return (self.n.bit_length() + 7) // 8

    def encrypt(self, value: int) -> int:
        """Return a fresh encryption of a number modulo n."""
        square = mpz(self.n) ** 2
        blind = powmod(mpz(1 + secrets.randbelow(self.n - 1)), mpz(self.n), square)
        return int((1 + value % self.n * mpz(self.n)) * blind % square)

    def product(self, ciphertexts: Iterable[int]) -> int:
        """Return an encryption of the sum; with no fresh addend, who knows the addends recognises it."""
        square, total = mpz(self.n) ** 2, mpz(1)
        for ciphertext in ciphertexts:
            total = total * ciphertext % square
        return int(total)

    def encode(self, ciphertexts: Iterable[int]) -> bytes:
        """Return ciphertexts one after the other."""
        return b"".join([value.to_bytes(2 * self.size, "big") for value in ciphertexts])

    def decode(self, data: bytes) -> list[int]:
        """Return the ciphertexts; one that no plaintext has is refused."""
        size, square = 2 * self.size, self.n**2
        if len(data) % size:
            raise DecodingError(f"Ciphertexts have {size} bytes each; the last is incomplete.")
        values = [int.from_bytes(data[at : at + size], "big") for at in range(0, len(data), size)]
        if any(not 0 < value < square or gcd(value, self.n) != 1 for value in values):
            raise DecodingError("A ciphertext is not invertible modulo n².")
        return values


class PaillierKey:
    """A whole key; its primes come from OpenSSL and never leave."""

    __slots__ = ("_halves", "public")

    def __init__(self, bits: int = BITS) -> None:
        if bits < BITS:
            raise InputError(f"A Paillier key has at least {BITS} bits. Got {bits} instead.")
        numbers = rsa.generate_private_key(65537, bits).private_numbers()
        self._take(numbers.p, numbers.q)

    @classmethod
    def _of_primes(cls, p: int, q: int) -> PaillierKey:
        """Return the key of given primes, for vectors."""
        key = object.__new__(cls)
        key._take(p, q)
        return key

    def _take(self, p: int, q: int) -> None:
        self.public = PaillierPublic(p * q)
        self._halves = tuple(_half(mpz(prime), mpz(p * q)) for prime in (p, q))

    def encrypt(self, value: int) -> int:
        """Return a fresh encryption.

        Modulo p², the n-th powers are the p-th powers of 1 … p−1, all equally likely: half the exponent.
        """
        parts = []
        for half in self._halves:
            fresh = mpz(1 + secrets.randbelow(int(half.prime) - 1))
            blind = powmod(fresh, half.prime, half.square)
            parts.append((1 + value * mpz(self.public.n)) * blind % half.square)
        first, second = self._halves
        lift = (parts[1] - parts[0]) * first.square_inverse % second.square
        return int(parts[0] + first.square * lift)

    def decrypt(self, ciphertext: int) -> int:
        """Return the plaintext, a number below n."""
        parts = []
        for half in self._halves:
            power = powmod(mpz(ciphertext), half.prime - 1, half.square)
            parts.append((power - 1) // half.prime * half.scale % half.prime)
        first, second = self._halves
        lift = (parts[1] - parts[0]) * first.inverse % second.prime
        return int(parts[0] + first.prime * lift)

    def __repr__(self) -> str:
        return f"PaillierKey({self.public.n.bit_length()} bits)"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a PaillierKey is not pickled")


class _Half(NamedTuple):
    """What is needed modulo one prime's square, and to put two halves together."""

    prime: int
    square: int
    scale: int
    inverse: int
    square_inverse: int


def _half(prime: int, n: int) -> _Half:
    other = n // prime
    square = prime * prime
    scale = (powmod(1 + n, prime - 1, square) - 1) // prime
    return _Half(
        prime,
        square,
        powmod(scale, mpz(-1), prime),
        powmod(prime, mpz(-1), other),
        powmod(square, mpz(-1), other * other),
    )
