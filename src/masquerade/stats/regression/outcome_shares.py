"""Shares of the outcome's categories implied by a model, among all people or those who follow the design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from masquerade.core.axes import Floats
from masquerade.stats.regression.designs import OutcomeSets
from masquerade.stats.regression.inference import LikelihoodFit
from masquerade.stats.regression.likelihood import RegressionLikelihood
from masquerade.stats.regression.predictions import delta_errors

NO = ("no", "false", "0", "nein", "non")


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A share: the counted codes, the codes of the denominator, and the text of both."""

    counted: tuple[int, ...]
    among: tuple[int, ...]
    text: str
    of: str


def share_rows(fit: LikelihoodFit) -> tuple[ShareRow, ...]:
    """Return the meaningful shares: yes and the other categories among all, then shares of smaller groups.

    The smaller groups are the people who follow the design, for the share of yes, and, if several categories
    mean yes, the people in any of these.
    """
    sets = fit.problem.sets
    if sets is None or type(fit.problem.likelihood) is not RegressionLikelihood:
        return ()  # with a random intercept, the average group is not the population
    everyone = tuple(range(len(sets.labels)))
    text = sets.text(sets.yes)
    rows = [ShareRow(sets.yes, everyone, text, "all")]
    rows += [
        ShareRow((code,), everyone, sets.labels[code], "all") for code in everyone if (code,) != sets.yes
    ]
    among = sets.among if len(sets.among) < len(everyone) else _followers(sets)
    if len(among) < len(everyone):
        rows.append(ShareRow(sets.yes, among, text, sets.text(among)))
    if len(sets.yes) > 1:
        rows += [ShareRow((code,), sets.yes, sets.labels[code], text) for code in sets.yes]
    return tuple(rows)


def main_rows(rows: Sequence[ShareRow]) -> list[int]:
    """Return the indices of the shares to print: yes by each denominator, and the first category of yes."""
    chosen = [i for i, row in enumerate(rows) if row.counted == rows[0].counted]
    parts = [i for i, row in enumerate(rows) if row.among == rows[0].counted]
    return [*chosen, *parts[:1]]


def _followers(sets: OutcomeSets) -> tuple[int, ...]:
    """Return the codes of yes and no; all codes if the outcome has no single yes and no.

    Other categories describe people who do not follow the design.
    """
    no = [code for code, label in enumerate(sets.labels) if label.lower() in NO and code not in sets.yes]
    if len(sets.yes) > 1 or len(no) != 1:
        return tuple(range(len(sets.labels)))
    return tuple(sorted((*sets.yes, *no)))


def estimate_shares(fit: LikelihoodFit, rows: Sequence[ShareRow]) -> tuple[Floats, Floats]:
    """Return shares over the records and their standard errors.

    Formula: Σ_i w_i P(counted | x_i; β) / Σ_i w_i P(among | x_i; β); errors by the delta method over all
    parameters, for the covariates of these records.
    """
    problem = fit.problem
    codes = problem.outcome_codes
    assert codes is not None  # noqa: S101  (for the type checker: there are rows only if there are codes)
    size = int(codes.max()) + 1
    likelihood = problem.likelihood

    def shares(beta: Floats) -> Floats:
        each = np.empty(size)
        for code in range(size):
            chances = np.broadcast_to((codes == code).astype(float), likelihood.chances.shape)
            chosen = replace(likelihood, chances=chances, has_penalty=False)
            each[code] = likelihood.weights @ np.exp(chosen.log_reports(beta))
        return np.array([each[list(row.counted)].sum() / each[list(row.among)].sum() for row in rows])

    beta = fit.solution.beta
    return shares(beta), delta_errors(shares, beta, fit.covariance)
