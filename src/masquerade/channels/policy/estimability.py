"""Check that the reports of a policy permit estimates, before any report is drawn."""

from __future__ import annotations

import numpy as np

from masquerade.channels.channel import MOST_ENTRIES, Channel
from masquerade.channels.policy.group import Group
from masquerade.channels.policy.policy import Policy
from masquerade.core.errors import PolicyError, SingularChannel
from masquerade.estimate.inverse import UNRELATED

NOTHING = "every report is equally likely under every truth (γ = 1): nothing can be learnt."
SMALLER = " Take a smaller probability of change, or leave the variable out of the policy."
SAME = 1e-12  # probabilities of a report that differ by less are treated as equal
LARGE = 2**16  # larger channels are not inverted before a release: their rows are compared


def unusable(policy: Policy) -> dict[tuple[str, ...], str]:
    """Return the groups whose reports carry no information about some category, with the reason."""
    return _uninformative_groups(policy, MOST_ENTRIES)


def refuse_unusable(policy: Policy) -> None:
    """Raise PolicyError with all variables whose reports would carry no information.

    Variables disguised jointly pass, because their joint reports may determine tables that no single report
    determines.
    """
    said = [
        f"{names[0]}: {why}" for names, why in _uninformative_groups(policy, LARGE).items() if len(names) == 1
    ]
    if said:
        raise PolicyError(" ".join(said))


def _uninformative_groups(policy: Policy, most: int) -> dict[tuple[str, ...], str]:
    """Return groups that are uninformative in every stratum, with the reason.

    Channels with more than `most` entries are not inverted.
    """
    known: dict[tuple[int, tuple[int, ...]], str] = {}  # thousands of basket items share one channel
    told: dict[tuple[str, ...], str] = {}
    for stratum in policy.strata or (None,):
        for group in policy.groups_of(stratum):
            own = id(group.channel), group.sizes
            if own not in known:
                known[own] = _why(group, most)
            told[group.names] = known[own] if told.get(group.names, "-") else ""
    return {names: why for names, why in told.items() if why}


def _why(group: Group, most: int) -> str:
    """Return the reason why a group's reports are uninformative about some category; "" if they are not."""
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
