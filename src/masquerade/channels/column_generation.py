"""Staircase designs for more than ten categories by column generation.

The convex program of `staircase` is solved over a few hundred columns. Its multipliers price all other
columns, and a search adds columns with a positive gain until it finds no more. With many categories, the
first columns come from the same problem with neighbouring categories merged in pairs, which is smaller.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from masquerade.channels.staircase import DesignProblem, DesignSolution, sandwich, solve
from masquerade.core.axes import Floats

PRECISE = 1e-5  # the search ends when better columns can gain less than this share of the value
MOST_PRICED = 20  # up to this number of categories every column is priced, which proves the bound
ROUGH = 2e-2  # tolerance above MOST_PRICED categories, within MOST_ROUGH rounds
ROUNDS, FEW_ROUNDS, MOST_ROUGH = 40, 10, 28
CHUNK = 1 << 16
STARTS = 600  # starting points of the search for columns, per round
NEW = 250  # most columns added per round

Blocks = NDArray[np.bool_]


def design_columns(
    prior: Floats, wanted: Floats, gamma: float, *, rough: bool = False
) -> tuple[Blocks, DesignSolution, float | None]:
    """Return blocks (rows: the categories with weight γ), their weights, and a lower bound, None if unproved.

    A `rough` design is a starting point for further optimisation. Cost: a second for 16 categories, several
    seconds for 32, minutes for 128. Error: above 20 categories the search stops after a fixed number of
    rounds, about 1% above the optimum.
    """
    size = len(prior)
    first = [np.eye(size, dtype=bool), np.tri(size, dtype=bool)[:-1]]
    if size <= MOST_PRICED and not rough:
        return generate(prior, wanted, gamma, np.concatenate(first))
    if size > MOST_PRICED:
        pair = np.arange(size) // 2
        together = (pair[:, None] == np.arange(pair[-1] + 1)).astype(float)
        evenly = together / together.sum(axis=0)
        blocks, solution, _ = design_columns(prior @ together, evenly.T @ wanted @ evenly, gamma, rough=True)
        carried = blocks[solution.weights > ROUGH / 10 * solution.weights.max()][:, pair]
        first = [carried, np.roll(carried, 1, axis=1), first[1]]
    rounds = FEW_ROUNDS if rough else MOST_ROUGH
    return generate(prior, wanted, gamma, np.concatenate(first), tolerance=ROUGH, rounds=rounds)


def generate(
    prior: Floats,
    wanted: Floats,
    gamma: float,
    first: Blocks,
    *,
    tolerance: float = PRECISE,
    rounds: int = ROUNDS,
) -> tuple[Blocks, DesignSolution, float | None]:
    """Return the design that column generation reaches from the `first` blocks; see `design_columns`.

    Formula: a column s has a positive gain if sᵀBs/(sᵀθ) > μᵀs, with prior θ, multipliers μ and B = M⁻¹AM⁻¹
    as in `staircase`. Columns are searched for by single changes from many starts.
    Reference: Desaulniers, Desrosiers & Solomon (2005) for the method; Dette, Pepelyshev & Zhigljavsky (2013)
    for its use on designs.
    Cost: minutes for 32 categories. Error: at most value − bound above the optimum, if the bound is proved.
    """
    blocks = _unique(np.concatenate([first, ~first]))
    problem = DesignProblem(_levels(blocks, gamma), prior, wanted)
    loose = max(1e-2, tolerance)
    while True:
        solution = solve(problem, loose)
        rounds -= 1
        mu = solution.multipliers
        middle = sandwich(problem, solution.weights)
        # a rough solution puts small weights on many columns, which only slow down the next solution
        heavy = solution.weights > max(0.2 * loose, 1e-7) * solution.weights.max()
        starts = _starts(blocks[heavy], rounds)
        found, gains = _search(starts, gamma, prior, middle, mu)
        helpful = gains > 0.1 * tolerance * solution.value / len(prior)
        order = np.argsort(-gains[helpful], kind="stable")
        new = _without(_unique(found[helpful][order]), blocks)[:NEW]
        # relative decrease of the bound: the share of the value that better columns may still gain
        raised = gains / _levels(found, gamma).sum(axis=1)
        worst = float(raised.max()) * len(prior) / solution.value
        if rounds <= 0 or (loose <= tolerance and (not len(new) or worst < tolerance)):
            break
        loose = min(max(worst / 20, tolerance / 2), loose)
        if len(new):
            blocks = np.concatenate([blocks[heavy], new, ~new])
            blocks = _unique(blocks)
            problem = replace(problem, columns=_levels(blocks, gamma))
    bound = proved_bound(problem, solution, gamma) if len(prior) <= MOST_PRICED else None
    return blocks, solution, bound


def proved_bound(problem: DesignProblem, solution: DesignSolution, gamma: float) -> float:
    """Return a lower bound of the value of every channel with this γ; all 2^K columns are priced."""
    size = len(problem.prior)
    middle, mu = sandwich(problem, solution.weights), solution.multipliers
    lift = 0.0
    for start in range(0, 2**size - 1, CHUNK):
        codes = np.arange(start, min(start + CHUNK, 2**size - 1))
        columns = 1.0 + (gamma - 1.0) * ((codes[:, None] >> np.arange(size)) & 1)
        gains = ((columns @ middle) * columns).sum(axis=1) / (columns @ problem.prior) - columns @ mu
        lift = max(lift, float(np.max(gains / columns.sum(axis=1))))
    return 2 * problem.value(solution.weights) - float(mu.sum()) - lift * size


def _levels(blocks: Blocks, gamma: float) -> Floats:
    return np.where(blocks, gamma, 1.0)


def _starts(kept: Blocks, rounds: int) -> Blocks:
    """Return start blocks of the search: blocks in use with small changes, runs, and scattered categories.

    The starts are quasi-random (multiples of irrational numbers) and differ between rounds, so the same
    problem always gives the same design.
    """
    third, size = STARTS // 3, kept.shape[1]
    turns = np.arange(third)[:, None] + third * rounds
    first, second = (_spread(turns * root) for root in (math.sqrt(2), math.sqrt(3)))
    scattered = _spread((turns * size + np.arange(size)) * math.sqrt(5))
    near = kept[(first[:, 0] * len(kept)).astype(int)] ^ (scattered < 1.5 / size)
    runs = (np.arange(size) - (first * size).astype(int)) % size < 1 + (second * (size - 1)).astype(int)
    return np.concatenate([near, runs, _spread(scattered * 997) < 0.05 + 0.55 * second])


def _spread(values: ArrayLike) -> Floats:
    """Return the fractional parts of the numbers."""
    return np.asarray(np.mod(values, 1.0), dtype=np.float64)


def _search(blocks: Blocks, gamma: float, prior: Floats, middle: Floats, mu: Floats) -> tuple[Blocks, Floats]:
    """Return local maxima of the gain h(s) = sᵀBs/(sᵀθ) − μᵀs under changes of one category, and their h."""
    columns = _levels(blocks, gamma)
    rows = np.arange(len(columns))
    for _ in range(4 * len(prior)):
        product = columns @ middle
        form, mean = (product * columns).sum(axis=1), columns @ prior
        change = np.where(columns > 1.0, 1.0 - gamma, gamma - 1.0)
        after = form[:, None] + 2 * change * product + change**2 * np.diag(middle)
        gain = after / (mean[:, None] + change * prior) - change * mu - (form / mean)[:, None]
        best = gain.argmax(axis=1)
        rising = gain[rows, best] > 1e-12 * np.abs(form / mean)
        if not rising.any():
            break
        columns[rows[rising], best[rising]] += change[rows[rising], best[rising]]
    gains = ((columns @ middle) * columns).sum(axis=1) / (columns @ prior) - columns @ mu
    return columns > (1.0 + gamma) / 2, gains


def _unique(blocks: Blocks) -> Blocks:
    """Return distinct blocks in order of first appearance, without full and empty blocks.

    Both give constant columns: reports that are equally likely for all truths and reveal nothing.
    """
    inner = blocks[blocks.any(axis=1) & ~blocks.all(axis=1)]
    packed = np.packbits(inner, axis=1)
    _, places = np.unique(packed, axis=0, return_index=True)
    return np.asarray(inner[np.sort(places)])


def _without(blocks: Blocks, known: Blocks) -> Blocks:
    have = {row.tobytes() for row in known}
    fresh = [row for row in blocks if row.tobytes() not in have]
    return np.array(fresh, dtype=bool).reshape(len(fresh), known.shape[1])
