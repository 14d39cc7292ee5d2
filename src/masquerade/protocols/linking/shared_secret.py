"""Linking by a secret that the parties share and the joiner does not have: fast, and only as good as that.

The pseudonym of a key is HMAC-SHA256(secret, session ‖ normal form), cut to 16 bytes. Nothing but pseudonyms
leaves a party. Whoever has the secret and sees pseudonyms can try keys one by one, so one party that helps
the joiner opens the keys of all: where that is not acceptable, link privately (`LinkingParty`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.protocols.codec import SESSION_SIZE
from masquerade.protocols.linking.joiner import Joiner
from masquerade.protocols.linking.key_normal_form import Key, check_count, check_repeated, normal_form
from masquerade.protocols.linking.messages import PSEUDONYM_SIZE, BeginKeyed, Named
from masquerade.protocols.linking.pseudonyms import NamedRecords
from masquerade.protocols.transport import Transport, ask

SECRET_SIZE = 32
MOST_KEYED = 30_000_000  # pseudonyms in a message
KEYS_AT_ONCE = 1 << 16
_BLOCK = hashlib.sha256().block_size


def keyed_pseudonyms(
    keys: Sequence[Key], secret: bytes, session: bytes, *, most: int = MOST_KEYED
) -> NDArray[np.uint8]:
    """Return the pseudonyms of keys as an array, 16 bytes a row, in the order of the keys.

    >>> found = keyed_pseudonyms(["Ann", "bob"], secret=bytes(32), session=bytes(16))
    >>> found.shape, bytes(found[0]) == bytes(keyed_pseudonyms([" ANN"], bytes(32), bytes(16))[0])
    ((2, 16), True)
    """
    if len(session) != SESSION_SIZE:
        raise InputError(f"A session has {SESSION_SIZE} bytes.")
    check_count(keys, most)
    digest = keyed_hash(secret)
    found = np.empty((len(keys), PSEUDONYM_SIZE), dtype=np.uint8)
    for begin in range(0, len(keys), KEYS_AT_ONCE):
        some = slice(begin, begin + KEYS_AT_ONCE)
        cut = b"".join([digest(session + normal_form(key))[:PSEUDONYM_SIZE] for key in keys[some]])
        found[some] = np.frombuffer(cut, dtype=np.uint8).reshape(-1, PSEUDONYM_SIZE)
    check_repeated(repeated(found))
    return found


def repeated(pseudonyms: NDArray[np.uint8]) -> int:
    """Return how many pseudonyms stand there already: as many as keys do, since no two keys share one."""
    first = np.sort(pseudonyms.view(np.uint64)[:, 0])
    if np.all(first[1:] > first[:-1]):
        return 0
    return len(pseudonyms) - len(np.unique(pseudonyms, axis=0))


def keyed_hash(secret: bytes) -> Callable[[bytes], bytes]:
    """Return HMAC-SHA256 (RFC 2104) with a secret, whose two paddings are hashed once for all messages."""
    if len(secret) != SECRET_SIZE:
        raise InputError(f"A linking secret has {SECRET_SIZE} random bytes. Got {len(secret)} instead.")
    inner, outer = (
        hashlib.sha256(bytes(byte ^ pad for byte in secret.ljust(_BLOCK, b"\0"))) for pad in (0x36, 0x5C)
    )

    def digest(message: bytes) -> bytes:
        first, second = inner.copy(), outer.copy()
        first.update(message)
        second.update(first.digest())
        return second.digest()

    return digest


def proof_of(secret: bytes, session: bytes) -> bytes:
    """Return what shows, to those who compare, that two parties have the same secret."""
    return hmac.digest(secret, b"masquerade linking secret" + session, "sha256")


class KeyedParty(NamedRecords):
    """One party of one session of linking by a shared secret of 32 random bytes.

    `roster` are the parties that the session must have, `least` how many common records it takes.
    """

    def __init__(
        self,
        name: str,
        keys: Sequence[Key],
        secret: bytes,
        *,
        most: int = MOST_KEYED,
        roster: Collection[str] | None = None,
        least: int = 0,
    ) -> None:
        super().__init__(name, roster=roster, least=least)
        keyed_hash(secret)
        self._keys, self._secret, self._most = keys, secret, most

    def forget(self) -> None:
        """Destroy pseudonyms, and this object's copy of the secret."""
        super().forget()
        self._keys, self._secret = [], b""

    def _reply(self, tag: bytes, message: bytes) -> bytes:
        if tag != BeginKeyed.TAG:
            return super()._reply(tag, message)
        offer = BeginKeyed.decode(message)
        self._check_roster(offer.roster)
        if not self._secret:
            raise InputError("This party has forgotten the secret.")
        found = keyed_pseudonyms(self._keys, self._secret, offer.session, most=min(self._most, offer.most))
        self._pseudonyms = [bytes(row) for row in found]
        self._offer = offer
        return Named(offer.session, len(found), proof_of(self._secret, offer.session)).encode()


class KeyedJoiner(Joiner):
    """Drives a session of parties that share a secret; it must be none of them."""

    def __init__(
        self,
        parties: Sequence[str],
        transport: Transport,
        *,
        name: str = "miner",
        most: int = MOST_KEYED,
        session: bytes | None = None,
    ) -> None:
        super().__init__(parties, transport, name=name, most=most, session=session)
        if name in parties:
            raise InputError(
                f"{name!r} cannot be the joiner and a party: with the secret it could try keys on the "
                "pseudonyms of the others."
            )

    def name_records(self) -> None:
        """Let every party give its records pseudonyms; parties with different secrets are found out."""
        proofs = dict[str, bytes]()
        for party in self.parties:
            offer = BeginKeyed(self.session, self.parties, self.most)
            named = ask(self._transport, party, offer, Named, spent=False)
            self.sizes[party], proofs[party] = named.records, named.proof
            if named.session != self.session:
                raise RoundAborted(f"{party!r} answered for another session.", spent=False, culprits=(party,))
        if len(set(proofs.values())) > 1:
            raise RoundAborted("The parties do not have the same linking secret.", spent=False, culprits=())

    def guarantee(self) -> Guarantee:
        """Return who learns what about keys; "keys" stands for what records are linked by."""
        keys = ("keys",)
        return Guarantee(
            (
                *(
                    Disclosure(party, "which of its own records all parties have", keys, None)
                    for party in self.parties
                ),
                Disclosure(
                    self.name, "sizes of sets and of all their overlaps, and no key", keys, Fraction(1)
                ),
            ),
            (
                "HMAC-SHA256 is a pseudorandom function",
                f"{self.name} does not get the linking secret from any party: with it keys could be tried",
                "pseudonyms are destroyed once records are joined",
            ),
            dict.fromkeys((self.name, *self.parties), "semi-honest"),
            len(self.parties) - 1,
            tuple((self.name, party) for party in self.parties),
            0,
        )
