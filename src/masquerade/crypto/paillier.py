"""Paillier's additively homomorphic encryption, for scalar products between two parties.

The owner of a key encrypts and decrypts modulo the squares of its primes (Chinese remainders); other parties
work modulo n². gmpy2 makes this about ten times faster if it is installed. Nothing here is constant-time.

A mask hides a sum only if encryption is one to one, that is if gcd(n, φ(n)) = 1. With a modulus p·q where p
divides q − 1, the maker of the key could see from a re-randomized product which ciphertexts are in it. So a
public key comes with a proof (Goldberg, Reyzin, Sagga & Baldimtsi 2019): n-th roots of numbers that neither
party can choose. If n has no prime factor below α and gcd(n, φ(n)) ≠ 1, a random number has an n-th root with
probability at most 1/α.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hashlib import shake_256
from math import ceil, gcd, log2
from typing import NamedTuple, NoReturn

from cryptography.hazmat.primitives.asymmetric import rsa

from masquerade.core.errors import InputError
from masquerade.crypto.errors import DecodingError

try:
    from gmpy2 import mpz, powmod  # type: ignore[import-untyped,import-not-found,unused-ignore]
except ImportError:
    mpz, powmod = int, pow

BITS = 3072
SMALLEST_FACTOR = 6370  # α: the proof rules out smaller prime factors one by one
PROOF_BITS = 128  # a wrong modulus passes with probability 2^-128 at most
ROOTS = ceil(PROOF_BITS / log2(SMALLEST_FACTOR))
_CHALLENGE = b"masquerade paillier root 1"


class PaillierPublic(NamedTuple):
    """A public key, which encrypts and adds."""

    n: int

    @property
    def size(self) -> int:
        """Return the number of bytes of a plaintext; a ciphertext has twice as many."""
        return (self.n.bit_length() + 7) // 8

    def encrypt(self, value: int) -> int:
        """Return a fresh encryption of a number modulo n."""
        square = mpz(self.n) ** 2
        fresh = 0
        while gcd(fresh, self.n) != 1:  # one round, unless the modulus is malicious and has a small factor
            fresh = secrets.randbelow(self.n)
        blind = powmod(mpz(fresh), mpz(self.n), square)
        return int((1 + value % self.n * mpz(self.n)) * blind % square)

    def check(self, proof: bytes, binding: bytes) -> None:
        """Raise DecodingError if the proof does not show that encryption under this modulus is one to one."""
        n, size = mpz(self.n), self.size
        if self.n.bit_length() < BITS or any(self.n % factor == 0 for factor in range(2, SMALLEST_FACTOR)):
            raise DecodingError(f"A Paillier modulus has {BITS} bits or more and no small factor.")
        if len(proof) != ROOTS * size:
            raise DecodingError(f"The proof of a Paillier modulus has {ROOTS} roots.")
        for i, challenge in enumerate(self.challenges(binding)):
            root = int.from_bytes(proof[i * size : (i + 1) * size], "big")
            if not 0 < root < self.n or powmod(mpz(root), n, n) != challenge:
                raise DecodingError("Encryption under this Paillier modulus is not shown to be one to one.")

    def challenges(self, binding: bytes) -> list[int]:
        """Return numbers modulo n from a hash; 128 bits more than n make the bias negligible."""
        wide = self.size + PROOF_BITS // 8
        seed = _CHALLENGE + len(binding).to_bytes(4, "big") + binding + self.n.to_bytes(self.size, "big")
        stream = shake_256(seed).digest(ROOTS * wide)
        return [int.from_bytes(stream[i * wide : (i + 1) * wide], "big") % self.n for i in range(ROOTS)]

    def product(self, ciphertexts: Iterable[int]) -> int:
        """Return an encryption of the sum of the plaintexts.

        Unless one of the ciphertexts is fresh, a party that knows them all can recognize the result.
        """
        square, total = mpz(self.n) ** 2, mpz(1)
        for ciphertext in ciphertexts:
            total = total * ciphertext % square
        return int(total)

    def encode(self, ciphertexts: Iterable[int]) -> bytes:
        """Return concatenated ciphertexts."""
        return b"".join([value.to_bytes(2 * self.size, "big") for value in ciphertexts])

    def decode(self, data: bytes) -> list[int]:
        """Return the ciphertexts; raise DecodingError if one is not valid."""
        size, square = 2 * self.size, self.n**2
        if len(data) % size:
            raise DecodingError(f"Ciphertexts have {size} bytes each; the last is incomplete.")
        values = [int.from_bytes(data[at : at + size], "big") for at in range(0, len(data), size)]
        if any(not 0 < value < square or gcd(value, self.n) != 1 for value in values):
            raise DecodingError("A ciphertext is not invertible modulo n².")
        return values


class PaillierKey:
    """A private key; its primes come from OpenSSL and never leave the object."""

    __slots__ = ("_halves", "public")

    def __init__(self, bits: int = BITS) -> None:
        if bits < BITS:
            raise InputError(f"A Paillier key has at least {BITS} bits. Got {bits} instead.")
        numbers = rsa.generate_private_key(65537, bits).private_numbers()
        self._take(numbers.p, numbers.q)

    @classmethod
    def _of_primes(cls, p: int, q: int) -> PaillierKey:
        """Return the key of given primes, for test vectors."""
        key = object.__new__(cls)
        key._take(p, q)
        return key

    def _take(self, p: int, q: int) -> None:
        self.public = PaillierPublic(p * q)
        self._halves = tuple(_half(mpz(prime), mpz(p * q)) for prime in (p, q))

    def encrypt(self, value: int) -> int:
        """Return a fresh encryption.

        Modulo p², the n-th powers are the p-th powers of 1 … p−1, all equally likely, which halves the
        exponent.
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

    def prove(self, binding: bytes) -> bytes:
        """Return the proof for `PaillierPublic.check`, bound to data that both parties know."""
        first, second = self._halves
        roots = []
        for challenge in self.public.challenges(binding):
            parts = [
                powmod(mpz(challenge), powmod(mpz(self.public.n), mpz(-1), half.prime - 1), half.prime)
                for half in self._halves
            ]
            lift = (parts[1] - parts[0]) * first.inverse % second.prime
            roots.append(int(parts[0] + first.prime * lift).to_bytes(self.public.size, "big"))
        return b"".join(roots)

    def __repr__(self) -> str:
        return f"PaillierKey({self.public.n.bit_length()} bits)"

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("a PaillierKey is not pickled")


class _Half(NamedTuple):
    """Precomputed values modulo one prime's square, and for combining both halves."""

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
