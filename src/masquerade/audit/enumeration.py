"""Proof by enumeration: every interval of the words that decide a report is walked, and its length counted.

A report is decided by a 64-bit word, and the decision changes at the ends of intervals and where the top byte
changes, nowhere else. So the words between two such places all give one report; walking the places counts,
for every truth and report, how many of the 2⁶⁴ words give it: the probabilities, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.audit.findings import Audit, AuditTable, Finding
from masquerade.audit.page_sampler import page_findings
from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group, Policy, policy_of
from masquerade.channels.policy.privacy import privacy
from masquerade.core.schema import Category
from masquerade.core.util.formatting import category_text, counted, gamma_words, log_gamma
from masquerade.kernels.draw import UNDECIDED, DrawTable, draw, report_of_word

BYTE = np.uint64(56)
AT_ONCE = 1 << 18  # words
EXACT_ENTRIES = 4096  # up to this many entries γ is computed from the counted words too
WALKED = (
    "every end of an interval of words, and every change of the top byte, was walked through the function "
    "that releases draw with"
)
RANDOMNESS = "the operating system's random bytes are uniform and nobody recorded them"
NOT_PROVED = (
    "what happens around the sampler (a column that no policy names, a clear copy): see `audit canaries`",
    "who else released about the same people: γ multiplies over fresh draws",
    "presence: that a person is among the records is not hidden by disguising values",
)


@dataclass(frozen=True, slots=True)
class Walk:
    """What walking a channel found: words walked, and the first row that differs from the policy, if any."""

    channel: Channel
    words: int
    intervals: int
    wrong: str | None
    gamma: Fraction | float | None

    @property
    def proved(self) -> bool:
        """Tell whether every probability is the policy's."""
        return self.wrong is None


def audit_policy(policy: Policy | str | Path, *, page: bool = True) -> Audit:
    """Return the proof, or the refutation, that a policy's samplers draw exactly what it says.

    Every channel of every stratum is walked through the function that releases draw with (frames, files,
    the memo and Spark's executors share it); with `page`, the survey page's JavaScript is run in Node on the
    same words. γ is computed from what was walked.

    Cost: O(categories · possible reports) words a channel.

    >>> found = mq.audit.audit_policy(mq.data.students_policy(), page=False)
    >>> [finding.verdict for finding in found.findings]
    ['at risk', 'at risk', 'proved', 'proved', 'proved', 'proved']
    """
    loaded = policy_of(policy)
    findings: list[Finding] = []
    rows: list[tuple[Any, ...]] = []
    walks: dict[str, Walk] = {}
    for title, group in _groups(loaded):
        if not group.disguised and not group.own_report:
            findings.append(_clear(title))
            continue
        parts = _channels(group)
        for channel in parts:
            if channel.fingerprint not in walks:
                walks[channel.fingerprint] = walk(channel)
        own = [walks[channel.fingerprint] for channel in parts]
        findings.append(_finding(title, group, own))
        bound = group.channel.gamma
        epsilon = log_gamma(bound)
        words, ends = sum(one.words for one in own), sum(one.intervals for one in own)
        rows.append((title, str(bound), epsilon, ends, words, all(one.proved for one in own)))
    findings += [_record(loaded), *_spark(loaded)]
    table = AuditTable(
        "Samplers walked",
        ("variable", "γ", "ε", "intervals", "words walked", "equal to the policy"),
        tuple(rows),
    )
    found = Audit(f"Audit of policy {loaded.id[:12]}", tuple(findings), (table,) if rows else (), NOT_PROVED)
    if not (page and loaded.disguised):
        return found
    return found.with_(page_findings(loaded, [one.channel for one in walks.values()]))


def walk(channel: Channel, table: DrawTable | None = None) -> Walk:
    """Walk the words of a channel's draw table, or of another table that claims to be its, row by row.

    Formula: count(m | l) of the words that give report m must be w·(words accepted)/D for the weights w of
    the policy and their sum D: an equality of whole numbers.
    """
    used = channel.draw_table if table is None else table
    total = intervals = 0
    counts: list[dict[int, int]] = []
    for truth in range(channel.truths):
        starts = _starts(used, truth)
        lengths = np.diff([*starts, 1 << 64]).tolist()
        ends = [start + length - 1 for start, length in zip(starts, lengths, strict=True)]
        words = np.array([starts, ends], dtype=np.uint64)
        found = np.stack([_released(used, truth, words[i]) for i in range(2)])
        whole = np.stack([report_of_word(np.full(len(starts), truth), words[i], used) for i in range(2)])
        total += words.size
        intervals += int(used.support[truth])
        if (found != whole).any() or (found[0] != found[1]).any():
            wrong = f"row {truth + 1}: two ways of deciding the same words differ"
            return Walk(channel, total, intervals, wrong, None)
        row: dict[int, int] = {}
        for report, length in zip(found[0].tolist(), lengths, strict=True):
            row[report] = row.get(report, 0) + length
        row.pop(-1, None)
        accepted = sum(row.values())
        expected = channel.row(truth)
        if {report: Fraction(count, accepted) for report, count in row.items()} != expected:
            wrong = f"row {truth + 1}: the words give other probabilities than the policy says"
            return Walk(channel, total, intervals, wrong, None)
        counts.append(row)
    return Walk(channel, total, intervals, None, _gamma(counts, channel))


def _starts(table: DrawTable, truth: int) -> list[int]:
    """Return the first words of all stretches within which nothing can change."""
    ends = table.last[truth, : table.support[truth]].tolist()
    bytes_ = [byte << 56 for byte in range(256)]
    return sorted({0, *bytes_, *(end + 1 for end in ends if end + 1 < 1 << 64)})


def _released(table: DrawTable, truth: int, words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the reports that `draw`, which releases use, gives these words; −1 where it asks for another."""
    found = []
    for begin in range(0, len(words), AT_ONCE):
        some = words[begin : begin + AT_ONCE]
        codes = np.full(len(some), truth, dtype=np.int32)
        source = _GivenWords(table, codes, some)
        reports = draw(codes, table, source).astype(np.int64)
        reports[source.rejected] = -1
        found.append(reports)
    return np.concatenate(found)


class _GivenWords:
    """Random bytes for `draw` that spell given words, and a note of those that it would not take."""

    def __init__(self, table: DrawTable, codes: NDArray[np.int32], words: NDArray[np.uint64]) -> None:
        self.rejected: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._calls = self._answers(table, codes, words)

    def __call__(self, n: int) -> NDArray[np.uint8]:
        found = next(self._calls)
        return found[:n] if len(found) >= n else np.zeros(n, dtype=np.uint8)

    def _answers(
        self, table: DrawTable, codes: NDArray[np.int32], words: NDArray[np.uint64]
    ) -> Iterator[NDArray[np.uint8]]:
        waiting = np.arange(len(words))
        if table.first.size:
            top = (words >> BYTE).astype(np.uint8)
            yield top
            waiting = np.flatnonzero(table.first[codes, top] == UNDECIDED)
            # the top byte was asked for first; the rest of the word follows it
            yield np.ascontiguousarray(words[waiting] << np.uint64(8)).view(np.uint8)
        else:
            yield np.ascontiguousarray(words).view(np.uint8)
        last = table.last[codes[waiting], table.support[codes[waiting]] - 1]
        self.rejected = waiting[words[waiting] > last]
        while True:
            yield np.zeros(0, dtype=np.uint8)  # words of zeros, which every row takes


def _gamma(counts: Sequence[dict[int, int]], channel: Channel) -> Fraction | float:
    if channel.truths * channel.reports > EXACT_ENTRIES:
        return channel.gamma
    largest = Fraction(1)
    shares = [{report: Fraction(n, sum(row.values())) for report, n in row.items()} for row in counts]
    for report in {report for row in shares for report in row}:
        column = [row.get(report, Fraction(0)) for row in shares]
        if min(column) == 0:
            return float("inf")
        largest = max(largest, max(column) / min(column))
    return largest


def _groups(policy: Policy) -> Iterator[tuple[str, Group]]:
    """Yield every group, once for all strata where it is the same."""
    seen: set[tuple[tuple[str, ...], str]] = set()
    for stratum in policy.strata or (None,):
        for group in policy.groups_of(stratum):
            key = (group.names, group.channel.fingerprint)
            if key not in seen:
                seen.add(key)
                yield _title(group, stratum if group not in policy.groups else None), group


def _title(group: Group, stratum: Category | None) -> str:
    names = " + ".join(group.names)
    return names if stratum is None else f"{names} (stratum {category_text(stratum)})"


def _channels(group: Group) -> list[Channel]:
    if group.response is None:
        return [group.matrix_channel]
    sizes = sorted(set(group.response.block_classes.tolist()))
    return [group.response.dealing, *(group.response.channel_of(size) for size in sizes)]


def _clear(title: str) -> Finding:
    return Finding(
        about=title,
        verdict="at risk",
        says="is released in clear, as the policy says: no γ bounds what it tells",
        repair="give it a channel, or make sure that it singles out nobody: `masquerade audit release`",
    )


def _finding(title: str, group: Group, walks: Sequence[Walk]) -> Finding:
    wrong = next((one.wrong for one in walks if one.wrong), None)
    bound = group.channel.gamma
    counted_gamma = [one.gamma for one in walks if one.gamma is not None]
    if wrong is None and max(counted_gamma) != bound:
        wrong = f"γ of the words walked is {max(counted_gamma)}"
    ends = sum(one.intervals for one in walks)
    if wrong is not None:
        return Finding(
            about=title,
            verdict="contradicted",
            says=f"the sampler does not draw what the policy says ({wrong})",
            attack=WALKED,
            repair="do not release; report this as a bug",
        )
    return Finding(
        about=title,
        verdict="proved",
        says=f"{gamma_words(bound)}, proved by enumeration ({counted(ends, 'interval')})",
        attack=WALKED,
        assumption=RANDOMNESS,
        value=log_gamma(bound),
    )


def _record(policy: Policy) -> Finding:
    gamma = privacy(policy).record_gamma
    return Finding(
        about="whole record",
        verdict="proved",
        says=f"all disguised variables together: {gamma_words(gamma)}, the product of channels drawn apart",
        assumption="every value is drawn once per person: a memo for repeated releases",
        value=log_gamma(gamma),
    )


def _spark(policy: Policy) -> list[Finding]:
    """Tell whether Spark's executors draw with the function that was walked."""
    if not policy.disguised:
        return []
    from masquerade.disguising import report_draws, spark  # noqa: PLC0415  (Arrow is needed there only)

    shared = vars(spark)["fresh_draws"] is report_draws.fresh_draws
    same = shared and vars(report_draws)["draw"] is draw
    return [
        Finding(
            about="on Spark",
            verdict="proved" if same else "contradicted",
            says="executors draw with the very function that was walked here"
            if same
            else "executors draw with another function than the one that was walked",
            assumption="every executor has this very version of masquerade installed" if same else "",
            repair="" if same else "disguise without Spark",
        )
    ]
