"""Linkage attack: an attacker who knows some true values of a person searches for the best-fitting record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.channels.policy import Group, Policy
from masquerade.core.axes import Floats

Scores = tuple[
    Floats, Floats, Floats
]  # scores in order; their chances for the person's record and for another record
NEVER = -1e6  # score of a report that is impossible for the truth
DIGITS = 9
MOST_SCORES = 4096
PERSONS = 256
MOST_KNOWN = 20  # most groups of a curve
MOST_COMPARED = 5_000_000  # most record × person comparisons of a measurement


def top_chance(own: Floats, other: Floats, records: int) -> float:
    """Return the chance that a person's own record has the best score of all, ties broken at random.

    `own` and `other` are the chances of every score, in increasing order, for the person's own record and for
    the record of another person.

    Formula: Σ_s own(s)·(F(s)ⁿ − F(s−)ⁿ)/(n·f(s)), with f and F of another record.
    Reference: order statistics with ties; Arcolezi, Gambs, Couchot & Palamidessi (2023) for the attack.
    Cost: O(scores).
    """
    above = np.append(np.cumsum(other[::-1])[::-1][1:], 0.0)
    at, below = -np.expm1(_logs(above, records)), -np.expm1(_logs(above + other, records))
    # F(s)ⁿ − F(s−)ⁿ, from the chances that some record is above. A record without ties wins if none is above
    gap = below - at
    few = records * other < 1e-9
    with np.errstate(divide="ignore", invalid="ignore"):
        won = np.where(few, np.exp(_logs(above, records - 1)), gap / (records * np.where(few, 1.0, other)))
    return float(min(1.0, (own * won).sum()))


def linkage(
    policy: Policy,
    priors: Mapping[str, Sequence[float] | Floats],
    records: int,
    known: Sequence[str] | None = None,
    *,
    seed: int | None = None,
) -> float:
    """Return the chance that the record that best fits the known true values is the right one.

    `priors` are the shares of the categories. The attacker scores records by Σ ln P(report | truth).

    Formula: `top_chance` of the distributions of scores, convolved over the groups of the policy whose
    variables are all known, and averaged over persons drawn from the shares if scores depend on the truths.
    Error: assumes independent variables. The average is over 256 persons.
    """
    names = policy.schema.names if known is None else tuple(known)
    groups = [group for group in policy.groups if set(group.names) <= set(names) and group.response is None]
    return _successes(groups, priors, records, seed)[-1] if groups else 1 / records


def linkage_curve(
    policy: Policy, priors: Mapping[str, Sequence[float] | Floats], records: int, *, seed: int | None = None
) -> list[tuple[tuple[str, ...], float]]:
    """Return the success of linkage by ever more known variables, most informative first, up to 20 groups."""
    groups = [group for group in policy.groups if group.response is None]
    telling = sorted(groups, key=lambda group: -_information(group, _prior(group, priors)))[:MOST_KNOWN]
    found = _successes(telling, priors, records, seed)
    names = [tuple(name for group in telling[: i + 1] for name in group.names) for i in range(len(telling))]
    return list(zip(names, found, strict=True))


def _successes(
    groups: Sequence[Group], priors: Mapping[str, Any], records: int, seed: int | None
) -> list[float]:
    """Return the success by the first group, by the first two, and so on."""
    tables = [_scores_by_truth(group, _prior(group, priors)) for group in groups]
    persons = 1 if all(_alike(table) for table, _ in tables) else PERSONS
    generator = np.random.default_rng(seed)
    total = np.zeros(len(groups))
    for _ in range(persons):
        spread: Scores | None = None
        for place, (table, prior) in enumerate(tables):
            own = table[int(generator.choice(len(table), p=prior))]
            spread = own if spread is None else _convolve(spread, own)
            total[place] += top_chance(spread[1], spread[2], records)
    found: list[float] = (total / persons).tolist()
    return found


def measured_linkage(
    policy: Policy,
    truths: Mapping[str, NDArray[np.int64]],
    reports: Mapping[str, NDArray[np.int64]],
    known: Sequence[str],
    *,
    seed: int | None = None,
) -> tuple[float, int]:
    """Measure linkage: the share of persons whose best-fitting record was theirs, and the number tried.

    Row i of `truths` and of `reports` belongs to the same person. Only the counts leave this function.
    """
    rows = len(next(iter(reports.values())))
    persons = max(1, min(rows, MOST_COMPARED // max(rows, 1)))
    chosen = np.random.default_rng(seed).choice(rows, size=persons, replace=False)
    scores = np.zeros((persons, rows))
    for group in policy.groups:
        if not set(group.names) <= set(known) or group.response is not None:
            continue
        truth = _joint([truths[name] for name in group.names], group.sizes)
        report = _joint([reports[name] for name in group.reports], group.report_sizes)
        scores += _log(group.matrix_channel.matrix)[truth[chosen][:, None], report[None, :]]
    scores = np.round(scores, DIGITS)
    own = scores[np.arange(persons), chosen]
    best = scores.max(axis=1)
    ties = (scores == best[:, None]).sum(axis=1)
    return float(np.where(own == best, 1 / ties, 0.0).mean()), persons


def _logs(above: Floats, n: int) -> Floats:
    """Return n·ln(1 − above): the logarithm of the chance that none of n records is above."""
    with np.errstate(divide="ignore"):
        return np.asarray(n * np.log1p(-np.minimum(above, 1.0)))


def _prior(group: Group, priors: Mapping[str, Any]) -> Floats:
    joint: Floats = np.ones(1)
    for name, size in zip(group.names, group.sizes, strict=True):
        own = np.asarray(priors.get(name, np.full(size, 1 / size)), dtype=float)
        joint = np.outer(joint, own / own.sum()).ravel()
    return np.asarray(joint / joint.sum())


def _scores_by_truth(group: Group, prior: Floats) -> tuple[list[Scores], Floats]:
    matrix = group.matrix_channel.matrix
    seen = prior @ matrix
    logs = np.round(_log(matrix), DIGITS)
    return [_merge(logs[truth], matrix[truth], seen) for truth in range(len(matrix))], prior


def _alike(table: Sequence[Scores]) -> bool:
    first = table[0]
    return all(
        all(
            len(a) == len(b) and np.allclose(a, b, rtol=0, atol=1e-12)
            for a, b in zip(first, other, strict=True)
        )
        for other in table[1:]
    )


def _convolve(first: Scores, second: Scores) -> Scores:
    scores = np.add.outer(first[0], second[0]).ravel()
    own = np.multiply.outer(first[1], second[1]).ravel()
    other = np.multiply.outer(first[2], second[2]).ravel()
    return _merge(np.where(scores < NEVER / 2, NEVER, scores), own, other)


def _merge(scores: Floats, own: Floats, other: Floats) -> Scores:
    """Return the scores in order, with equal scores merged. Too many scores are rounded to a grid."""
    values, place = np.unique(np.round(scores, DIGITS), return_inverse=True)
    if len(values) > MOST_SCORES:
        usable = values[values > NEVER / 2]
        step = (usable[-1] - usable[0]) / (MOST_SCORES // 2)
        values, place = np.unique(
            np.where(scores > NEVER / 2, np.round(scores / step) * step, NEVER), return_inverse=True
        )
    chances = [
        np.bincount(place.ravel(), weights=weights, minlength=len(values)).astype(np.float64)
        for weights in (own, other)
    ]
    return values, chances[0], chances[1]


def _information(group: Group, prior: Floats) -> float:
    """Return the mutual information of a report and the group's truth, in nats."""
    matrix = group.matrix_channel.matrix
    seen = prior @ matrix
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = prior[:, None] * matrix * np.log(matrix / seen)
    return float(np.nansum(terms))


def _log(matrix: Floats) -> Floats:
    return np.where(matrix > 0, np.log(np.where(matrix > 0, matrix, 1.0)), NEVER)


def _joint(columns: Sequence[NDArray[np.int64]], sizes: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(np.ravel_multi_index(tuple(columns), tuple(sizes)))
