"""Information lost to a disguise: distances between distributions, parameters and densities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.table import CountTable
from masquerade.learn.classifiers.performance import Measure
from masquerade.learn.density import Density
from masquerade.learn.networks.network import ConditionalTable

PIECES = 256  # points per bin for the integral of a density given as a function


def kl(true: CountTable | ArrayLike, estimated: CountTable | ArrayLike) -> float:
    """Return the Kullback–Leibler divergence of an estimated distribution from the true one, in nats.

    Parameters
    ----------
    true : CountTable or array_like
        Counts or probabilities; rescaled to sum to 1.
    estimated : CountTable or array_like
        Counts or probabilities of the same cells.

    Returns
    -------
    float
        The divergence.

    Raises
    ------
    InputError
        If the shapes differ, or a cell is negative or not finite.

    Notes
    -----
    Formula: Σ p log(p/q); a cell with p = 0 adds nothing, a cell with q = 0 < p makes it infinite.
    Reference: Kullback & Leibler (1951); Ma (2006) §3.2, as a measure of information loss.

    Examples
    --------
    >>> round(mq.evaluate.kl([0.5, 0.5], [0.9, 0.1]), 4)
    0.5108
    """
    p, q = _shares(true, "true"), _shares(estimated, "estimated")
    if p.shape != q.shape:
        raise InputError(f"kl() needs two distributions over the same cells. Got {p.shape} and {q.shape}.")
    return float(_kl(p.ravel(), q.ravel()))


def ckl(clear: ConditionalTable, learnt: ConditionalTable) -> float:
    """Return the conditional Kullback–Leibler divergence of two learned tables of a node, in nats.

    Parameters
    ----------
    clear : ConditionalTable
        Learned from clear records, usually the same records before disguise.
    learnt : ConditionalTable
        Learned from disguised records.

    Returns
    -------
    float
        The divergence.

    Raises
    ------
    InputError
        If `clear` was not learned from records, or the variables differ.

    Notes
    -----
    Formula: Σ_j P(parents = j) · Σ_k p_jk log(p_jk/q_jk), P from the records of `clear`, q from
    `positive_rows`.
    Reference: Ma & Sivakumar (2005) §6.2.

    Examples
    --------
    >>> students = mq.data.students()
    >>> links = {"exams": (), "pills": ("exams",)}
    >>> whole = mq.learn.bayesian_network(mq.tally(students), links)["pills"]
    >>> half = mq.learn.bayesian_network(mq.tally(students[::2]), links)["pills"]
    >>> mq.evaluate.ckl(whole, whole), mq.evaluate.ckl(whole, half) < 0.01
    (0.0, True)
    """
    if clear.evidence is None:
        raise InputError("ckl() weights rows by their records: give a table that was learned from records.")
    if [axis.name for axis in clear.axes] != [axis.name for axis in learnt.axes]:
        raise InputError("ckl() compares two tables of one node with the same parents.")
    weights = clear.evidence.records / clear.evidence.records.sum()
    return float((weights * _kl(clear.probabilities, positive_rows(learnt))).sum())


def positive_rows(table: ConditionalTable) -> Floats:
    """Return the parameters of a node with positive rows only, for a divergence.

    A row with a negative or zero estimate is projected (negatives set to 0, the rest rescaled), and one
    record is added to each of its cells. All other rows are unchanged.

    Parameters
    ----------
    table : ConditionalTable
        Parameters of a node.

    Returns
    -------
    ndarray
        Probabilities, all positive.

    Examples
    --------
    >>> network = mq.learn.bayesian_network(mq.tally(mq.data.students()), {"exams": (), "pills": ("exams",)})
    >>> mq.evaluate.positive_rows(network["pills"]).tolist()
    [[0.88, 0.12], [0.7, 0.3]]
    """
    spoilt = np.any(table.probabilities <= 0, axis=-1, keepdims=True)
    rows = table.project().probabilities
    records = 0.0 if table.evidence is None else np.maximum(table.evidence.records, 0.0)[..., None]
    return np.where(spoilt, (records * rows + 1) / (records + rows.shape[-1]), table.probabilities)


def odds_ratio(table: CountTable) -> Measure:
    """Estimate the odds ratio of a two-by-two table; it is 1 for independent variables.

    For groups, strata and intervals see `mq.stats.odds_ratio`.

    Parameters
    ----------
    table : CountTable
        Table of two binary variables.

    Returns
    -------
    Measure
        Estimate with its standard error.

    Raises
    ------
    InputError
        If the table is not 2 × 2, or a count off the main diagonal is 0.

    Notes
    -----
    Formula: N₁₁N₂₂/(N₁₂N₂₁), its error by the delta method from the table's covariance.
    Reference: Ma (2006) §3.2.2, as a measure of independence loss.

    Examples
    --------
    >>> [table] = mq.tally(mq.data.students()).answer([mq.Query(by=("exams", "pills"))])
    >>> round(mq.evaluate.odds_ratio(table).value, 3)
    3.143
    """
    if table.values.shape != (2, 2):
        raise InputError(f"odds_ratio() needs a table of two yes/no variables. Got {table.values.shape}.")
    (a, b), (c, d) = table.values.tolist()
    if b * c == 0:
        raise InputError("The odds ratio is not defined: a count off the main diagonal is 0.")
    ratio = a * d / (b * c)
    slopes = np.array([[d / (b * c), -ratio / b], [-ratio / c, a / (b * c)]])
    stderr = float(np.sqrt(max(table.covariance.quadratic(slopes), 0.0)))
    return Measure("odds ratio", ratio, stderr, table.n)


def density_distance(true: Density | Callable[[Floats], ArrayLike], estimated: Density) -> float:
    """Return ∫|f − f̂|, the loss due to grouping and disguise: 0 for equal densities, at most 2.

    Parameters
    ----------
    true : Density or callable
        A function that integrates to 1, or another binned density.
    estimated : Density
        The estimated density.

    Returns
    -------
    float
        The distance.

    Notes
    -----
    Formula: exact for two binned densities. A function is evaluated at 256 points of every bin, and its mass
    outside the bins counts fully.
    Reference: Ma (2006) §3.2.1.

    Examples
    --------
    >>> import pandas as pd
    >>> ages = pd.DataFrame({"age": ["[0, 20)", "[20, 60]", "[20, 60]", "[20, 60]"]})
    >>> density = mq.learn.reconstructed_density(mq.tally(ages), "age")
    >>> round(mq.evaluate.density_distance(lambda age: 1 / 60 + 0 * age, density), 4)
    0.1667
    """
    if isinstance(true, Density):
        edges = np.unique(np.concatenate([true.edges, estimated.edges]))
        middles = (edges[:-1] + edges[1:]) / 2
        gaps = np.abs(true.at(middles) - estimated.at(middles))
        return float((gaps * np.diff(edges)).sum())
    steps = (np.arange(PIECES) + 0.5) / PIECES
    widths = np.diff(estimated.edges)
    points = estimated.edges[:-1, None] + widths[:, None] * steps
    values = np.asarray(true(points.ravel()), dtype=float).reshape(points.shape)
    inside = float((values.mean(axis=1) * widths).sum())
    gaps = np.abs(values - estimated.values[:, None]).mean(axis=1)
    return float((gaps * widths).sum()) + max(1.0 - inside, 0.0)


def _shares(given: CountTable | ArrayLike, name: str) -> Floats:
    values = np.asarray(given.values if isinstance(given, CountTable) else given, dtype=float)
    if not values.size or not np.all(np.isfinite(values)) or values.sum() <= 0:
        raise InputError(f"The {name!r} distribution of kl() must be finite numbers that sum to more than 0.")
    if np.any(values < 0):
        raise InputError(
            f"The {name!r} distribution of kl() has negative cells, so the divergence is not defined. "
            "Give table.nonnegative()."
        )
    return np.asarray(values / values.sum())


def _kl(first: Floats, second: Floats) -> Floats:
    """Return Σ p log(p/q) over the last axis."""
    with np.errstate(divide="ignore"):
        terms = first * np.log(np.where(first > 0, first, 1.0) / np.where(first > 0, second, 1.0))
    return np.asarray(terms.sum(axis=-1))
