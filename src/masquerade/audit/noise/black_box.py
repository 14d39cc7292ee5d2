"""Audit of noise on counts as a black box: an attacker guesses a record from tables; limits of ε follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from masquerade.audit.epsilon_bracket import lower_limit
from masquerade.channels.noise.accountant import CELLS_MOVED, compose_losses, laplace_losses, skellam_losses
from masquerade.channels.noise.terms import NoiseTerms
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.tally import Tally
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import printable

LEAST_RUNS = 100


@dataclass(frozen=True, slots=True, repr=False)
class NoiseAudit(Printed):
    """Limits of ε of noise on counts, from the guesses of the best attacker on many runs.

    Attributes
    ----------
    claimed : float
        ε that the terms promise, at their δ.
    lower : float
        Lower limit of ε from the runs, taken as if δ were 0; wrong with probability at most `alpha`.
    expected : float
        ε at δ = 0.01 of the cells that differ, by the claimed distribution: the most that few runs can show.
    repeats, likely_repeats : int
        Runs whose noise equals that of an earlier run in all cells, and the most that are likely by chance.
    fractions : int
        Cells whose noise is not an integer.
    spread : float
        Variance of the noise over the claimed variance.
    spread_limits : tuple of float
        Limits of `spread` for the claimed noise, each exceeded by chance with probability at most `alpha`.
    runs : int
        Number of runs for each of the two truths.
    alpha : float
        Probability of a false alarm of each finding.

    Examples
    --------
    >>> mq.audit.NoiseAudit(1.0, 1.4, 1.5, 0, 0, 0, 0.5, (0.9, 1.1), 2000, 1e-6).contradicted
    True
    """

    claimed: float
    lower: float
    expected: float
    repeats: int
    likely_repeats: int
    fractions: int
    spread: float
    spread_limits: tuple[float, float]
    runs: int
    alpha: float

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the findings that contradict the claim, empty if there are none."""
        problems = []
        if self.lower > self.claimed:
            problems.append(f"an attacker reaches ε = {self.lower:.3g}, above the claimed {self.claimed:g}")
        if self.repeats > self.likely_repeats:
            problems.append(f"{self.repeats} runs repeat their noise: it was not drawn again")
        if self.fractions:
            problems.append(
                f"{self.fractions} cells have noise that is not an integer: its last digits may reveal counts"
            )
        low, high = self.spread_limits
        if not low <= self.spread <= high:
            problems.append(
                f"the variance of the noise is {self.spread:.3g} of the claimed one, outside {low:.3g} to "
                f"{high:.3g}"
            )
        return tuple(problems)

    @property
    def contradicted(self) -> bool:
        """Return True if the runs contradict the claim."""
        return bool(self.problems)

    @printable
    def summary(self) -> str:
        """Return the limits of ε and the findings."""
        lines = [
            f"claimed: ε = {self.claimed:g}; {self.runs:,} runs of each truth show ε ≥ {self.lower:.3g}",
            f"the best attacker on these tables has ε = {self.expected:.3g} at δ = 0.01",
            f"variance of the noise: {self.spread:.3f} of the claimed one",
        ]
        return "\n".join([*lines, *(self.problems or ("nothing contradicts the claim",))])


def audit_noise(
    make_source: Callable[[int], Tally],
    queries: Sequence[Query],
    counts: Sequence[Floats],
    others: Sequence[Floats],
    terms: NoiseTerms,
    *,
    runs: int = 2000,
    alpha: float = 1e-6,
) -> NoiseAudit:
    """Test noise on counts as a black box, on two sets of records that differ in one.

    The attacker knows everything but that record, and takes the likelihood ratio of all tables.

    Parameters
    ----------
    make_source : callable
        Returns a new source for the first (0) or the second (1) set of records, with a budget of its own.
    queries : sequence of Query
        Tables without conditions, each with noise of its own: none may follow from another.
    counts, others : sequence of array
        Exact counts of both sets.
    terms : NoiseTerms
        The claim.
    runs : int, default 2000
        Runs for each set. Half of them choose the attacker's threshold.
    alpha : float, default 1e-6
        Probability of a false alarm of each finding.

    Returns
    -------
    NoiseAudit
        Limits of ε, and findings.

    Raises
    ------
    InputError
        If there are too few runs, the sets are equal, or the terms are of redrawn votes, not of added noise.

    Examples
    --------
    >>> sets = [mq.data.students(), mq.data.students()]
    >>> sets[1].loc[0, "pills"] = "yes" if sets[0].loc[0, "pills"] == "no" else "no"
    >>> queries = [mq.Query(by="pills")]
    >>> exact = [[table.values for table in mq.tally(frame).answer(queries)] for frame in sets]
    >>> make = lambda truth: mq.Noisy(mq.tally(sets[truth]), epsilon=3, tables=1)
    >>> result = mq.audit.audit_noise(make, queries, *exact, mq.NoiseTerms(3, 1), runs=200)
    >>> result.contradicted
    False
    """
    if runs < LEAST_RUNS:
        raise InputError(f"An audit of noise needs at least {LEAST_RUNS} runs. Got {runs} instead.")
    if any(stage.law == "redraws" for stage in terms.stages):
        raise InputError("This audit tests noise that is added to counts, but these votes are redrawn.")
    truths = [np.concatenate([np.ravel(table) for table in tables]) for tables in (counts, others)]
    moved = truths[1] - truths[0]
    if not moved.any():
        raise InputError("Both sets of records have the same counts: give records that differ in one.")
    drawn = [np.stack([_cells(make_source(truth), queries) for _ in range(runs)]) for truth in (0, 1)]
    noise = np.concatenate([cells - truth for cells, truth in zip(drawn, truths, strict=True)])
    # the likelihood ratio of noise that is nearly normal is its projection on the difference
    scores = [cells @ moved for cells in drawn]
    half = runs // 2
    threshold = _best_threshold(scores[0][:half], scores[1][:half], alpha)
    hits = int((scores[1][half:] >= threshold).sum())
    wrong = int((scores[0][half:] >= threshold).sum())
    lower = max(lower_limit(hits, runs - half, wrong, runs - half, alpha / 2), 0.0)
    return NoiseAudit(
        terms.epsilon,
        lower,
        _attacker_epsilon(terms, moved),
        int(runs * 2 - len(np.unique(np.round(noise, 9), axis=0))),
        _likely_repeats(terms, noise.shape[1], runs * 2, alpha),
        int(np.sum(np.abs(noise - np.rint(noise)) > 1e-9)),
        float(noise.var() / terms.variance),
        _spread_limits(noise, alpha),
        runs,
        alpha,
    )


def _cells(source: Tally, queries: Sequence[Query]) -> Floats:
    """Return the cells of all tables as they were drawn."""
    drawn = getattr(source, "drawn_cells", None)
    if drawn is None:
        return np.concatenate([table.values.ravel() for table in source.answer(queries)])
    return np.concatenate([np.asarray(cells, dtype=float).ravel() for cells in drawn(queries)])


def _best_threshold(first: Floats, second: Floats, alpha: float) -> float:
    """Return the score above which the second truth is guessed, chosen on separate runs."""
    best, result = -math.inf, float(np.median(second))
    for threshold in np.unique(np.quantile(second, np.linspace(0.02, 0.98, 49))):
        hits, wrong = int((second >= threshold).sum()), int((first >= threshold).sum())
        limit = lower_limit(hits, len(second), wrong, len(first), alpha)
        if limit > best:
            best, result = limit, float(threshold)
    return result


def _attacker_epsilon(terms: NoiseTerms, moved: Floats) -> float:
    """Return ε at δ = 0.01 of the cells that differ, by the accountant: the most that few runs can show."""
    [stage, *_] = terms.stages
    part = terms.total_variance(stage) / stage.variance
    atoms = skellam_losses(float(stage.variance * part))
    if stage.law == "laplace":
        atoms = laplace_losses(-math.log(stage.ratio))
    cells = int(np.abs(moved).sum())
    return compose_losses([(atoms, min(cells, CELLS_MOVED * stage.tables))]).epsilon(0.01)


def _likely_repeats(terms: NoiseTerms, cells: int, runs: int, alpha: float) -> int:
    """Return the number of repeated rows that claimed noise exceeds with probability at most `alpha`.

    Formula: Poisson with mean runs²/2·P(X = X')^cells; X − X' of a cell has twice the variance of the noise.
    """
    from scipy.special import ive, pdtrc  # noqa: PLC0415  (scipy is slow to import)

    [stage, *_] = terms.stages
    equal = float(ive(0, 2 * float(terms.total_variance(stage))))
    if stage.law == "laplace":
        ratio = float(stage.ratio)
        equal = ((1 - ratio) / (1 + ratio)) ** 2 * (1 + ratio**2) / (1 - ratio**2)
    mean, most = runs**2 / 2 * equal**cells, 0
    while most < runs and pdtrc(most, mean) > alpha:
        most += 1
    return most


def _spread_limits(noise: Floats, alpha: float) -> tuple[float, float]:
    """Return the limits of the variance ratio of independent cells of nearly normal noise."""
    from scipy.special import ndtri  # noqa: PLC0415  (scipy is slow to import)

    centred = noise.ravel() - noise.mean()
    kurtosis = max(float((centred**4).mean() / max(centred.var() ** 2, 1e-300)), 3.0)
    width = float(-ndtri(alpha / 2)) * math.sqrt((kurtosis - 1) / noise.size)
    return 1 - width, 1 + width
