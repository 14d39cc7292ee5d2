"""Standard errors of networks that EM estimates from tables with missing answers.

The observed information is the information of complete answers minus the information that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from masquerade.core.axes import Floats

MOST_NUMBERS = 1 << 25  # most parameters times cells for which the observed information is computed
LEAST_SHARE = 1e-7  # least share of the information of complete answers that counts as information
LEAST_VALUE = 1e-12  # least eigenvalue, relative to the largest, of the complete information


class ObservedErrors:
    """Standard errors of a network from the observed information of a table with missing answers.

    Parameters
    ----------
    chances : mapping of str to array
        P(node | parents), the parents as leading axes.
    places : mapping of str to sequence of int
        Axes of the parents and the node in the joint distribution.
    joint : array
        Probability of each combination of answers, with one axis per variable.
    agrees : array
        1 where a combination of answers agrees with a cell of the table, else 0; one row per cell.
    counts : array
        Number of records in each cell of the table.
    prior : float
        Pseudo-count added to every cell of a family.

    Notes
    -----
    Formula (Louis 1982): I = Σ_r n_r [E(B | r) − V(s | r)] over the cells r of the table, where s is the
    score of complete answers in the logits of the network and B the information in them. With the second
    derivatives P of the prior, the covariance is (I + P)⁻¹ I (I + P)⁻¹.
    """

    def __init__(
        self,
        chances: Mapping[str, Floats],
        places: Mapping[str, Sequence[int]],
        joint: Floats,
        agrees: Floats,
        counts: Floats,
        *,
        prior: float,
    ) -> None:
        self.chances = chances
        posterior = agrees * joint.ravel()
        posterior /= np.maximum(posterior.sum(axis=1, keepdims=True), 1e-300)
        expected = counts @ posterior
        self.records = {
            name: _family(expected.reshape(joint.shape), axes).sum(axis=-1) for name, axes in places.items()
        }
        scores = np.concatenate([_scores(chances[name], axes, joint.shape) for name, axes in places.items()])
        means = scores @ posterior.T
        complete = _information(chances, self.records)
        observed = complete - (scores * expected) @ scores.T + (means * counts) @ means.T
        pulled = observed + _information(
            chances,
            {name: prior * table.shape[-1] * np.ones(table.shape[:-1]) for name, table in chances.items()},
        )
        values, vectors = np.linalg.eigh(complete)
        informed = values > LEAST_VALUE * max(float(values.max(initial=0.0)), 1.0)
        # times its transpose, it is the inverse of `complete`
        self._complete = vectors[:, informed] / np.sqrt(values[informed])
        shares, turns = np.linalg.eigh(self._complete.T @ observed @ self._complete)
        estimable = self._complete @ turns[:, shares > LEAST_SHARE]
        self._unestimable = self._complete @ turns[:, shares <= LEAST_SHARE]
        inverse = estimable @ np.linalg.pinv(estimable.T @ pulled @ estimable, hermitian=True) @ estimable.T
        self.covariance = np.asarray(inverse @ observed @ inverse)

    def tables(self) -> dict[str, Floats]:
        """Return the standard errors of all probabilities; infinite where the table has no information."""
        result, at = {}, 0
        for name, table in self.chances.items():
            rows, records = table.reshape(-1, table.shape[-1]), self.records[name].ravel()
            free = rows.shape[-1] - 1
            errors = np.empty(rows.shape)
            for i, row in enumerate(rows):
                slope, part = np.diag(row)[:, :free] - np.outer(row, row[:free]), slice(at, at + free)
                variance = np.einsum("kf,fg,kg->k", slope, self.covariance[part, part], slope)
                lost = ((slope @ self._unestimable[part]) ** 2).sum(axis=1)
                complete = ((slope @ self._complete[part]) ** 2).sum(axis=1)
                is_unknown = (lost > LEAST_SHARE * complete) | (records[i] <= LEAST_SHARE)
                errors[i] = np.where(is_unknown, np.inf, np.sqrt(np.maximum(variance, 0.0)))
                at += free
            result[name] = errors.reshape(table.shape)
        return result


def is_small_enough(chances: Mapping[str, Floats], combinations: int, cells: int) -> bool:
    """Return True if the matrices of the observed information fit into memory.

    Parameters
    ----------
    chances : mapping of str to array
        P(node | parents).
    combinations, cells : int
        Number of combinations of answers, and of cells of the table.
    """
    free = sum(table.size - prod(table.shape[:-1]) for table in chances.values())
    return free * max(combinations, cells, free) <= MOST_NUMBERS


def _family(joint: Floats, places: Sequence[int]) -> Floats:
    """Return the sums of a table over all axes but `places`, in the order of `places`."""
    others = tuple(axis for axis in range(joint.ndim) if axis not in places)
    return np.asarray(joint.sum(axis=others).transpose(np.argsort(np.argsort(places))))


def _scores(table: Floats, places: Sequence[int], shape: tuple[int, ...]) -> Floats:
    """Return ∂ log P(answers) / ∂ logits of a family, with one column per combination of answers."""
    codes = np.unravel_index(np.arange(prod(shape)), shape)
    rows = np.zeros(prod(shape), dtype=np.intp)
    for place, size in zip(places[:-1], table.shape[:-1], strict=True):
        rows = rows * size + codes[place]
    flat = table.reshape(-1, table.shape[-1])
    free = flat.shape[1] - 1
    result = np.zeros((len(flat), free, prod(shape)))
    cells = np.arange(prod(shape))
    for k in range(free):
        result[rows, k, cells] = (codes[places[-1]] == k) - flat[rows, k]
    return result.reshape(-1, prod(shape))


def _information(chances: Mapping[str, Floats], records: Mapping[str, Floats]) -> Floats:
    """Return the information about the logits in complete answers, by the number of records of each row."""
    blocks = [
        total * (np.diag(row[:-1]) - np.outer(row[:-1], row[:-1]))
        for name, table in chances.items()
        for row, total in zip(table.reshape(-1, table.shape[-1]), records[name].ravel(), strict=True)
    ]
    ends = np.cumsum([0, *map(len, blocks)])
    result = np.zeros((ends[-1], ends[-1]))
    for block, start in zip(blocks, ends, strict=False):
        result[start : start + len(block), start : start + len(block)] = block
    return result
