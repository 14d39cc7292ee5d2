"""Anybody's randomizer, as a black box: draw, choose what tells truths apart, and bound ε from below."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.audit.epsilon_bracket import Bracket, clopper_pearson, epsilon_bracket, misdrawn
from masquerade.audit.findings import Audit, AuditTable, Finding
from masquerade.channels.channel import Channel
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, MasqueradeError
from masquerade.core.words import counted, epsilon_text

MOST_REPORTS = 4096  # different reports that are counted one by one
AT_ONCE = 1 << 16  # draws
FEWEST_DRAWS = 1000
MOST_PAIRS = 6  # of truths that a classifier is trained for
THRESHOLDS = 200
READING = 0.05  # limits that are printed for reading are wrong this often at most
ATTACK = "draws of every truth; pair and set of reports chosen on one half, Clopper–Pearson on the other"
LIMITED = (
    "events too rare for these draws: a report that betrays its truth once in a billion is not seen",
    "low bits of floating point and the state of the generator: only an enumeration proves a sampler",
)

Draw = Callable[[Any, int], Any]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Draws of every truth: counts of every report where these are few, else features of every draw."""

    counts: tuple[NDArray[np.int64], NDArray[np.int64]] | None
    features: tuple[tuple[Floats, ...], tuple[Floats, ...]] | None
    reports: tuple[Hashable, ...]


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
    """Return what draws of a function say about its ε, and about the claim that is made for it.

    `sampler(truth, n)` returns n reports; one that takes a truth alone is called n times. The claim is
    `epsilon`, or that reports are those of a `channel` (in the order of its codes, as numbers or as its
    labels). A claim is contradicted only where the draws would do so by chance less often than `alpha`.
    Where reports are too many to be counted one by one, `features(reports)` are the numbers that a classifier
    reads; reports that are arrays of numbers are their own.

    Formula: see `epsilon_bracket`; for many reports a logistic classifier chooses the set.
    Reference: Bichsel, Steffen, Bogunovic & Vechev (2021), DP-Sniper, for sets chosen by a classifier.
    Error: `low` is wrong with a chance of at most 5%, a contradiction with at most `alpha`.

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
        raise InputError(f"{draws:,} draws of every truth show nothing: use {FEWEST_DRAWS:,} or more.")
    if channel is not None and channel.truths != len(named):
        raise InputError(f"The channel has {channel.truths} truths; {len(named)} were given.")
    found = drawn_reports(sampler, named, draws, features, channel)
    claimed = channel.epsilon if channel is not None and epsilon is None else epsilon
    if found.counts is not None:
        matrix = None if channel is None else channel.matrix
        bracket = epsilon_bracket(*found.counts, READING)
        share = alpha if matrix is None else alpha / 2  # of two claims
        alarm = epsilon_bracket(*found.counts, share).lower
        upper = (
            bracket.upper
            if matrix is None
            else min(bracket.upper, epsilon_bracket(*found.counts, READING, matrix).upper)
        )
        fits = None if matrix is None else misdrawn(found.counts[0] + found.counts[1], matrix)
    else:
        bracket, alarm = classifier_bracket(*_both(found), alpha)
        upper, fits = math.inf, None
    limits = Bracket(bracket.lower, upper, bracket.first, bracket.second, bracket.reports, READING)
    effort = f"{draws:,} draws of each of {len(named)} truths"
    findings = [_of_epsilon(limits, claimed, effort, alarm, alpha)]
    findings += [] if fits is None else [_of_channel(fits, effort, alpha / 2)]
    columns = ("figure", "claimed", "at least", "at most", "draws a truth")
    row = ("ε", claimed, limits.lower, upper if math.isfinite(upper) else None, draws)
    table = AuditTable("ε from draws", columns, (row,))
    title = f"Audit of a sampler with {counted(len(found.reports), 'report')}"
    return Audit(title, tuple(findings), (table,), LIMITED)


def sampler_named(path: str) -> Callable[..., Any]:
    """Return the function that ``module:function`` names."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise InputError(f"--sampler {path!r}: a function is given as module:function.")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise InputError(f"--sampler {path!r}: {module} cannot be imported ({error}).") from None
    except AttributeError:
        raise InputError(f"--sampler {path!r}: there is no {name!r} in {module}.") from None
    if not callable(found):
        raise InputError(f"--sampler {path!r}: this is no function.")
    return found  # type: ignore[no-any-return]


def drawn_reports(
    sampler: Callable[..., Any],
    truths: Sequence[Any],
    draws: int,
    features: Callable[[Any], Any] | None,
    channel: Channel | None,
) -> Drawn:
    """Draw `draws` reports of every truth, and count them, half by half."""
    draw = _vectorised(sampler)
    codes: dict[Hashable, int] = {}
    if channel is not None:
        labels = channel.labels or range(channel.reports)
        codes = {label: code for code, label in enumerate(labels)}
    known = len(codes)
    half = draws // 2
    counts = np.zeros((2, len(truths), MOST_REPORTS), dtype=np.int64)
    kept: list[list[list[Floats]]] = [[[] for _ in truths] for _ in range(2)]
    counted_all = features is None
    for part, place, size in (
        (part, place, size) for part in range(2) for place in range(len(truths)) for size in _sizes(half)
    ):
        reports = _drawn(draw, truths[place], size)
        if counted_all:
            counted_all = _count(reports, codes, counts[part, place])
        if features is not None:
            kept[part][place].append(np.asarray(features(reports), dtype=np.float32))
        elif isinstance(reports, np.ndarray) and reports.ndim == 2:
            kept[part][place].append(reports.astype(np.float32))
    names = tuple(codes)
    if channel is not None and len(codes) > known:
        raise InputError(f"The sampler gives reports that the channel does not have: {names[known]!r}.")
    if counted_all:
        return Drawn((counts[0, :, : len(codes)], counts[1, :, : len(codes)]), None, names)
    if not kept[0][0]:
        raise InputError(
            f"The sampler gives more than {MOST_REPORTS:,} different reports: give 'features', a function "
            "that turns a list of reports into rows of numbers."
        )
    halves = [tuple(np.concatenate(own) for own in part) for part in kept]
    return Drawn(None, (halves[0], halves[1]), names)


def _sizes(draws: int) -> list[int]:
    whole, rest = divmod(draws, AT_ONCE)
    return [AT_ONCE] * whole + ([rest] if rest else [])


def classifier_bracket(
    first: Sequence[Floats], second: Sequence[Floats], alpha: float
) -> tuple[Bracket, float]:
    """Return the lower limit of ε by sets that a classifier chooses, for reading and at alpha.

    The first half trains it and chooses pair and threshold; the second half is looked at once.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (loaded for large reports only)

    pairs = list(permutations(range(len(first)), 2))
    if len(pairs) > MOST_PAIRS:
        pairs = [(a, (a + 1) % len(first)) for a in range(min(len(first), MOST_PAIRS))]
    best, chosen = -math.inf, None
    for a, b in pairs:
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
        raise InputError("A sampler with so many reports needs two truths or more.")
    a, b, model, level = chosen
    hits = [int((model.decision_function(second[truth]) >= level).sum()) for truth in (a, b)]

    def lower(share: float) -> float:
        low, _ = clopper_pearson(hits[0], len(second[a]), share / 2)
        _, high = clopper_pearson(hits[1], len(second[b]), share / 2)
        return max(math.log(float(low) / float(high)), 0.0) if float(low) > 0 else 0.0

    return Bracket(lower(READING), math.inf, a, b, (), READING), lower(alpha)


def _both(found: Drawn) -> tuple[tuple[Floats, ...], tuple[Floats, ...]]:
    if found.features is None:
        raise InputError("There are no features to classify by.")
    return found.features


def _of_epsilon(limits: Bracket, claimed: float | None, effort: str, alarm: float, alpha: float) -> Finding:
    bounded = math.isfinite(limits.upper)
    wrong = claimed is not None and alarm > claimed
    says = f"ε is at least {epsilon_text(limits.lower)}"
    says += f" and at most {epsilon_text(limits.upper)}" if bounded else ", with no upper limit known"
    says += f" ({effort}, 95%)"
    if claimed is not None:
        says += f"; claimed: {epsilon_text(claimed)}"
        says += f", which draws exceed even at {alpha:g}" if wrong else ", not contradicted"
    return Finding(
        about="sampler",
        verdict="contradicted" if wrong else "not contradicted",
        says=says,
        attack=ATTACK,
        assumption="reports are drawn independently of each other",
        value=claimed,
        low=limits.lower,
        high=limits.upper if bounded else None,
        level=1 - READING,
        repair="do not use it at this ε: it gives away more than it says" if wrong else "",
    )


def _of_channel(fits: float, effort: str, alpha: float) -> Finding:
    other = fits < alpha
    chance = f"p = {fits:.2g}" if fits > 0 else "a report that should never occur"
    return Finding(
        about="channel",
        verdict="contradicted" if other else "not contradicted",
        says=f"the reports are {'not ' if other else ''}those of the channel ({effort}, {chance})",
        attack="exact binomial tails of every cell, Bonferroni",
        value=fits,
        repair="estimates by this channel would be biased: find out which one is drawn" if other else "",
    )


def _vectorised(sampler: Callable[..., Any]) -> Draw:
    """Return the sampler as a function of a truth and a number."""
    try:
        parameters = list(inspect.signature(sampler).parameters.values())
    except (TypeError, ValueError):
        parameters = []  # a function of C that does not tell
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in positional and p.default is inspect.Parameter.empty]
    if len(needed) >= 2:
        return sampler
    return lambda truth, n: [sampler(truth) for _ in range(n)]


def _drawn(draw: Draw, truth: Any, n: int) -> Any:
    try:
        reports = draw(truth, n)
    except MasqueradeError:
        raise
    except Exception as error:
        raise InputError(f"The sampler failed with {type(error).__name__}: {error}") from error
    if not isinstance(reports, np.ndarray):
        reports = list(reports)
        if reports and isinstance(reports[0], np.ndarray):
            reports = np.stack(reports)
    if len(reports) != n:
        raise InputError(f"The sampler was asked for {n:,} reports and gave {len(reports):,}.")
    return reports


def _count(reports: Any, codes: dict[Hashable, int], into: NDArray[np.int64]) -> bool:
    """Add reports to the counts; tell whether there was room for all that differ."""
    if isinstance(reports, np.ndarray) and reports.ndim == 1 and reports.dtype.kind in "iu":
        values, numbers = _tallied(reports)
        pairs = list(zip(values.tolist(), numbers.tolist(), strict=True))
    elif isinstance(reports, np.ndarray):
        values, numbers = np.unique(reports, axis=0, return_counts=True)
        pairs = [(_plain(value), int(number)) for value, number in zip(values, numbers, strict=True)]
    else:
        seen: dict[Hashable, int] = {}
        for report in reports:
            label = _plain(report)
            seen[label] = seen.get(label, 0) + 1
        pairs = list(seen.items())
    for label, number in pairs:
        code = codes.setdefault(label, len(codes))
        if code >= MOST_REPORTS:
            return False
        into[code] += number
    return True


def _tallied(reports: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the different numbers and how often each occurs: without sorting where they are small."""
    if not len(reports) or reports.min() < 0 or reports.max() >= MOST_REPORTS:
        values, numbers = np.unique(reports, return_counts=True)
        return values, numbers.astype(np.int64)
    counts = np.bincount(reports)
    values = np.flatnonzero(counts)
    return values, counts[values].astype(np.int64)


def _plain(report: Any) -> Hashable:
    if isinstance(report, np.ndarray):
        return tuple(report.tolist())
    if isinstance(report, list):
        return tuple(report)
    if isinstance(report, (set, dict)):
        return frozenset(report)
    plain: Hashable = report.item() if isinstance(report, np.generic) else report
    return plain
