"""Blocks of different sizes: their variances, their search, and policies that list them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import PolicyError
from masquerade.plan.block_search import MOST_CLASSES, BlockSearch, ListedDeal
from masquerade.plan.variance import BlockDeal

SIZES = (2, 2, 2, 2, 3, 3, 12)
MIXED = {f"q{index}": [f"c{code}" for code in range(size)] for index, size in enumerate(SIZES)}


def _uniform(sizes: dict[str, int]) -> dict[str, Any]:
    return {name: np.full(size, 1 / size) for name, size in sizes.items()}


def test_listed_blocks_have_the_variance_of_the_closed_form() -> None:
    sizes = {"a": 2, "b": 3, "c": 2, "d": 4}
    shares = _uniform(sizes) | {"a": np.array([0.1, 0.9]), "b": np.array([0.5, 0.3, 0.2])}
    blocks = np.array([[place in block for place in range(4)] for block in combinations(range(4), 2)])
    listed = ListedDeal(sizes, blocks, np.ones(len(blocks), dtype=np.int64), 5.0)
    closed = BlockDeal(sizes, 2, 5.0)
    for table in (("a",), ("b",), ("a", "b"), ("c", "d")):
        assert listed.variance(table, shares) == pytest.approx(closed.variance(table, shares), rel=1e-12)
    assert listed.variance(("a", "b", "c"), shares) == np.inf


def test_search_holds_every_table_within_the_most_classes() -> None:
    sizes = (2, 2, 2, 3, 5, 10, 30)
    tables = tuple(combinations(range(len(sizes)), 2))
    blocks, weights = BlockSearch(sizes, tables).weigh(19.0)
    assert all(blocks[:, list(table)].all(axis=1).any() for table in tables)
    assert np.where(blocks, sizes, 1).prod(axis=1).max() <= MOST_CLASSES
    assert weights.min() >= 1


def test_blocks_of_different_sizes_beat_blocks_of_one_size_where_categories_differ() -> None:
    sizes = (2,) * 10 + (3,) * 4 + (5,) * 4 + (10,) * 2
    many = {f"q{index}": [f"c{code}" for code in range(size)] for index, size in enumerate(sizes)}
    made = mq.plan(many, privacy={"gamma": 19}, n=20_000, queries="pairs")
    margins = dict(zip(made.alternatives["design"], made.alternatives["margin"], strict=True))
    assert margins["dealt blocks of different sizes"] < 0.7 * margins["dealt blocks"]


def test_plan_states_its_limit_and_keeps_it() -> None:
    made = mq.plan(MIXED, privacy={"breach": (0.05, 0.5)}, n=20_000, queries="pairs", clear=["q0"])
    policy = made.policy
    assert policy.limit is not None
    assert policy.limit.gamma == 19
    assert policy.record_gamma <= 19
    assert policy.clear_variables == ("q0",)
    assert mq.plan(MIXED, privacy=1, n=100, per="variable").policy.limit is None


def test_follow_up_and_its_question_are_in_the_same_blocks() -> None:
    made = mq.plan(MIXED, privacy={"gamma": 19}, n=20_000, queries="pairs", together=[("q0", "q6")])
    response = made.policy.group("q0").response
    if response is not None:
        names = made.policy.group("q0").names
        places = {names.index("q0"), names.index("q6")}
        for row in response.by_cells.tolist():
            assert len(places.intersection(row)) != 1


def test_thirty_questions_can_be_planned_at_a_large_epsilon() -> None:
    questions = {f"q{index}": ["yes", "no"] for index in range(30)}
    for privacy in ({"breach": (0.05, 0.5)}, {"epsilon": 5}, {"epsilon": 8}):
        made = mq.plan(questions, privacy=privacy, n=200_000, queries="pairs")
        assert made.policy.limit is not None
        assert made.error < 0.02


def test_design_in_a_policy_file_reads_back_and_a_bad_one_is_refused() -> None:
    made = mq.plan(MIXED, privacy={"gamma": 19}, n=20_000, queries="pairs")
    policy = made.policy
    assert made.design == "dealt blocks of different sizes"
    built = mq.Policy.build(policy.schema, {group.names: group.channel for group in policy.groups})
    assert mq.Policy.from_dict(built.to_dict()).id == policy.id
    values = {
        "masquerade": 1,
        "variables": {name: {"categories": ["yes", "no"]} for name in "abc"},
        "blocks": [{"variables": ["a", "b", "c"], "gamma": 3}],
    }
    for more, message in (
        ({}, "either 'k' or a 'design'"),
        ({"k": 2, "design": [{"variables": ["a", "b"]}]}, "either 'k' or a 'design'"),
        ({"design": [{"variables": ["a", "x"]}]}, "names 'x'"),
        ({"design": [{"variables": ["a", "a"]}]}, "each once"),
        ({"design": [{"variables": ["a"]}, {"variables": ["a"]}]}, "lists a block twice"),
        ({"design": [{"variables": ["a"], "weight": 0}]}, "at least 1"),
        ({"design": [{"variables": ["a"]}], "order": 2}, "only those of 0"),
    ):
        entry = values["blocks"][0] | more  # type: ignore[index]
        with pytest.raises(PolicyError, match=message):
            mq.Policy.from_dict(values | {"blocks": [entry]})
