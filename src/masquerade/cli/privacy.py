"""`masquerade privacy`: the guarantee of a policy, for the person who has to approve it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import masquerade as mq
from masquerade.cli import output
from masquerade.cli.expected_errors import PEOPLE, expected_table, expected_values
from masquerade.cli.ledger_privacy import show_ledger
from masquerade.cli.options import POLICY_ENDINGS, Json, Overwrite, argument, option
from masquerade.core.errors import InputError, SingularChannel
from masquerade.core.record_gamma import describe_clear_missing, describe_gamma
from masquerade.core.util import formatting
from masquerade.core.util.formatting import category_text, epsilon_text, gamma_text, percent
from masquerade.learn.option_types import variable_named

if TYPE_CHECKING:
    from rich.table import Table

    from masquerade.channels.channel import Channel
    from masquerade.channels.class_response import ClassResponse
    from masquerade.channels.policy import Group, Policy
    from masquerade.channels.policy.privacy import ChannelPrivacy, PolicyPrivacy

Priors = Mapping[str, Sequence[float]]
NO_BOUND = "no bound: a report can exclude a value for certain"
PLOT_ENDINGS = (".png", ".svg")
MOST_NAMED = 4  # variables named in a row of a table
LEGEND = """\
How to read this
- γ (gamma): after seeing a report, the odds of any belief about the person change by at most this factor. \
1 reveals nothing; ε = ln γ is the ε of local differential privacy. Unlike the other numbers it holds \
whatever an attacker already knows about the person.
- Belief: a report raises a belief with the probability in the heading to at most the one below it.
- Right guess: how often the best guess from a report is right, compared with guessing without it.
- Uncertainty left: entropy in bits that remains after the report, out of the entropy before it.
- K: the least number of values that remain possible after a report; unevenness: how far the worst \
report is from making them equally likely, in bits."""


def command(
    policy: Annotated[
        str | None,
        argument(
            "The policy file (YAML or JSON), or a file of records disguised under it; with --ledger, its "
            "limit is used.",
            "POLICY",
        ),
    ] = None,
    *,
    ledger: Annotated[
        str | None,
        option(
            "Show what all releases reveal about one person, compared with the limit, and to whom: a ledger "
            "(releases.jsonl), the state folder of a service, a ledger of noise, a project of the studio, or "
            "a folder of disguised files.",
            "PLACE",
        ),
    ] = None,
    json: Json = False,
    plot: Annotated[
        str | None,
        option("Also plot how far any belief can rise, or the ledger (.png or .svg).", "FILE"),
    ] = None,
    prior: Annotated[
        list[str] | None,
        option("Shares of the categories, as VARIABLE=0.2,0.8; equal by default.", "V=P,..."),
    ] = None,
    threshold: Annotated[
        float,
        option("Ignore truths less likely than this when counting K.", "T"),
    ] = 0.0,
    rho: Annotated[
        list[float] | None,
        option("A belief before the report; shows the largest belief after it.", show_default="0.05"),
    ] = None,
    n: Annotated[
        int, option("Number of people who will answer, for the expected errors.", "PEOPLE", "--n", min=1)
    ] = PEOPLE,
    overwrite: Overwrite = False,
) -> None:
    """Show what disguised records reveal: by variable, over a whole record, and to whom.

    Example: masquerade privacy policy.yaml --plot privacy.png
    """
    if ledger is not None:
        show_ledger(ledger, policy, json=json, plot=plot, overwrite=overwrite)
        return
    if policy is None:
        raise InputError("Name a policy file, or a ledger with --ledger FILE.")
    beliefs = list(dict.fromkeys(rho or [0.05]))
    for belief in beliefs:
        if not 0 < belief < 1:
            raise InputError(f"--rho is a belief between 0 and 1, such as 0.05. Got {belief:g} instead.")
    if not 0 <= threshold < 1:
        raise InputError(f"--threshold is a probability below 1. Got {threshold:g} instead.")
    output.check_plot(plot, overwrite=overwrite, endings=PLOT_ENDINGS)
    loaded = _load_policy(policy)
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
        head: list[Any] = [
            *_missing_in_clear(loaded),
            f"Policy {figures.policy_id[:12]}: {_headline(loaded)}",
            *_person(figures, loaded, beliefs),
            "",
        ]
        tables = _tables(figures, loaded, priors, beliefs, threshold)
        notes: list[Any] = [*expected_table(loaded, priors, n), *_sentences(figures, loaded)]
        output.emit(output.render(*head, *tables, *notes, *_who_learns(figures)))


def _load_policy(path: str) -> Policy:
    """Return the policy in a policy file, or the policy that a file of disguised records includes."""
    if path.lower().endswith(POLICY_ENDINGS) or not _is_data(path):
        return mq.Policy.load(path)
    from masquerade.frames.file_reader import open_batches  # noqa: PLC0415  (loads Arrow)
    from masquerade.sources.tally import carried_policy  # noqa: PLC0415

    with open_batches(path) as records:
        included = carried_policy(records.metadata)
    if included is None:
        raise InputError(f"{path}: does not include the policy of its records. Name the policy file instead.")
    return included


def _is_data(path: str) -> bool:
    """Return True if a file name has an extension of files of records."""
    from masquerade.frames.formats import format_of  # noqa: PLC0415

    try:
        format_of(Path(path))
    except InputError:
        return False
    return True


def plain_figures(figures: PolicyPrivacy, policy: Policy) -> dict[str, Any]:
    """Return the measures for JSON, with a description of each channel."""
    values = figures.to_dict()
    for kind in ("variables", "groups"):
        for entry, item in zip(values[kind], getattr(figures, kind), strict=True):
            entry["channel"] = _describe_channel(item, policy)
    return values


def _priors_given(texts: Sequence[str], policy: Policy) -> dict[str, list[float]]:
    """Parse distributions such as "V=0.2,0.8"."""
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
    """Parse a probability written as 0.2 or 1/5."""
    above, slash, below = text.partition("/")
    return float(above) / float(below) if slash else float(above)


def _person(figures: PolicyPrivacy, policy: Policy, beliefs: Sequence[float]) -> list[str]:
    """Describe what a whole record reveals, in a sentence and as γ, and state the limit."""
    if not policy.disguised:
        return []
    limit = "none is stated" if policy.limit is None else f"{policy.limit}"
    return [
        f"One person: {describe_gamma(figures.record_gamma)}",
        f"{_whole_record(figures, policy, beliefs)} Limit: {limit}.",
    ]


def _tables(
    figures: PolicyPrivacy, policy: Policy, priors: Priors, beliefs: Sequence[float], threshold: float
) -> list[Table]:
    items = [*figures.variables, *figures.groups]
    return [_protection(items, policy, priors, beliefs), _uncertainty(items, threshold)] if items else []


def _who_learns(figures: PolicyPrivacy) -> list[str]:
    lines = ["", "Who learns what", *(f"- {line}" for line in figures.guarantee.summary().split("\n"))]
    return [*lines, "", LEGEND] if figures.variables or figures.groups else lines


def _missing_in_clear(policy: Policy) -> list[str]:
    """Return the sentence about missing answers in clear, which comes before all figures."""
    sentence = describe_clear_missing(policy.clear_missing)
    return [sentence] if sentence else []


def _headline(policy: Policy) -> str:
    hidden, everything = len(policy.disguised), len(policy.schema)
    if not hidden:
        return "NOTHING IS DISGUISED; every variable is released in clear."
    return f"{hidden} of {everything} variable{'' if everything == 1 else 's'} disguised."


def _protection(
    items: Sequence[ChannelPrivacy], policy: Policy, priors: Priors, beliefs: Sequence[float]
) -> Table:
    """Return the table for general readers: the disguise, and how far beliefs can rise."""
    rising = [f"belief of {percent(belief)}\nrises to at most" for belief in beliefs]
    table = output.plain_table(
        "How well each variable is protected",
        ["variable", "what the disguise does"],
        ["γ", "ε", *rising, "right guess\n(without report)"],
    )
    for item in items:
        rises = [percent(bound) for _, bound in item.breach]
        table.add_row(
            _title(item),
            _describe_channel(item, policy),
            gamma_text(item.gamma),
            "–" if item.gamma == math.inf else epsilon_text(item.epsilon),
            *rises,
            _guess_of(item, policy, priors),
        )
    return table


def _title(item: ChannelPrivacy) -> str:
    """Return the names of a row's variables, shortened if there are many."""
    return item.title if len(item.variables) <= MOST_NAMED else output.join_names(item.variables, MOST_NAMED)


def _uncertainty(items: Sequence[ChannelPrivacy], threshold: float) -> Table:
    """Return the table for statisticians: entropy and probabilistic anonymity."""
    anonymity = "K" if not threshold else f"K (truths over {percent(threshold)})"
    table = output.plain_table(
        "What stays uncertain", ["variable"], ["uncertainty left", anonymity, "unevenness"]
    )
    for item in items:
        if item.entropy is None or item.prior_entropy is None or item.distance is None:
            table.add_row(_title(item), "too large to compute", "–", "–")
            continue
        left = f"{item.entropy + 0.0:.2f} of {item.prior_entropy:.2f} bits"
        table.add_row(_title(item), left, f"{item.k}", f"{item.distance:.2f} bits")
    return table


def _sentences(figures: PolicyPrivacy, policy: Policy) -> list[str]:
    lines = [f"Disclosed in clear: {output.join_names(figures.clear) or 'nothing'}."]
    together = [group.names for group in policy.groups if len(group.names) > 1 and not group.response]
    lines += [f"Disguised together, through one channel: {', '.join(names)}." for names in together]
    for item in (*figures.variables, *figures.groups):
        if item.disclosed_groups:
            lines.append(_describe_disclosed_groups(item))
        elif item.gamma == math.inf:
            lines.append(f"{item.title}: {NO_BOUND}.")
    for group in policy.groups:
        lines += (
            _describe_blocks(group.response, group)
            if group.response
            else _unusable(group.matrix_channel, group)
        )
    return lines


def _whole_record(figures: PolicyPrivacy, policy: Policy, beliefs: Sequence[float]) -> str:
    """Describe what all disguised variables of a record reveal together."""
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
    names = output.join_names(name for entry in bounded for name in entry.variables)
    return f"{text}." + (f" Of {names} alone, together: {gamma_words(others)}." if bounded else "")


def _describe_disclosed_groups(item: ChannelPrivacy) -> str:
    """Describe the groups of values that a report reveals, and the protection within a group."""
    if len(item.variables) > 1:
        groups = f"{len(item.disclosed_groups):,} groups of combinations"
    else:
        groups = " | ".join(
            output.join_names(map(category_text, group), 6) for group in item.disclosed_groups[:6]
        )
        groups += " | …" if len(item.disclosed_groups) > 6 else ""
    inside = (
        "and even within a group a report can exclude a value"
        if item.gamma_within == math.inf
        else f"within a group {gamma_words(item.gamma_within)}"
    )
    return f"{item.title}: a report reveals with certainty which group the value is in ({groups}); {inside}."


def _describe_blocks(response: ClassResponse, group: Group) -> list[str]:
    """Describe the blocks of class response of a group, and the tables that can be estimated."""
    kinds = f"{percent(float(response.cells))} of the records get {response.k} variables"
    if response.cells < 1:
        kinds += f", the others the differences among {response.k + 1}"
    tables = "single variables" if response.order == 1 else f"up to {response.order} of them"
    sentence = (
        f"{', '.join(group.names)} are dealt in {response.blocks:,} public blocks ({kinds}); each record "
        f"reports its class in one block with {gamma_words(response.gamma)}, which also holds for every "
        f"variable in it. Tables of {tables} can be estimated. Fresh blocks in a later wave reveal as much "
        "again."
    )
    return [sentence]


def _unusable(channel: Channel, group: Group) -> list[str]:
    """Describe the tables that can be estimated if a channel has no inverse; return nothing if it has one."""
    try:
        channel.inverse  # noqa: B018  (raises an error if it does not exist)
    except SingularChannel as error:
        from masquerade.sources.untold_tables import tables_told  # noqa: PLC0415  (loads the sources)

        if len(group.names) > 1 and (tables := tables_told(group)):
            return [
                f"{', '.join(group.names)}: from the joint report these tables can be estimated: {tables}."
            ]
        return [f"{', '.join(group.names)}: nothing can be estimated from the reports. {error}"]
    return []


def _describe_channel(item: ChannelPrivacy, policy: Policy) -> str:
    groups = policy.groups_of(item.stratum)
    group = next(group for group in groups if set(item.variables) <= set(group.names))
    if group.response is not None:
        return dealing_words(group.response)
    channel: Channel | None = group.matrix_channel
    if item.variables != group.names:
        axes = [group.names.index(name) for name in item.variables]
        channel = group.matrix_channel.marginal(group.sizes, group.report_sizes, axes)
    return "" if channel is None else channel_words(channel)


def _guess_of(item: ChannelPrivacy, policy: Policy, priors: Priors) -> str:
    """Format the probability of a right guess with and without the report."""
    if item.vulnerability is None:
        return "–"
    before = 1 / math.prod(policy.schema.shape(item.variables))
    if len(item.variables) == 1 and item.variables[0] in priors:
        before = max(priors[item.variables[0]])
    return f"{percent(item.vulnerability)} ({percent(before)})"


def gamma_words(gamma: Fraction | float) -> str:
    """Format γ and ε, or explain that there is no bound."""
    return f"γ has {NO_BOUND}" if gamma == math.inf else formatting.gamma_words(gamma)


def dealing_words(response: ClassResponse) -> str:
    """Describe the blocks of class response by their size, or largest size if the policy lists blocks."""
    return f"dealt in blocks of {'up to ' if response.design else ''}{response.k}"


def channel_words(channel: Channel) -> str:
    """Describe a channel by its probabilities."""
    if channel.is_identity:
        return "not disguised"
    if channel.truths != channel.reports or channel.labels is not None:
        return f"{channel.truths} truths reported as one of {channel.reports} codes"
    unchanged = channel.outcomes == [[truth] for truth in range(channel.truths)]
    kept = (channel.weights * unchanged).sum(axis=1) / channel.denominators
    low, high = float(min(kept)), float(max(kept))
    often = f"kept with {percent(low)}" + ("" if low == high else f" to {percent(high)}")
    if len(channel.blocks) > 1:
        return f"{often}, else changed within its group"
    others = channel.truths - 1
    if others == 1:
        return f"{often}, else swapped"
    return f"{often}, else one of {others} others" + (", equally likely" if _is_even(channel) else "")


def _is_even(channel: Channel) -> bool:
    """Return True if all changes are possible and equally likely."""
    changed = (channel.outcomes != [[truth] for truth in range(channel.truths)]) & (channel.weights > 0)
    chances = (channel.weights / channel.denominators[:, None])[changed]
    everywhere = bool((changed.sum(axis=1) == channel.reports - 1).all())
    return everywhere and bool(chances.max() - chances.min() < 1e-12)
