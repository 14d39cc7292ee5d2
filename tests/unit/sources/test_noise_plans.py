"""Plans of tables with noise, and the stages of a structure search."""

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused
from masquerade.sources.noise.family_stages import link_strength, strongest
from masquerade.sources.noise.table_plan import all_tables

SCHEMA = mq.Schema({f"v{i}": ["no", "yes"] for i in range(6)})


def chain(n, seed=1, variables=6):
    """Return records of a chain v0 → v1 → … → v5 with strong links."""
    rng = np.random.default_rng(seed)
    columns = [rng.random(n) < 0.5]
    for _ in range(variables - 1):
        columns.append(np.where(rng.random(n) < 0.85, columns[-1], ~columns[-1]))
    return pd.DataFrame({f"v{i}": np.where(column, "yes", "no") for i, column in enumerate(columns)})


def test_plan_states_what_the_source_then_has():
    """The errors of a plan are the errors of the answers, cell by cell."""
    plan = mq.plan_tables(SCHEMA, n=2000, epsilon=1)
    source = mq.Noisy(mq.tally(chain(2000), schema=SCHEMA), epsilon=1, tables=plan.terms.number)
    tables = source.answer([item.query for item in plan.queries])
    assert source.tables_left == 0
    for item, table in zip(plan.queries, tables, strict=True):
        noise = np.sqrt(table.covariance.diagonal("given_records"))
        assert noise.ravel() == pytest.approx(np.full(4, item.noise))


def test_plan_of_conditions_and_margins():
    queries = [mq.Query(), mq.Query(by="v0"), mq.Query(by="v1", where={"v0": "no"})]
    plan = mq.plan_tables(SCHEMA, queries, n=100, epsilon=1)
    assert plan.terms.number == 1
    total, margin, slice_ = plan.queries
    assert total.noise == 0
    # v0 follows from the table v0 × v1, whose four cells add up to n
    assert margin.noise == pytest.approx(plan.terms.deviation)
    assert slice_.noise == pytest.approx(plan.terms.deviation * math.sqrt(3 / 4))
    assert "v1 where v0 = no" in plan.summary()


def test_plan_shows_itself():
    plan = mq.plan_tables(SCHEMA, n=2000, epsilon=1, contributors=3, colluders=1)
    assert plan.to_frame().shape == (15, 5)
    assert plan.to_dict()["tables"] == 15
    assert "3 contributors add noise, 2 of them honest" in plan.summary()
    assert "and 3 more with less noise" in plan.summary()
    assert plan.plot().get_xlabel() == "standard deviation of a cell's share"


def test_plan_refuses_what_the_budget_does_not_have():
    with pytest.raises(InputError, match="take 15 tables, and the budget has 14"):
        mq.plan_tables(SCHEMA, n=100, epsilon=1, tables=14)
    with pytest.raises(InputError, match="no table to query"):
        mq.plan_tables(SCHEMA, [], n=100, epsilon=1)
    with pytest.raises(InputError, match="1 to 6 variables"):
        all_tables(SCHEMA, 7)


def test_search_in_stages_finds_a_chain_and_asks_nothing_new():
    """Links of 35 percentage points at n = 20,000, noise below 1% of a cell: no chance of a wrong one."""
    clear = mq.tally(chain(20_000), schema=SCHEMA)
    source = mq.Noisy(clear, epsilon=2, tables=mq.structure_stages(SCHEMA))
    forbidden = mq.ask_families(source, partners=2)
    spent = source.tables_spent
    assert spent <= 21
    network = mq.learn.structure(source, forbidden=forbidden, max_parents=2)
    assert source.tables_spent == spent
    links = {frozenset(link) for link in network.links}
    assert links == {frozenset((f"v{i}", f"v{i + 1}")) for i in range(5)}
    assert mq.ask_families(source, partners=2) == forbidden  # from the ledger
    assert source.tables_spent == spent


def test_search_in_one_stage_draws_families_more_often():
    clear = mq.tally(chain(20_000), schema=SCHEMA)
    source = mq.Noisy(clear, epsilon=2, tables=15 + 4 * 6)
    forbidden = mq.ask_families(source, partners=2, draws=4)
    spent = source.tables_spent
    assert 15 + 4 <= spent <= 15 + 4 * 6
    network = mq.learn.structure(source, forbidden=forbidden, max_parents=2)
    assert {frozenset(link) for link in network.links} == {
        frozenset((f"v{i}", f"v{i + 1}")) for i in range(5)
    }
    assert source.tables_spent == spent


def test_tree_in_two_stages_finds_a_chain_with_all_of_its_budget():
    """Links of 35 percentage points at n = 20,000, noise below 1% of a cell: no chance of a wrong one."""
    clear = mq.tally(chain(20_000), schema=SCHEMA)
    source = mq.Noisy(clear, epsilon=2, tables=mq.tree_tables(SCHEMA))
    assert source.terms.number == 30
    structure = mq.ask_tree(source)
    assert structure == {"v0": ()} | {f"v{i + 1}": (f"v{i}",) for i in range(5)}
    assert source.tables_left == 0
    network = mq.learn.bayesian_network(source, structure)
    assert abs(network["v3"].probabilities[1, 1] - 0.85) < 0.05
    assert mq.ask_tree(source) == structure  # from the ledger
    link, other = source.answer([mq.Query(by=("v0", "v1")), mq.Query(by=("v0", "v5"))])
    errors = [table.covariance.diagonal("given_records").max() for table in (link, other)]
    assert errors[0] < errors[1] / 2.5  # four draws against one


def test_tree_in_stages_of_their_own_noise():
    clear = mq.tally(chain(20_000), schema=SCHEMA)
    source = mq.Noisy(clear, epsilon=2, tables=[(15, 0.5), (5, 0.5)])
    structure = mq.ask_tree(source)
    assert sum(len(parents) for parents in structure.values()) == 5
    assert source.tables_left == 0


def test_independent_variables_stay_a_forest():
    """The noise alone makes strengths positive or negative: a link more or less, but never a cycle."""
    frame = pd.DataFrame([(i >> 0 & 1, i >> 1 & 1, i >> 2 & 1) for i in range(8)] * 50, columns=list("abc"))
    links = []
    for _ in range(40):
        source = mq.Noisy(mq.tally(frame), epsilon=1, tables=12)
        parents = mq.ask_tree(source)
        assert set(parents) == set("abc")
        assert max(len(names) for names in parents.values()) <= 1
        links.append(sum(len(names) for names in parents.values()))
        assert source.tables_left == (9 if not links[-1] else 9 % links[-1])
    assert min(links) < max(links) <= 2  # each of the extremes is missed with probability below 1e-4


def test_strong_pairs_are_drawn_again_before_the_tree_is_chosen(monkeypatch):
    """Ten variables: 45 pairs once, 27 of them five times, and the nine of the tree 17 times."""
    schema = mq.Schema({f"v{i}": ["no", "yes"] for i in range(10)})
    source = mq.Noisy(
        mq.tally(chain(2000, variables=10), schema=schema), epsilon=3, tables=45 + 27 * 4 + 9 * 12
    )
    draws, real = Counter(), source._open_cells

    def counted(prepared, queries, stage):
        draws.update(query.by for query in queries)
        return real(prepared, queries, stage)

    monkeypatch.setattr(source, "_open_cells", counted)
    structure = mq.ask_tree(source)
    assert sorted(Counter(draws.values()).items()) == [(1, 18), (5, 18), (17, 9)]
    links = {tuple(sorted((child, *parents))) for child, parents in structure.items() if parents}
    assert {pair for pair, number in draws.items() if number == 17} == links
    assert source.tables_left == 0


def gap(tables, truth):
    """Return the mean total variation distance of tables."""
    return np.mean([np.abs(tables[pair] - truth[pair]).sum() / 2 / truth[pair].sum() for pair in truth])


def pairs_of(source):
    pairs = list(combinations(source.schema, 2))
    answers = source.answer([mq.Query(by=pair) for pair in pairs])
    return {pair: table.values for pair, table in zip(pairs, answers, strict=True)}


def test_pairs_near_a_tree_that_is_right_have_less_noise():
    """60 runs: mean ratio of the errors .71, deviation .16; the mean of 20 is above .85 in one of 20,000."""
    clear = mq.tally(chain(2000), schema=SCHEMA)
    truth = pairs_of(clear)
    structure = {"v0": ()} | {f"v{i + 1}": (f"v{i}",) for i in range(5)}
    ratios = []
    for _ in range(20):
        source = mq.Noisy(clear, epsilon=0.5, tables=mq.tree_tables(SCHEMA))
        pairs_of(source)
        source.ask_again([mq.Query(by=(f"v{i}", f"v{i + 1}")) for i in range(5)], 3)
        spent, measured = source.tables_spent, pairs_of(source)
        tables = mq.pairs_near_tree(source, structure)
        assert source.tables_spent == spent
        assert all(table.min() >= 0 and abs(table.sum() - 2000) < 1e-6 for table in tables.values())
        ratios.append(gap(tables, truth) / gap(measured, truth))
    assert np.mean(ratios) < 0.85


def test_pairs_near_a_tree_that_lacks_a_link_keep_the_link():
    """All links are strong, and the tree lacks one of them: 20,000 records, noise below 1% of a cell."""
    clear = mq.tally(chain(20_000), schema=SCHEMA)
    source = mq.Noisy(clear, epsilon=2, tables=15)
    truth = pairs_of(clear)
    broken = {"v0": (), "v1": ("v0",), "v2": (), "v3": ("v2",), "v4": ("v3",), "v5": ("v4",)}
    tables = mq.pairs_near_tree(source, broken)
    alone = np.outer(truth["v0", "v1"].sum(axis=0), truth["v2", "v3"].sum(axis=1)) / 20_000
    by_tree = truth | {("v1", "v2"): alone}
    assert gap(by_tree, truth) > 0.02
    assert gap(tables, truth) < 0.005


def test_exact_tables_of_a_right_tree_are_kept():
    """Records of which each pair follows exactly from the tree, and almost no noise."""
    cells = [(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    frame = pd.DataFrame([cell for cell in cells for _ in range(1000)], columns=list("abc"))
    source = mq.Noisy(mq.tally(frame), epsilon=3, tables=6)
    tables = mq.pairs_near_tree(source, {"a": (), "b": ("a",), "c": ("b",)})
    assert all(np.allclose(table, 2000, atol=60) for table in tables.values())


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        ({"v0": ("v9",)}, "'v9', which is not a variable"),
        ({"v2": ("v0", "v1")}, "'v2' has 2"),
        ({"v0": ("v1",), "v1": ("v2",), "v2": ("v0",)}, "no cycle"),
    ],
)
def test_pairs_near_a_tree_need_a_tree(structure, message):
    source = mq.Noisy(mq.tally(chain(200), schema=SCHEMA), epsilon=1, tables=15)
    with pytest.raises(InputError, match=message):
        mq.pairs_near_tree(source, structure)
    assert source.tables_spent == 0


def test_tree_in_stages_needs_variables_and_a_share():
    with pytest.raises(InputError, match="three variables"):
        mq.tree_tables(mq.Schema({"a": [0, 1], "b": [0, 1]}))
    with pytest.raises(InputError, match="between 0 and 1"):
        mq.tree_tables(SCHEMA, 0.0)


def test_rules_after_a_workload_of_triples_ask_nothing_new():
    """Supports and confidences are 4 points from the limits and noise below 1% of n: no false alarms."""
    clear = mq.tally(chain(20_000), schema=SCHEMA)
    plan = mq.plan_tables(SCHEMA, all_tables(SCHEMA, 3), n=20_000, epsilon=2)
    source = mq.Noisy(clear, epsilon=2, tables=plan.terms.number)
    source.answer(all_tables(SCHEMA, 3))
    assert source.tables_left == 0
    options = {"min_support": 0.3, "min_confidence": 0.8, "max_len": 3}
    exact, noisy = (mq.learn.association_rules(one, **options).to_frame() for one in (clear, source))
    rules = [set(zip(one["antecedents"], one["consequents"], strict=True)) for one in (exact, noisy)]
    assert len(rules[0]) > 10
    assert rules[0] == rules[1]
    with pytest.raises(QueryRefused, match="0 of 20 are left"):
        mq.learn.association_rules(source, **options | {"max_len": 4})


def test_link_strength_subtracts_noise():
    clear = mq.tally(chain(5000), schema=SCHEMA)
    linked, unlinked = clear.answer([mq.Query(by=("v0", "v1")), mq.Query(by=("v0", "v5"))])
    assert link_strength(linked) == pytest.approx(0.49, abs=0.03)
    assert link_strength(linked) > link_strength(unlinked)
    independent = pd.DataFrame(list(combinations(range(40), 2)), columns=["a", "b"]) % 2
    noisy = [
        link_strength(
            mq.Noisy(mq.tally(independent), epsilon=1, tables=20).answer([mq.Query(by=("a", "b"))])[0]
        )
        for _ in range(200)
    ]
    # unbiased up to the products of margins; without the subtraction the mean would be 0.9
    assert abs(np.mean(noisy)) < 0.3


def test_strongest_keeps_one_partner():
    assert strongest({"a": 0.2, "b": -0.1, "c": 0.5}, 3) == ["c", "a"]
    assert strongest({"a": -0.2, "b": -0.1}, 3) == ["b"]


def test_stages_refuse_few_variables():
    with pytest.raises(InputError, match="three variables"):
        mq.structure_stages(mq.Schema({"a": [0, 1], "b": [0, 1]}))
    with pytest.raises(InputError, match="between 0 and 1"):
        mq.structure_stages(SCHEMA, 1.0)
