"""Select-a-size, as docs/from-the-papers.md builds it: its γ, and what can be estimated from its reports."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product
from math import comb, inf
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

import masquerade as mq

PAGE = Path(__file__).parents[2] / "docs" / "from-the-papers.md"
ALARM = 1e-6
ITEMS = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def select_a_size():
    """Return the function of the page."""
    page = PAGE.read_text("utf-8")
    pattern = r"^def select_a_size.*?return mq\.channels\.matrix\(rows\)$"
    [source] = re.findall(pattern, page, re.MULTILINE | re.DOTALL)
    names = {"mq": mq, "product": product, "comb": comb}
    exec(source, names)  # noqa: S102  (our own page)
    return names["select_a_size"]


def even(items):
    """Return equal probabilities to keep j of m items."""
    return [[Fraction(1, m + 1)] * (m + 1) for m in range(items + 1)]


def gamma_by_sizes(items, kept, added):
    """Return γ: a report of r items is given by the size of a basket and of what they share alone."""
    worst = Fraction(1)
    for r in range(items + 1):
        chances = [
            kept[m][j] / comb(m, j) * added ** (r - j) * (1 - added) ** (items - m - r + j)
            for m in range(items + 1)
            for j in range(max(0, m + r - items), min(m, r) + 1)
        ]
        worst = max(worst, max(chances) / min(chances))
    return worst


@pytest.mark.parametrize("items", [1, 2, 4])
@pytest.mark.parametrize("added", [Fraction(1, 10), Fraction(1, 3), Fraction(1, 2)])
def test_gamma_of_select_a_size_is_finite(select_a_size, items, added):
    channel = select_a_size(items, even(items), added)
    assert channel.gamma == gamma_by_sizes(items, even(items), added) < inf


def test_gamma_of_select_a_size_is_infinite_if_nothing_may_be_lost(select_a_size):
    kept = [[Fraction(int(j == m)) for j in range(m + 1)] for m in range(3)]
    assert select_a_size(2, kept, Fraction(1, 4)).gamma == inf


def test_every_table_is_estimated_from_select_a_size(select_a_size):
    """26 cells of four tables; a false alarm of any has a probability of 1e-6."""
    kept = [[Fraction(2 * (j + 1), (m + 1) * (m + 2)) for j in range(m + 1)] for m in range(5)]
    channel = select_a_size(len(ITEMS), kept, Fraction(1, 5))
    policy = mq.Policy.build(dict.fromkeys(ITEMS, (True, False)), {ITEMS: channel})
    generator = np.random.default_rng(8)
    first = generator.random(30_000) < 0.3
    clear = pd.DataFrame(
        {
            "a": first,
            "b": first ^ (generator.random(30_000) < 0.1),
            "c": generator.random(30_000) < 0.6,
            "d": first & (generator.random(30_000) < 0.5),
        }
    )
    source = mq.tally(mq.simulate(clear, policy, 9), policy)
    truth = mq.tally(clear, schema=policy.schema)
    queries = [mq.Query(by=names) for names in (("a",), ("b", "a"), ("a", "d"), ITEMS)]
    cells, bound = 0, NormalDist().inv_cdf(1 - ALARM / 52)
    for estimate, exact in zip(source.answer(queries), truth.answer(queries), strict=True):
        gap = np.abs(estimate.values - exact.values) / estimate.stderr()
        assert gap.max() < bound
        cells += gap.size
    assert cells == 26
