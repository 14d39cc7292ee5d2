"""Test whether canaries passed through the channels of their policy, no channel, or other channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.audit.canary_key import Canaries, Codes
from masquerade.audit.canary_reports import CanaryReports, joint_codes
from masquerade.audit.epsilon_bracket import channel_p_value, epsilon_bracket, one_run_bound
from masquerade.audit.findings import Finding
from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group, Policy
from masquerade.core.util.formatting import counted, epsilon_text, log_gamma

READING = 0.05  # printed limits are wrong with at most this probability


@dataclass(frozen=True, slots=True)
class SentGroup:
    """True and reported codes of a group, with the channel that the policy specifies."""

    title: str
    truths: Codes
    reports: Codes
    channel: Channel
    straight: bool  # reports have the same categories as truths


def pair_groups(output: CanaryReports, policy: Policy, key: Canaries) -> Iterator[SentGroup]:
    """Yield the truths and reports of every group, stratum by stratum."""
    rows = output.rows if output.rows is not None else np.zeros(0, dtype=np.int64)
    truths = {name: codes[rows] for name, codes in key.codes.items()}
    by = policy.stratum_variable
    for stratum in policy.strata or (None,):
        rows_here = np.ones(len(rows), dtype=bool)
        if stratum is not None and by is not None:
            rows_here = truths[by] == policy.schema[by].code(stratum)
        for group in policy.groups_of(stratum):
            title = " + ".join(group.names) + ("" if stratum is None else f" (stratum {stratum})")
            report = [output.reports.codes[name][rows_here] for name in group.reports]
            truth = [truths[name][rows_here] for name in group.names]
            if group.response is not None:
                yield from _pair_blocks(title, group, truth, report)
                continue
            channel = group.matrix_channel
            straight = channel.truths == channel.reports and not group.own_report
            yield SentGroup(
                title,
                joint_codes(truth, group.sizes),
                joint_codes(report, group.report_sizes),
                channel,
                straight,
            )


def _pair_blocks(title: str, group: Group, truth: list[Codes], report: list[Codes]) -> Iterator[SentGroup]:
    response = group.response
    if response is None:
        return
    blocks, classes = report
    nothing = np.zeros(len(blocks), dtype=np.int64)
    yield SentGroup(f"{title}: blocks", nothing, blocks, response.dealing, straight=False)
    true_classes = response.classes_of(truth, blocks)
    sizes = response.block_classes[blocks]
    for size in np.unique(sizes).tolist():
        rows_here = sizes == size
        yield SentGroup(
            f"{title}: {size} classes",
            true_classes[rows_here],
            classes[rows_here],
            response.channel_of(size),
            straight=True,
        )


def _counts(item: SentGroup) -> NDArray[np.int64]:
    counts = np.zeros((item.channel.truths, item.channel.reports), dtype=np.int64)
    np.add.at(counts, (item.truths, item.reports), 1)
    return counts


def channel_findings(item: SentGroup, alpha: float) -> list[Finding]:
    """Test whether a group passed through its channel, through no channel, or through another one."""
    if not len(item.truths):
        return []
    clear = item.straight and bool((item.truths == item.reports).all())
    if item.channel.is_identity:
        says = "is released in clear, as the policy states"
        if clear:
            return [Finding(about=item.title, verdict="at risk", says=says)]
    elif clear and _all_kept(item) < alpha:
        return [
            Finding(
                about=item.title,
                verdict="contradicted",
                says=f"it is passed on in clear: all {len(item.truths):,} canaries came out unchanged",
                attack="canaries of known values",
                repair="stop the pipeline: it did not disguise this column; withdraw its releases",
            )
        ]
    p = channel_p_value(_counts(item), item.channel.matrix)
    if p < alpha:
        return [
            Finding(
                about=item.title,
                verdict="contradicted",
                says="the reports do not come from the policy's channel: wrong policy"
                + (" (a report that the channel never gives)" if p == 0 else f" (p = {p:.2g})"),
                attack="exact binomial tails of every truth and report, Bonferroni",
                value=p,
                repair="find out which policy, or which additional step, the pipeline applies",
            )
        ]
    low = _lower(item, READING)
    says = f"{counted(len(item.truths), 'canary', 'canaries')} show ε of at least {epsilon_text(low)}"
    return [
        Finding(
            about=item.title,
            verdict="not contradicted",
            says=f"{says}; the policy states {epsilon_text(log_gamma(item.channel.gamma))}",
            attack="canaries of known values; exact binomial tails",
            value=log_gamma(item.channel.gamma),
            low=low,
            level=1 - READING,
        )
    ]


def _all_kept(item: SentGroup) -> float:
    """Return the probability that all canaries keep their value."""
    kept = item.channel.matrix[item.truths, item.truths]
    with np.errstate(divide="ignore"):
        return float(np.exp(np.log(kept).sum()))


def _lower(item: SentGroup, alpha: float) -> float:
    """Return the larger of two lower limits of ε: from guesses in one run, or a set chosen on one half."""
    matrix = item.channel.matrix
    if len(matrix) < 2:
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(matrix[:, None, :] > 0, matrix[:, None, :] / matrix[None, :, :], 0.0)
    a, b, _ = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    two = (item.truths == a) | (item.truths == b)
    guess = np.where(matrix[a] > matrix[b], a, np.where(matrix[a] < matrix[b], b, -1))[item.reports]
    guessed = two & (guess >= 0)
    once = one_run_bound(int((guess == item.truths)[guessed].sum()), int(guessed.sum()), alpha / 2)
    half = np.arange(len(item.truths)) % 2 == 0
    parts = [
        _counts(
            SentGroup(
                item.title, item.truths[rows_here], item.reports[rows_here], item.channel, item.straight
            )
        )
        for rows_here in (half, ~half)
    ]
    if min(int(part.sum(axis=1).min()) for part in parts) == 0:
        return once
    return max(once, epsilon_bracket(parts[0], parts[1], alpha / 2).lower)


def channel_row(item: SentGroup) -> tuple[Any, ...]:
    """Return one row of the table: unchanged and expected shares, ε shown and claimed."""
    kept = expected = None
    if item.straight and len(item.truths):
        kept = float((item.truths == item.reports).mean())
        expected = float(item.channel.matrix[item.truths, item.truths].mean())
    bound = log_gamma(item.channel.gamma)
    low = _lower(item, READING) if len(item.truths) else 0.0
    return item.title, len(item.truths), kept, expected, low, bound
