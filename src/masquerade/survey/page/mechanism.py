"""A policy as a page applies it: channels with integer weights in text, and test vectors for the sampler.

The page samples as Python does, from 64-bit words. `panel_draws` are Python's draws for the key of a panel
member. `vectors` are words with their reports, for "Check this page" and for tests in Node and browsers.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.channel import Channel
from masquerade.channels.class_response import ClassResponse
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
    """Return groups of variables by stratum with columns and channels, in the format of `masquerade.js`."""
    strata = policy.strata or (None,)
    place_of = {name: place for place, name in enumerate(policy.observed)}
    groups = [[_group(group, place_of) for group in policy.groups_of(label)] for label in strata]
    size = sum(_entries(group) for stratum in groups for group in stratum)
    if size > MOST_WEIGHTS:
        raise InputError(
            f"The channels have {size:,} weights; a page can have at most {MOST_WEIGHTS:,}. Disguise "
            "variables separately, or deal them in blocks."
        )
    return {"by": policy.stratum_variable, "groups": groups}


def _entries(group: dict[str, Any]) -> int:
    channels = [group["channel"]] if "channel" in group else list(group.get("channels", {}).values())
    return sum(sum(map(len, channel)) if isinstance(channel[0], list) else 3 for channel in channels)


def _group(group: Group, place_of: dict[str, int]) -> dict[str, Any]:
    values: dict[str, Any] = {
        "names": list(group.names),
        "columns": [place_of[name] for name in group.reports],
        "sizes": list(group.sizes),
    }
    response = group.response
    if response is not None:
        sizes = sorted(set(response.block_classes.tolist()))
        channels = {str(size): channel_rows(response.channel_of(size)) for size in sizes}
        return values | _dealing(response) | {"channels": channels}
    if not group.disguised and not group.own_report:
        return values
    return values | {"reportSizes": list(group.report_sizes), "channel": channel_rows(group.matrix_channel)}


def _dealing(response: ClassResponse) -> dict[str, Any]:
    """Describe how blocks are dealt: by k and two weights, or as a list if units or a design require it."""
    if response.blocks > MOST_BLOCKS:
        raise InputError(f"{response.blocks:,} blocks are too many for a page (at most {MOST_BLOCKS:,}).")
    weights = response.dealing.weights[0].tolist()
    if response.design or max(map(len, response.units)) > 1:
        absent = len(response.sizes)  # padding in the rows of smaller blocks
        members = [[place for place in row if place < absent] for row in response.by_cells.tolist()]
        return {"blocks": members, "weights": list(map(str, weights))}
    other = weights[-1] if len(response.by_difference) else 0
    return {"k": response.k, "deal": [str(weights[0]), str(other)]}


def channel_rows(channel: Channel) -> list[Any]:
    """Return the rows of a channel, each [[report, weight], …]; of a symmetric one [size, same, other]."""
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
    """Derive the key of a panel member's draws from a recovery code.

    Parameters
    ----------
    secret : bytes
        Recovery code, decoded.
    policy_id : str
        Id of the policy.

    Returns
    -------
    bytes
        Key for `panel_draws`.
    """
    return derive(secret, PANEL, policy_id.encode())


def panel_draws(key: bytes) -> Draws:
    """Return the draws of one panel member: the same answer always gets the same report."""
    function, tag = BlockFunction(key), np.zeros((1, TAG_BYTES), dtype=np.uint8)

    def draw_codes(codes: Codes, channel: Channel, /, rows: NDArray[np.int64] | None, place: int) -> Codes:
        del rows
        reports = np.full(len(codes), -1, dtype=np.int64)
        for i, code in enumerate(codes):
            attempt = 0
            while reports[i] < 0:
                word = block_words(function, tag, np.array([code], dtype=np.uint32), place, attempt)
                reports[i] = report_of_word(np.array([code]), word, channel.draw_table)[0]
                attempt += 1
        return reports.astype(np.min_scalar_type(channel.reports - 1))

    return draw_codes


def vectors(channel: Channel, name: str, words: int, most_rows: int | None = None) -> list[dict[str, Any]]:
    """Return test vectors for rows of a channel: words and the reports that they give.

    They contain the ends of all intervals, and `words` further words that SHA-256 derives from the name, so
    that the file is the same everywhere.
    """
    rows = []
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
        rows.append(
            {"code": code, "words": [f"{word:x}" for word in chosen.tolist()], "reports": reports.tolist()}
        )
    return rows
