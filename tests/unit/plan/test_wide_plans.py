"""Plans of wide files: the work grows with kinds of tables rather than tables, and results stay the same."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

import masquerade as mq
from masquerade.channels.privacy_level import PrivacyLimit
from masquerade.plan import block_search, planner, split, variance
from masquerade.plan.block_search import BlockSearch, ListedDeal
from masquerade.plan.candidates import Split
from masquerade.plan.expected_errors import _KnownErrors, expected_errors
from masquerade.plan.person_budget import spend_limit


def survey(columns):
    return {f"v{i}": [f"c{code}" for code in range(2 + i % 4)] for i in range(columns)}


def counted_calls(monkeypatch, owner, name):
    """Return a list that grows by one entry with every call of a function."""
    calls, original = [], getattr(owner, name)

    def call(*args, **options):
        calls.append(args)
        return original(*args, **options)

    monkeypatch.setattr(owner, name, call)
    return calls


def policy_of(columns, parts):
    variables = {name: {"categories": labels} for name, labels in survey(columns).items()}
    if "blocks" not in parts:
        for entry in variables.values():
            entry["channel"] = {"kind": "for_epsilon", "epsilon": "0.5"}
    return mq.Policy.from_dict({"masquerade": 1, "variables": variables, **parts})


def errors_of(policy):
    tables = [table for width in (1, 2) for table in combinations(policy.schema, width)]
    even = {name: np.full(len(policy.schema[name]), 1 / len(policy.schema[name])) for name in policy.schema}
    return expected_errors(policy, tables, even), tables, even


@pytest.mark.parametrize("columns", [12, 40])
def test_equal_tables_of_blocks_are_computed_once(columns, monkeypatch):
    policy = policy_of(columns, {"blocks": [{"variables": list(survey(columns)), "k": 2, "epsilon": "3"}]})
    calls = counted_calls(monkeypatch, variance.BlockDeal, "variance")
    errors, tables, even = errors_of(policy)
    assert len(errors) == len(tables)
    assert len(calls) <= 4 + 4 * 4  # four sizes, and pairs of them in order, whatever the number of columns
    monkeypatch.undo()
    for place in range(0, len(tables), 7):
        (alone,) = expected_errors(policy, [tables[place]], even)
        assert errors[place] == alone


@pytest.mark.parametrize("columns", [12, 40])
def test_equal_tables_of_variables_apart_are_computed_once(columns, monkeypatch):
    policy = policy_of(columns, {})
    calls = counted_calls(monkeypatch, _KnownErrors, "_multiply_parts")
    errors, tables, even = errors_of(policy)
    assert len(calls) <= 4 + 4 * 4
    monkeypatch.undo()
    for place in range(0, len(tables), 7):
        (alone,) = expected_errors(policy, [tables[place]], even)
        assert errors[place] == alone


def test_tables_that_cannot_be_estimated_keep_their_cells():
    design = [{"variables": ["v0", "v1"], "weight": 1}, {"variables": ["v2", "v3"], "weight": 1}]
    blocks = [{"variables": ["v0", "v1", "v2", "v3"], "epsilon": "3", "design": design}]
    policy = policy_of(4, {"blocks": blocks})
    errors, tables, _ = errors_of(policy)
    for error, table in zip(errors, tables, strict=True):
        assert error.cells == math.prod(policy.schema.shape(table))
        assert math.isinf(error.variance) == (table not in {("v0", "v1"), ("v2", "v3")} and len(table) == 2)


def test_blocks_of_a_variable_are_summed_once_for_all_its_tables(monkeypatch):
    generator = np.random.default_rng(0)
    sizes = {f"v{i}": 2 + i % 3 for i in range(12)}
    blocks = np.unique(generator.random((400, 12)) < 0.4, axis=0)
    deal = ListedDeal(sizes, blocks, generator.integers(1, 9, len(blocks)), 9.0)
    even = {name: np.full(size, 1 / size) for name, size in sizes.items()}
    calls = counted_calls(monkeypatch, block_search.ListedDeal, "holding")
    pairs = list(combinations(sizes, 2))
    for pair in pairs:
        deal.variance(pair, even)
    assert len(calls) == len(sizes) + len(pairs)
    monkeypatch.undo()
    names = list(sizes)
    for pair in pairs:
        held = blocks[:, [names.index(name) for name in pair]].all(axis=1)
        found = deal.holding(pair)
        assert list(found) == sorted(set(deal.classes[held].tolist()))
        assert sum(found.values()) == pytest.approx(deal.chances[held].sum(), rel=1e-12)


def test_possible_is_what_the_blocks_of_the_pool_contain():
    answers = set()
    for columns in (8, 60, 150, 300):
        sizes = tuple(2 + i % 4 for i in range(columns))
        tables = tuple(combinations(range(columns), 2))
        search = BlockSearch(sizes, tables)
        pairs = search.pool.astype(np.int32).T @ search.pool.astype(np.int32)
        answers.add(search.possible)
        assert search.possible == all(pairs[table] > 0 for table in tables)
    assert answers == {True, False}


def test_a_split_that_cannot_win_is_not_sought(monkeypatch):
    calls = counted_calls(monkeypatch, split, "_solve")
    made = mq.plan(survey(30), privacy={"epsilon": 3}, n=2000, queries="singles, pairs")
    assert not calls
    sought = [way for way in made.ways if isinstance(way, Split) and not way.even]
    for way in sought:
        largest = float(way.variances(made.epsilon).max())
        assert largest >= way.least_variance(made.epsilon) > float(made.way.variances(made.epsilon).max())
    assert len(calls) == len(sought) == 1


@pytest.mark.parametrize("queries", ["pairs", "singles", "naive_bayes(v0)", "structure(max_parents=2)"])
@pytest.mark.parametrize("epsilon", [0.5, 3, 20])
def test_the_best_design_is_the_least_of_all(queries, epsilon):
    made = mq.plan(survey(7), privacy={"epsilon": epsilon}, n=2000, queries=queries)
    least = [way.least_variance(epsilon) for way in made.ways]
    takes = [float(way.variances(epsilon).max()) for way in made.ways]
    assert all(low <= high for low, high in zip(least, takes, strict=True))
    rounded = [float(f"{one:.9g}") for one in takes]
    assert made.way is made.ways[rounded.index(min(rounded))]
    assert planner._best(made.ways, made.task, made.goal, epsilon) is made.way


TABLES = {
    "pairs": list(combinations(range(20), 2)),
    "some": [(0, 1), (1, 2), (3, 4), (5, 6), (7, 8), (8, 9), (2,), (11,)],
    "triples": [*combinations(range(8), 3), (1,)],
    "target": [(0, i) for i in range(1, 20)],
}


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("tables", TABLES.values(), ids=TABLES)
def test_a_split_by_classes_is_the_split_by_variables(tables, symmetric, monkeypatch):
    sizes = [1 + i % 4 for i in range(20)]
    apart = split.best_split(sizes, tables, 5.0, symmetric=symmetric)
    monkeypatch.setattr(split, "MOST_APART", 1)
    calls = counted_calls(monkeypatch, split, "_solve")
    by_class = split.best_split(sizes, tables, 5.0, symmetric=symmetric)
    assert by_class == pytest.approx(apart, abs=1e-5)
    assert by_class.sum() == pytest.approx(5, rel=1e-12)
    classes = split.equal_classes(sizes, split._by_width(tables))
    ((_, _, _, sharing, *_),) = calls
    asked = sorted({place for table in tables for place in table})
    assert len(sharing) == len({classes[place] for place in asked})
    assert sharing.sum() == len(asked)


def test_a_thousand_columns_are_divided_among_kinds_of_variables(monkeypatch):
    calls = counted_calls(monkeypatch, split, "_solve")
    pairs = np.array(list(combinations(range(1000), 2)))
    values = split.split_among_tables([2 + i % 4 for i in range(1000)], [pairs], 3.0)
    assert len(calls[0][3]) == 4
    assert len(set(values.tolist())) == 4
    assert values.sum() == pytest.approx(3, rel=1e-12)


def test_the_sentences_of_a_limit_name_the_widest_errors():
    policy = mq.Policy.clear(mq.Schema(survey(12)))
    spending = spend_limit(policy, PrivacyLimit.parse({"epsilon": 3}), n=2000)
    errors = spending.made.errors
    for width, margin in spending.costs[str(spending.limit)].items():
        assert margin == max(item.margin(2000) for item in errors if len(item.table) == width)
    wide = ["×".join(item.table) for item in errors if item.margin(2000) > 0.2]
    assert spending.unanswerable == wide
