"""The two expensive steps of a user, verifying and agreeing; many users in one process may share them."""

from __future__ import annotations

from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import KEY_SIZE, AgreementKey, verify_signature


class Work:
    """Every signature is verified and every key agreed by whoever needs it."""

    def verify(self, identity: bytes, signature: bytes, label: str, *fields: bytes) -> None:
        """Raise `SealBroken` unless the fields were signed."""
        verify_signature(identity, signature, label, *fields)

    def agree(
        self, key: AgreementKey, other: bytes, label: str, context: bytes, size: int = KEY_SIZE
    ) -> bytes:
        """Return the secret of a pair of keys for one purpose."""
        return key.agree(other, label, context, size=size)


class SharedWork(Work):
    """For users that run in one process: what one of them has verified or agreed, the others look up.

    Simulations only: it halves the agreements and makes one verification of what k neighbours would verify.
    """

    def __init__(self) -> None:
        self._verified: dict[tuple[object, ...], bool] = {}
        self._agreed: dict[tuple[object, ...], bytes] = {}

    def verify(self, identity: bytes, signature: bytes, label: str, *fields: bytes) -> None:
        """Raise `SealBroken` unless the fields were signed."""
        key = (identity, signature, label, fields)
        if key not in self._verified:
            try:
                super().verify(identity, signature, label, *fields)
            except SealBroken:
                self._verified[key] = False
                raise
            self._verified[key] = True
        if not self._verified[key]:
            raise SealBroken("The signature does not belong to this identity and these fields.")

    def agree(
        self, key: AgreementKey, other: bytes, label: str, context: bytes, size: int = KEY_SIZE
    ) -> bytes:
        """Return the secret of a pair of keys for one purpose."""
        pair = (min(key.public, other), max(key.public, other), label, context)
        found = self._agreed.pop(pair, None)  # a pair has two ends: the second needs it no longer kept
        if found is None:
            found = self._agreed[pair] = super().agree(key, other, label, context, size)
        return found

    def forget(self) -> None:
        """Drop what was kept: the round is over."""
        self._verified.clear()
        self._agreed.clear()
