"""Standard errors for clusters and survey designs: CR2 by Bell and McCaffrey, linearisation, replicates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.likelihood_rows import SurveyDesign
from masquerade.stats.regression.inference import DesignErrors, Errors, LikelihoodFit
from masquerade.stats.regression.likelihood import RegressionLikelihood

Codes = NDArray[np.intp]
LEAST_LEFT = 1e-8  # directions with a smaller share of information from other clusters are omitted


def cluster_errors(fit: LikelihoodFit, cluster: Codes) -> DesignErrors:
    """Return CR2 errors, from the score and the expected information of each cluster.

    Parameters
    ----------
    fit : LikelihoodFit
        Fit in which each row belongs to a single cluster.
    cluster : array (records,)
        Index of each record's cluster.

    Returns
    -------
    DesignErrors
        Covariance, and Bell and McCaffrey's degrees of freedom of each coefficient.

    Notes
    -----
    Formula: B(ΣA_g u_g u_gᵀA_gᵀ)B, where cluster g has the score u_g and the expected information I_g,
    B = (ΣI_g)⁻¹, and A_g = (1 − I_g B)^(−1/2), a pseudo-inverse where an eigenvalue is 1. The coefficient
    with unit vector c has df = (tr Ω)²/tr Ω², where a_g = A_gᵀBc and
    Ω = diag(a_gᵀI_g a_g) − [(I_g a_g)ᵀB(I_h a_h)].
    Reference: Bell & McCaffrey (2002).
    """
    likelihood = fit.problem.likelihood
    of_row = _by_row(fit, cluster)
    count = int(of_row.max()) + 1
    if count < 2:
        raise InputError("Errors of clusters need at least two clusters.")
    beta = fit.solution.beta
    sums = _sum_by(likelihood.scores(beta) * likelihood.weights[:, None], of_row, count)
    information = likelihood.expected_by(beta, of_row, count)
    covariance, df = bias_reduced(sums, information)
    return DesignErrors(covariance, df, f"CR2, {count:,} clusters")


def bias_reduced(sums: Floats, information: Floats) -> tuple[Floats, Floats]:
    """Return the CR2 covariance and the degrees of freedom, from the clusters' scores and information."""
    count, P = sums.shape
    values, vectors = np.linalg.eigh(information.sum(axis=0))
    root = (vectors * np.sqrt(np.maximum(values, 1e-300))) @ vectors.T
    back = (vectors / np.sqrt(np.maximum(values, 1e-300))) @ vectors.T
    bread = back @ back
    adjusted, influence = np.empty_like(sums), np.empty((count, P, P))
    for g in range(count):
        own, directions = np.linalg.eigh(back @ information[g] @ back)
        left = 1 - own
        power = np.where(left > LEAST_LEFT, 1 / np.sqrt(np.maximum(left, LEAST_LEFT)), 0.0)
        A = root @ (directions * power) @ directions.T @ back
        adjusted[g] = A @ sums[g]
        influence[g] = A.T @ bread  # a_g of every coefficient, by column
    covariance = bread @ (adjusted.T @ adjusted) @ bread
    df = np.empty(P)
    for place in range(P):
        a = influence[:, :, place]
        Ia = np.einsum("gpq,gq->gp", information, a)
        omega = np.diag(np.einsum("gp,gp->g", a, Ia)) - Ia @ bread @ Ia.T
        df[place] = np.trace(omega) ** 2 / max(float(np.sum(omega * omega)), 1e-300)
    return covariance, np.maximum(df, 1.0)


def survey_errors(fit: LikelihoodFit, design: SurveyDesign) -> DesignErrors:
    """Return the errors under a survey design: by replicates, CR2 or linearisation.

    CR2 is used for clusters without strata and without a finite population.

    Formula of the linearisation: Σ_h (1 − f_h) n_h/(n_h − 1) Σ_c (u_hc − ū_h)(u_hc − ū_h)ᵀ over the clusters
    c of each stratum h with sampling fraction f_h, plus Σ f w_i² E Var(score_i | truth). The second sum adds
    back the variance of the disguise, which has no finite population: every report is drawn.
    Reference: Binder (1983).
    """
    likelihood, beta = fit.problem.likelihood, fit.solution.beta
    if design.replicates:
        return _replicate_errors(fit, design)
    has_strata = int(design.strata.max(initial=0)) > 0
    has_fraction = bool(np.any(design.fraction))
    count = int(design.clusters.max()) + 1
    if not has_strata and not has_fraction and count < fit.problem.n:
        return cluster_errors(fit, design.clusters)
    scores = (likelihood.scores(beta) * likelihood.weights[:, None])[fit.problem.row_of]
    sums = _sum_by(scores, design.clusters, count)
    stratum = np.zeros(count, dtype=np.intp)
    stratum[design.clusters] = design.strata
    sizes = np.bincount(stratum)
    means = _sum_by(sums, stratum, len(sizes)) / np.maximum(sizes, 1)[:, None]
    factor = np.sqrt((1 - design.fraction) * sizes / np.maximum(sizes - 1, 1))
    gaps = factor[stratum][:, None] * (sums - means[stratum])
    meat = gaps.T @ gaps
    if has_fraction:
        share = design.fraction[design.strata]
        of_row = np.zeros(likelihood.n)
        np.add.at(of_row, fit.problem.row_of, share)
        meat = meat + disguise_variance(likelihood, beta, of_row * likelihood.weights**2)
    bread = fit.model_covariance
    df = np.full(len(beta), max(float(count - len(sizes)), 1.0))
    text = f"linearised, {len(sizes):,} strata, {count:,} clusters" if has_strata else "linearised"
    return DesignErrors(bread @ meat @ bread, df, text)


def disguise_variance(likelihood: RegressionLikelihood, beta: Floats, weights: Floats) -> Floats:
    """Return Σ weights·E_π Var(score | truth) over the reports that each record could have given."""
    P = likelihood.parameters
    if likelihood.design_of is None:
        return np.zeros((P, P))
    posterior = likelihood.posterior(beta)
    means = np.zeros((likelihood.n, posterior.shape[1], P))
    total = np.zeros((P, P))
    for report in range(max(channel.shape[1] for channel in likelihood.channels)):
        table = np.stack(
            [
                channel[:, report] if report < channel.shape[1] else np.zeros(len(channel))
                for channel in likelihood.channels
            ]
        )
        chances = table[likelihood.design_of]
        possible = np.asarray(chances.any(axis=1))
        other = replace(likelihood, chances=np.where(possible[:, None], chances, 1.0), has_penalty=False)
        scores = other.scores(beta)
        total += scores.T @ ((weights * np.sum(posterior * chances, axis=1))[:, None] * scores)
        means += chances[:, :, None] * scores[:, None, :]
    flat = means.reshape(-1, P)
    return np.asarray(total - flat.T @ ((weights[:, None] * posterior).reshape(-1, 1) * flat))


def _replicate_errors(fit: LikelihoodFit, design: SurveyDesign) -> DesignErrors:
    """Return errors by replicate weights; each replicate is estimated by two Newton steps."""
    likelihood, start = fit.problem.likelihood, fit.solution.beta
    gaps = []
    for weights in design.replicates:
        total = np.bincount(fit.problem.row_of, weights, minlength=likelihood.n)
        own = replace(likelihood, weights=total * fit.problem.n / total.sum())
        beta = start.copy()
        for _ in range(2):
            found = own.derivatives(beta)
            beta = beta + np.linalg.lstsq(found.observed, found.slope, rcond=None)[0]
        gaps.append(beta - start)
    rows = np.array(gaps)
    df = np.full(len(start), max(float(len(rows) - 1), 1.0))
    return DesignErrors(design.scale * rows.T @ rows, df, f"{len(rows):,} replicates")


def with_design(fit: LikelihoodFit, design: DesignErrors) -> LikelihoodFit:
    """Return a fit whose errors are replaced by the errors of its clusters or survey design."""
    return replace(fit, covariance=design.covariance, design=design, cache={})


def _by_row(fit: LikelihoodFit, cluster: Codes) -> Codes:
    """Return the cluster of each row of the likelihood."""
    of_row = np.zeros(fit.problem.likelihood.n, dtype=np.intp)
    of_row[fit.problem.row_of] = cluster
    return of_row


def _sum_by(values: Floats, group: Codes, count: int) -> Floats:
    """Return the sums of rows by group."""
    return np.stack([np.bincount(group, column, minlength=count) for column in values.T], axis=1)


def with_errors(
    fit: LikelihoodFit,
    chosen: Errors,
    clusters: NDArray[np.intp] | None,
    survey: SurveyDesign | None,
) -> LikelihoodFit:
    """Return the fit with errors of clusters, a survey design or the sandwich, whichever applies first."""
    if clusters is not None:
        return with_design(fit, cluster_errors(fit, clusters))
    if survey is not None:
        return with_design(fit, survey_errors(fit, survey))
    if chosen == "sandwich":
        df = np.full(fit.parameters, max(fit.problem.n - 1.0, 1.0))
        return with_design(fit, DesignErrors(fit.covariance, df, "sandwich"))
    return fit
