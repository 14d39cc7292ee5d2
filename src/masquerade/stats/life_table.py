"""Life tables from counts: people at risk and events, Kaplan–Meier curves, proportional hazards."""

from __future__ import annotations

from math import prod
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.distributions import two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.table import CountTable

Codes = NDArray[np.intp]

Ties = Literal["grouped", "breslow"]
LEAST_AT_RISK = 5.0  # least number of people at risk, in standard errors of the disguise
MOST_STEPS = 100
LARGEST_LOG_RATIO = 15.0  # beyond this, the score is taken to have no root: some group has no events


class LifeTable(NamedTuple):
    """Events and people at risk by time, stratum and group: arrays of shape (times, strata, groups)."""

    events: Floats
    at_risk: Floats


class LifeCounts:
    """Counts by time, event, strata and groups, with their life table and its gradients."""

    def __init__(self, table: CountTable, event: int, strata: int) -> None:
        self.table = table
        shape = table.values.shape
        self.shape = (shape[0], shape[1], prod(shape[2 : 2 + strata]), prod(shape[2 + strata :]))
        self.event = event
        cells = table.values.reshape(self.shape)
        people = cells.sum(axis=1)
        events, at_risk = cells[:, event], people[::-1].cumsum(axis=0)[::-1]
        self.horizon = self._horizon(at_risk.sum(axis=1))
        self.life = LifeTable(events[: self.horizon], at_risk[: self.horizon])

    @property
    def is_plain(self) -> bool:
        """Return True for clear records without weights: their counts are multinomial."""
        counts, n = self.table.values, max(self.table.n, 1)
        return bool(
            not self.table.covariance.diagonal("given_records").any()
            and np.allclose(self.table.covariance.diagonal(), counts * (1 - counts / n), rtol=1e-9)
        )

    def gradient(self, by_events: Floats, by_at_risk: Floats) -> Floats:
        """Convert a gradient in events and people at risk to a gradient in the cells of the table.

        A record at time t is at risk at all times up to t.
        """
        times, kinds, strata, groups = self.shape
        life = (self.horizon, strata, groups)
        full = np.zeros((times, strata, groups))
        full[: self.horizon] = np.broadcast_to(by_at_risk, life)
        weights = np.repeat(full.cumsum(axis=0)[:, None], kinds, axis=1)
        weights[: self.horizon, self.event] += np.broadcast_to(by_events, life)
        return weights.reshape(self.table.values.shape)

    def _horizon(self, at_risk: Floats) -> int:
        """Return the number of leading time points at which every group has enough people at risk."""
        times, groups = int(self.shape[0]), int(self.shape[3])
        for k in range(times):
            for g in range(groups):
                weights = np.zeros(self.shape)
                weights[k:, :, :, g] = 1.0
                noise = self.table.covariance.quadratic(
                    weights.reshape(self.table.values.shape), "given_records"
                )
                if noise > 0 and at_risk[k, g] <= LEAST_AT_RISK * np.sqrt(noise):
                    return k
        return times


class Curves(NamedTuple):
    """Kaplan–Meier curves of shape (times, groups), and the number of negative hazards shown as 0."""

    values: Floats
    stderr: Floats
    lower: Floats
    upper: Floats
    negative: int


def kaplan_meier(counts: LifeCounts, level: float) -> Curves:
    """Return the Kaplan–Meier curves of the groups, with intervals computed for log(−log S)."""
    events, at_risk = counts.life.events.sum(axis=1), counts.life.at_risk.sum(axis=1)
    raw = divide(events, at_risk)
    values: Floats = np.asarray(np.cumprod(1 - np.clip(raw, 0.0, 1.0), axis=0), dtype=np.float64)
    survivors = at_risk - events
    errors = np.empty(values.shape)
    for m, g in np.ndindex(values.shape):
        upto = (slice(m + 1), 0, g)
        by_events, by_at_risk = np.zeros((2, len(values), 1, values.shape[1]))
        by_events[upto] = -divide(np.ones(m + 1), survivors[: m + 1, g])
        by_at_risk[upto] = -by_events[upto] * raw[: m + 1, g]
        weights = counts.gradient(by_events, by_at_risk)
        errors[m, g] = np.sqrt(max(counts.table.covariance.quadratic(weights), 0.0))
    z = two_sided_quantile(level)
    logs = np.log(np.maximum(values, 1e-300))
    inside = (values > 0) & (values < 1)
    width = np.exp(np.where(inside, z * errors / np.where(inside, -logs, 1.0), 0.0))
    # log(−log S) is undefined at 1 and 0: at 1 the lower limit allows for noise, at 0 both limits are 0
    lower = np.where(inside, np.exp(logs * width), np.where(values >= 1, np.exp(-z * errors), 0.0))
    upper = np.where(inside, np.exp(logs / width), values)
    return Curves(values, values * errors, lower, upper, int((raw < 0).sum()))


class HazardFit(NamedTuple):
    """Log hazard ratios against the first group, NaN without a finite estimate, and remarks."""

    values: Floats
    stderr: Floats
    notes: tuple[str, ...]


def fit_hazards(counts: LifeCounts, ties: Ties) -> HazardFit:
    """Return the log hazard ratios against the first group: the root of a score linear in the counts."""
    life = counts.life
    used = life.events.sum(axis=2) > 0  # times without events have no finite α and do not inform β
    times, layers = np.nonzero(used)
    events, at_risk = life.events[times, layers], life.at_risk[times, layers]
    rows, groups = events.shape
    if not rows:
        raise InputError("There are no events: hazards cannot be compared.")
    ratio = np.clip(events.sum(axis=1) / at_risk.sum(axis=1), 1e-6, 0.95)
    alpha, beta = np.log(-np.log1p(-ratio)), np.zeros(groups - 1)
    information = np.eye(rows + groups - 1)
    has_converged = False
    for _ in range(MOST_STEPS):
        by_event, by_risk, slope = _score_terms(alpha, beta, events, at_risk, ties)
        terms = events * by_event + at_risk * by_risk
        score = np.concatenate([terms.sum(axis=1), terms[:, 1:].sum(axis=0)])
        information = np.diag(np.concatenate([slope.sum(axis=1), slope[:, 1:].sum(axis=0)]))
        information[:rows, rows:] = slope[:, 1:]
        information[rows:, :rows] = slope[:, 1:].T
        step = np.clip(np.linalg.lstsq(information, score, rcond=None)[0], -1.0, 1.0)
        alpha, beta = alpha + step[:rows], beta + step[rows:]
        if np.abs(step).max() < 1e-10:
            has_converged = True
            break
        if np.abs(beta).max() > LARGEST_LOG_RATIO:
            break
    notes = [] if used.all() else [f"{int((~used).sum())} times without events are omitted."]
    if not has_converged:
        unknown = np.full(groups - 1, np.nan)
        return HazardFit(
            unknown, unknown, (*notes, "No finite estimate: some group has no events, or too much noise.")
        )
    inverse = np.linalg.inv(information)
    if not counts.is_plain:
        psi = _score_weights(counts, (times, layers), alpha, beta, ties)
        inverse = inverse @ counts.table.covariance.between(psi, psi) @ inverse.T
    return HazardFit(beta, np.sqrt(np.maximum(np.diag(inverse)[rows:], 0.0)), tuple(notes))


def _score_terms(
    alpha: Floats, beta: Floats, events: Floats, at_risk: Floats, ties: Ties
) -> tuple[Floats, Floats, Floats]:
    """Return the scores of an event and of a person at risk, and the negative derivative of the total score.

    Derivatives are with respect to the predictor η = α + β.
    """
    mean = np.exp(np.clip(alpha[:, None] + np.concatenate([[0.0], beta]), -30.0, 5.0))
    if ties == "breslow":
        return np.ones(mean.shape), -mean, at_risk * mean
    grown = np.expm1(mean)
    odds = mean / grown
    bend = mean * (grown - mean * np.exp(mean)) / grown**2
    return mean + odds, -mean, at_risk * mean - events * (mean + bend)


def _score_weights(
    counts: LifeCounts, at: tuple[Codes, Codes], alpha: Floats, beta: Floats, ties: Ties
) -> Floats:
    """Return Ψ, the weight of every cell in each score: first the scores of all α, then those of all β."""
    times, layers = at
    groups = len(beta) + 1
    by_event, by_risk, _ = _score_terms(alpha, beta, np.ones((len(alpha), groups)), np.ones(1), ties)
    shape = counts.life.events.shape
    rows = []
    for place, (k, s) in enumerate(zip(times, layers, strict=True)):
        parts = np.zeros((2, *shape))
        parts[0, k, s], parts[1, k, s] = by_event[place], by_risk[place]
        rows.append(counts.gradient(parts[0], parts[1]))
    for g in range(1, groups):
        parts = np.zeros((2, *shape))
        parts[0, times, layers, g], parts[1, times, layers, g] = by_event[:, g], by_risk[:, g]
        rows.append(counts.gradient(parts[0], parts[1]))
    return np.stack(rows)


def divide(above: Floats, below: Floats) -> Floats:
    """Return the quotient, 0 where the denominator is not positive."""
    return np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below > 0)
