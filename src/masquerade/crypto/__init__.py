"""Cryptographic building blocks: groups, zero-knowledge proofs, secret sharing and keys.

`oprf` is an oblivious PRF, `dpf` contains distributed point functions, `shamir` shares seeds, and `paillier`
and `elgamal` are additively homomorphic encryption schemes.

Import the module that you need: nothing here is exported at the top of the library or loaded in advance. The
papers write groups multiplicatively, g^x; here they are written additively, x·G.

Multiplications of a point by a `Secret` and the response of a proof take constant time. Other arithmetic with
Python's integers does not, and secrets cannot be erased from Python's memory.
"""

from masquerade.core.util.lazy_exports import public_modules

__all__ = list(public_modules(__path__))
