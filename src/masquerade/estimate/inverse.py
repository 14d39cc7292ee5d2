"""The inverse of a channel: the linear map from reports to unbiased counts."""

from __future__ import annotations

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import ChannelError, InputError, SingularChannel

UNRELATED = (
    "Answers that are reversed with probability 1/2 carry no information; the unrelated-question design "
    "(kind: unrelated_question) works for every p above 0."
)
SMALLEST_RATIO = 1e-12  # smaller singular values, relative to categories × the largest one, are treated as 0
ESTIMABLE = 1e-9  # a query is estimable if |P·G − L| is at most this: its weights are in the span of P
SAME_ROW = 1e-8  # truths whose report probabilities differ by less count as equal in the error message


def unbiased_map(P: Floats, prior: Floats | None = None) -> Floats:
    """Return the reports × truths matrix G with PG = I: the weight of a report in the count of a truth.

    Formula: G = P⁻¹ if P is square, else W⁻¹Pᵀ(PW⁻¹Pᵀ)⁻¹, W = diag(Pᵀθ0), where θ0 is the prior (uniform by
    default). Rows of G sum to 1, so totals are preserved; a report that no truth gives has a row of zeros.
    Reference: Agrawal & Haritsa (2005) for the inverse; Gauss–Markov (Aitken 1935) for W.
    Cost: O(M·K²) for M reports and K truths, once per variable.
    Error: exact up to rounding times the condition of P. G is unbiased for any truth, and has the least
    variance among the maps with PG = I if the truths are distributed as θ0.

    >>> unbiased_map(np.array([[0.75, 0.25], [0.25, 0.75]])).tolist()
    [[1.5, -0.5], [-0.5, 1.5]]
    """
    P = np.asarray(P, dtype=float)
    if P.ndim != 2 or P.shape[0] < 1:
        raise ChannelError(f"A channel is a matrix of truths × reports. Got the shape {P.shape} instead.")
    truths = P.shape[0]
    theta = _prior(prior, truths)
    possible = P.any(axis=0)
    seen = P[:, possible]
    _check_rank(seen)
    if seen.shape[1] == truths:
        inner = np.linalg.inv(seen)
    else:
        # QR of the weighted channel, because the normal equations would square its condition
        root = np.sqrt(theta @ seen)
        Q, R = np.linalg.qr((seen / root).T)
        inner = np.linalg.solve(R, Q.T).T / root[:, None]
    # spread the rounding error of each row's total evenly, so that totals are exact
    inner += (1.0 - inner.sum(axis=1, keepdims=True)) / truths
    G = np.zeros((P.shape[1], truths))
    G[possible] = inner
    return G


def generalised_map(P: Floats, prior: Floats | None = None) -> Floats:
    """Return W⁻¹Pᵀ(PW⁻¹Pᵀ)⁺ (reports × truths): `unbiased_map` for a channel of any rank.

    Formula: through the singular values of P·W^−½; values below 1e-12·K times the largest are treated as 0.
    For the summing matrix L of a query, G = W⁻¹Pᵀ(PW⁻¹Pᵀ)⁺L answers the query without bias if PG = L
    (`estimable`).
    Reference: Rao (1973) §4a for estimable functions; Gauss–Markov (Aitken 1935) for W.
    Cost: O(M·K²) for M reports and K truths, once per channel.
    Error: of the maps with PG = L, G has the least variance when the truths are distributed as the prior.

    >>> P = np.array([[0.75, 0.25], [0.25, 0.75], [0.25, 0.75]])
    >>> L = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> (generalised_map(P) @ L).round(12).tolist()
    [[1.5, -0.5], [-0.5, 1.5]]
    """
    P = np.asarray(P, dtype=float)
    truths = P.shape[0]
    possible = P.any(axis=0)
    seen = P[:, possible]
    if seen.shape[1] >= truths:
        singular = np.linalg.svd(seen, compute_uv=False)
        if singular[-1] >= SMALLEST_RATIO * truths * singular[0]:
            return unbiased_map(P, prior)
    root = np.sqrt(_prior(prior, truths) @ seen)
    G = np.zeros((P.shape[1], truths))
    G[possible] = np.linalg.pinv(seen / root, rcond=SMALLEST_RATIO * truths) / root[:, None]
    return G


def estimable(P: Floats, G: Floats, summing: Floats) -> bool:
    """Return True if G answers a query without bias for any truth: P·G = L, the query's summing matrix."""
    return bool(
        np.abs(P @ G - summing).max(initial=0.0) <= ESTIMABLE * max(1.0, float(np.abs(G).max(initial=0.0)))
    )


def _prior(prior: Floats | None, truths: int) -> Floats:
    if prior is None:
        return np.full(truths, 1.0 / truths)
    theta = np.asarray(prior, dtype=float)
    if theta.shape != (truths,) or not np.all(np.isfinite(theta)) or not np.all(theta > 0):
        raise InputError(f"The 'prior' of unbiased_map() must be {truths} positive probabilities.")
    return np.asarray(theta / theta.sum())


def _check_rank(seen: Floats) -> None:
    truths, reports = seen.shape
    if reports < truths:
        raise SingularChannel(
            f"The channel has fewer reports than categories ({reports} possible reports for {truths} "
            "categories): no counts can be estimated from them."
        )
    singular = np.linalg.svd(seen, compute_uv=False)
    if singular[-1] >= SMALLEST_RATIO * truths * singular[0]:
        return
    pair = _closest_rows(seen)
    if np.max(np.abs(seen[pair[0]] - seen[pair[1]])) <= SAME_ROW:
        raise SingularChannel(
            f"Two truths give the same reports (rows {pair[0] + 1} and {pair[1] + 1} of the channel): "
            "they cannot be distinguished. Lower the probability of change, or merge the two categories."
            + (f" {UNRELATED}" if truths == 2 else "")
        )
    raise SingularChannel(
        "The rows are linearly dependent: the reports of one truth are a mixture of those of others, so "
        "their counts cannot be separated. Change the channel's probabilities."
    )


def _closest_rows(seen: Floats) -> tuple[int, int]:
    squares = np.sum(seen**2, axis=1)
    distances = squares[:, None] + squares[None, :] - 2.0 * (seen @ seen.T)
    np.fill_diagonal(distances, np.inf)
    first, second = sorted(divmod(int(np.argmin(distances)), len(seen)))
    return first, second
