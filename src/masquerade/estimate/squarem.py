"""Accelerated EM steps that never lower the likelihood."""

from __future__ import annotations

import numpy as np

from masquerade.estimate.likelihood import Likelihood, Point


def squarem_step(model: Likelihood, point: Point) -> Point:
    """Take two EM steps, extrapolate along them, and keep whichever point is likelier.

    Formula: N ← N − 2αr + α²v with r = EM(N) − N, v = (EM∘EM)(N) − EM(N) − r, α = −|r|/|v|; α is halved
    towards −1 (plain EM) until no cell that was positive is used up.
    Reference: Varadhan & Roland (2008), scheme S3; monotone safeguard by comparison with plain EM.
    Cost: two or three evaluations of the likelihood.
    Error: none of its own; the deviance of the result is at most that of `point`.
    """
    first = model.at(point.counts * point.pull)
    second = first.counts * first.pull
    r = first.counts - point.counts
    v = second - first.counts - r
    curvature = float(np.linalg.norm(v))
    if curvature > 0:
        alpha = min(-1.0, -float(np.linalg.norm(r)) / curvature)
        for _ in range(8):
            if alpha > -1.01:
                break
            jumped = point.counts - 2 * alpha * r + alpha**2 * v
            # Plain EM can never bring a cell back from zero, so none may be jumped onto it.
            if np.all((jumped > 0) | (second <= 0)):
                candidate = model.normalised(np.maximum(jumped, 0.0))
                if model.change(first, candidate) <= 0:
                    return candidate
                break
            alpha = (alpha - 1) / 2
    plain = model.at(second)
    # Rounding alone can make an EM step look worse; then stay.
    return plain if model.change(point, plain) <= 0 else point
