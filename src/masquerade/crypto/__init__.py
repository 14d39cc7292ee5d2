"""Cryptographic parts of protocols: groups, zero-knowledge proofs, secret shares and keys.

`oprf` is an oblivious PRF, `dpf` has distributed point functions, `shamir` shares of seeds, `paillier` and
`elgamal` encryption that adds.

Nothing here is exported at the top of the library, and nothing is loaded before it is asked for: import the
module that you need. The papers write groups multiplicatively, g^x; here a point is multiplied, x·G.

What is constant-time: every multiplication of a point by a `Secret`, and the response of a proof. What is
not claimed: Python's own integers and memory, which can be neither timed evenly nor erased.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
