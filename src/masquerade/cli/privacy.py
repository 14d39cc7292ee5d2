"""`masquerade privacy`: what a policy guarantees, in words that the person who has to sign it can act on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import masquerade as mq
from masquerade.cli.options import Json, Overwrite, PolicyArgument
from masquerade.cli.output import (
    as_json,
    check_target,
    emit,
    listed,
    picture_of,
    plain_table,
    render,
    say,
    write_whole,
)
from masquerade.core import words
from masquerade.core.errors import InputError, SingularChannel
from masquerade.core.words import category_text, epsilon_text, gamma_text, percent
from masquerade.learn.option_kinds import variable_named

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from masquerade.channels.channel import Channel
    from masquerade.channels.policy import Policy
    from masquerade.channels.privacy import ChannelPrivacy, PolicyPrivacy

Priors = Mapping[str, Sequence[float]]
NO_BOUND = "no bound: a report can exclude a value for certain"
PLOT_ENDINGS = (".png", ".svg")
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


def command(
    policy: PolicyArgument,
    *,
    json: Json = False,
    plot: Annotated[
        str | None,
        typer.Option(help="Also draw how far any belief can rise, as .png or .svg.", metavar="FILE"),
    ] = None,
    prior: Annotated[
        list[str] | None,
        typer.Option(
            help="How common the categories are, as VARIABLE=0.2,0.8; else all alike.", metavar="V=P,..."
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="A truth less likely than this does not count for K.", metavar="T")
    ] = 0.0,
    rho: Annotated[
        list[float] | None,
        typer.Option(
            help="A belief before the report, whose highest belief after it is wanted.", show_default="0.05"
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Tell what disguised records give away: by variable, over a record, and to whom.

    Example: masquerade privacy policy.yaml --plot privacy.png
    """
    beliefs = list(dict.fromkeys(rho or [0.05]))
    check(beliefs, threshold, plot)
    if plot is not None:
        check_target(Path(plot), overwrite=overwrite)
    loaded = mq.Policy.load(policy)
    priors = priors_given(prior or [], loaded)
    figures = mq.privacy(loaded, priors, beliefs, threshold)
    if plot is not None:
        from masquerade.report.breach_curves import breach_plot  # noqa: PLC0415  (loads matplotlib)

        axes = breach_plot(
            figures, title=f"How far can a report raise any belief?  Policy {figures.policy_id[:12]}"
        )
        write_whole(Path(plot), picture_of(axes, plot), overwrite=overwrite)
        say(f"the curve is drawn in {plot}.")
    if json:
        emit(as_json(plain(figures, loaded)))
    else:
        emit(render(*tables_and_sentences(figures, loaded, priors, beliefs, threshold)))


def plain(figures: PolicyPrivacy, policy: Policy) -> dict[str, Any]:
    """Return the figures for JSON, each channel in words too."""
    values = figures.to_dict()
    for kind in ("variables", "groups"):
        for entry, item in zip(values[kind], getattr(figures, kind), strict=True):
            entry["channel"] = words_of(item, policy)
    return values


def check(beliefs: Sequence[float], threshold: float, plot: str | None) -> None:
    """Refuse what cannot work before the policy is read."""
    for belief in beliefs:
        if not 0 < belief < 1:
            raise InputError(f"--rho is a belief between 0 and 1, such as 0.05. Got {belief:g} instead.")
    if not 0 <= threshold < 1:
        raise InputError(f"--threshold is a probability below 1. Got {threshold:g} instead.")
    if plot is not None and not plot.lower().endswith(PLOT_ENDINGS):
        raise InputError(f"{plot}: a plot ends in {' or '.join(PLOT_ENDINGS)}.")


def priors_given(texts: Sequence[str], policy: Policy) -> dict[str, list[float]]:
    """Return the distributions in "V=0.2,0.8"."""
    found: dict[str, list[float]] = {}
    for text in texts:
        name, equals, shares = text.rpartition("=")
        if not equals:
            raise InputError(f"--prior {text!r}: a distribution is given as VARIABLE=0.2,0.8.")
        variable = variable_named(name.strip(), policy.schema, "--prior")
        try:
            values = [share(part) for part in shares.split(",")]
        except (ValueError, ZeroDivisionError):
            raise InputError(f"--prior {text!r}: a distribution is given as VARIABLE=0.2,0.8.") from None
        if len(values) != len(variable) or min(values) < 0 or abs(sum(values) - 1) > 1e-6:
            raise InputError(
                f"--prior {variable.name}: {len(variable)} probabilities that sum to 1 are needed, in the "
                f"policy's order. Got {len(values)} that sum to {sum(values):g}."
            )
        found[variable.name] = values
    return found


def share(text: str) -> float:
    """Return a probability written as 0.2 or 1/5."""
    above, slash, below = text.partition("/")
    return float(above) / float(below) if slash else float(above)


def tables_and_sentences(
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
    rising = [f"belief of {percent(belief)}\nrises to at most" for belief in beliefs]
    table = plain_table(
        "How well each variable is protected",
        ["variable", "what the disguise does"],
        ["γ", "ε", *rising, "right guess\n(without report)"],
    )
    for item in items:
        rises = [percent(bound) for _, bound in item.breach]
        table.add_row(
            item.title,
            words_of(item, policy),
            gamma_text(item.gamma),
            "–" if item.gamma == math.inf else epsilon_text(item.epsilon),
            *rises,
            guess_of(item, policy, priors),
        )
    return table


def uncertainty(items: Sequence[ChannelPrivacy], threshold: float) -> Table:
    """Return the table for the statistician: entropy, probabilistic anonymity."""
    alike = "K" if not threshold else f"K (truths over {percent(threshold)})"
    table = plain_table("What stays uncertain", ["variable"], ["uncertainty left", alike, "unevenness"])
    for item in items:
        if item.entropy is None or item.prior_entropy is None or item.distance is None:
            table.add_row(item.title, "too large to compute", "–", "–")
            continue
        left = f"{item.entropy + 0.0:.2f} of {item.prior_entropy:.2f} bits"
        table.add_row(item.title, left, f"{item.k}", f"{item.distance:.2f} bits")
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
            lines.append(f"{item.title}: {NO_BOUND}.")
    for group in policy.groups:
        lines += unusable(group.channel, group.names)
    return lines


def whole_record(figures: PolicyPrivacy, policy: Policy, beliefs: Sequence[float]) -> str:
    """Say what all disguised variables of a record give away together."""
    from masquerade.channels.measures import breach_bound  # noqa: PLC0415  (loads numpy)

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
        groups = " | ".join(listed(map(category_text, group), 6) for group in item.disclosed_groups[:6])
        groups += " | …" if len(item.disclosed_groups) > 6 else ""
    inside = (
        "and even within a group a report can exclude a value"
        if item.gamma_within == math.inf
        else f"within a group {gamma_words(item.gamma_within)}"
    )
    return f"{item.title}: a report tells for certain which group the value is in ({groups}); {inside}."


def unusable(channel: Channel, names: Sequence[str]) -> list[str]:
    """Warn of a channel from whose reports nothing can be counted."""
    try:
        channel.inverse  # noqa: B018  (computed to see whether it exists)
    except SingularChannel as error:
        return [f"{', '.join(names)}: nothing can be estimated from the reports. {error}"]
    return []


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
