"""Audit of a sampler as a black box: draw, choose reports that distinguish truths, and bound ε from below."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import permutations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from masquerade.audit.epsilon_bracket import (
    Counts,
    channel_p_value,
    choose_position,
    choose_set,
    clopper_pearson,
    epsilon_bracket,
    lower_limit,
)
from masquerade.audit.findings import Audit, AuditTable, Finding
from masquerade.audit.foreign import ForeignSampler, allowed_by_distance
from masquerade.audit.independence import LONGEST, watched_truths
from masquerade.audit.independence_findings import TESTS, audit_independence
from masquerade.audit.sampler_calls import draw_reports, plain_label, vectorize_sampler
from masquerade.channels.channel import Channel
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted, epsilon_text

MOST_REPORTS = 4096  # most distinct reports that are counted individually
MOST_VALUES = 16  # most distinct values at one position of a vector
AT_ONCE = 1 << 16  # most draws in one call
FEWEST_DRAWS = 1000
MOST_PAIRS = 6  # most pairs of truths for which a classifier is trained
THRESHOLDS = 200
READING = 0.05  # printed limits are wrong with at most this probability
# division of alpha among the claims: ε, channel and independence
SHARE_OF_CLAIM: Final = 1 / 4
SHARE_OF_TEST: Final = 1 / 2 / len(TESTS)
ATTACK = (
    "draws of every truth; the pair and the set of reports are chosen on one half, Clopper–Pearson limits "
    "come from the other"
)
LIMITED = (
    "events too rare for these draws: a report that reveals its truth once in a billion draws is not seen",
    "low bits of floating point and the state of the generator: only an enumeration proves a sampler",
    "seeds that differ and can be guessed (a fine clock, a process number), and copies of a running process",
)


@dataclass(frozen=True, slots=True)
class SamplerDraws:
    """Draws of every truth, in two halves.

    `counts` are the counts of every report if there are few distinct reports. Otherwise `features` has one
    row per draw. If reports are vectors, `positions` are the counts at every position: truths × positions ×
    values. `stretches` are the reports, in order, of the truths selected by `watched_truths`.
    """

    counts: tuple[Counts, Counts] | None
    features: tuple[tuple[Floats, ...], tuple[Floats, ...]] | None
    positions: tuple[Counts, Counts] | None
    reports: tuple[Hashable, ...]
    stretches: tuple[tuple[Any, ...], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Limit:
    """A lower limit of ε for two truths, and the position that shows it if one position is enough."""

    lower: float
    first: int
    second: int
    position: int | None


def audit_sampler(
    sampler: Callable[..., Any],
    truths: Iterable[Any],
    *,
    epsilon: float | None = None,
    channel: Channel | None = None,
    draws: int = 100_000,
    alpha: float = 1e-5,
    features: Callable[[Any], Any] | None = None,
) -> Audit:
    """Audit a function that draws reports: its ε, its claim, and the independence of its draws.

    Independence is tested within a call, between calls and truths, in blocks, over long stretches, and in two
    new processes if the sampler is a function of a module.

    Parameters
    ----------
    sampler : callable
        ``sampler(truth, n)`` returns `n` reports. A function of a truth alone is called `n` times.
    truths : iterable
        Truths to draw reports of.
    epsilon : float, optional
        Claimed ε.
    channel : Channel, optional
        Claimed channel. Truths are in the order of its codes; reports are its codes or its labels.
    draws : int, optional
        Number of draws of each truth.
    alpha : float, optional
        Largest probability of contradicting a true claim by chance.
    features : callable, optional
        ``features(reports)`` returns rows of numbers for a classifier, needed if there are too many distinct
        reports to count. Reports that are arrays of numbers do not need it.

    Returns
    -------
    Audit
        Findings on ε, the channel and independence.

    Raises
    ------
    InputError
        If there are fewer than two truths, too few draws, a channel that does not match the truths, or too
        many distinct reports without `features`.

    Notes
    -----
    Formula: see `epsilon_bracket`. For many distinct reports, a logistic classifier chooses the set. For
    independence see `masquerade.audit.independence`.
    Reference: Bichsel, Steffen, Bogunovic & Vechev (2021), DP-Sniper, for sets chosen by a classifier.
    Error: `low` is wrong with probability at most 5%. A contradiction is wrong with probability at most
    `alpha`: a quarter for ε, a quarter for the channel, and a half for the tests of independence, in equal
    shares.

    Examples
    --------
    >>> import numpy as np
    >>> draw = np.random.default_rng()
    >>> def spins(truth, n):
    ...     return np.where(draw.random(n) < 0.75, truth, 1 - truth)
    ...
    >>> mq.audit.audit_sampler(spins, [0, 1], epsilon=1.2, draws=2000, alpha=1e-6).contradicted
    False
    >>> mq.audit.audit_sampler(spins, [0, 1], epsilon=0.5, draws=2000, alpha=1e-6).contradicted
    True
    """
    named = tuple(truths)
    if len(named) < 2:
        raise InputError("An audit of a sampler needs two truths or more.")
    if draws < FEWEST_DRAWS:
        raise InputError(
            f"{draws:,} draws of each truth are too few to show anything: use {FEWEST_DRAWS:,} or more."
        )
    if channel is not None and channel.truths != len(named):
        raise InputError(f"The channel has {channel.truths} truths. Got {len(named)} instead.")
    if isinstance(sampler, ForeignSampler) and sampler.vectors:
        return _audit_vectors(sampler, epsilon, draws, alpha)
    claimed = channel.epsilon if channel is not None and epsilon is None else epsilon
    sample = count_draws(sampler, named, draws, features, channel)
    limit, alarm = (best_limit(sample, share) for share in (READING, alpha * SHARE_OF_CLAIM))
    upper = math.inf
    if sample.counts is not None:
        matrix = None if channel is None else channel.matrix
        levels = [None] if matrix is None else [None, matrix]
        upper = min(epsilon_bracket(*sample.counts, READING, level).upper for level in levels)
    effort = f"{draws:,} draws of each of {len(named)} truths"
    findings = [_of_epsilon(limit, upper, claimed, effort, wrong=_exceeds(alarm, claimed), alpha=alpha)]
    if channel is not None and sample.counts is not None:
        fits = channel_p_value(sample.counts[0] + sample.counts[1], channel.matrix)
        findings.append(_of_channel(fits, effort, alpha * SHARE_OF_CLAIM))
    findings += _independence(sampler, named, sample, draws, alpha=alpha, features=features)
    columns = ("figure", "claimed", "at least", "at most", "draws per truth")
    row = ("ε", claimed, limit.lower, upper if math.isfinite(upper) else None, draws)
    table = AuditTable("ε from draws", columns, (row,))
    title = f"Audit of a sampler with {counted(len(sample.reports), 'report')}"
    return Audit(title, tuple(findings), (table,), LIMITED)


def _audit_vectors(sampler: ForeignSampler, epsilon: float | None, draws: int, alpha: float) -> Audit:
    """Audit a sampler of bit vectors: whole vectors, every position, every number of differing bits."""
    claimed = sampler.epsilon if epsilon is None else epsilon
    findings: list[Finding] = []
    rows: list[tuple[Any, ...]] = []
    for vectors in sampler.vectors:
        size, share = len(vectors[0]), alpha / len(sampler.vectors)
        calls = max(FEWEST_DRAWS, draws // size)
        allowed = allowed_by_distance(vectors, claimed)
        sample = count_draws(sampler, vectors, calls, None, None)
        limit, alarm = (best_limit(sample, part, allowed) for part in (READING, share * SHARE_OF_CLAIM))
        wrong = alarm.lower > allowed[alarm.first, alarm.second]
        limit = alarm if wrong else limit
        apart = sum(a != b for a, b in zip(vectors[limit.first], vectors[limit.second], strict=True))
        effort = f"{calls:,} draws of each of {len(vectors)} vectors of {size} bits"
        finding = _of_epsilon(limit, math.inf, apart * claimed, effort, wrong=wrong, alpha=alpha, apart=apart)
        findings += [finding, *_independence(sampler, vectors, sample, calls, alpha=share, features=None)]
        rows.append((size, apart, apart * claimed, limit.lower, calls))
    columns = ("bits", "positions that differ", "claimed ε", "at least", "draws per vector")
    title = f"Audit of {sampler.name} on whole vectors of bits"
    return Audit(title, tuple(findings), (AuditTable("ε from draws", columns, tuple(rows)),), LIMITED)


def _independence(
    sampler: Callable[..., Any],
    truths: Sequence[Any],
    sample: SamplerDraws,
    draws: int,
    *,
    alpha: float,
    features: Callable[[Any], Any] | None,
) -> list[Finding]:
    watched = [truths[place] for place in watched_truths(truths)]
    share = alpha * SHARE_OF_TEST
    return audit_independence(sampler, watched, sample.stretches, draws, alpha=share, features=features)


def _exceeds(limit: Limit, claimed: float | None) -> bool:
    return claimed is not None and limit.lower > claimed


def import_sampler(path: str) -> Callable[..., Any]:
    """Import the function that ``module:function`` names."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise InputError(f"--sampler {path!r}: write the function as module:function.")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise InputError(f"--sampler {path!r}: {module} cannot be imported ({error}).") from None
    except AttributeError:
        raise InputError(f"--sampler {path!r}: {module} has no {name!r}.") from None
    if not callable(found):
        raise InputError(f"--sampler {path!r}: this is not a function.")
    return found  # type: ignore[no-any-return]


def count_draws(
    sampler: Callable[..., Any],
    truths: Sequence[Any],
    draws: int,
    features: Callable[[Any], Any] | None,
    channel: Channel | None,
) -> SamplerDraws:
    """Draw `draws` reports of every truth, and count them in two halves."""
    draw = vectorize_sampler(sampler)
    codes: dict[Hashable, int] = {}
    if channel is not None:
        labels = channel.labels or range(channel.reports)
        codes = {label: code for code, label in enumerate(labels)}
    known = len(codes)
    half = draws // 2
    counts = np.zeros((2, len(truths), MOST_REPORTS), dtype=np.int64)
    kept: list[list[list[Floats]]] = [[[] for _ in truths] for _ in range(2)]
    positions = _Positions(len(truths))
    stretches: list[dict[int, Any]] = [dict.fromkeys(watched_truths(truths)) for _ in range(2)]
    is_counted = features is None
    for part, place, size in (
        (part, place, size) for part in range(2) for place in range(len(truths)) for size in _sizes(half)
    ):
        reports = draw_reports(draw, truths[place], size)
        if stretches[part].get(place, reports) is None:
            stretches[part][place] = reports[:LONGEST]
        if is_counted:
            is_counted = _count(reports, codes, counts[part, place])
        if features is not None:
            kept[part][place].append(np.asarray(features(reports), dtype=np.float32))
        elif isinstance(reports, np.ndarray) and reports.ndim == 2:
            kept[part][place].append(reports.astype(np.float32))
            positions.add(part, place, reports)
    names = tuple(codes)
    if channel is not None and len(codes) > known:
        raise InputError(f"The sampler gives reports that the channel does not have: {names[known]!r}.")
    if not is_counted and not kept[0][0]:
        raise InputError(
            f"The sampler gives more than {MOST_REPORTS:,} distinct reports: pass 'features', a function "
            "that converts a list of reports to rows of numbers."
        )
    halves = [tuple(np.concatenate(rows) for rows in part) for part in kept] if not is_counted else []
    return SamplerDraws(
        (counts[0, :, : len(codes)], counts[1, :, : len(codes)]) if is_counted else None,
        (halves[0], halves[1]) if halves else None,
        positions.tables(),
        names,
        (tuple(stretches[0].values()), tuple(stretches[1].values())),
    )


class _Positions:
    """Counts of values at every position of vectors, as long as there are few distinct values."""

    def __init__(self, truths: int) -> None:
        self.truths = truths
        self.codes: dict[Any, int] = {}
        self.counts: NDArray[np.int64] | None = None
        self.is_counted = True

    def add(self, part: int, place: int, reports: NDArray[Any]) -> None:
        """Count the values of reports (rows) at every position."""
        values = np.unique(reports) if self.is_counted and reports.dtype.kind in "biu" else np.zeros(0)
        for value in values.tolist():
            self.codes.setdefault(value, len(self.codes))
        if not len(values) or len(self.codes) > MOST_VALUES:
            self.is_counted = False
            return
        if self.counts is None:
            self.counts = np.zeros((2, self.truths, reports.shape[1], MOST_VALUES), dtype=np.int64)
        for value in values.tolist():
            self.counts[part, place, :, self.codes[value]] += (reports == value).sum(axis=0)

    def tables(self) -> tuple[Counts, Counts] | None:
        """Return the counts of both halves: truths × positions × values."""
        if self.counts is None or not self.is_counted:
            return None
        return self.counts[0, ..., : len(self.codes)], self.counts[1, ..., : len(self.codes)]


def _sizes(draws: int) -> list[int]:
    whole, rest = divmod(draws, AT_ONCE)
    return [AT_ONCE] * whole + ([rest] if rest else [])


def best_limit(sample: SamplerDraws, alpha: float, allowed: Floats | None = None) -> Limit:
    """Return a lower limit of ε for the truths that the first half chooses.

    Whole reports (or a classifier of them) and every position are searched in the first half. The event that
    distinguishes truths best is tested once, on the second half. The limit is wrong with probability at most
    `alpha`.
    """
    choices: list[tuple[float, Limit]] = []
    if sample.positions is not None and sample.positions[0].shape[1] > 1:
        event = choose_position(sample.positions[0], alpha / 2, allowed)
        lower = event.lower(sample.positions[1], alpha)
        choices.append((event.gain, Limit(lower, event.first, event.second, event.position)))
    if sample.counts is not None:
        event = choose_set(sample.counts[0], alpha / 2, allowed)
        lower = event.lower(sample.counts[1], alpha)
        choices.append((event.gain, Limit(lower, event.first, event.second, None)))
    elif allowed is None:  # a classifier assumes one ε for all truths
        choices.append(_classify(*_both(sample), alpha))
    return max(choices, key=lambda choice: choice[0])[1]


def _classify(first: Sequence[Floats], second: Sequence[Floats], alpha: float) -> tuple[float, Limit]:
    """Return the gain and the lower limit of ε of a set that a classifier chooses.

    The first half trains the classifier and chooses the pair and the threshold. The second half is used once.
    """
    try:
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (loaded for large reports only)
    except ImportError:
        raise InputError(
            "There are too many distinct reports to count; a classifier of them needs scikit-learn: "
            "pip install 'masquerade[sklearn]'"
        ) from None
    best, chosen = -math.inf, None
    for a, b in _far_pairs(first):
        middle_a, middle_b = len(first[a]) // 2, len(first[b]) // 2
        rows = np.concatenate([first[a][:middle_a], first[b][:middle_b]])
        model = LogisticRegression(C=10.0, max_iter=500)
        model.fit(rows, np.repeat([1, 0], [middle_a, middle_b]))
        score_a = model.decision_function(first[a][middle_a:])
        score_b = model.decision_function(first[b][middle_b:])
        levels = np.unique(np.quantile(np.concatenate([score_a, score_b]), np.linspace(0, 1, THRESHOLDS)))
        in_a = np.array([(score_a >= level).sum() for level in levels])
        in_b = np.array([(score_b >= level).sum() for level in levels])
        low, _ = clopper_pearson(in_a, len(score_a), READING / 2)
        _, high = clopper_pearson(in_b, len(score_b), READING / 2)
        gain = np.log(np.maximum(low, 1e-300) / high)
        place = int(np.argmax(gain))
        if gain[place] > best:
            best, chosen = float(gain[place]), (a, b, model, float(levels[place]))
    if chosen is None:
        raise InputError("A classifier of reports needs two truths or more.")
    a, b, model, level = chosen
    hits = [int((model.decision_function(second[truth]) >= level).sum()) for truth in (a, b)]
    return best, Limit(lower_limit(hits[0], len(second[a]), hits[1], len(second[b]), alpha), a, b, None)


def _far_pairs(rows: Sequence[Floats]) -> list[tuple[int, int]]:
    """Return the ordered pairs of truths with the largest distance between mean reports."""
    every = list(permutations(range(len(rows)), 2))
    if len(every) <= MOST_PAIRS:
        return every
    means = np.stack([table.mean(axis=0) for table in rows]).astype(float)
    spread = np.mean([table.var(axis=0) for table in rows], axis=0)
    scaled = means / np.sqrt(np.maximum(spread, 1e-9))
    squares = (scaled**2).sum(axis=1)
    apart = squares[:, None] + squares[None] - 2 * scaled @ scaled.T
    return sorted(every, key=lambda pair: -apart[pair])[:MOST_PAIRS]


def _both(sample: SamplerDraws) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    if sample.features is None:
        raise InputError("There are no features to train a classifier on.")
    return sample.features


def _of_epsilon(
    limit: Limit,
    upper: float,
    claimed: float | None,
    effort: str,
    *,
    wrong: bool,
    alpha: float,
    apart: int | None = None,
) -> Finding:
    bounded = math.isfinite(upper)
    says = f"ε is at least {epsilon_text(limit.lower)}"
    says += f" and at most {epsilon_text(upper)}" if bounded else ", with no upper limit known"
    says += "" if apart is None else f", for two vectors that differ in {counted(apart, 'position')}"
    says += f" ({effort}, 95%)"
    if claimed is not None:
        says += f"; claimed: {epsilon_text(claimed)}"
        says += f", which the draws exceed at level {alpha:g}" if wrong else ", not contradicted"
    if wrong and limit.position is not None:
        says += f". Position {limit.position + 1} of the report shows it on its own"
    return Finding(
        about="sampler",
        verdict="contradicted" if wrong else "not contradicted",
        says=says,
        attack=ATTACK,
        assumption="reports are drawn independently of each other",
        value=claimed,
        low=limit.lower,
        high=upper if bounded else None,
        level=1 - READING,
        repair="do not use it at this ε: it reveals more than it claims" if wrong else "",
    )


def _of_channel(fits: float, effort: str, alpha: float) -> Finding:
    other = fits < alpha
    chance = f"p = {fits:.2g}" if fits > 0 else "a report that should never occur"
    return Finding(
        about="channel",
        verdict="contradicted" if other else "not contradicted",
        says=f"the reports {'do not come from' if other else 'agree with'} the channel ({effort}, {chance})",
        attack="exact binomial tails of every cell, Bonferroni",
        value=fits,
        repair="estimates by this channel would be biased: find the channel they come from" if other else "",
    )


def _count(reports: Any, codes: dict[Hashable, int], into: NDArray[np.int64]) -> bool:
    """Add reports to the counts. Return True if the number of distinct reports is within the limit."""
    if isinstance(reports, np.ndarray) and reports.ndim == 1 and reports.dtype.kind in "iu":
        values, numbers = _count_values(reports)
        pairs = list(zip(values.tolist(), numbers.tolist(), strict=True))
    elif isinstance(reports, np.ndarray):
        values, numbers = np.unique(reports, axis=0, return_counts=True)
        pairs = [(plain_label(value), int(number)) for value, number in zip(values, numbers, strict=True)]
    else:
        seen: dict[Hashable, int] = {}
        for report in reports:
            label = plain_label(report)
            seen[label] = seen.get(label, 0) + 1
        pairs = list(seen.items())
    for label, number in pairs:
        code = codes.setdefault(label, len(codes))
        if code >= MOST_REPORTS:
            return False
        into[code] += number
    return True


def _count_values(reports: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct numbers and their counts, without sorting if the numbers are small."""
    if not len(reports) or reports.min() < 0 or reports.max() >= MOST_REPORTS:
        values, numbers = np.unique(reports, return_counts=True)
        return values, numbers.astype(np.int64)
    counts = np.bincount(reports)
    values = np.flatnonzero(counts)
    return values, counts[values].astype(np.int64)
