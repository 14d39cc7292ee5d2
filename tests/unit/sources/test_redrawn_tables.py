"""Consistent tables of redrawn answers: unbiased, with the covariance that they have, and consistent."""

import numpy as np
import pytest
from scipy import stats

import masquerade as mq
from masquerade.channels.noise.redraws import RedrawTerms
from masquerade.sources.noise.redrawn_tables import LinearNoise, RedrawnTables

N = 2000
SCHEMA = mq.Schema({"a": ["x", "y"], "b": [1, 2, 3], "c": ["p", "q"]})
TERMS = RedrawTerms(3, 6, contributors=N, colluders=100, cells=2)
TABLES = (("a", "b"), ("b", "c"), ("a", "c"), ("b",))


def truth():
    """Return counts of a × b × c: one cell has half of the people, one has none."""
    shares = np.arange(12, dtype=float).reshape(2, 3, 2) ** 2
    shares[1, 2, 1] = shares.sum()
    counts = np.floor(shares / shares.sum() * N).astype(int)
    counts[0, 1, 0] += N - counts.sum()
    return counts


def margin(names):
    return truth().sum(axis=tuple(i for i, name in enumerate(SCHEMA) if name not in names))


def drawn(names, rng):
    """Return counts of answers that everybody redraws."""
    exact = margin(names).ravel()
    lies = TERMS.lies(exact.size)
    chances = np.full((exact.size, exact.size), lies / exact.size) + (1 - lies) * np.eye(exact.size)
    counts = sum(rng.multinomial(n, row) for n, row in zip(exact, chances, strict=True))
    return np.asarray(counts).reshape(margin(names).shape)


def fused(rng, tables=TABLES):
    return RedrawnTables(SCHEMA, N, {mq.Query(by=names): drawn(names, rng) for names in tables}, TERMS)


@pytest.mark.parametrize("names", [("a", "b"), ("b",), ("c",), ("b", "c")])
def test_tables_are_unbiased_with_the_covariance_they_state(names):
    """600 runs; z of every cell and of a contrast: means and variances pass at a false-alarm rate of 1e-6."""
    rng, runs, exact = np.random.default_rng(3), 600, margin(names).ravel()
    values, variances, contrasts = [], [], []
    weights = np.linspace(-1, 1, exact.size).reshape(SCHEMA.shape(names))
    for _ in range(runs):
        tables = fused(rng)
        values.append(tables.values(names).ravel())
        covariance = tables.covariance(names)
        variances.append(covariance.diagonal("given_records").ravel())
        contrasts.append([values[-1] @ weights.ravel(), covariance.quadratic(weights)])
    gaps, spread = np.array(values) - exact, np.mean(variances, axis=0)
    alpha = 1e-6 / (2 * exact.size + 2)
    bound = stats.norm.isf(alpha / 2) / np.sqrt(runs)
    assert np.all(np.abs(gaps.mean(axis=0)) < bound * np.sqrt(spread))
    low, high = stats.chi2.ppf([alpha / 2, 1 - alpha / 2], runs) / runs
    assert np.all((low * spread < gaps.var(axis=0)) & (gaps.var(axis=0) < high * spread))
    sums, claimed = np.array(contrasts).T
    assert low < np.var(sums) / claimed.mean() < high


def test_margins_of_tables_are_consistent_with_their_errors():
    tables = fused(np.random.default_rng(1))
    for names, rest in ((("a", "b"), ("b",)), (("b", "c"), ("b",)), (("a", "c"), ("a",))):
        axes = tuple(i for i, name in enumerate(names) if name not in rest)
        keep = [i for i, name in enumerate(names) if name in rest]
        assert np.allclose(tables.values(names).sum(axis=axes), tables.values(rest))
        reduced = tables.covariance(names).reduce(keep, {})
        assert np.allclose(reduced.dense(), tables.covariance(rest).dense())
    assert tables.values(("a", "b")).sum() == pytest.approx(N)
    assert tables.covariance(("a", "b")).quadratic(np.ones((2, 3))) == pytest.approx(0, abs=1e-6)


def test_more_tables_make_errors_smaller():
    rng = np.random.default_rng(2)
    alone, together = fused(rng, (("b",),)), fused(rng)
    assert np.all(together.covariance(("b",)).diagonal() < alone.covariance(("b",)).diagonal())


def test_large_cells_have_larger_errors():
    diagonal = fused(np.random.default_rng(4)).covariance(("a", "b")).diagonal()
    assert diagonal.argmax() == margin(("a", "b")).argmax()


def test_noise_has_both_kinds_of_covariance():
    noise = LinearNoise(np.arange(12.0).reshape(2, 2, 3), ("a", "b"))
    dense = noise.dense()
    assert np.allclose(dense, noise.dense(kind="given_records"))
    assert np.allclose(noise.within(["b"])[1], dense[3:, 3:])
    assert np.allclose(noise.reduce([1], {0: 1}).dense(), dense[3:, 3:])
    assert noise.quadratic(np.ones((2, 3))) == pytest.approx(dense.sum())
