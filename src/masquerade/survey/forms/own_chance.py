"""Questions whose answers people can disguise with their own spinner or dice and a printed sheet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group, Policy

MOST_DICE: Final = 3
MOST_SECTORS: Final = 12
DEVICE_ONLY: Final = "only the device can draw that"


def sheet_channels(group: Group) -> dict[int, Channel]:
    """Return the channels of a group by their number of combinations of answers."""
    if group.response is None:
        return {group.matrix_channel.truths: group.matrix_channel}
    sizes = sorted(set(group.response.block_classes.tolist()))
    return {size: group.response.channel_of(size) for size in sizes}


def is_together(group: Group) -> bool:
    """Return True if the sheet of a group is about combinations of answers to several questions."""
    return group.disguised and (group.response is not None or len(group.names) > 1)


def own_weights(channel: Channel) -> tuple[int, int] | None:
    """Return the weights of two outcomes of a sheet, "your own combination" and each number.

    Only symmetric channels have such weights; for others, return None.

    Formula: a symmetric channel with weights a (truth) and b (each other report) is the same as: the truth
    with weight a − b, and each of all J reports with weight b. One sheet then serves every truth.

    >>> own_weights(mq.channels.for_gamma(4, 19))
    (18, 1)
    """
    rows = [channel.row(code) for code in range(channel.truths)]
    same, other = rows[0].get(0), rows[0].get(1)
    if same is None or other is None or same <= other or channel.reports != channel.truths:
        return None
    expected = {(a, b): same if a == b else other for a in range(len(rows)) for b in range(len(rows))}
    if any(rows[a].get(b) != chance for (a, b), chance in expected.items()):
        return None
    ratio = (same - other) / other
    return ratio.numerator, ratio.denominator


def sheet_problem(group: Group) -> str | None:
    """Return the reason why a group of questions has no sheet, None if it has a sheet."""
    together = is_together(group)
    if group.response is not None and group.response.cells < 1:
        return f"blocks deal differences between answers: {DEVICE_ONLY}"
    for size, channel in sheet_channels(group).items():
        if channel.reports > MOST_SECTORS:
            return f"a sheet has at most {MOST_SECTORS} outcomes. Got {channel.reports}: {DEVICE_ONLY}"
        weights = own_weights(channel) if together else None
        if together and weights is None:
            return f"several answers share a sheet only if their channel is symmetric: {DEVICE_ONLY}"
        totals = channel.denominators.tolist() if weights is None else [weights[0] + size * weights[1]]
        if max(totals) > 6**MOST_DICE:
            return "its odds are too fine for dice: choose a simple fraction for its γ, such as 19 or 5/2"
    return None


def own_chance_problems(policy: Policy, conditions: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield the reasons why people cannot draw their reports themselves.

    `conditions` maps each follow-up question to the earlier questions that it depends on.
    """
    if policy.stratum_variable is not None:
        yield "own_chance: sheets are the same for all people, but this policy has strata."
        return
    for group in policy.groups:
        problem = sheet_problem(group) if group.disguised else None
        if problem is not None:
            yield f"own_chance: {', '.join(group.names)}: {problem}."
    for name, earlier in conditions.items():
        group = policy.group(name)
        if not (is_together(group) and set(earlier) <= set(group.names)):
            yield (
                f"own_chance: {name}: the page learns only the result of the sheet, so it cannot apply "
                "show_if unless both questions are disguised together."
            )
