"""Errors of cryptography: encodings, proofs, spent keys, sealed messages, shares.

::

    MasqueradeError
    ├── InputError
    │   └── DecodingError     bytes that are not a canonical encoding
    ├── ProofRejected         a proof that does not hold for its statement in its context
    ├── KeySpent              a single-use key was requested again
    ├── SealBroken            a sealed or signed message made with a different key, or changed
    ├── SharesInconsistent    shares that do not belong to one secret
    └── LogOutOfRange         a point that is not a small multiple of the generator
"""

from masquerade.core.errors import InputError, MasqueradeError


class DecodingError(InputError):
    """Bytes that are not a canonical encoding; parsers raise only this error."""


class ProofRejected(MasqueradeError):
    """A proof that does not hold for its statement in its context."""


class KeySpent(MasqueradeError):
    """A single-use key was requested again."""


class SealBroken(MasqueradeError):
    """A sealed or signed message that was made with a different key, or was changed."""


class SharesInconsistent(MasqueradeError):
    """Shares that do not belong to one secret."""


class LogOutOfRange(MasqueradeError):
    """A point that is not a multiple of the generator between zero and the largest possible sum."""
