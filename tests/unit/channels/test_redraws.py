"""Votes that are redrawn: the accountant against exact distributions, its figures, and what it refuses."""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from masquerade.channels.noise.accountant import compose_losses
from masquerade.channels.noise.redraws import BITS, RedrawTerms, redraw_losses
from masquerade.core.errors import InputError
from masquerade.plan import central_epsilon
from masquerade.protocols.frequency_mining.vote_noise import redrawn_cell


def counts_of(truths, cells, lies):
    """Return the exact distribution of the counts of people with these truths, by counts."""
    found = {(0,) * cells: 1.0}
    for truth in truths:
        after = {}
        for counts, chance in found.items():
            for cell in range(cells):
                share = lies / cells + (1 - lies) * (cell == truth)
                more = tuple(count + (i == cell) for i, count in enumerate(counts))
                after[more] = after.get(more, 0.0) + chance * share
        found = after
    return found


def exact_delta(first, second, tables, epsilon):
    """Return δ of independent tables, by the sum over all outcomes."""
    ratios = [(chance, second[counts]) for counts, chance in first.items()]
    total = 0.0
    for chosen in product(ratios, repeat=tables):
        a, b = (math.prod(pair[side] for pair in chosen) for side in (0, 1))
        total += max(a - math.exp(epsilon) * b, 0.0)
    return total


@pytest.mark.parametrize(("cells", "lies", "tables"), [(2, 0.3, 1), (2, 0.5, 2), (3, 0.4, 1), (3, 0.6, 2)])
def test_accountant_is_above_the_exact_delta_of_any_crowd(cells, lies, tables):
    """Whatever the truths of four others, the counts of five people reveal at most what is claimed."""
    claimed = compose_losses([(redraw_losses(lies / cells, 5, cells), tables)])
    for others in product(range(cells), repeat=4):
        if list(others) != sorted(others):
            continue  # the order of people does not matter
        first, second = (counts_of((truth, *others), cells, lies) for truth in (0, 1))
        for epsilon in (0.1, 0.5, 1.0, 1.8):
            assert exact_delta(first, second, tables, epsilon) <= claimed.delta(epsilon) + 1e-12


@pytest.mark.parametrize(("honest", "cells", "rate"), [(40, 2, 0.1), (300, 4, 0.05), (3000, 3, 0.01)])
def test_losses_are_those_of_the_clones(honest, cells, rate):
    """A second implementation, over all numbers of clones; rounding them down costs less than 1%."""
    gamma = 1 / rate - cells + 1
    alpha, inside = gamma / (gamma + 1), 1 - (cells - 2) * rate
    claimed = compose_losses([(redraw_losses(rate, honest, cells), 1)])
    for epsilon in (0.05, 0.2, 0.6):
        direct = 0.0
        for clones in range(honest):
            chance = stats.binom.pmf(clones, honest - 1, 2 * rate)
            if chance < 1e-14:
                continue
            x = np.arange(clones + 2)
            one, none = stats.binom.pmf(x - 1, clones, 0.5), stats.binom.pmf(x, clones, 0.5)
            gap = alpha * one + (1 - alpha) * none - math.exp(epsilon) * ((1 - alpha) * one + alpha * none)
            direct += chance * inside * np.maximum(gap, 0).sum()
        assert direct * (1 - 1e-9) <= claimed.delta(epsilon) <= direct * 1.05 + 1e-12


@pytest.mark.parametrize(("epsilon", "n", "cells"), [(2.0, 1000, 4), (3.0, 10_000, 2)])
def test_one_table_is_within_the_published_bound(epsilon, n, cells):
    rate = 1 / (math.exp(epsilon) + cells - 1)
    mine = compose_losses([(redraw_losses(rate, n, cells), 1)]).epsilon(1e-6)
    assert 0.8 < mine / central_epsilon(epsilon, n, 1e-6, cells) < 1.01


@pytest.mark.parametrize(("tables", "published"), [(10, 0.144), (45, 0.41)])
def test_lies_of_ten_thousand_people_are_below_the_published_ones(tables, published):
    """A substituted answer outside both cells reveals nothing, which the published figures omit."""
    terms = RedrawTerms(1, tables, contributors=9500, colluders=1000, cells=4)
    assert 0.88 * published < terms.lies(4) < published


def test_terms_keep_their_promise_tightly():
    terms = RedrawTerms(1, 10, contributors=950, colluders=100, cells=2)
    assert 0.99 < terms.epsilon_with(terms.honest) <= 1
    assert terms.epsilon_with(950) < 0.97 < 1.05 < terms.epsilon_with(600)
    assert terms.epsilon_with(0) == math.inf
    assert 1 < terms.epsilon_with(terms.honest, gamma=3.0) < 1 + math.log(3)
    larger = RedrawTerms(1, 10, contributors=950, colluders=100, cells=5)
    assert larger.rate < terms.rate  # larger tables alone need fewer lies


@pytest.mark.parametrize("cells", [2, 3, 4, 7])
def test_larger_tables_at_the_same_rate_reveal_less(cells):
    claimed, larger = (compose_losses([(redraw_losses(0.04, 500, size), 8)]) for size in (cells, cells + 2))
    for delta in (1e-3, 1e-6, 1e-9):
        assert larger.epsilon(delta) <= claimed.epsilon(delta)


def test_terms_survive_plain_values():
    terms = RedrawTerms(2, 5, contributors=900, colluders=30, cells=3)
    assert RedrawTerms.from_dict(terms.to_dict()) == terms


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"contributors": 30, "colluders": 3, "tables": 5000}, "too few"),
        ({"contributors": 900, "delta": 0.0}, "δ above 0"),
        ({"contributors": 900, "tables": [(5, 0.5), (5, 0.5)]}, "number of tables"),
        ({"contributors": 900, "cells": 1}, "at least 2 cells"),
        ({"contributors": 900, "delta": 1e-12}, "precision"),
    ],
)
def test_terms_refuse_what_cannot_be_promised(options, text):
    with pytest.raises(InputError, match=text):
        _ = RedrawTerms(**({"epsilon": 1, "tables": 10} | options)).weight


def test_nothing_is_added_to_votes():
    terms = RedrawTerms(1, 10, contributors=900)
    [stage] = terms.stages
    for ask in (stage.losses, lambda: terms.shares(stage)):
        with pytest.raises(InputError, match="redrawn"):
            ask()


def test_words_draw_every_cell_exactly_as_often_as_stated():
    """Each cell has `weight` words in a row, and the truth has the rest."""
    weight, cells = (1 << BITS) // 10, 7
    for cell in range(cells):
        assert redrawn_cell(3, cells, weight, cell * weight) == cell
        assert redrawn_cell(3, cells, weight, (cell + 1) * weight - 1) == cell
    assert (
        redrawn_cell(3, cells, weight, cells * weight) == redrawn_cell(3, cells, weight, (1 << BITS) - 1) == 3
    )
