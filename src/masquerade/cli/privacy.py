"""`masquerade privacy`: what a policy guarantees, in words that the person who has to sign it can act on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import masquerade as mq
from masquerade.cli import output
from masquerade.cli.expected_errors import PEOPLE, expected_table, expected_values
from masquerade.cli.options import Json, Overwrite, PolicyArgument, option
from masquerade.core.errors import InputError, SingularChannel
from masquerade.core.util import formatting
from masquerade.core.util.formatting import category_text, epsilon_text, gamma_text, percent
from masquerade.learn.option_types import variable_named

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from masquerade.channels.channel import Channel
    from masquerade.channels.class_response import ClassResponse
    from masquerade.channels.policy import Group, Policy
    from masquerade.channels.policy.privacy import ChannelPrivacy, PolicyPrivacy

Priors = Mapping[str, Sequence[float]]
NO_BOUND = "no bound: a report can exclude a value for certain"
PLOT_ENDINGS = (".png", ".svg")
TABLES = 4  # headline, a blank, protection and uncertainty come before what the reports will tell
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
        str | None, option("Also draw how far any belief can rise, as .png or .svg.", "FILE")
    ] = None,
    prior: Annotated[
        list[str] | None,
        option("How common the categories are, as VARIABLE=0.2,0.8; else all alike.", "V=P,..."),
    ] = None,
    threshold: Annotated[float, option("A truth less likely than this does not count for K.", "T")] = 0.0,
    rho: Annotated[
        list[float] | None,
        option("A belief before the report, whose highest belief after it is wanted.", show_default="0.05"),
    ] = None,
    n: Annotated[
        int, option("How many people will answer, for the errors to be expected.", "PEOPLE", "--n", min=1)
    ] = PEOPLE,
    overwrite: Overwrite = False,
) -> None:
    """Tell what disguised records give away: by variable, over a record, and to whom.

    Example: masquerade privacy policy.yaml --plot privacy.png
    """
    beliefs = list(dict.fromkeys(rho or [0.05]))
    for belief in beliefs:
        if not 0 < belief < 1:
            raise InputError(f"--rho is a belief between 0 and 1, such as 0.05. Got {belief:g} instead.")
    if not 0 <= threshold < 1:
        raise InputError(f"--threshold is a probability below 1. Got {threshold:g} instead.")
    output.check_plot(plot, overwrite=overwrite, endings=PLOT_ENDINGS)
    loaded = mq.Policy.load(policy)
    priors = _priors_given(prior or [], loaded)
    figures = mq.privacy(loaded, priors, beliefs, threshold)
    if plot is not None:
        from masquerade.report.breach_plot import breach_plot  # noqa: PLC0415  (loads matplotlib)

        title = f"How far can a report raise any belief?  Policy {figures.policy_id[:12]}"
        axes = breach_plot(figures, title=title)
        output.write_whole(plot, output.picture_of(axes, plot), overwrite=overwrite)
        output.say(f"the curve is drawn in {plot}.")
    if json:
        output.emit(plain_figures(figures, loaded) | {"expected": expected_values(loaded, priors, n)})
    else:
        telling = expected_table(loaded, priors, n)
        parts = _tables_and_sentences(figures, loaded, priors, beliefs, threshold)
        output.emit(output.render(*parts[:TABLES], *telling, *parts[TABLES:]))


def plain_figures(figures: PolicyPrivacy, policy: Policy) -> dict[str, Any]:
    """Return the figures for JSON, each channel in words too."""
    values = figures.to_dict()
    for kind in ("variables", "groups"):
        for entry, item in zip(values[kind], getattr(figures, kind), strict=True):
            entry["channel"] = _words_of(item, policy)
    return values


def _priors_given(texts: Sequence[str], policy: Policy) -> dict[str, list[float]]:
    """Return the distributions in "V=0.2,0.8"."""
    found: dict[str, list[float]] = {}
    for text in texts:
        name, equals, shares = text.rpartition("=")
        if not equals:
            raise InputError(f"--prior {text!r}: a distribution is given as VARIABLE=0.2,0.8.")
        variable = variable_named(name.strip(), policy.schema, "--prior")
        try:
            values = [_share(part) for part in shares.split(",")]
        except (ValueError, ZeroDivisionError):
            raise InputError(f"--prior {text!r}: a distribution is given as VARIABLE=0.2,0.8.") from None
        if len(values) != len(variable) or min(values) < 0 or abs(sum(values) - 1) > 1e-6:
            raise InputError(
                f"--prior {variable.name}: {len(variable)} probabilities that sum to 1 are needed, in the "
                f"policy's order. Got {len(values)} that sum to {sum(values):g}."
            )
        found[variable.name] = values
    return found


def _share(text: str) -> float:
    """Return a probability written as 0.2 or 1/5."""
    above, slash, below = text.partition("/")
    return float(above) / float(below) if slash else float(above)


def _tables_and_sentences(
    figures: PolicyPrivacy, policy: Policy, priors: Priors, beliefs: Sequence[float], threshold: float
) -> list[RenderableType]:
    items = [*figures.variables, *figures.groups]
    parts: list[RenderableType] = [f"Policy {figures.policy_id[:12]}: {_headline(policy)}", ""]
    if items:
        parts += [_protection(items, policy, priors, beliefs), _uncertainty(items, threshold)]
    parts += _sentences(figures, policy, beliefs)
    parts += ["", "Who learns what", *(f"- {line}" for line in figures.guarantee.summary().split("\n"))]
    return [*parts, "", LEGEND] if items else parts


def _headline(policy: Policy) -> str:
    hidden, everything = len(policy.disguised), len(policy.schema)
    if not hidden:
        return "NOTHING IS DISGUISED; every variable is released in clear."
    return f"{hidden} of {everything} variable{'' if everything == 1 else 's'} disguised."


def _protection(
    items: Sequence[ChannelPrivacy], policy: Policy, priors: Priors, beliefs: Sequence[float]
) -> Table:
    """Return the table for everybody: what is done, how far beliefs can move."""
    rising = [f"belief of {percent(belief)}\nrises to at most" for belief in beliefs]
    table = output.plain_table(
        "How well each variable is protected",
        ["variable", "what the disguise does"],
        ["γ", "ε", *rising, "right guess\n(without report)"],
    )
    for item in items:
        rises = [percent(bound) for _, bound in item.breach]
        table.add_row(
            item.title,
            _words_of(item, policy),
            gamma_text(item.gamma),
            "–" if item.gamma == math.inf else epsilon_text(item.epsilon),
            *rises,
            _guess_of(item, policy, priors),
        )
    return table


def _uncertainty(items: Sequence[ChannelPrivacy], threshold: float) -> Table:
    """Return the table for the statistician: entropy, probabilistic anonymity."""
    alike = "K" if not threshold else f"K (truths over {percent(threshold)})"
    table = output.plain_table(
        "What stays uncertain", ["variable"], ["uncertainty left", alike, "unevenness"]
    )
    for item in items:
        if item.entropy is None or item.prior_entropy is None or item.distance is None:
            table.add_row(item.title, "too large to compute", "–", "–")
            continue
        left = f"{item.entropy + 0.0:.2f} of {item.prior_entropy:.2f} bits"
        table.add_row(item.title, left, f"{item.k}", f"{item.distance:.2f} bits")
    return table


def _sentences(figures: PolicyPrivacy, policy: Policy, beliefs: Sequence[float]) -> list[str]:
    lines = [_whole_record(figures, policy, beliefs)] if policy.disguised else []
    lines.append(f"Disclosed in clear: {output.listed(figures.clear) or 'nothing'}.")
    together = [group.names for group in policy.groups if len(group.names) > 1 and not group.response]
    lines += [f"Disguised together, through one channel: {', '.join(names)}." for names in together]
    for item in (*figures.variables, *figures.groups):
        if item.disclosed_groups:
            lines.append(_disclosed(item))
        elif item.gamma == math.inf:
            lines.append(f"{item.title}: {NO_BOUND}.")
    for group in policy.groups:
        lines += _dealt(group.response, group) if group.response else _unusable(group.matrix_channel, group)
    return lines


def _whole_record(figures: PolicyPrivacy, policy: Policy, beliefs: Sequence[float]) -> str:
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
    names = output.listed(name for entry in bounded for name in entry.variables)
    return f"{text}." + (f" Of {names} alone, together: {gamma_words(others)}." if bounded else "")


def _disclosed(item: ChannelPrivacy) -> str:
    """Say which groups of values a report tells for certain, and what protects inside."""
    if len(item.variables) > 1:
        groups = f"{len(item.disclosed_groups):,} groups of combinations"
    else:
        groups = " | ".join(
            output.listed(map(category_text, group), 6) for group in item.disclosed_groups[:6]
        )
        groups += " | …" if len(item.disclosed_groups) > 6 else ""
    inside = (
        "and even within a group a report can exclude a value"
        if item.gamma_within == math.inf
        else f"within a group {gamma_words(item.gamma_within)}"
    )
    return f"{item.title}: a report tells for certain which group the value is in ({groups}); {inside}."


def _dealt(response: ClassResponse, group: Group) -> list[str]:
    """Say how blocks are dealt, and what follows from them."""
    kinds = f"{percent(float(response.cells))} of {response.k}"
    if response.cells < 1:
        kinds += f", the rest of differences among {response.k + 1}"
    tables = "single variables" if response.order == 1 else f"up to {response.order} of them"
    sentence = (
        f"{', '.join(group.names)} are dealt in {response.blocks:,} public blocks ({kinds}); each record "
        f"reports its class in one of them with {gamma_words(response.gamma)}, and so does every variable in "
        f"it. Tables of {tables} can be estimated. Fresh blocks in a later wave add as much again."
    )
    return [sentence]


def _unusable(channel: Channel, group: Group) -> list[str]:
    """Warn of a channel from whose reports some counts, or all, cannot be estimated."""
    try:
        channel.inverse  # noqa: B018  (computed to see whether it exists)
    except SingularChannel as error:
        from masquerade.sources.query_plan import tables_told  # noqa: PLC0415  (loads the sources)

        if len(group.names) > 1 and (tables := tables_told(group)):
            return [f"{', '.join(group.names)}: of the joint report these tables can be estimated: {tables}."]
        return [f"{', '.join(group.names)}: nothing can be estimated from the reports. {error}"]
    return []


def _words_of(item: ChannelPrivacy, policy: Policy) -> str:
    groups = policy.groups_of(item.stratum)
    group = next(group for group in groups if set(item.variables) <= set(group.names))
    if group.response is not None:
        return f"dealt in blocks of {group.response.k}"
    channel: Channel | None = group.matrix_channel
    if item.variables != group.names:
        places = [group.names.index(name) for name in item.variables]
        channel = group.matrix_channel.marginal(group.sizes, group.report_sizes, places)
    return "" if channel is None else channel_words(channel)


def _guess_of(item: ChannelPrivacy, policy: Policy, priors: Priors) -> str:
    """Return the chance of a right guess with the report, and without."""
    if item.vulnerability is None:
        return "–"
    before = 1 / math.prod(policy.schema.shape(item.variables))
    if len(item.variables) == 1 and item.variables[0] in priors:
        before = max(priors[item.variables[0]])
    return f"{percent(item.vulnerability)} ({percent(before)})"


def gamma_words(gamma: Fraction | float) -> str:
    """Return γ and ε, or what it means that there is none."""
    return f"γ has {NO_BOUND}" if gamma == math.inf else formatting.gamma_words(gamma)


def channel_words(channel: Channel) -> str:
    """Say what a channel does, from its probabilities alone."""
    if channel.is_identity:
        return "not disguised"
    if channel.truths != channel.reports or channel.labels is not None:
        return f"{channel.truths} truths reported as one of {channel.reports} codes"
    own = channel.outcomes == [[truth] for truth in range(channel.truths)]
    kept = (channel.weights * own).sum(axis=1) / channel.denominators
    low, high = float(min(kept)), float(max(kept))
    often = f"kept with {percent(low)}" + ("" if low == high else f" to {percent(high)}")
    if len(channel.blocks) > 1:
        return f"{often}, else changed within its group"
    others = channel.truths - 1
    if others == 1:
        return f"{often}, else swapped"
    return f"{often}, else one of {others} others" + (" alike" if _is_even(channel) else "")


def _is_even(channel: Channel) -> bool:
    """Tell whether all changes are possible and equally likely."""
    changed = (channel.outcomes != [[truth] for truth in range(channel.truths)]) & (channel.weights > 0)
    chances = (channel.weights / channel.denominators[:, None])[changed]
    everywhere = bool((changed.sum(axis=1) == channel.reports - 1).all())
    return everywhere and bool(chances.max() - chances.min() < 1e-12)
