"""Samplers whose every report has the right distribution, and whose reports depend on each other; sound ones.

All are randomized response that keeps one of two truths with 3/4: ε = ln 3.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import Any

import numpy as np

import masquerade as mq
from masquerade.crypto.symmetric import Keystream
from masquerade.kernels.draw import draw

KEEP = 0.75
_fresh = np.random.default_rng()
_fixed = np.random.default_rng(3)  # set once, at import
_shared_seed = secrets.randbits(64)
_of_truth = {truth: np.random.default_rng(_shared_seed) for truth in (0, 1)}
_channel, _keystream = mq.channels.binary("1/4"), Keystream()


def respond(truth: int, uniform: Any) -> Any:
    """Return the truth where a uniform number is below 3/4, else the other value."""
    return np.where(np.asarray(uniform) < KEEP, truth, 1 - truth)


def seeded_per_call(truth: int, n: int) -> Any:
    """Set the same seed in every call."""
    return respond(truth, np.random.default_rng(7).random(n))


def seeded_by_seconds(truth: int, n: int) -> Any:
    """Seed every call with the second."""
    return respond(truth, np.random.default_rng(int(time.time())).random(n))


def seeded_by_truth(truth: int, n: int) -> Any:
    """Seed every call with the truth."""
    return respond(truth, np.random.default_rng(truth).random(n))


def seeded_at_import(truth: int, n: int) -> Any:
    """Draw from a generator whose seed is in the code."""
    return respond(truth, _fixed.random(n))


def antithetic_pairs(truth: int, n: int) -> Any:
    """Draw 2i + 1 from one minus the uniform number of draw 2i."""
    half = _fresh.random((n + 1) // 2)
    return respond(truth, np.stack([half, 1 - half], axis=1).ravel()[:n])


def antithetic_halves(truth: int, n: int) -> Any:
    """Draw the second half of a call from one minus the uniform numbers of the first."""
    half = _fresh.random((n + 1) // 2)
    return respond(truth, np.concatenate([half, 1 - half])[:n])


class _Alternating:
    last: float | None = None


def antithetic_calls(truth: int) -> int:
    """Draw single reports in antithetic pairs."""
    if _Alternating.last is None:
        uniform = _Alternating.last = random.SystemRandom().random()
    else:
        uniform, _Alternating.last = 1 - _Alternating.last, None
    return int(respond(truth, uniform))


def quota_of_a_call(truth: int, n: int) -> Any:
    """Keep exactly three quarters of every call."""
    kept = round(n * KEEP)
    return _fresh.permutation(np.repeat([truth, 1 - truth], [kept, n - kept]))


_deck: list[bool] = []


def quota_of_a_deck(truth: int) -> int:
    """Deal out twenty cards, fifteen of which keep the truth, before they are mixed again."""
    if not _deck:
        _deck.extend(_fresh.permutation(np.repeat([True, False], [15, 5])).tolist())
    return truth if _deck.pop() else 1 - truth


class _Congruential:
    state = secrets.randbelow(1 << 31)


def low_bits(truth: int, n: int) -> Any:
    """Draw by two low bits of a linear congruential generator: their period is 64."""
    kept = np.empty(n, dtype=bool)
    for place in range(n):
        _Congruential.state = (1103515245 * _Congruential.state + 12345) & 0x7FFFFFFF
        kept[place] = (_Congruential.state >> 4) & 3 != 0
    return np.where(kept, truth, 1 - truth)


class _Tape:
    uniforms = _fresh.random(20_011)
    at = 0


def tape(truth: int, n: int) -> Any:
    """Draw from a table of 20,011 random numbers, over and over."""
    places = (_Tape.at + np.arange(n)) % len(_Tape.uniforms)
    _Tape.at += n
    return respond(truth, _Tape.uniforms[places])


def common_numbers(truth: int, n: int) -> Any:
    """Draw both truths from the same random numbers, fresh in every process."""
    return respond(truth, _of_truth[truth].random(n))


DEPENDENT = {
    "seeded_per_call": "two calls",
    "seeded_by_seconds": "two calls",
    "seeded_by_truth": "two calls",
    "seeded_at_import": "two new processes",
    "antithetic_pairs": "one call",
    "antithetic_halves": "one call",
    "antithetic_calls": "one call",
    "quota_of_a_call": "blocks",
    "quota_of_a_deck": "blocks",
    "low_bits": "two calls",
    "tape": "far apart",
    "common_numbers": "two calls",
}


def system(truth: int) -> int:
    """Draw from the system's entropy."""
    return truth if secrets.randbelow(4) < 3 else 1 - truth


def permuted_congruential(truth: int, n: int) -> Any:
    """Draw from numpy's generator, seeded by the system."""
    return respond(truth, _fresh.random(n))


def released(truth: int, n: int) -> Any:
    """Draw as releases do."""
    return draw(np.full(n, truth), _channel.draw_table, _keystream)


SOUND = ("system", "permuted_congruential", "released")
