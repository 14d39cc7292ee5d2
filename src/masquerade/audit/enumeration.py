"""Proof by enumeration: exact probabilities of a sampler, counted over all 64-bit random words.

A 64-bit word decides a report. The decision can change only at the bounds of intervals and where the top
byte changes, so all words between two such points give the same report. Walking these points counts, for
every truth and report, how many of the 2⁶⁴ words give it: the exact probabilities.
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
from masquerade.kernels.jit import only

BYTE = np.uint64(56)
AT_ONCE = 1 << 18  # words in one call of the sampler
EXACT_ENTRIES = 4096  # up to this many entries of a channel, γ is also computed from the counted words
WALKED = (
    "every bound of an interval of words, and every change of the top byte, was passed to the function that "
    "draws releases"
)
RANDOMNESS = "the operating system's random bytes are uniform and were not recorded"
NOT_PROVED = (
    "the pipeline around the sampler (columns not in the policy, clear copies): see `audit canaries`",
    "other releases about the same people: γ multiplies over fresh draws",
    "presence: that a person is among the records is not hidden by disguising values",
)


@dataclass(frozen=True, slots=True)
class Walk:
    """Result of walking a channel: number of words, and the first row that differs from the policy."""

    channel: Channel
    words: int
    intervals: int
    wrong: str | None
    gamma: Fraction | float | None

    @property
    def proved(self) -> bool:
        """True if every probability equals the policy's."""
        return self.wrong is None


def audit_policy(policy: Policy | str | Path, *, page: bool = True) -> Audit:
    """Prove, or refute, that the samplers of a policy draw exactly its probabilities.

    Every channel of every stratum is walked through the function that draws releases, by its compiled code
    and by its NumPy twin, which draws small releases. Frames, files, the memo and Spark's executors share
    this function. γ is computed from the counted words.

    Parameters
    ----------
    policy : Policy or path
        Policy to audit.
    page : bool, optional
        Also run the survey page's JavaScript in Node on the same words.

    Returns
    -------
    Audit
        One finding per variable or group, and one for the whole record.

    Notes
    -----
    Cost: O(categories · possible reports) words per channel.

    Examples
    --------
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
    """Walk all words of a channel's draw table, or of another table that should equal it, row by row.

    Formula: count(m | l) of the words that give report m must equal w·(words accepted)/D for the policy's
    weights w and their sum D: an equality of integers.
    """
    used = channel.draw_table if table is None else table
    total = intervals = 0
    counts: list[dict[int, int]] = []
    for truth in range(channel.truths):
        starts = _starts(used, truth)
        lengths = np.diff([*starts, 1 << 64]).tolist()
        ends = [start + length - 1 for start, length in zip(starts, lengths, strict=True)]
        words = np.array([starts, ends], dtype=np.uint64)
        whole = np.stack([report_of_word(np.full(len(starts), truth), words[i], used) for i in range(2)])
        with only("twin"):  # small releases are drawn by NumPy, large ones by compiled code
            few = np.stack([_draw_words(used, truth, words[i]) for i in range(2)])
        with only("compiled"):
            found = np.stack([_draw_words(used, truth, words[i]) for i in range(2)])
        total += words.size
        intervals += int(used.support[truth])
        if (found != whole).any() or (few != whole).any() or (found[0] != found[1]).any():
            wrong = f"row {truth + 1}: two implementations decide the same words differently"
            return Walk(channel, total, intervals, wrong, None)
        row: dict[int, int] = {}
        for report, length in zip(found[0].tolist(), lengths, strict=True):
            row[report] = row.get(report, 0) + length
        row.pop(-1, None)
        accepted = sum(row.values())
        expected = channel.row(truth)
        if {report: Fraction(count, accepted) for report, count in row.items()} != expected:
            wrong = f"row {truth + 1}: the probabilities of the words differ from the policy's"
            return Walk(channel, total, intervals, wrong, None)
        counts.append(row)
    return Walk(channel, total, intervals, None, _gamma(counts, channel))


def _starts(table: DrawTable, truth: int) -> list[int]:
    """Return the first words of all intervals within which the report cannot change."""
    ends = table.last[truth, : table.support[truth]].tolist()
    bytes_ = [byte << 56 for byte in range(256)]
    return sorted({0, *bytes_, *(end + 1 for end in ends if end + 1 < 1 << 64)})


def _draw_words(table: DrawTable, truth: int, words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the reports that `draw`, which releases use, gives for these words; −1 for rejected words."""
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
    """Source of random bytes for `draw` that returns the given words and records the rejected ones."""

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
            # `draw` reads the top byte first, then the rest of the word
            yield np.ascontiguousarray(words[waiting] << np.uint64(8)).view(np.uint8)
        else:
            yield np.ascontiguousarray(words).view(np.uint8)
        last = table.last[codes[waiting], table.support[codes[waiting]] - 1]
        self.rejected = waiting[words[waiting] > last]
        while True:
            yield np.zeros(0, dtype=np.uint8)  # words of zeros, which every row accepts


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
    """Yield every group, once if it is the same in all strata."""
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
        says="is released in clear, as the policy states: no γ bounds what it reveals",
        repair="give it a channel, or check that it singles out no person: `masquerade audit release`",
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
            says=f"the sampler does not draw the policy's probabilities ({wrong})",
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
        says=f"all disguised variables together: {gamma_words(gamma)}, the product over independent channels",
        assumption="every value is drawn once per person; repeated releases use a memo",
        value=log_gamma(gamma),
    )


def _spark(policy: Policy) -> list[Finding]:
    """Check whether Spark's executors draw with the function that was walked."""
    if not policy.disguised:
        return []
    from masquerade.disguising import report_draws, spark  # noqa: PLC0415  (Arrow is needed there only)

    shared = vars(spark)["fresh_draws"] is report_draws.fresh_draws
    same = shared and vars(report_draws)["draw"] is draw
    return [
        Finding(
            about="on Spark",
            verdict="proved" if same else "contradicted",
            says="executors draw with the same function that was walked here"
            if same
            else "executors draw with a different function, which was not walked",
            assumption="every executor has the same version of masquerade installed" if same else "",
            repair="" if same else "disguise without Spark",
        )
    ]
