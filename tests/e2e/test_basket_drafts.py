"""A policy drafted from a basket file can be used: disguise, learn rules, count shares."""

from __future__ import annotations

import numpy as np
import pytest
from tests.e2e.test_cli_app import ok, run

import masquerade as mq
from masquerade.core.errors import InputError

ITEMS = ("milk", "bread", "beer", "wipes", "tea", "eggs")


@pytest.fixture
def market(tmp_path):
    chance = np.random.default_rng(1)
    lines = [" ".join(item for item in ITEMS if chance.random() < 0.4) or "milk" for _ in range(3000)]
    (tmp_path / "market.dat").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_draft_from_baskets_is_usable_end_to_end(market):
    policy = market / "policy.yaml"
    ok("policy", "init", market / "market.dat", "--out", policy)
    text = policy.read_text()
    assert "blocks:" in text
    assert "which .baskets files cannot contain: disguise into .parquet or .csv" in " ".join(
        text.replace("#", "").split()
    )
    assert mq.Policy.load(policy).record_gamma <= 19
    told = run("disguise", market / "market.dat", "-p", policy, "-o", market / "out.baskets")
    assert told.exit_code == 2
    assert "write them to a file that ends in .parquet or .csv" in " ".join(told.stderr.split())
    assert not (market / "out.baskets").exists()
    ok("disguise", market / "market.dat", "-p", policy, "-o", market / "out.parquet")
    assert "beer" in ok("stats", "shares", market / "out.parquet", "--of", "beer").stdout
    learnt = ok("learn", "rules", market / "out.parquet", "--min-support", "0.01")
    assert "cannot be estimated from these reports" in " ".join(learnt.stderr.split())
    wider = run("learn", "rules", market / "out.parquet", "--min-support", "0.01", "--max-len", "5")
    assert wider.exit_code == 2  # what was asked for by name is refused, not shortened


def test_policies_that_baskets_cannot_hold_say_what_instead(market):
    baskets = mq.read_baskets(market / "market.dat")
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {item: {"categories": [False, True]} for item in baskets.items},
            "blocks": [{"variables": list(baskets.items), "k": 2, "gamma": 19}],
        }
    )
    with pytest.raises(InputError, match=r"a basket file into \.parquet or \.csv"):
        mq.disguise(baskets, policy)
