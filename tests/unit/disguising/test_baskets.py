"""Basket files through the two ordinary verbs: disguise and tally."""

from __future__ import annotations

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, PolicyMismatch

ITEMS = [f"item{i}" for i in range(40)]


@pytest.fixture
def file(tmp_path):
    generator = np.random.default_rng(12)
    lines = []
    for _ in range(6000):
        held = {item for item in ITEMS if generator.random() < 0.05}
        if generator.random() < 0.4:
            held |= {"item1", "item2"}
        lines.append(" ".join(sorted(held)))
    path = tmp_path / "baskets.dat"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rules_of_clear_and_of_disguised_baskets(file):
    baskets = mq.read_baskets(file, items=ITEMS)
    policy = mq.basket_policy(ITEMS, mq.channels.binary("0.1"))
    clear = mq.learn.frequent_itemsets(mq.tally(baskets), min_support=0.2)
    assert {frozenset(row) for row in clear.to_frame()["itemsets"]} == {
        frozenset({"item1"}),
        frozenset({"item2"}),
        frozenset({"item1", "item2"}),
    }
    disguised = mq.simulate(baskets, policy, seed=5)
    assert disguised.policy_id == policy.id
    query = mq.Query(where={"item1": True, "item2": True})
    (estimate,) = mq.tally(disguised, policy).answer([query])
    (truth,) = mq.tally(baskets).answer([query])
    # one normal figure at 1e-6: |z| < 4.9
    assert abs(estimate.values - truth.values) < 4.9 * estimate.stderr("given_records")
    rules = mq.learn.association_rules(mq.tally(disguised, policy), min_support=0.2, min_confidence=0.6)
    assert "{item1} => {item2}" in rules.summary()


def test_a_release_of_baskets_uses_fresh_randomness_and_carries_its_policy(file):
    baskets = mq.read_baskets(file)
    policy = mq.basket_policy(baskets.items, mq.channels.binary("0.2"))
    one, two = mq.disguise(baskets, policy), mq.disguise(baskets, policy)
    assert (one.words != two.words).any()
    other = mq.basket_policy(baskets.items, mq.channels.binary("0.3"))
    with pytest.raises(PolicyMismatch, match="a different policy"):
        mq.tally(one, other)
    with pytest.raises(PolicyMismatch, match="pass their 'policy'"):
        mq.tally(one)
    with pytest.raises(InputError, match="already"):
        mq.disguise(one, policy)


def test_what_does_not_apply_to_baskets_is_refused(file, tmp_path):
    baskets = mq.read_baskets(file)
    policy = mq.basket_policy(baskets.items, mq.channels.binary("0.2"))
    with pytest.raises(InputError, match="do not apply"):
        mq.disguise(baskets, policy, memo=tmp_path / "memo.json", id="item1")
    with pytest.raises(InputError, match="do not apply"):
        mq.tally(baskets, weights="item1")
