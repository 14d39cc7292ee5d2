"""Passes over records that queries with almost the same conditions share."""

from itertools import product

import numpy as np
import pytest

import masquerade as mq
from masquerade.disguising.seeded import simulate_codes
from masquerade.sources import record_store, shared_weights
from masquerade.sources.records import Records
from masquerade.sources.shared_weights import SharedWeights

SIZES = {"a": 6, "b": 5, "c": 4, "d": 3, "e": 4, "t": 3}
CATEGORIES = {name: [f"{name}{code}" for code in range(size)] for name, size in SIZES.items()}


def make_policy(disguised):
    return mq.Policy.build(
        CATEGORIES, {name: mq.channels.symmetric(SIZES[name], "0.2") for name in disguised}
    )


def make_records(policy, rows=3000, *, weighted=False):
    generator = np.random.default_rng(4)
    truth = generator.integers(0, 12, rows)
    codes = {
        name: np.where(generator.random(rows) < 0.4, truth % size, generator.integers(0, size, rows))
        for name, size in SIZES.items()
    }
    codes = {name: column.astype(np.uint8) for name, column in codes.items()}
    weights = generator.uniform(0.5, 3.0, rows) if weighted else None
    return Records(simulate_codes(codes, policy, 2), policy, weights)


def deep_queries(conditions=("a", "b", "c", "e")):
    """Return the queries of a deep level of a tree: the same table under all combinations of conditions."""
    return [
        mq.Query(by=("d", "t"), where=dict(zip(conditions, labels, strict=True)))
        for labels in product(*(CATEGORIES[name] for name in conditions))
    ]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("disguised", [list(SIZES), ["a", "c", "t"], []])
def test_shared_passes_answer_as_passes_of_their_own(monkeypatch, disguised, weighted):
    policy = make_policy(disguised)
    queries = deep_queries() + deep_queries(("b", "c", "e"))
    together = make_records(policy, weighted=weighted).answer(queries)
    monkeypatch.setattr(shared_weights, "FEWEST_SHARED", 10**9)
    alone = make_records(policy, weighted=weighted).answer(queries)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(one.stderr(), other.stderr(), rtol=1e-9, atol=1e-9)


def test_shared_passes_of_joint_and_clear_reports_answer_as_passes_of_their_own(monkeypatch):
    joint = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {name: {"categories": labels} for name, labels in CATEGORIES.items()},
            "joint": [{"variables": ["a", "b"], "channel": {"kind": "symmetric", "p": "0.3"}}],
        }
    )
    queries = deep_queries()
    together = make_records(joint).answer(queries)
    monkeypatch.setattr(shared_weights, "FEWEST_SHARED", 10**9)
    for one, other in zip(together, make_records(joint).answer(queries), strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-9, atol=1e-9)


def test_a_level_needs_fewer_passes_than_queries(monkeypatch):
    """480 queries under four conditions: a table of d, t and two conditions has 9 · 30 ≤ 1,024 cells."""
    passes = []
    counted = record_store.count_weighted_many

    def count(columns, sizes, subsets, *arguments, **options):
        passes.append(len(subsets))
        return counted(columns, sizes, subsets, *arguments, **options)

    monkeypatch.setattr(record_store, "count_weighted_many", count)
    monkeypatch.setattr(record_store, "MOST_JOINT", 1024)
    queries = deep_queries()
    make_records(make_policy(list(SIZES))).answer(queries)
    assert len(queries) == 480
    assert sum(passes) <= 480 / 20


@pytest.mark.parametrize("most", [1, 9, 100, 5000])
def test_tables_of_passes_have_at_most_as_many_cells_as_allowed(most):
    source = make_records(make_policy(list(SIZES)))
    plans = [source.parts(1)[0].layout.plan(query) for query in deep_queries()]
    shared = SharedWeights(plans, most)
    cells = {(name,): size for name, size in SIZES.items()}
    for one in shared.passes:
        size = np.prod([SIZES[name] for name in one.columns])
        opened = np.prod([cells[columns] for columns in one.opened], initial=1)
        assert opened == 1 or size * opened <= most
        assert len(one.kept) + len(one.opened) == 4


def test_a_batch_of_more_queries_than_are_cached_is_planned_once(monkeypatch):
    from masquerade.sources import query_plan  # noqa: PLC0415

    monkeypatch.setattr(query_plan, "MOST_PLANS", 10)
    source = make_records(make_policy(["a", "t"]))
    layout = source.parts(1)[0].layout
    planned = []
    make = layout._make_plan
    monkeypatch.setattr(layout, "_make_plan", lambda query: planned.append(query) or make(query))
    queries = deep_queries(("a", "b"))
    source.answer(queries)
    assert len(planned) == len(queries) == 30
    source.answer(queries[:1])  # the cache was emptied in between
    assert len(planned) == 31
