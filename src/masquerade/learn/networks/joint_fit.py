"""Tables of a network that maximise the joint likelihood of the reports, with their joint covariance."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.tally import Tally
from masquerade.learn import model_file
from masquerade.learn.networks.joint_likelihood import (
    Expectation,
    JointLikelihood,
    Tables,
    joint_likelihood_of,
)
from masquerade.learn.networks.parameters import FEWEST_RECORDS, ConditionalTable

MOST_SAVED = 300  # most parameters whose covariance is saved: it has the square of that number of entries
MOST_PARAMETERS = 2_000  # most parameters whose joint covariance is computed
LEAST_CHANCE = 1e-6  # least probability: where the maximum is at 0, the logit stays finite
FARTHEST = 0.01  # least probability at the start of a fit, since estimates may be negative or 0
MOST_STEPS = 100
LONGEST_STEP = 3.0  # logits
LEAST_GAIN = 1e-6  # least gain in the log-likelihood for which a fit continues
PULLS = (0.0, 1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class JointFit:
    """The maximum of the joint likelihood, or of a composite likelihood.

    Attributes
    ----------
    tables : dict of str to array
        P(node | parents), the parents as leading axes.
    log_likelihood : float
        Logarithm of the likelihood at the maximum.
    dimension : int
        Number of free parameters.
    n : float
        Number of records.
    counts : dict of str to array
        Expected number of records in each cell, given the reports. Empty for a network that was loaded.
    covariance : array or None
        Covariance of the logits of all cells against the last category of their row, in the order of the
        tables. None if there are more than `MOST_PARAMETERS`.
    has_converged : bool
        False if the likelihood still rose after the last step.
    is_composite : bool
        True for the composite likelihood of pairs and families: see `composite_fit`.
    """

    tables: dict[str, Floats]
    log_likelihood: float
    dimension: int
    n: float
    counts: dict[str, Floats]
    covariance: Floats | None
    has_converged: bool
    is_composite: bool = False


def inner_chances(counts: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return P(node | parents) from counts, with no probability near 0, to start a fit."""
    tables = {}
    for name, table in counts.items():
        total = np.maximum(table.sum(axis=-1, keepdims=True), 1.0)
        chances = np.clip(table / total, FARTHEST, None)
        tables[name] = chances / chances.sum(axis=-1, keepdims=True)
    return tables


def fit_tables(joint: JointLikelihood, start: Tables) -> JointFit:
    """Maximise the likelihood of the reports over the tables of a network.

    Formula: η ← η + A⁻¹ Σ w s, with s the score of a report in logits, A = (1 − τ) Σ w s s' + τ I_complete,
    and τ the first of `PULLS` with which the likelihood rises; τ = 1 is a gradient step of EM. Logits whose
    probability is at `LEAST_CHANCE` and would fall are omitted from the step, because the other logits would
    move as if it had fallen. The covariance is (Σ w s s')⁻¹ at the maximum.
    Reference: Berndt, Hall, Hall & Hausman (1974); Lange (1995).
    Cost: O(distinct records · (cells of the cliques + parameters²)) a step.
    """
    tables = {name: keep_inside(table) for name, table in start.items()}
    if joint.dimension > MOST_PARAMETERS:
        return _by_em(joint, tables)
    has_converged = False
    value, score, gram, counts = _moments(joint, tables)
    for _ in range(MOST_STEPS):
        complete = complete_information(tables, counts)
        free = ~_at_bound(tables, score)
        for pull in PULLS:
            step = np.zeros(len(score))
            step[free] = _solve(((1 - pull) * gram + pull * complete)[np.ix_(free, free)], score[free])
            moved = _move(tables, step)
            after = joint.log_likelihood(moved)
            if after > value:
                break
        else:
            has_converged = True
            break
        gained = after - value
        tables = moved
        value, score, gram, counts = _moments(joint, tables)
        if gained < LEAST_GAIN:
            has_converged = True
            break
    return JointFit(
        tables,
        value,
        joint.dimension,
        joint.n,
        counts,
        np.asarray(np.linalg.pinv(gram, hermitian=True)),
        has_converged,
    )


def _by_em(joint: JointLikelihood, tables: dict[str, Floats]) -> JointFit:
    """Return the tables after plain EM, used when there are too many parameters for a matrix."""
    found: Expectation = joint.expectation(tables)
    has_converged = False
    for _ in range(MOST_STEPS):
        tables = {name: keep_inside(_rows(counts)) for name, counts in found.counts.items()}
        before, found = found.log_likelihood, joint.expectation(tables)
        if found.log_likelihood - before < LEAST_GAIN * max(1.0, joint.n**0.5):
            has_converged = True
            break
    return JointFit(tables, found.log_likelihood, joint.dimension, joint.n, found.counts, None, has_converged)


def _rows(counts: Floats) -> Floats:
    total = counts.sum(axis=-1, keepdims=True)
    return np.where(total > 0, counts / np.where(total > 0, total, 1.0), 1 / counts.shape[-1])


def keep_inside(table: Floats) -> Floats:
    """Return rows of probabilities above 0."""
    kept = np.maximum(table, LEAST_CHANCE)
    return np.asarray(kept / kept.sum(axis=-1, keepdims=True))


def _moments(joint: JointLikelihood, tables: Tables) -> tuple[float, Floats, Floats, dict[str, Floats]]:
    """Return the log-likelihood, the sums of scores and of their squares, and the expected counts."""
    size = joint.dimension
    value, score, gram = 0.0, np.zeros(size), np.zeros((size, size))
    counts = {name: np.zeros(table.shape) for name, table in tables.items()}
    for weights, log_likelihood, families in joint.scores(tables):
        value += float(weights @ log_likelihood)
        for name in tables:
            counts[name] += families[name] @ weights
        scores = score_rows(tables, families)
        weighted = scores * weights
        score += weighted.sum(axis=1)
        gram += weighted @ scores.T
    return value, score, gram, counts


def score_rows(tables: Tables, families: Mapping[str, Floats]) -> Floats:
    """Return ∂ log P(report) / ∂ logits (parameters, records) from the posteriors of the families."""
    rows = []
    for name, table in tables.items():
        posterior = families[name]
        own = posterior - table[..., None] * posterior.sum(axis=-2, keepdims=True)
        rows.append(own[..., :-1, :].reshape(-1, posterior.shape[-1]))
    return np.concatenate(rows)


def complete_information(tables: Tables, counts: Mapping[str, Floats]) -> Floats:
    """Return the information about the logits if the truth of every record were known."""
    blocks = []
    for name, table in tables.items():
        for chances, total in zip(
            table.reshape(-1, table.shape[-1]), counts[name].sum(axis=-1).ravel(), strict=True
        ):
            free = chances[:-1]
            blocks.append(max(float(total), 1e-3) * (np.diag(free) - np.outer(free, free)))
    size = sum(map(len, blocks))
    found = np.zeros((size, size))
    at = 0
    for block in blocks:
        found[at : at + len(block), at : at + len(block)] = block
        at += len(block)
    return found


def _at_bound(tables: Tables, score: Floats) -> NDArray[np.bool_]:
    """Return a mask of the logits to leave unchanged: their probability is `LEAST_CHANCE` and would fall.

    If the last category of a row would fall, the logit of its largest category is fixed, which keeps the
    ratio of both.
    """
    fixed = np.zeros(len(score), dtype=bool)
    at = 0
    for table in tables.values():
        free = table.shape[-1] - 1
        for row in table.reshape(-1, free + 1):
            scores = score[at : at + free]
            falling = (row <= 2 * LEAST_CHANCE) & (np.append(scores, -scores.sum()) < 0)
            fixed[at : at + free] = falling[:-1]
            if falling[-1] and free:
                fixed[at + int(row[:-1].argmax())] = True
            at += free
    return fixed


def _solve(matrix: Floats, score: Floats) -> Floats:
    """Return a step of at most `LONGEST_STEP` in each logit."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-12))
    scaled = matrix / scale / scale[:, None]
    step = np.linalg.solve(scaled + 1e-8 * np.eye(len(score)), score / scale) / scale
    return np.asarray(np.clip(step, -LONGEST_STEP, LONGEST_STEP))


def _move(tables: Tables, step: Floats) -> dict[str, Floats]:
    """Return the tables after a step in logits."""
    found, at = {}, 0
    for name, table in tables.items():
        free = (*table.shape[:-1], table.shape[-1] - 1)
        size = int(np.prod(free))
        added = np.concatenate(
            [step[at : at + size].reshape(free), np.zeros((*table.shape[:-1], 1))], axis=-1
        )
        raised = np.log(table) + added
        raised = np.exp(raised - raised.max(axis=-1, keepdims=True))
        found[name] = keep_inside(raised / raised.sum(axis=-1, keepdims=True))
        at += size
    return found


def table_errors(fit: JointFit) -> dict[str, Floats]:
    """Return the standard errors of all probabilities, by the delta method; NaN without a covariance."""
    if fit.covariance is None:
        return {name: np.full(table.shape, np.nan) for name, table in fit.tables.items()}
    found: dict[str, Floats] = {}
    at = 0
    for name, table in fit.tables.items():
        rows = table.reshape(-1, table.shape[-1])
        free = rows.shape[-1] - 1
        errors = np.empty(rows.shape)
        for i, chances in enumerate(rows):
            part = fit.covariance[at : at + free, at : at + free]
            slope = np.diag(chances)[:, :free] - np.outer(chances, chances[:free])
            errors[i] = np.sqrt(np.maximum(np.einsum("kf,fg,kg->k", slope, part, slope), 0.0))
            at += free
        found[name] = errors.reshape(table.shape)
    return found


def warn_of_step(fit: JointFit) -> None:
    """Warn if a fit is not at the maximum."""
    if not fit.has_converged:
        what = "composite" if fit.is_composite else "joint"
        warnings.warn(
            f"The {what} likelihood still rose after the last step: the parameters are not at its maximum.",
            MasqueradeWarning,
            stacklevel=4,
        )


def fit_values(fit: JointFit | None) -> dict[str, Any]:
    """Return a fit as plain JSON values; nothing for more than `MOST_SAVED` parameters."""
    if fit is None or fit.covariance is None or len(fit.covariance) > MOST_SAVED:
        return {}
    lower = [row[: i + 1].tolist() for i, row in enumerate(fit.covariance)]
    names = ("log_likelihood", "n", "has_converged", "is_composite")
    return {"joint": {**model_file.part_values(fit, *names), "covariance": lower}}


def fit_of(values: Mapping[str, Any], tables: Sequence[ConditionalTable]) -> JointFit | None:
    """Return the fit of a saved network, or None; raise InputError if the values are not valid."""
    if "joint" not in values:
        return None
    saved = model_file.entry(values, "joint", dict)
    dimension = sum(table.probabilities.size // len(table.child) * (len(table.child) - 1) for table in tables)
    rows = model_file.entry(saved, "covariance", list)
    if dimension > MOST_SAVED or [len(row) if isinstance(row, list) else 0 for row in rows] != [
        *range(1, dimension + 1)
    ]:
        raise InputError(f"'covariance' must be the lower triangle for {dimension} parameters.")
    covariance = np.zeros((dimension, dimension))
    for i, row in enumerate(rows):
        covariance[i, : i + 1] = covariance[: i + 1, i] = model_file.array_of(row, (i + 1,), "covariance")
    if not np.all(np.isfinite(covariance)) or np.any(np.diag(covariance) < 0):
        raise InputError("'covariance' must contain finite numbers, and variances of 0 or more.")
    return JointFit(
        {table.child.name: table.probabilities for table in tables},
        model_file.number(saved, "log_likelihood"),
        dimension,
        model_file.number(saved, "n"),
        {},
        covariance,
        model_file.entry(saved, "has_converged", bool),
        model_file.entry(saved, "is_composite", bool),
    )


def fit_jointly(source: Tally, start: Sequence[ConditionalTable]) -> JointFit:
    """Maximise the joint likelihood of a source's reports, starting from estimates of each table."""
    structure = {one.child.name: tuple(parent.name for parent in one.parents) for one in start}
    joint = joint_likelihood_of(source, structure)
    return fit_tables(joint, inner_chances({one.child.name: one.probabilities for one in start}))


def fitted_tables(fit: JointFit, start: Sequence[ConditionalTable]) -> tuple[ConditionalTable, ...]:
    """Return the conditional tables of a fit, over the axes of the tables that it started from."""
    errors = table_errors(fit)
    return tuple(
        ConditionalTable(
            one.child,
            one.parents,
            fit.tables[one.child.name],
            errors[one.child.name],
            np.asarray(fit.counts[one.child.name].sum(axis=-1) >= FEWEST_RECORDS),
        )
        for one in start
    )
