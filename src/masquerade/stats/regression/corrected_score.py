"""Root of a corrected score, by Newton's method on counts that may be negative."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import NotConverged
from masquerade.stats.regression.families import Family

STEPS = 100
LONGEST = 2.0  # largest change of a parameter in one step
CLOSE = 1e-9  # a smaller step has converged
BEYOND = 30.0  # a linear predictor beyond this changes no probability noticeably
STEADY = 3.0  # least distance of the information from 0, in standard errors


def score(family: Family, Z: Floats, counts: Floats, beta: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the score ψ of each cell, the information −Σ N̂ ∂ψ/∂β, and the term −∂ψ/∂β of each cell."""
    s, h = family.derivatives(Z @ beta)
    psi = np.einsum("xyl,xylp->xyp", s, Z).reshape(-1, len(beta))
    bends = -np.einsum("xylp,xylm,xymq->xypq", Z, h, Z, optimize=True).reshape(-1, len(beta), len(beta))
    return psi, np.einsum("c,cpq->pq", counts.ravel(), bends), bends


def solve(family: Family, Z: Floats, counts: Floats, names: Sequence[str]) -> Floats:
    """Return the root of the corrected score, by Newton steps of bounded length.

    The steps start at the solution for the counts with negative values set to 0, which has a single maximum.
    """
    total = counts.sum()
    positive = np.maximum(counts, 0.0)
    shares = positive.sum(axis=0) / max(float(positive.sum()), 1e-300)
    beta = family.start(Z.shape[-1], shares)
    first, _ = _newton(family, Z, positive, beta, 40)
    if np.isfinite(first).all() and np.abs(Z @ first).max() < BEYOND:
        beta = first
    found, step = _newton(family, Z, counts, beta, STEPS)
    far = not np.isfinite(found).all() or np.abs(Z @ found).max() > BEYOND
    if far or step > CLOSE * 1e3 or total <= 0:
        big = (
            names[int(np.nanargmax(np.abs(found[-len(names) :])))]
            if len(names) and np.isfinite(found).any()
            else ""
        )
        where = f", most of all for {big}" if far and big else ""
        raise NotConverged(
            f"This regression cannot be fitted to these counts: the corrected score has no root{where}. Some "
            "outcome is (nearly) certain in some group, or the reports are too few for so many terms. More "
            "records, fewer terms or coarser categories would help; nothing was clipped to force an answer."
        )
    return found


def _newton(family: Family, Z: Floats, counts: Floats, beta: Floats, steps: int) -> tuple[Floats, float]:
    """Return the parameters after at most `steps` Newton steps, and the length of the last step."""
    length = np.inf
    for _ in range(steps):
        psi, information, _ = score(family, Z, counts, beta)
        try:
            step = np.linalg.solve(information, psi.T @ counts.ravel())
        except np.linalg.LinAlgError:
            return beta, np.inf
        length = float(np.abs(step).max(initial=0.0))
        if not np.isfinite(length) or np.abs(Z @ beta).max(initial=0.0) > 3 * BEYOND:
            return beta, np.inf
        beta = beta + step * min(1.0, LONGEST / max(length, 1e-300))
        if length < CLOSE:
            break
    return beta, length


def steadiness(information: Floats, bends: Floats, variance: Callable[[Floats], float]) -> tuple[str, ...]:
    """Raise NotConverged if the information is not positive; return a note if its sign is uncertain.

    `bends` is the contribution of each cell to the information, and `variance` returns the variance of a
    weighted sum of the cells.
    """
    scale = 1 / np.sqrt(np.maximum(np.diag(information), 1e-300))
    least, directions = np.linalg.eigh(information * np.outer(scale, scale))
    way = directions[:, 0] * scale
    if least[0] <= 0:
        raise NotConverged(
            "This regression cannot be fitted to these counts: the root of the corrected score is not a "
            "maximum. More records, fewer terms or coarser categories would help; nothing was clipped to "
            "force an answer."
        )
    error = np.sqrt(max(variance(np.einsum("cpq,p,q->c", bends, way, way)), 0.0))
    sigmas = least[0] / error if error > 0 else np.inf
    if sigmas >= STEADY:
        return ()
    said = (
        f"Doubtful: the smallest eigenvalue of the information is {sigmas:.1f} standard errors from 0; "
        "intervals may be too short. More records or fewer terms are needed."
    )
    return (said,)
