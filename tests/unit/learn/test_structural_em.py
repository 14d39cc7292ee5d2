"""Structural EM: searches over orders, changes of links judged by draws, and the whole."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import masquerade as mq
from masquerade.learn.networks import structural_em
from masquerade.learn.networks.em.completed_records import CompletedRecords, conditional_entropy
from masquerade.learn.networks.em.link_changes import (
    JudgedChange,
    LinkChanges,
    apply_changes,
    is_acyclic,
)
from masquerade.learn.networks.em.order_search import OrderSearch, order_of
from masquerade.learn.networks.graph import StructureRules, paths
from masquerade.learn.networks.joint_likelihood import JointLikelihood
from masquerade.learn.networks.structural_em import StructuralEM
from masquerade.sources.records import Records

NAMES = list("abcde")
SIZES = {"a": 2, "b": 3, "c": 2, "d": 2, "e": 3}
STRUCTURE = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("d",)}
ALL = len(NAMES)


def rules(limit=3, required=(), forbidden=()):
    return StructureRules(ALL, limit, frozenset(required), frozenset(forbidden))


def network(seed):
    generator = np.random.default_rng(seed)
    chances = {
        name: generator.dirichlet(np.full(SIZES[name], 1.0), [SIZES[parent] for parent in parents])
        for name, parents in STRUCTURE.items()
    }
    return mq.learn.known_network(mq.Schema({name: range(SIZES[name]) for name in NAMES}), STRUCTURE, chances)


def disguised(seed, n=1500, p="0.2"):
    known = network(seed)
    masks = mq.Policy.build(
        known.schema, {name: mq.channels.symmetric(size, p) for name, size in SIZES.items()}
    )
    return mq.tally(mq.simulate(known.sample(n, seed=seed), masks, seed=seed + 1), masks)


def clear_records(seed, n=400):
    codes = network(seed).sample_codes(n, np.random.default_rng(seed))
    return CompletedRecords(NAMES, SIZES, [(codes, np.ones(n))])


@pytest.mark.parametrize("weights", [np.ones(400), np.random.default_rng(3).uniform(0.1, 3.0, 400)])
def test_likelihoods_of_families_are_those_of_their_tables(weights):
    draws = [(network(1).sample_codes(400, np.random.default_rng(seed)), weights) for seed in (4, 5, 6)]
    records = CompletedRecords(NAMES, SIZES, draws)
    for x in range(ALL):
        others = [z for z in range(ALL) if z != x]
        for size in range(4):
            for family in itertools.combinations(others, size):
                expected = conditional_entropy(records.counts(x, family))
                assert records.log_likelihood(x, family) == pytest.approx(expected, rel=1e-12, abs=1e-9)


def best_by_enumeration(search, limit, required, forbidden):
    """Return the largest score of all structures: the best parents of every order, by all orders."""
    most = -np.inf
    for order in itertools.permutations(range(ALL)):
        if any(order.index(z) > order.index(x) for z, x in required):
            continue
        total = 0.0
        for at, x in enumerate(order):
            own = {z for z, child in required if child == x}
            before = [z for z in order[:at] if (z, x) not in forbidden]
            total += max(
                search.score(x, family)
                for size in range(limit + 1)
                for family in itertools.combinations(sorted(before), size)
                if own <= set(family)
            )
        most = max(most, total)
    return most


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("limit", "required", "forbidden"),
    [(3, (), ()), (2, ((4, 0), (3, 4)), ((0, 1), (1, 0))), (1, (), ((0, 1),)), (0, (), ())],
)
def test_search_over_orders_finds_the_best_of_all_structures(seed, limit, required, forbidden):
    allowed = rules(limit, required, forbidden)
    search = OrderSearch(clear_records(seed), allowed, 2.0, allowed.start())
    found = search.best(np.random.default_rng(0))
    assert is_acyclic(found)
    assert all(len(family) <= limit for family in found)
    assert all(z in found[x] for z, x in required)
    assert not any(z in found[x] for z, x in forbidden)
    score = sum(search.score(x, family) for x, family in enumerate(found))
    assert score == pytest.approx(best_by_enumeration(search, limit, required, forbidden), abs=1e-9)


def test_equal_reports_of_many_people_are_drawn_separately():
    source = disguised(1, n=2000)
    em = StructuralEM(source.report_factors(NAMES), SIZES, rules())
    assert sum(one.records for one in em.reports) <= 72 < 20_000
    assert sum(one.records for one in em.separate) >= 20_000
    assert sum(one.weights.sum() for one in em.separate) == pytest.approx(2000)
    structure = em.structure_of(em.families_of(STRUCTURE))
    tables = {table.child.name: table.probabilities for table in network(1).tables}
    ordered = {name: tables[name] for name in structure}
    totals = [
        JointLikelihood(one, structure, SIZES).log_likelihood(ordered) for one in (em.reports, em.separate)
    ]
    assert totals[0] == pytest.approx(totals[1])


def test_orders_have_parents_first():
    assert order_of([(1,), (2,), ()]) == [2, 1, 0]
    with pytest.raises(AssertionError, match="cycle"):
        order_of([(1,), (0,)])


def changes_of(source, structure, *, limit=3, required=(), forbidden=(), draws=1):
    """Return the changes of a fitted structure, and the EM that fitted it."""
    em = StructuralEM(source.report_factors(NAMES), SIZES, rules(limit, required, forbidden), seed=5)
    structure = em.structure_of(em.families_of(structure))
    flat = {
        name: np.full([SIZES[other] for other in (*parents, name)], 1 / SIZES[name])
        for name, parents in structure.items()
    }
    shaken = {name: (table + np.random.default_rng(3).random(table.shape)) for name, table in flat.items()}
    tables = {name: table / table.sum(axis=-1, keepdims=True) for name, table in shaken.items()}
    fitted = em.fit(structure, tables, 20)
    joint = JointLikelihood(em.reports, structure, SIZES)
    drawn = CompletedRecords(NAMES, SIZES, [joint.draws(fitted.tables, em.generator) for _ in range(draws)])
    families = em.families_of(structure)
    return (
        LinkChanges(drawn, em.rules, em.price, families, [fitted.tables[name] for name in NAMES]),
        em,
        fitted,
    )


def test_gains_of_draws_are_gains_of_the_reports():
    """Each of about 25 gains is within six standard errors: a false alarm has a chance below 1e-6.

    A gain is the mean of draws, and its logarithm is too small by about half of their squared error.
    """
    changes, em, fitted = changes_of(disguised(2), {**STRUCTURE, "d": ("b",)}, draws=64)
    records = changes.records
    errors = []
    for change in changes.changes():
        gain, tables = changes.gain(change)
        families = list(changes.parents)
        for x, family in change:
            families[x] = family
        joint = JointLikelihood(em.reports, em.structure_of(families), SIZES)
        changed = {NAMES[x]: table for x, table in tables.items()}
        exact = joint.log_likelihood({**fitted.tables, **changed}) - fitted.log_likelihood
        cells = {x: records.cells(x, family).reshape(64, -1) for x, family in change}
        weights, _ = changes._reweigh({x: tables[x].reshape(-1, SIZES[NAMES[x]]) for x in tables}, cells)
        variances = (weights * 64).var(axis=0, ddof=1) / 64
        bias = float(records.weights @ variances) / 2
        allowed = 6 * float(np.sqrt(records.weights**2 @ variances)) + 2 * bias + 0.5
        assert abs(gain - exact) < allowed, change
        errors.append(abs(gain - exact) / allowed)
    assert len(errors) > 20
    best = changes.judge()[0]
    families, _ = apply_changes(changes.parents, [best])
    tables = {**fitted.tables, **{NAMES[x]: table for x, table in best.tables.items()}}
    assert em.fit(em.structure_of(families), tables, 4).bic > fitted.bic


def test_lengthened_steps_gain_more_than_em_promises():
    changes, _, _ = changes_of(disguised(2), {**STRUCTURE, "d": ("b",)}, draws=16)
    change = ((3, (1, 2)),)
    promised = changes.records.log_likelihood(3, (1, 2)) - changes.records.log_likelihood(3, (1,))
    assert changes.gain(change)[0] > 1.2 * promised > 0


def by_definition(parents, allowed):
    """Return the families after every legal addition, removal, replacement and reversal."""
    found = set()
    for x, z in itertools.permutations(range(ALL), 2):
        if z in parents[x] and (z, x) not in allowed.required:
            rest = tuple(sorted(set(parents[x]) - {z}))
            found.add(tuple({**dict(enumerate(parents)), x: rest}.values()))
            found.add(
                tuple({**dict(enumerate(parents)), x: rest, z: tuple(sorted({*parents[z], x}))}.values())
            )
            for other in set(range(ALL)) - {x, z, *parents[x]}:
                found.add(tuple({**dict(enumerate(parents)), x: tuple(sorted((*rest, other)))}.values()))
        elif z not in parents[x]:
            found.add(tuple({**dict(enumerate(parents)), x: tuple(sorted((*parents[x], z)))}.values()))
    return {
        after
        for after in found
        if is_acyclic(after)
        and all(len(family) <= allowed.limit for family in after)
        and not any((z, x) in allowed.forbidden for x, family in enumerate(after) for z in family)
    }


@pytest.mark.parametrize(
    ("limit", "required", "forbidden"),
    [(3, (), ()), (2, ((0, 1),), ((4, 0), (3, 2), (2, 0))), (1, (), ())],
)
def test_changes_are_all_that_the_rules_allow(limit, required, forbidden):
    structure = STRUCTURE if limit > 1 else {**STRUCTURE, "d": ("b",)}
    changes, _, _ = changes_of(
        disguised(1, n=200), structure, limit=limit, required=required, forbidden=forbidden
    )
    found = []
    for change in changes.changes():
        families = list(changes.parents)
        for x, family in change:
            families[x] = family
        found.append(tuple(families))
    assert len(found) == len(set(found))
    assert set(found) == by_definition(changes.parents, changes.rules)


def test_changes_made_together_share_no_variable_and_close_no_cycle():
    parents = [(), (0,), (), (2,), ()]
    judged = [
        JudgedChange(9.0, ((0, (3,)),), {}),
        JudgedChange(8.0, ((2, (1,)),), {}),  # closes the cycle 0 → 1 → 2 → 3 → 0
        JudgedChange(7.0, ((3, ()),), {}),  # 3 was touched
        JudgedChange(6.0, ((4, (2,)),), {}),
    ]
    families, made = apply_changes(parents, judged)
    assert [one.gain for one in made] == [9.0, 6.0]
    assert families == [(3,), (0,), (), (2,), (2,)]
    assert not is_acyclic([(1,), (0,)])
    assert paths(families).any()


def test_polishing_recovers_a_structure_from_no_links_and_is_repeatable():
    source = disguised(3, n=6000, p="0.15")
    em = StructuralEM(source.report_factors(NAMES), SIZES, rules())
    truth = em.structure_of(em.families_of(STRUCTURE))
    tables = {table.child.name: table.probabilities for table in network(3).tables}
    known = em.fit(truth, {name: tables[name] for name in truth}, 20)
    none = dict.fromkeys(NAMES, ())
    told = []
    found, first = structural_em.polish(
        source, none, rules(), progress=lambda done, of: told.append((done, of))
    )
    assert first.links == 0
    assert found.bic > known.bic - 1.0 > first.bic
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert told[-1] == (len(told), len(told))
    again, _ = structural_em.polish(source, none, rules())
    assert again.structure == found.structure
    assert again.bic == found.bic


def fitted_structure(source, structure, steps=3):
    """Return an EM and a structure that it fitted by a few steps from flat tables."""
    em = StructuralEM(source.report_factors(NAMES), SIZES, rules(), seed=5)
    structure = em.structure_of(em.families_of(structure))
    tables = {
        name: np.full([*(SIZES[other] for other in parents), SIZES[name]], 1 / SIZES[name])
        for name, parents in structure.items()
    }
    tables = {name: table * np.linspace(1, 1.2, SIZES[name]) for name, table in tables.items()}
    tables = {name: table / table.sum(axis=-1, keepdims=True) for name, table in tables.items()}
    return em, em.fit(structure, tables, steps)


def test_a_settled_fit_gains_nothing_by_further_steps():
    em, fitted = fitted_structure(disguised(2), STRUCTURE)
    settled = em.settle(fitted)
    further = em.fit(settled.structure, settled.tables, 4)
    assert settled.bic > fitted.bic + 1
    assert further.bic - settled.bic < 4 * structural_em.SETTLED


def test_pruning_removes_links_that_are_not_there_and_keeps_strong_ones():
    em, fitted = fitted_structure(disguised(3, n=6000), {**STRUCTURE, "c": ("a", "b"), "e": ("c", "d")})
    settled = em.settle(fitted)
    pruned = em.prune(settled)
    assert pruned.bic > settled.bic
    assert all(set(parents) <= set(STRUCTURE[name]) for name, parents in pruned.structure.items())
    assert pruned.structure["d"] == ("b", "c")
    assert pruned.structure["e"] == ("d",)


def test_required_links_are_never_pruned():
    source = disguised(3, n=6000)
    required = ((2, 4),)
    em = StructuralEM(source.report_factors(NAMES), SIZES, rules(required=required), seed=5)
    _, fitted = fitted_structure(source, {**STRUCTURE, "e": ("c", "d")})
    assert "c" in em.prune(em.settle(fitted)).structure["e"]


def test_polishing_clear_records_searches_over_orders():
    """Greedy search without any link cannot see two parents that matter only together."""
    generator = np.random.default_rng(7)
    codes = {name: generator.integers(0, SIZES[name], 4000).astype(np.uint8) for name in NAMES}
    codes["c"] = (codes["a"] + codes["d"] + (generator.random(4000) < 0.1).astype(np.uint8)) % 2
    source = Records(codes, mq.Policy.clear(mq.Schema({name: list(range(SIZES[name])) for name in NAMES})))
    found, first = structural_em.polish(source, dict.fromkeys(NAMES, ()), rules())
    assert first.links == 0
    assert found.bic > first.bic + 1000
    family = next({name, *parents} for name, parents in found.structure.items() if len(parents) == 2)
    assert family == set("acd")
