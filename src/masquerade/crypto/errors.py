"""What can go wrong below a protocol: bytes, proofs, spent keys, sealed messages, sums.

::

    MasqueradeError
    ├── InputError
    │   └── DecodingError     bytes that are not the one canonical encoding of anything
    ├── ProofRejected         a proof that does not hold for its statement in its context
    ├── KeySpent              a key that may be used once was asked for again
    ├── SealBroken            a sealed or signed message that was not made with the key, or was changed
    ├── SharesInconsistent    shares that do not belong to one secret
    └── LogOutOfRange         a point that is no small multiple of the generator
"""

from masquerade.core.errors import InputError, MasqueradeError


class DecodingError(InputError):
    """Bytes that are not the canonical encoding of anything; every parser raises this and nothing else."""


class ProofRejected(MasqueradeError):
    """A proof that does not hold for its statement in its context."""


class KeySpent(MasqueradeError):
    """A key that may be used once was asked for again."""


class SealBroken(MasqueradeError):
    """A sealed or signed message that was not made with the key, or was changed on the way."""


class SharesInconsistent(MasqueradeError):
    """Shares that do not belong to one secret."""


class LogOutOfRange(MasqueradeError):
    """A point that is no multiple of the generator between zero and the largest possible sum."""
