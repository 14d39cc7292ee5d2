"""A policy as a page applies it: channels as whole numbers in text, and vectors that show it is the same.

The page draws as Python does, from 64-bit words; `panel_draws` are Python's draws for a panel's key, and
`vectors` words with their reports, for `check this page`, for Node and for browsers.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group, Policy
from masquerade.core.errors import InputError
from masquerade.crypto.keys import derive
from masquerade.crypto.symmetric import BlockFunction
from masquerade.disguising.memo import TAG_BYTES, block_words
from masquerade.disguising.report_draws import Codes, Draws
from masquerade.kernels.draw import report_of_word

MOST_WEIGHTS: Final = 20_000  # in one page
MOST_BLOCKS: Final = 5_000
ENDS: Final = (0, 2**64 - 1)
PANEL: Final = "survey panel"


def mechanism(policy: Policy) -> dict[str, Any]:
    """Return groups of variables by stratum with columns and channels, as `masquerade.js` reads them."""
    strata = policy.strata or (None,)
    place_of = {name: place for place, name in enumerate(policy.observed)}
    groups = [[_group(group, place_of) for group in policy.groups_of(label)] for label in strata]
    size = sum(_entries(group) for own in groups for group in own)
    if size > MOST_WEIGHTS:
        raise InputError(
            f"The channels have {size:,} weights; a page takes at most {MOST_WEIGHTS:,}. Disguise variables "
            "alone, or deal them in blocks."
        )
    return {"by": policy.stratum_variable, "groups": groups}


def _entries(group: dict[str, Any]) -> int:
    channels = [group["channel"]] if "channel" in group else list(group.get("channels", {}).values())
    return sum(sum(map(len, channel)) if isinstance(channel[0], list) else 3 for channel in channels)


def _group(group: Group, place_of: dict[str, int]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "names": list(group.names),
        "columns": [place_of[name] for name in group.reports],
        "sizes": list(group.sizes),
    }
    response = group.response
    if response is not None:
        if response.blocks > MOST_BLOCKS:
            raise InputError(f"{response.blocks:,} blocks are too many for a page (at most {MOST_BLOCKS:,}).")
        weights = response.dealing.weights[0].tolist()
        other = weights[-1] if len(response.by_difference) else 0
        sizes = sorted(set(response.block_classes.tolist()))
        return found | {
            "k": response.k,
            "deal": [str(weights[0]), str(other)],
            "channels": {str(size): channel_rows(response.channel_of(size)) for size in sizes},
        }
    if not group.disguised and not group.own_report:
        return found
    return found | {"reportSizes": list(group.report_sizes), "channel": channel_rows(group.matrix_channel)}


def channel_rows(channel: Channel) -> list[Any]:
    """Return the rows of a channel, [[report, weight], …] each; a symmetric one as [size, same, other]."""
    size = channel.truths
    straight = channel.reports == size and channel.outcomes.shape == (size, size)
    if straight and size > 1 and np.array_equal(channel.outcomes, np.tile(np.arange(size), (size, 1))):
        same, other = int(channel.weights[0, 0]), int(channel.weights[0, 1])
        symmetric = np.full((size, size), other, dtype=np.int64)
        np.fill_diagonal(symmetric, same)
        if np.array_equal(channel.weights, symmetric):
            return [size, str(same), str(other)]
    return [
        [[report, str(weight)] for report, weight in zip(outcomes, weights, strict=True) if weight]
        for outcomes, weights in zip(channel.outcomes.tolist(), channel.weights.tolist(), strict=True)
    ]


def panel_key(secret: bytes, policy_id: str) -> bytes:
    """Return the key that a recovery code gives a panel member's draws under a policy."""
    return derive(secret, PANEL, policy_id.encode())


def panel_draws(key: bytes) -> Draws:
    """Return the draws of one panel member: the same answer always gets the same report."""
    function, tag = BlockFunction(key), np.zeros((1, TAG_BYTES), dtype=np.uint8)

    def drawn(codes: Codes, channel: Channel, /, rows: NDArray[np.int64] | None, place: int) -> Codes:
        del rows
        reports = np.full(len(codes), -1, dtype=np.int64)
        for i, code in enumerate(codes):
            attempt = 0
            while reports[i] < 0:
                word = block_words(function, tag, np.array([code], dtype=np.uint32), place, attempt)
                reports[i] = report_of_word(np.array([code]), word, channel.draw_table)[0]
                attempt += 1
        return reports.astype(np.min_scalar_type(channel.reports - 1))

    return drawn


def vectors(channel: Channel, name: str, words: int, most_rows: int | None = None) -> list[dict[str, Any]]:
    """Return words and the reports they give, for rows of a channel: all ends of intervals, and others.

    The others follow from the name by SHA-256, so that the same file is made everywhere.
    """
    found = []
    table = channel.draw_table
    for code in range(channel.truths if most_rows is None else min(channel.truths, most_rows)):
        last = table.last[code, : table.support[code]].tolist()
        ends = {word for end in last for word in (end - 1, end, end + 1) if 0 <= word < 2**64}
        drawn = {
            int.from_bytes(hashlib.sha256(f"{name} {code} {i}".encode()).digest()[:8], "little")
            for i in range(words)
        }
        chosen = np.array(sorted({*ENDS, *ends, *drawn}), dtype=np.uint64)
        reports = report_of_word(np.full(len(chosen), code), chosen, table)
        found.append(
            {"code": code, "words": [f"{word:x}" for word in chosen.tolist()], "reports": reports.tolist()}
        )
    return found
