"""Tests of independent draws: within a call, between calls and truths, in blocks, over long stretches.

Every test searches for its best case (truths, positions, sets of reports) in one part of the draws and judges
only that case in another part, by an exact conditional test. Its p-value is therefore valid for any number of
searched cases.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from masquerade.audit.sampler_calls import Draw, code_reports, draw_reports, hash_reports
from masquerade.core.axes import Floats

Bits = NDArray[np.bool_]
Features = Callable[[Any], Any]

Noise = Literal["shared", "opposite"]

MOST_TRUTHS: Final = 4  # most truths whose calls are compared
MOST_VIEWS: Final = 16
MOST_LABELS: Final = 8  # most reports that get their own view
HASH_VIEWS: Final = 4
NEAR_LAGS: Final = 16
FAR_LAGS: Final = 4  # number of larger lags, those with the strongest correlation
FEWEST_ROUNDS: Final = 16
LONGEST: Final = 1 << 16  # most reports of one truth that are searched for repeated stretches
LONGEST_BLOCKS: Final = 1 << 14  # most reports of one truth that are counted in blocks
TINY: Final = 1e-300
CHUNK: Final = 64  # length of alternating chunks of reports for searching and for judging
LEAST_OVERLAP: Final = 256


@dataclass(frozen=True, slots=True)
class IndependenceOutcome:
    """Outcome of one test: what was compared, the p-value, and whether noise is shared or opposite."""

    test: str
    p: float
    case: str = ""
    noise: Noise = "shared"


@dataclass(frozen=True, slots=True)
class Views:
    """Yes-or-no questions about a report, chosen on draws that are not used for judging."""

    table: dict[Hashable, Bits]  # answers for every report seen when the views were chosen
    unknown: Bits
    columns: NDArray[np.int64]
    limits: Floats
    hashes: int
    features: Features | None

    def apply(self, reports: Any) -> Bits:
        """Return the answers: views × reports."""
        parts: list[Bits] = []
        if self.hashes:
            hashed = hash_reports(reports)
            parts += [(hashed >> bit) & 1 == 1 for bit in range(self.hashes)]
        numbers = _numbers(reports, self.features)
        if numbers is not None:
            parts += list((numbers[:, self.columns] > self.limits).T)
        else:
            labels, codes = code_reports(reports)
            rows = np.stack([self.table.get(label, self.unknown) for label in labels], axis=1)
            parts += list(rows[:, codes])
        return np.stack(parts)


def build_views(reports: Sequence[Any], features: Features | None) -> Views:
    """Choose yes-no questions about a report.

    Is it a given report? Is it in a given half of the distinct reports? For arrays: is a column above its
    mean?
    """
    numbers = [_numbers(call, features) for call in reports]
    tables = [rows for rows in numbers if rows is not None]
    if tables:
        rows = np.concatenate(tables)
        width = rows.shape[1]
        columns = np.unique(np.linspace(0, width - 1, min(width, MOST_VIEWS - HASH_VIEWS)).astype(np.int64))
        limits = rows[:, columns].mean(axis=0)
        return Views({}, np.zeros(0, dtype=np.bool_), columns, limits, HASH_VIEWS, features)
    counts: Counter[Hashable] = Counter()
    for call in reports:
        labels, codes = code_reports(call)
        counts.update(dict(zip(labels, np.bincount(codes, minlength=len(labels)).tolist(), strict=True)))
    order = [label for label, _ in counts.most_common()]
    size = max(len(order), 1)
    sets = [np.arange(size) == place for place in range(min(size, MOST_LABELS) if size > 2 else 1)]
    sets += [np.arange(size) % 2 == 0] if size > 3 else []
    answers = np.stack(sets)
    table = {label: answers[:, place] for place, label in enumerate(order)}
    hashes = HASH_VIEWS if size > MOST_LABELS else 0
    nothing = np.zeros(len(answers), dtype=np.bool_)
    return Views(table, nothing, np.zeros(0, dtype=np.int64), np.zeros(0), hashes, None)


@dataclass(frozen=True, slots=True)
class SamplerEvidence:
    """Answers of views about draws of some truths, in order of time.

    `calls` are calls of equal length, the truths in turn: rounds × truths × views × positions. `early` and
    `late` are longer calls before them, for each truth: views × reports.
    """

    truths: tuple[Any, ...]
    calls: Bits
    early: tuple[Bits, ...]
    late: tuple[Bits, ...]

    def halves(self) -> tuple[Bits, Bits]:
        """Return the rounds for searching, and the rounds for judging."""
        middle = len(self.calls) // 2
        return self.calls[:middle], self.calls[middle:]


def call_plan(draws: int) -> tuple[int, int]:
    """Return the number of rounds and of reports per call, for `draws` draws of a truth."""
    size = 1 << max(5, math.isqrt(draws).bit_length() - 1)
    rounds = max(FEWEST_ROUNDS, draws // (4 * size))
    return rounds - rounds % 4, size


def watched_truths(truths: Sequence[Any]) -> list[int]:
    """Return the indexes of the truths whose calls are compared, including the first and the last."""
    return sorted({round(place) for place in np.linspace(0, len(truths) - 1, min(len(truths), MOST_TRUTHS))})


def draw_evidence(
    draw: Draw,
    truths: Sequence[Any],
    stretches: tuple[Sequence[Any], Sequence[Any]],
    draws: int,
    features: Features | None,
) -> SamplerEvidence:
    """Draw calls of equal length, choose views on the first half, apply them to all and to `stretches`."""
    rounds, size = call_plan(draws)
    reports = [[draw_reports(draw, truth, size) for truth in truths] for _ in range(rounds)]
    views = build_views([call for calls in reports[: rounds // 2] for call in calls], features)
    calls = np.stack([np.stack([views.apply(call) for call in calls]) for calls in reports])
    early, late = (tuple(views.apply(stretch[:LONGEST]) for stretch in part) for part in stretches)
    return SamplerEvidence(tuple(truths), calls, early, late)


def check_serial(evidence: SamplerEvidence) -> IndependenceOutcome:
    """Test whether reports of one call depend on each other, at any lag or mirrored.

    Formula: disjoint pairs of positions; Fisher's exact test of two views of them.
    """
    searched, judged = evidence.halves()
    best, chosen = 0.0, None
    for truth in range(searched.shape[1]):
        for words, left, right in _links(searched[:, truth]):
            pair = _best_views(_flat(searched[:, truth][..., left]), _flat(searched[:, truth][..., right]))
            if abs(pair[0]) > best:
                best, chosen = abs(pair[0]), (truth, words, left, right, pair)
    if chosen is None:
        return IndependenceOutcome("serial", 1.0)
    truth, words, left, right, (_, one, other) = chosen
    x, y = judged[:, truth, one][..., left], judged[:, truth, other][..., right]
    case = f"reports {words} in a call of {evidence.calls.shape[-1]}, truth {evidence.truths[truth]!r}"
    return _judge("serial", x.ravel(), y.ravel(), case, same=one == other)


def check_between_calls(evidence: SamplerEvidence) -> IndependenceOutcome:
    """Test whether a call depends on another call soon after it, of the same truth or of a different one.

    Formula: pairs of reports at the same position of disjoint pairs of calls; Fisher's exact test.
    """
    searched, judged = evidence.halves()
    truths = len(evidence.truths)
    best, chosen = 0.0, None
    for lag, truth, parity in (
        (lag, truth, parity) for lag in range(1, truths + 1) for truth in range(truths) for parity in range(2)
    ):
        x, y = _paired_calls(searched, truth, lag, parity)
        pair = _best_views(_flat(x), _flat(y))
        if abs(pair[0]) > best:
            best, chosen = abs(pair[0]), (lag, truth, parity, pair)
    if chosen is None:
        return IndependenceOutcome("calls", 1.0)
    lag, truth, parity, (_, one, other) = chosen
    x, y = _paired_calls(judged, truth, lag, parity)
    first, second = evidence.truths[truth], evidence.truths[(truth + lag) % truths]
    case = f"truths {first!r} and {second!r}" if lag < truths else f"truth {first!r} both times"
    same = lag == truths and one == other
    return _judge("calls", x[:, one].ravel(), y[:, other].ravel(), case, same=same)


def check_blocks(evidence: SamplerEvidence) -> IndependenceOutcome:
    """Test whether counts in blocks vary less, or more, than counts of independent draws.

    Formula: of two blocks of b reports with s hits in total, the first has Hypergeometric(2b, s, b) hits.
    Each pair gives the chance of a smaller (or larger) difference, plus a uniform share of the chance of an
    equal one; this sum is exactly uniform. Fisher's method judges the product of all pairs.
    Reference: Fisher (1932).
    """
    searched, judged = evidence.halves()
    best, chosen = math.inf, None
    for truth in range(len(evidence.truths)):
        short = searched[:, truth], judged[:, truth]
        long = _whole_blocks(evidence.early[truth]), _whole_blocks(evidence.late[truth])
        for (search, judge), view in (
            (pair, view) for pair in (short, long) for view in range(short[0].shape[1])
        ):
            for block in _block_sizes(search.shape[-1]):
                evener, rougher = _log_block_p(search[:, view], block)
                if min(evener, rougher) < best:
                    best, chosen = min(evener, rougher), (truth, judge[:, view], block, evener < rougher)
    if chosen is None:
        return IndependenceOutcome("blocks", 1.0)
    truth, bits, block, even = chosen
    p = math.exp(_log_block_p(bits, block)[0 if even else 1])
    case = f"blocks of {block} reports, truth {evidence.truths[truth]!r}"
    return IndependenceOutcome("blocks", p, case, "opposite" if even else "shared")


def check_long_stretches(evidence: SamplerEvidence) -> IndependenceOutcome:
    """Test whether a long stretch of reports is repeated, at any distance.

    Formula: the shift with the largest cross-correlation in one half of the later reports; Fisher's exact
    test of the other half at this shift.
    """
    best, chosen = 0.0, None
    bits = list(zip(evidence.early, evidence.late, strict=True))
    for place, (early, late) in enumerate(bits):
        for view in range(len(early)):
            score, shift = _best_shift(early[view], late[view])
            if abs(score) > best:
                best, chosen = abs(score), (place, view, shift)
    if chosen is None:
        return IndependenceOutcome("stretches", 1.0)
    place, view, shift = chosen
    early, late = bits[place][0][view], bits[place][1][view]
    at = np.flatnonzero(~_looked_at(len(late)))
    at = at[(at - shift >= 0) & (at - shift < len(early))]
    case = "two long calls" + (f", shifted by {abs(shift):,}" if shift else "")
    return _judge("stretches", early[at - shift], late[at], case, same=True)


def check_drift(evidence: SamplerEvidence) -> IndependenceOutcome:
    """Test whether reports of short calls are distributed like those of long calls.

    Formula: Fisher's exact test of a view in short and in long calls of one truth.
    """
    searched, judged = evidence.halves()
    pairs = []
    for truth, early in enumerate(evidence.early):
        answers, source = _mix_sources(_flat(searched[:, truth]), early)
        pairs.append(_best_views(answers, source[None]))
    truth = max(range(len(pairs)), key=lambda place: abs(pairs[place][0]))
    answers, source = _mix_sources(_flat(judged[:, truth]), evidence.late[truth])
    case = f"short and long calls, truth {evidence.truths[truth]!r}"
    return _judge("drift", answers[pairs[truth][1]], source, case, same=False)


def check_new_processes(first: NDArray[np.uint16], second: NDArray[np.uint16]) -> IndependenceOutcome:
    """Test whether two new processes draw equal reports (given as hashes: rounds × truths × positions)."""
    middle = len(first) // 2
    views = build_views([call.ravel().tolist() for call in (first[:middle], second[:middle])], None)

    def look(codes: NDArray[np.uint16]) -> Bits:
        flat = codes.transpose(1, 0, 2).reshape(codes.shape[1], -1)
        return np.stack([views.apply(row.tolist()) for row in flat])  # truths × views × reports

    searched = look(first[:middle]), look(second[:middle])
    pairs = [_best_views(one, other) for one, other in zip(*searched, strict=True)]
    truth = max(range(len(pairs)), key=lambda place: abs(pairs[place][0]))
    _, one, other = pairs[truth]
    x, y = look(first[middle:])[truth, one], look(second[middle:])[truth, other]
    return _judge("processes", x, y, "the same calls at the same moment", same=False)


def association_p(x: Bits, y: Bits) -> float:
    """Return the two-sided p-value of Fisher's exact test that two binary series are independent.

    Formula: 2·min(P(K ≤ k), P(K ≥ k)) for K ~ Hypergeometric(n, Σx, Σy), at most 1.
    Reference: Fisher (1935).
    """
    n, hits, others = len(x), int(x.sum()), int(y.sum())
    both = int((x & y).sum())
    low, high = max(0, hits + others - n), min(hits, others)
    if high <= low:
        return 1.0
    support = np.arange(low, high + 1)
    logs = _log_hypergeometric(support, n, hits, others)
    tails = _log_sum(logs[: both - low + 1]), _log_sum(logs[both - low :])
    return min(1.0, 2 * math.exp(min(tails)))


def _judge(test: str, x: Bits, y: Bits, case: str, *, same: bool) -> IndependenceOutcome:
    """Return the outcome for two views. If the views are the `same`, a negative sign means opposite noise."""
    together = float((x & y).mean()) - float(x.mean()) * float(y.mean()) if len(x) else 0.0
    return IndependenceOutcome(
        test, association_p(x, y), case, "opposite" if same and together < 0 else "shared"
    )


def _mix_sources(short: Bits, long: Bits) -> tuple[Bits, Bits]:
    """Return the answers of short and long calls together, and True for those of short calls."""
    return np.concatenate([short, long], axis=1), np.arange(short.shape[1] + long.shape[1]) < short.shape[1]


def _numbers(reports: Any, features: Features | None) -> Floats | None:
    """Return reports as rows of numbers if they are such rows or `features` converts them, else None."""
    if features is not None:
        rows = np.asarray(features(reports), dtype=float)
        return rows.reshape(len(rows), -1)
    if isinstance(reports, np.ndarray) and reports.ndim == 2 and reports.dtype.kind in "biuf":
        return reports.astype(float)
    return None


def _flat(bits: Bits) -> Bits:
    """Return views × pairs from calls × views × positions."""
    return np.moveaxis(bits, 1, 0).reshape(bits.shape[1], -1)


def _best_views(x: Bits, y: Bits) -> tuple[float, int, int]:
    """Return the score of the two views that depend most on each other, and their indexes."""
    n = x.shape[1]
    if n == 0:
        return 0.0, 0, 0
    one, other = x.astype(np.float32), y.astype(np.float32)
    shares, others = one.mean(axis=1), other.mean(axis=1)
    together = one @ other.T - n * np.outer(shares, others)
    spread = n * np.outer(shares * (1 - shares), others * (1 - others))
    score = np.where(
        spread > 0, together / np.sqrt(spread + 5), 0.0
    )  # + 5 keeps rare answers from being chosen by chance
    place = int(np.argmax(np.abs(score)))
    return float(score.ravel()[place]), place // len(y), place % len(y)


def _links(bits: Bits) -> Iterator[tuple[str, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield disjoint pairs of positions: at several lags, and mirrored within the call."""
    size = bits.shape[-1]
    at = np.arange(size)
    for lag in [*range(1, min(NEAR_LAGS, size // 2) + 1), *_far_lags(bits)]:
        for parity in range(2):
            left = at[((at // lag) % 2 == parity) & (at + lag < size)]
            if len(left):
                yield f"{lag} apart", left, left + lag
    yield "at mirrored positions", at[: size // 2], size - 1 - at[: size // 2]


def _far_lags(bits: Bits) -> list[int]:
    """Return the lags beyond the near ones at which reports of a call depend most on each other."""
    size = bits.shape[-1]
    centred = bits - bits.mean(axis=(0, 2), keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * size, axis=-1)
    together = np.fft.irfft((np.abs(spectrum) ** 2).sum(axis=0), axis=-1)[:, :size]
    pairs = len(bits) * (size - np.arange(size))
    score = np.abs(together) / np.sqrt(pairs * centred.var(axis=(0, 2))[:, None] ** 2 + 5)
    score[:, : NEAR_LAGS + 1] = 0
    order = np.argsort(-score.max(axis=0))[:FAR_LAGS]
    return [int(lag) for lag in order if lag > NEAR_LAGS]


def _paired_calls(bits: Bits, truth: int, lag: int, parity: int) -> tuple[Bits, Bits]:
    """Return calls of a truth in every second round, and the calls `lag` later. No call is in two pairs."""
    later, other = divmod(truth + lag, bits.shape[1])
    rounds = np.arange(parity, len(bits) - later, 2)
    return bits[rounds, truth], bits[rounds + later, other]


def _block_sizes(size: int) -> list[int]:
    return [1 << power for power in range(1, size.bit_length())]


def _whole_blocks(bits: Bits) -> Bits:
    """Return the start of a long stretch as one call whose length is a power of two."""
    size = 1 << min(bits.shape[1].bit_length() - 1, LONGEST_BLOCKS.bit_length() - 1)
    return bits[None, :, :size]


def _log_block_p(bits: Bits, block: int) -> tuple[float, float]:
    """Return ln of the p-values against counts that vary less, and more, than expected."""
    from scipy.special import gammaincc  # noqa: PLC0415  (scipy is slow to import)

    sums = bits.reshape(-1, block).sum(axis=1)  # pairs of adjacent blocks, or of whole calls
    first, second = sums[0 : len(sums) // 2 * 2 : 2], sums[1::2]
    if not len(first):
        return 0.0, 0.0
    kinds, places = np.unique((first + second) * (block + 1) + np.abs(first - second), return_inverse=True)
    chances = np.array([_chances(block, *divmod(kind, block + 1)) for kind in kinds.tolist()])
    below, equal = chances[places].T
    uniform = np.clip(below + equal * np.random.default_rng().random(len(places)), TINY, 1 - 2**-53)
    surprises = -np.log(uniform).sum(), -np.log1p(-uniform).sum()
    evener, rougher = (math.log(max(float(gammaincc(len(places), sum_)), TINY)) for sum_ in surprises)
    return evener, rougher


@lru_cache(maxsize=1 << 16)
def _chances(block: int, total: int, apart: int) -> tuple[float, float]:
    """Return P(difference < `apart`) and P(difference = `apart`) of two blocks with `total` hits."""
    support = np.arange(max(0, total - block), min(block, total) + 1)
    shares = np.exp(_log_hypergeometric(support, 2 * block, total, block))
    differences = np.abs(2 * support - total)
    return float(shares[differences < apart].sum()), float(shares[differences == apart].sum())


def _log_hypergeometric(k: NDArray[np.int64], n: int, hits: int, chosen: int) -> Floats:
    from scipy.special import gammaln  # noqa: PLC0415  (scipy is slow to import)

    def choose(a: Any, b: Any) -> Any:
        return gammaln(a + 1) - gammaln(b + 1) - gammaln(a - b + 1)

    return np.asarray(choose(hits, k) + choose(n - hits, chosen - k) - choose(n, chosen))


def _log_sum(logs: Floats) -> float:
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def _looked_at(size: int) -> Bits:
    """Return True for the reports of a long stretch that are searched. The others are used for judging."""
    return np.asarray(np.arange(size) // CHUNK % 2 == 0)


def _best_shift(early: Bits, late: Bits) -> tuple[float, int]:
    """Return the largest cross-correlation of searched later reports with earlier reports, and its shift."""
    mask = _looked_at(len(late))
    x, y = early - early.mean(), np.where(mask, late - late[mask].mean(), 0.0)
    spread = float(x.var()) * float(late[mask].var())
    if spread == 0:
        return 0.0, 0
    length = 1 << (len(x) + len(y)).bit_length()
    together = np.fft.irfft(np.fft.rfft(y, length) * np.conj(np.fft.rfft(x, length)), length)
    shifts = np.arange(length)
    shifts[shifts > length // 2] -= length
    overlap = np.minimum(len(x), len(y) - shifts) - np.maximum(0, -shifts)
    score = np.where(overlap >= LEAST_OVERLAP, together / np.sqrt(np.maximum(overlap, 1) / 2 * spread), 0.0)
    place = int(np.argmax(np.abs(score)))
    return float(score[place]), int(shifts[place])
