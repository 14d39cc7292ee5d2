"""Arithmetic modulo the Mersenne prime 2⁶¹ − 1, for many small polynomials together.

Elements are ``uint64`` below the prime. Products are computed in 31-bit halves so that nothing overflows;
reduction is a shift and an addition, because 2⁶¹ ≡ 1. Nothing here is constant-time: the caller already holds
the shares.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from masquerade.kernels.jit import compiled

PRIME: Final = 2**61 - 1
Elements: TypeAlias = NDArray[np.uint64]

_P = np.uint64(PRIME)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_LOW31, _LOW30 = np.uint64(2**31 - 1), np.uint64(2**30 - 1)
_30, _31, _61 = np.uint64(30), np.uint64(31), np.uint64(61)


@compiled
def reduce(a: np.uint64) -> np.uint64:
    """Return any 64-bit number modulo the prime."""
    folded = (a >> _61) + (a & _P)
    return folded - _P if folded >= _P else folded


@compiled
def add(a: np.uint64, b: np.uint64) -> np.uint64:
    """Return a + b."""
    total = a + b
    return total - _P if total >= _P else total


@compiled
def sub(a: np.uint64, b: np.uint64) -> np.uint64:
    """Return a − b."""
    return a - b if a >= b else a + _P - b


@compiled
def mul(a: np.uint64, b: np.uint64) -> np.uint64:
    """Return a·b with a = a₁2³¹ + a₀ and b likewise: 2⁶²a₁b₁ ≡ 2a₁b₁, the middle terms split at bit 30."""
    a1, a0, b1, b0 = a >> _31, a & _LOW31, b >> _31, b & _LOW31
    middle = a0 * b1 + a1 * b0
    return reduce(((a1 * b1) << _ONE) + (middle >> _30) + ((middle & _LOW30) << _31) + a0 * b0)


@compiled
def inverse(a: np.uint64) -> np.uint64:
    """Return 1/a = a^(p−2) for a ≠ 0; p − 2 has ones everywhere except in bit 1."""
    result, power = _ONE, a
    for bit in range(61):
        if bit != 1:
            result = mul(result, power)
        power = mul(power, power)
    return result


@compiled
def fold_pairs(low: Elements, high: Elements) -> Elements:
    """Return (high·2⁶⁴ + low) modulo the prime: 128 uniform bits become an element with a bias of 2⁻⁶⁷."""
    folded = np.empty(low.size, dtype=np.uint64)
    for i in range(low.size):
        folded[i] = add(mul(reduce(high[i]), np.uint64(8)), reduce(low[i]))
    return folded


@compiled
def lagrange_at_zero(xs: Elements, ys: Elements, starts: NDArray[np.int64], k: int) -> Elements:
    """Return the values at 0 of the polynomials through k points each: (groups, limbs).

    Group g has the points ``starts[g] … starts[g] + k − 1``, with distinct nonzero x; ys is (points, limbs).

    Formula: Σ_i y_i·λ_i, λ_i = Π_{j≠i} x_j/(x_j − x_i) = Πx / (x_i·Π_{j≠i}(x_j − x_i)); one inversion per
    group.
    Cost: k² products per group, whatever the number of limbs.
    """
    limbs = ys.shape[1]
    secrets = np.zeros((starts.size, limbs), dtype=np.uint64)
    below, before = np.empty(k, dtype=np.uint64), np.empty(k, dtype=np.uint64)
    for g in range(starts.size):
        points = xs[starts[g] : starts[g] + k]
        below[:] = points
        product, running = _ONE, _ONE
        for j in range(k):
            x = points[j]
            product = mul(product, x)
            for i in range(k):  # independent products, which the processor computes in parallel
                below[i] = mul(below[i], sub(x, points[i]) if i != j else _ONE)
        for i in range(k):
            before[i] = running
            running = mul(running, below[i])
        inverted = inverse(running)
        for i in range(k - 1, -1, -1):
            weight = mul(product, mul(inverted, before[i]))
            inverted = mul(inverted, below[i])
            for limb in range(limbs):
                secrets[g, limb] = add(secrets[g, limb], mul(weight, ys[starts[g] + i, limb]))
    return secrets


@compiled
def evaluate(coefficients: Elements, xs: Elements, which: NDArray[np.int64]) -> Elements:
    """Return polynomial ``which[i]`` at ``xs[i]``, (points, limbs), by Horner's rule.

    Coefficients are (polynomials, k, limbs), the constant terms first.
    """
    _, k, limbs = coefficients.shape
    values = np.zeros((xs.size, limbs), dtype=np.uint64)
    for i in range(xs.size):
        x, terms, value = xs[i], coefficients[which[i]], values[i]
        for power in range(k - 1, -1, -1):
            for limb in range(limbs):
                value[limb] = add(mul(value[limb], x), terms[power, limb])
    return values


@compiled
def _degree(a: Elements, top: int) -> int:
    """Return the degree of a polynomial stored up to `top`; −1 for zero."""
    while top >= 0 and a[top] == _ZERO:
        top -= 1
    return top


@compiled
def _divide(a: Elements, top_a: int, b: Elements, top_b: int, quotient: Elements) -> int:
    """Divide a by b in place: a becomes the remainder, whose degree is returned."""
    lead = inverse(b[top_b])
    quotient[:] = _ZERO
    while top_a >= top_b:
        shift = top_a - top_b
        factor = mul(a[top_a], lead)
        quotient[shift] = factor
        for j in range(top_b + 1):
            a[shift + j] = sub(a[shift + j], mul(factor, b[j]))
        top_a = _degree(a, top_a)
    return top_a


@compiled
def _vanishing_polynomial(xs: Elements) -> Elements:
    """Return the coefficients of Π (X − x_i)."""
    product = np.zeros(xs.size + 1, dtype=np.uint64)
    product[0] = _ONE
    for i in range(xs.size):
        minus = sub(_ZERO, xs[i])
        for j in range(i + 1, 0, -1):
            product[j] = add(product[j - 1], mul(product[j], minus))
        product[0] = mul(product[0], minus)
    return product


@compiled
def _interpolate(xs: Elements, ys: Elements) -> Elements:
    """Return the polynomial through all points, by divided differences with one inversion per order."""
    m = xs.size
    differences = ys.copy()
    spans = np.empty(m, dtype=np.uint64)
    before = np.empty(m, dtype=np.uint64)
    for order in range(1, m):
        running = _ONE
        for i in range(order, m):
            spans[i] = sub(xs[i], xs[i - order])
            before[i] = running
            running = mul(running, spans[i])
        inverted = inverse(running)
        for i in range(m - 1, order - 1, -1):
            differences[i] = mul(sub(differences[i], differences[i - 1]), mul(inverted, before[i]))
            inverted = mul(inverted, spans[i])
    result = np.zeros(m + 1, dtype=np.uint64)
    for i in range(m - 1, -1, -1):
        minus = sub(_ZERO, xs[i])
        for j in range(m - 1 - i, 0, -1):
            result[j] = add(result[j - 1], mul(result[j], minus))
        result[0] = add(mul(result[0], minus), differences[i])
    return result


@compiled
def decode(xs: Elements, ys: Elements, k: int) -> tuple[bool, Elements]:
    """Return True and the coefficients if a polynomial of degree < k fits all but (m − k)/2 of m points.

    There is at most one such polynomial. The x must be distinct.

    Formula: with g₀ = Π(X − x_i) and g₁ the polynomial through all points, Euclid's extended algorithm for
    g = u·g₀ + v·g₁ stops at the first g of degree below (m + k)/2; the result is g/v if this division leaves
    no remainder.
    Reference: Gao, A new algorithm for decoding Reed–Solomon codes (2003).
    Cost: O(m²) products.
    """
    m = xs.size
    last, now = _vanishing_polynomial(xs), _interpolate(xs, ys)
    v_last, v_now = np.zeros(m + 1, dtype=np.uint64), np.zeros(m + 1, dtype=np.uint64)
    v_now[0] = _ONE
    quotient = np.zeros(m + 1, dtype=np.uint64)
    top_last, top_now, top_v_last, top_v = m, _degree(now, m), -1, 0
    while 2 * top_now >= m + k:
        top_rest = _divide(last, top_last, now, top_now, quotient)
        top_quotient = top_last - top_now
        for i in range(top_quotient + 1):
            for j in range(top_v + 1):
                v_last[i + j] = sub(v_last[i + j], mul(quotient[i], v_now[j]))
        v_last, v_now = v_now, v_last
        top_v_last, top_v = top_v, max(top_v_last, top_quotient + top_v)
        last, now = now, last
        top_last, top_now = top_now, top_rest
    coefficients = np.zeros(k, dtype=np.uint64)
    top_v = _degree(v_now, top_v)
    rest = _divide(now, top_now, v_now, top_v, quotient)
    found = rest < 0 and (top_now < 0 or top_now - top_v < k)
    if found:
        coefficients[:] = quotient[:k]
    return found, coefficients


@compiled
def subtract_rows(rows: Elements, pivots: NDArray[np.int64], vector: Elements) -> int:
    """Reduce a vector by the rows, in place; return its first nonzero column, −1 if none.

    Each row has 1 in its pivot column, where all other rows have 0, so one pass is enough.
    """
    for r in range(pivots.size):
        factor = vector[pivots[r]]
        if factor != _ZERO:
            row = rows[r]
            for c in range(vector.size):
                if row[c] != _ZERO:
                    vector[c] = sub(vector[c], mul(factor, row[c]))
    for c in range(vector.size):
        if vector[c] != _ZERO:
            return c
    return -1


@compiled
def append_row(rows: Elements, rank: int, vector: Elements, pivot: int) -> None:
    """Append the vector left by `subtract_rows` to the first `rank` rows; clear its pivot column there."""
    lead = inverse(vector[pivot])
    last = rows[rank]
    for c in range(vector.size):
        last[c] = mul(lead, vector[c]) if vector[c] != _ZERO else _ZERO
    for r in range(rank):
        row = rows[r]
        factor = row[pivot]
        if factor != _ZERO:
            for c in range(vector.size):
                if last[c] != _ZERO:
                    row[c] = sub(row[c], mul(factor, last[c]))
