"""Figures in words that a person without a statistics degree can act on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING

from masquerade.core import words
from masquerade.core.words import percent

if TYPE_CHECKING:
    from masquerade.channels.channel import Channel

NO_BOUND = "no bound: a report can exclude a value for certain"


def listed(names: Iterable[object], most: int = 12) -> str:
    """Return names in a row, the first few if there are many."""
    everything = [str(name) for name in names]
    first = ", ".join(everything[:most])
    return first + (f" and {len(everything) - most} more" if len(everything) > most else "")


def gamma_words(gamma: Fraction | float) -> str:
    """Return γ and ε, or what it means that there is none."""
    return f"γ has {NO_BOUND}" if gamma == math.inf else words.gamma_words(gamma)


def channel_words(channel: Channel) -> str:
    """Say what a channel does, from its probabilities alone."""
    if channel.is_identity:
        return "not disguised"
    if channel.truths != channel.reports or channel.labels is not None:
        return f"{channel.truths} truths reported as one of {channel.reports} codes"
    kept = kept_shares(channel)
    low, high = min(kept), max(kept)
    often = f"kept with {percent(low)}" + ("" if low == high else f" to {percent(high)}")
    if len(channel.blocks) > 1:
        return f"{often}, else changed within its group"
    others = channel.truths - 1
    if others == 1:
        return f"{often}, else swapped"
    return f"{often}, else one of {others} others" + (" alike" if is_even(channel) else "")


def kept_shares(channel: Channel) -> list[float]:
    """Return the chance of every truth to be reported as it is."""
    own = channel.outcomes == [[truth] for truth in range(channel.truths)]
    shares = (channel.weights * own).sum(axis=1) / channel.denominators
    return [float(share) for share in shares]


def is_even(channel: Channel) -> bool:
    """Tell whether all changes are possible and equally likely."""
    changed = (channel.outcomes != [[truth] for truth in range(channel.truths)]) & (channel.weights > 0)
    chances = (channel.weights / channel.denominators[:, None])[changed]
    everywhere = bool((changed.sum(axis=1) == channel.reports - 1).all())
    return everywhere and bool(chances.max() - chances.min() < 1e-12)
