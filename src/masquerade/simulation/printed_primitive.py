"""The primitive as the talk prints it: keys, one flow of data from every user, a sum, a small logarithm.

None of the repairs is here (proofs, checked rosters, signatures), so it protects nobody who is attacked: it
is for the clock. The protocol to be used is `masquerade.protocols.frequency`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from masquerade.crypto.ballots import BallotKeys, mask
from masquerade.crypto.group import SmallLog
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.frequency.ballots import POINT, public_keys, sum_of_keys


@dataclass(frozen=True, slots=True)
class Mined:
    """Frequencies, and the processor seconds of the miner and, on average, of a user; bytes a user sent."""

    counts: tuple[int, ...]
    miner_seconds: float
    user_seconds: float
    sent: int


def mined(bits: Sequence[Sequence[int]]) -> Mined:
    """Return the frequencies of users' bits, one row a user; key setup is not timed, as in the talk."""
    counts = len(bits[0])
    pairs = [[BallotKeys.fresh(secp256k1) for _ in range(counts)] for _ in bits]
    X, Y = sum_of_keys([public_keys(own) for own in pairs])
    start = time.process_time()
    masked = [
        [mask(bit, pair, x, y) for bit, pair, x, y in zip(own, keys, X, Y, strict=True)]
        for own, keys in zip(bits, pairs, strict=True)
    ]
    flows = [b"".join([point.encode() for both in own for point in both]) for own in masked]
    voted = time.process_time()
    logs = SmallLog(secp256k1, len(bits))
    found = []
    for at in range(0, 2 * counts * POINT, 2 * POINT):
        m = secp256k1.sum_encoded(b"".join([sent[at : at + POINT] for sent in flows]), workers=1)
        h = secp256k1.sum_encoded(b"".join([sent[at + POINT : at + 2 * POINT] for sent in flows]), workers=1)
        found.append(logs.find(m - h))
    summed = time.process_time()
    return Mined(tuple(found), summed - voted, (voted - start) / len(bits), len(flows[0]))
