"""Random projections that preserve inner products of columns: rotations exactly, Gaussian ones nearly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from masquerade.core.axes import Floats

Normals = Callable[[int], Floats]
AT_ONCE = 64  # reflections whose random numbers are drawn in one batch
BLOCK = 1 << 21  # random numbers of a Gaussian matrix held in memory


def rotate(columns: Floats, normals: Normals) -> Floats:
    """Return columns (one per row) multiplied by a uniformly random orthogonal matrix (Haar).

    Formula: the Q of QR of a Gaussian matrix with the signs of R's diagonal made positive, applied as its
    reflections: B_n (1 ⊕ B_{n−1}) (I₂ ⊕ B_{n−2}) …, where the first column of B_l is a uniform direction.
    Reference: Stewart (1980); Mezzadri (2007).
    Cost: O(n²) random numbers and O(n² · columns) time for n records, but only O(n · columns) memory.
    Error: rounding only, about √n · 1e-16 of a column's length.
    """
    turned = np.array(columns, dtype=np.float64)
    records = turned.shape[1]
    for direction in directions(records, normals):
        tail = turned[:, records - len(direction) :]
        sign = 1.0 if direction[0] >= 0 else -1.0
        direction[0] += sign * np.linalg.norm(direction)  # of the two reflections, the stable one
        tail -= np.outer(tail @ direction * (2 / (direction @ direction)), direction)
        tail *= -sign
    return turned


def directions(records: int, normals: Normals) -> Iterator[Floats]:
    """Yield Gaussian vectors of lengths 1, 2, … up to the number of records."""
    for start in range(1, records + 1, AT_ONCE):
        lengths = np.arange(start, min(start + AT_ONCE, records + 1))
        yield from np.split(normals(int(lengths.sum())), np.cumsum(lengths)[:-1])


@dataclass(frozen=True, slots=True)
class RandomProjection:
    """A double projection by a p × n and then a k × p Gaussian matrix, averaged over independent trials."""

    p: int
    k: int
    trials: int = 1

    @property
    def pairing(self) -> float:
        """Return the factor f of (x·x′)(y·y′) + (x·y′)(x′·y) in `inner_product_covariance`."""
        return (1 / self.k + 1 / self.p + 1 / (self.k * self.p)) / self.trials

    @property
    def scaling(self) -> float:
        """Return the factor g of (x·y)(x′·y′) in `inner_product_covariance`."""
        return 2 / (self.k * self.p) / self.trials

    def project(self, columns: Floats, normals: Normals) -> Floats:
        """Project columns (one per row) to trials · k dimensions; their inner products stay unbiased.

        Cost: O(trials · p · n) random numbers, O(trials · p · n · columns) time, and memory for one block of
        random numbers.
        """
        records = columns.shape[1]
        rows = max(BLOCK // max(records, 1), 1)
        parts = []
        for _ in range(self.trials):
            inner = [
                normals(size * records).reshape(size, records) @ columns.T
                for size in (min(rows, self.p - start) for start in range(0, self.p, rows))
            ]
            outer = normals(self.k * self.p).reshape(self.k, self.p)
            parts.append(outer @ np.concatenate(inner))
        return np.asarray(np.concatenate(parts).T / np.sqrt(self.trials * self.k * self.p))


def inner_product_covariance(
    reduction: RandomProjection, own: Floats | float, swapped: Floats | float, crossed: Floats | float
) -> Floats | float:
    """Return the covariance of the estimates of x·y and x′·y′.

    Formula: f(own + swapped) + g·crossed with own = (x·x′)(y·y′), swapped = (x·y′)(x′·y) and
    crossed = (x·y)(x′·y′); f = 1/k + 1/p + 1/kp and g = 2/kp, both divided by the number of trials. For
    x = x′ and y = y′ this is [ab + c² + (ab + 3c²)/p]/k + (ab + c²)/p with a = ‖x‖², b = ‖y‖², c = x·y.
    Reference: second moments of two nested Wishart matrices.
    """
    return reduction.pairing * (own + swapped) + reduction.scaling * crossed


def inner_product_covariance_from_estimates(
    reduction: RandomProjection, own: Floats | float, swapped: Floats | float, crossed: Floats | float
) -> Floats | float:
    """Estimate `inner_product_covariance` without bias from estimated products; `own` must be exact.

    Formula: with q the products of estimates, E q_crossed = crossed + covariance and E q_swapped = swapped +
    f(own + crossed) + g·swapped; the equations are solved for the sum and the difference.
    """
    f, g = reduction.pairing, reduction.scaling
    both = (swapped + crossed - 2 * f * own) / (1 + g + f)
    difference = (crossed - swapped) / (1 + g - f)
    return inner_product_covariance(reduction, own, (both - difference) / 2, (both + difference) / 2)
