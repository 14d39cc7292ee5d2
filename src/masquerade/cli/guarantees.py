"""What a policy guarantees, laid out for reading."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from masquerade.channels.measures import breach_bound
from masquerade.cli.query_arguments import shown
from masquerade.cli.words import NO_BOUND, channel_words, gamma_words, listed
from masquerade.core.errors import SingularChannel
from masquerade.core.words import epsilon_text, gamma_text, percent

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from masquerade.channels.channel import Channel
    from masquerade.channels.policy import Policy
    from masquerade.channels.privacy import ChannelPrivacy, PolicyPrivacy

Priors = Mapping[str, Sequence[float]]

LEGEND = """\
How to read this
- γ (gamma): after seeing a report, the odds of any belief about the person change by at most this factor. \
1 gives nothing away; ε = ln γ is the ε of local differential privacy. Unlike the other figures it holds \
whatever is known about the person beforehand.
- Belief: whoever thought something this likely before the report cannot think it likelier than that after.
- Right guess: how often the best guess from a report is right, beside guessing without it.
- Uncertainty left: entropy in bits that remains after the report, of what there was before.
- K: behind every report at least so many values stay possible; unevenness: how far the worst report is \
from making them equally likely, in bits."""


def as_text(
    figures: PolicyPrivacy, policy: Policy, priors: Priors, beliefs: Sequence[float], threshold: float
) -> list[RenderableType]:
    """Return tables and sentences."""
    items = [*figures.variables, *figures.groups]
    parts: list[RenderableType] = [f"Policy {figures.policy_id[:12]}: {headline(policy)}", ""]
    if items:
        parts += [protection(items, policy, priors, beliefs), uncertainty(items, threshold)]
    parts += sentences(figures, policy, beliefs)
    parts += ["", "Who learns what", *(f"- {line}" for line in figures.guarantee.summary().split("\n"))]
    return [*parts, "", LEGEND] if items else parts


def headline(policy: Policy) -> str:
    """Return how many variables are disguised."""
    hidden, everything = len(policy.disguised), len(policy.schema)
    if not hidden:
        return "NOTHING IS DISGUISED; every variable is released in clear."
    return f"{hidden} of {everything} variable{'' if everything == 1 else 's'} disguised."


def protection(
    items: Sequence[ChannelPrivacy], policy: Policy, priors: Priors, beliefs: Sequence[float]
) -> Table:
    """Return the table for everybody: what is done, how far beliefs can move."""
    table = plain_table("How well each variable is protected")
    table.add_column("variable")
    table.add_column("what the disguise does")
    table.add_column("γ", justify="right")
    table.add_column("ε", justify="right")
    for belief in beliefs:
        table.add_column(f"belief of {percent(belief)}\nrises to at most", justify="right")
    table.add_column("right guess\n(without report)", justify="right")
    for item in items:
        rises = [percent(bound) for _, bound in item.breach]
        table.add_row(
            name_of(item),
            words_of(item, policy),
            gamma_text(item.gamma),
            "–" if item.gamma == math.inf else epsilon_text(item.epsilon),
            *rises,
            guess_of(item, policy, priors),
        )
    return table


def uncertainty(items: Sequence[ChannelPrivacy], threshold: float) -> Table:
    """Return the table for the statistician: entropy, probabilistic anonymity."""
    table = plain_table("What stays uncertain")
    table.add_column("variable")
    for name in (
        "uncertainty left",
        "K" if not threshold else f"K (truths over {percent(threshold)})",
        "unevenness",
    ):
        table.add_column(name, justify="right")
    for item in items:
        if item.entropy is None or item.prior_entropy is None or item.distance is None:
            table.add_row(name_of(item), "too large to compute", "–", "–")
            continue
        left = f"{item.entropy + 0.0:.2f} of {item.prior_entropy:.2f} bits"
        table.add_row(name_of(item), left, f"{item.k}", f"{item.distance:.2f} bits")
    return table


def sentences(figures: PolicyPrivacy, policy: Policy, beliefs: Sequence[float]) -> list[str]:
    """Return what the tables do not say."""
    lines = [whole_record(figures, policy, beliefs)] if policy.disguised else []
    lines.append(f"Disclosed in clear: {listed(figures.clear) or 'nothing'}.")
    together = [group.names for group in policy.groups if len(group.names) > 1]
    lines += [f"Disguised together, through one channel: {', '.join(names)}." for names in together]
    for item in (*figures.variables, *figures.groups):
        if item.disclosed_groups:
            lines.append(disclosed(item))
        elif item.gamma == math.inf:
            lines.append(f"{name_of(item)}: {NO_BOUND}.")
    for group in policy.groups:
        lines += unusable(group.channel, group.names)
    return lines


def whole_record(figures: PolicyPrivacy, policy: Policy, beliefs: Sequence[float]) -> str:
    """Say what all disguised variables of a record give away together."""
    gamma = figures.record_gamma
    bounds = [f"a belief of {percent(b)} rises to at most {percent(breach_bound(gamma, b))}" for b in beliefs]
    text = f"Whole record, all disguised variables together: {gamma_words(gamma)}"
    if gamma != math.inf:
        return f"{text}; {'; '.join(bounds)}."
    bounded = [
        entry
        for entry in figures.guarantee.disclosures
        if entry.gamma is not None and set(entry.variables) <= set(policy.disguised)
    ]
    others = math.prod(entry.gamma for entry in bounded if entry.gamma is not None)
    names = listed(name for entry in bounded for name in entry.variables)
    return f"{text}." + (f" Of {names} alone, together: {gamma_words(others)}." if bounded else "")


def disclosed(item: ChannelPrivacy) -> str:
    """Say which groups of values a report tells for certain, and what protects inside."""
    if len(item.variables) > 1:
        groups = f"{len(item.disclosed_groups):,} groups of combinations"
    else:
        groups = " | ".join(listed(map(shown_any, group), 6) for group in item.disclosed_groups[:6])
        groups += " | …" if len(item.disclosed_groups) > 6 else ""
    inside = (
        "and even within a group a report can exclude a value"
        if item.gamma_within == math.inf
        else f"within a group {gamma_words(item.gamma_within)}"
    )
    return f"{name_of(item)}: a report tells for certain which group the value is in ({groups}); {inside}."


def unusable(channel: Channel, names: Sequence[str]) -> list[str]:
    """Warn of a channel from whose reports nothing can be counted."""
    try:
        channel.inverse  # noqa: B018  (computed to see whether it exists)
    except SingularChannel as error:
        return [f"{', '.join(names)}: nothing can be estimated from the reports. {error}"]
    return []


def name_of(item: ChannelPrivacy) -> str:
    """Return the variables, and the stratum if the channel holds there only."""
    names = " + ".join(item.variables)
    return names if item.stratum is None else f"{names} (stratum {shown(item.stratum)})"


def words_of(item: ChannelPrivacy, policy: Policy) -> str:
    """Say what the channel of an item does."""
    groups = policy.groups_of(item.stratum)
    group = next(group for group in groups if set(item.variables) <= set(group.names))
    channel: Channel | None = group.channel
    if item.variables != group.names:
        places = [group.names.index(name) for name in item.variables]
        channel = group.channel.marginal(group.sizes, group.report_sizes, places)
    return "" if channel is None else channel_words(channel)


def guess_of(item: ChannelPrivacy, policy: Policy, priors: Priors) -> str:
    """Return the chance of a right guess with the report, and without."""
    if item.vulnerability is None:
        return "–"
    before = 1 / math.prod(policy.schema.shape(item.variables))
    if len(item.variables) == 1 and item.variables[0] in priors:
        before = max(priors[item.variables[0]])
    return f"{percent(item.vulnerability)} ({percent(before)})"


def shown_any(label: object) -> str:
    """Return a category or a joint code as text."""
    return str(label).lower() if isinstance(label, bool) else str(label)


def plain_table(title: str) -> Table:
    """Return an empty table in the house style."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
