"""Whether anything can be estimated from the reports of a policy: asked before they are drawn."""

from __future__ import annotations

import numpy as np

from masquerade.channels.channel import MOST_ENTRIES, Channel
from masquerade.channels.policy.policy import Group, Policy
from masquerade.core.errors import PolicyError, SingularChannel
from masquerade.estimate.inverse import UNRELATED

NOTHING = "every report is as likely under any truth (γ = 1): nothing can be learnt."
SMALLER = " Take a smaller probability of change, or leave the variable out of the policy."
SAME = 1e-12  # chances of a report that differ by less are equal
LARGE = 2**16  # entries of a channel that is not inverted on the way to a release: its rows are compared


def unusable(policy: Policy) -> dict[tuple[str, ...], str]:
    """Return the groups whose reports tell nothing about some category, and why."""
    return _found(policy, MOST_ENTRIES)


def refuse_unusable(policy: Policy) -> None:
    """Refuse a policy by which reports would be drawn of which nothing can be learnt, all of them at once.

    Variables that are disguised together may tell of tables what they do not tell of each: they pass.
    """
    said = [f"{names[0]}: {why}" for names, why in _found(policy, LARGE).items() if len(names) == 1]
    if said:
        raise PolicyError(" ".join(said))


def _found(policy: Policy, most: int) -> dict[tuple[str, ...], str]:
    """Return what tells nothing in any stratum, and why; channels above a size are not inverted."""
    known: dict[tuple[int, tuple[int, ...]], str] = {}  # items of baskets have one channel, thousands of them
    told: dict[tuple[str, ...], str] = {}
    for stratum in policy.strata or (None,):
        for group in policy.groups_of(stratum):
            own = id(group.channel), group.sizes
            if own not in known:
                known[own] = _why(group, most)
            told[group.names] = known[own] if told.get(group.names, "-") else ""
    return {names: why for names, why in told.items() if why}


def _why(group: Group, most: int) -> str:
    """Return why a group's reports tell nothing about some category; "" if they do."""
    channel = group.channel
    if not isinstance(channel, Channel) or channel.is_identity:
        return ""
    entries = channel.truths * channel.reports
    if entries > MOST_ENTRIES:
        return ""
    instead = f" {UNRELATED}" if set(group.sizes) == {2} else ""
    if channel.truths > 1 and float(np.ptp(channel.matrix, axis=0).max()) <= SAME:
        return f"{NOTHING}{instead or SMALLER}"
    places = range(len(group.names)) if len(group.names) > 1 else ()
    if entries > most or any(channel.tells(group.sizes, (place,)) for place in places):
        return ""
    try:
        channel.inverse  # noqa: B018  (computed to see whether it exists)
    except SingularChannel as error:
        return str(error) + instead * (UNRELATED not in str(error))
    return ""
