"""Structures: pyAgrum's and the best of all on clear records, without noise's links on disguised ones."""

from __future__ import annotations

import gzip
import warnings
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from math import log
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tests.unit.learn.test_graph import all_structures

import masquerade as mq
from masquerade.channels.channel import from_weights
from masquerade.core.errors import InputError, MasqueradeWarning
from masquerade.core.query import Query
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.networks._candidates import effective_records
from masquerade.learn.networks.graph import ancestral_order, differences
from masquerade.learn.networks.hill_climbing import CandidateLink, steps_of
from masquerade.learn.networks.network import known_network
from masquerade.learn.networks.network_files import parse_bif
from masquerade.learn.networks.scores import (
    BIC,
    Constant,
    DesignEffect,
    Eta,
    Likelihood,
    Penalised,
    Uncorrected,
    bdeu,
    family_score,
)
from masquerade.learn.networks.structure_search import Judge, structure
from masquerade.sources.records import Records


class Asked:
    """A source that notes what it was asked, batch by batch."""

    def __init__(self, source):
        self.source, self.schema, self.guarantee, self.batches = source, source.schema, source.guarantee, []

    def check(self, queries):
        return self.source.check(queries)

    def answer(self, queries):
        self.batches.append([query.by for query in queries])
        return self.source.answer(queries)


@pytest.mark.parametrize("order", [None, ["a", "b", "c", "d"]])
def test_tables_that_are_judged_in_parts_give_the_same_structure(order, monkeypatch):
    generator = np.random.default_rng(5)
    codes = {"a": generator.integers(0, 3, 3000).astype(np.uint8)}
    for name, parent in (("b", "a"), ("c", "a"), ("d", "b")):
        kept = generator.random(3000) < 0.7
        codes[name] = np.where(kept, codes[parent], generator.integers(0, 3, 3000)).astype(np.uint8)
    schema = {name: ["x", "y", "z"] for name in codes}
    policy = mq.Policy.build(schema, {name: mq.channels.symmetric(3, "0.1") for name in codes})
    records = Records(simulate_codes(codes, policy, 3), policy)
    whole = structure(records, order)
    search = import_module("masquerade.learn.networks.structure_search")
    monkeypatch.setattr(search, "MOST_TOGETHER", 20)
    monkeypatch.setattr(search, "LARGE", 1)
    asked = Asked(records)
    parts = structure(asked, order)
    assert parts.structure == whole.structure
    assert len(whole.links) >= 3
    # two tables of nine cells at once; the strengths of links come last, in one batch
    assert max(len(batch) for batch in asked.batches[:-1] if len(batch[0]) == 2) == 2


def test_tables_that_no_number_of_records_could_fill_are_not_asked_for():
    names = ["a", "b", "c"]
    policy = mq.Policy.clear(mq.Schema({name: list(range(500)) for name in names}))
    codes = {name: (np.arange(2000) * (3 + i) % 500).astype(np.uint16) for i, name in enumerate(names)}
    asked = Asked(Records(codes, policy))
    assert structure(asked).links == []
    assert {len(by) for batch in asked.batches for by in batch} == {1}


ASIA = {
    "asia": (),
    "smoke": (),
    "tub": ("asia",),
    "lung": ("smoke",),
    "bronc": ("smoke",),
    "either": ("lung", "tub"),
    "xray": ("either",),
    "dysp": ("bronc", "either"),
}
# Lauritzen & Spiegelhalter (1988); P(yes | parents), "yes" first
YES = {
    "asia": 0.01,
    "smoke": 0.5,
    "tub": [0.05, 0.01],
    "lung": [0.1, 0.01],
    "bronc": [0.6, 0.3],
    "either": [[1.0, 1.0], [1.0, 0.0]],
    "xray": [0.98, 0.05],
    "dysp": [[0.9, 0.8], [0.7, 0.1]],
}


def asia():
    schema = mq.Schema({name: ["yes", "no"] for name in ASIA})
    first = {name: np.asarray(p) for name, p in YES.items()}
    return known_network(schema, ASIA, {name: np.stack([p, 1 - p], -1) for name, p in first.items()})


def random_network(nodes: int, generator: np.random.Generator):
    """Return a network of mixed sizes, up to three parents before each node, every row its own."""
    sizes = generator.integers(2, 5, nodes)
    schema = mq.Schema({f"n{i}": list(range(size)) for i, size in enumerate(sizes)})
    parents, tables = {}, {}
    for i, name in enumerate(schema):
        chosen = sorted(generator.choice(i, min(i, int(generator.integers(0, 4))), replace=False))
        parents[name] = tuple(f"n{j}" for j in chosen)
        shape = schema.shape(parents[name])
        tables[name] = generator.dirichlet(np.ones(sizes[i]), shape)
    return known_network(schema, parents, tables)


def clear(network, n: int, seed: int) -> Records:
    return Records(network.sample_codes(n, seed), mq.Policy.clear(network.schema))


def pyagrums(source: Records, order, score: str, limit: int):
    """Return the parents that pyAgrum's K2 finds on the same records, no prior."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gum = import_module("pyagrum")
        template = gum.BayesNet()
        for name in source.schema:
            template.add(gum.LabelizedVariable(name, name, [str(c) for c in source.schema[name].categories]))
        labels = {
            name: np.array([str(c) for c in source.schema[name].categories])[source.codes[name]]
            for name in source.schema
        }
        learner = gum.BNLearner(pd.DataFrame(labels), template)
        learner.setNumberOfThreads(1)
        learner.useNoPrior()
        {"bic": learner.useScoreBIC, "k2": learner.useScoreK2, "aic": learner.useScoreAIC}[score]()
        learner.setMaxIndegree(limit)
        # names are accepted but misread as of 3.3.1: ids it is
        learner.useK2([learner.idFromName(name) for name in order])
        dag = learner.learnDAG()
        return {
            name: {learner.nameFromId(node) for node in dag.parents(learner.idFromName(name))}
            for name in source.schema
        }


def as_sets(found):
    return {name: set(parents) for name, parents in found.structure.items()}


# pyAgrum takes AIC's likelihood in bits and its parameters at 1 each: log 2 in our unit
BITS = Penalised("aic", lambda _: log(2))


@pytest.mark.parametrize(("score", "theirs"), [("bic", "bic"), ("k2", "k2"), (BITS, "aic")])
def test_k2_on_clear_asia_is_pyagrums(score, theirs):
    source = clear(asia(), 20_000, seed=1)
    order = list(ASIA)
    assert as_sets(structure(source, order, max_parents=4, score=score)) == pyagrums(source, order, theirs, 4)


@pytest.mark.parametrize("score", ["bic", "k2"])
def test_k2_on_a_clear_network_as_large_as_alarm_is_pyagrums(score):
    network = random_network(37, np.random.default_rng(8))
    source = clear(network, 20_000, seed=2)
    order = list(network.structure)
    found = structure(source, order, max_parents=4, score=score)
    assert as_sets(found) == pyagrums(source, order, score, 4)
    assert len(found.links) > 30


def public_network(name: str):
    """Return a network that pgmpy brings along."""
    home = Path(find_spec("pgmpy").submodule_search_locations[0])
    packed = (home / "utils" / "example_models" / f"{name}.bif.gz").read_bytes()
    return parse_bif(gzip.decompress(packed).decode())


@pytest.mark.parametrize("score", ["bic", "k2"])
@pytest.mark.parametrize(
    ("name", "n", "links"),
    [
        ("alarm", 20_000, 40),
        ("sachs", 5_000, 15),
        ("insurance", 5_000, 35),
        ("child", 5_000, 20),
        ("survey", 5_000, 3),
    ],
)
def test_k2_on_clear_public_networks_is_pyagrums(name, n, links, score):
    network = public_network(name)
    source = clear(network, n, seed=3)
    order = ancestral_order(network.structure)
    found = structure(source, order, max_parents=4 if name == "alarm" else 3, score=score)
    assert as_sets(found) == pyagrums(source, order, score, 4 if name == "alarm" else 3)
    assert len(found.links) > links


def bic_of(source, parents) -> float:
    """Return the BIC of a structure, family by family."""
    total = 0.0
    for child, given in parents.items():
        table = source.answer([Query(by=(*given, child))])[0]
        total += float(family_score(table.values.reshape(-1, table.values.shape[-1]), BIC, table.n))
    return total


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_climbing_finds_the_best_of_all_structures(seed):
    generator = np.random.default_rng(seed)
    schema = mq.Schema({"a": [0, 1], "b": [0, 1, 2], "c": [0, 1], "d": [0, 1, 2]})
    truth = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
    tables = {
        name: generator.dirichlet(np.ones(len(schema[name])), schema.shape(truth[name])) for name in truth
    }
    source = mq.Cached(clear(known_network(schema, truth, tables), 3000, seed))
    found = structure(source, tabu=10, restarts=2)
    best = max(bic_of(source, candidate) for candidate in all_structures())
    assert bic_of(source, found.structure) == pytest.approx(best, abs=1e-6)


def test_the_same_structure_from_every_source():
    network = asia()
    policy = mq.Policy.build(
        network.schema, {name: mq.channels.symmetric(2, "0.05") for name in network.schema}
    )
    codes = simulate_codes(network.sample_codes(20_000, 3), policy, 3)
    whole = Records(codes, policy)
    halves = [Records({name: column[i::2].copy() for name, column in codes.items()}, policy) for i in (0, 1)]
    for order in (list(ASIA), None):
        expected = structure(whole, order).structure
        assert sum(map(len, expected.values())) >= 4
        assert structure(mq.Cached(whole), order).structure == expected
        assert structure(mq.Merged(halves), order).structure == expected


class Counting:
    """A source that counts batches and questions."""

    def __init__(self, source) -> None:
        self.source, self.schema, self.guarantee = source, source.schema, source.guarantee
        self.batches: list[int] = []

    def check(self, queries):
        return self.source.check(queries)

    def answer(self, queries):
        assert len(set(queries)) == len(queries)
        self.batches.append(len(queries))
        return self.source.answer(queries)


def test_questions_come_in_batches():
    source = Counting(clear(asia(), 5000, seed=4))
    found = structure(source, list(ASIA), max_parents=3)
    assert source.batches[0] == 8 * 7 / 2  # every pair once
    most = max(map(len, found.structure.values()))
    assert len(source.batches) == most + 2  # a step for each parent, one that finds none, the strengths
    source.batches.clear()
    structure(source, max_parents=2)
    assert source.batches[0] == 8 * 7 / 2


def test_noise_suggests_links_and_neither_the_likelihood_nor_the_design_effect_does():
    """Six independent binaries, p = .3, 40 runs of 15 pairs.

    A pair is linked if χ²₁ > log n: with probability .0024. Conditional tests after a false link add a
    few, so twice that is allowed for: the Poisson tail beyond `most` is below 1e-6.
    """
    most = int(stats.poisson.isf(1e-6, 600 * 2 * stats.chi2.sf(np.log(10_000), 1)))
    names = list("uvwxyz")
    policy = mq.Policy.build(
        mq.Schema({name: [0, 1] for name in names}), {name: mq.channels.symmetric(2, "0.3") for name in names}
    )
    generator = np.random.default_rng(6)
    likely, corrected, plain = 0, 0, 0
    for _ in range(40):
        codes = {name: generator.integers(0, 2, 10_000).astype(np.uint8) for name in names}
        source = mq.Cached(Records(simulate_codes(codes, policy, generator), policy))
        likely += len(structure(source, names).links)
        corrected += len(structure(source, names, correction=DesignEffect()).links)
        plain += len(structure(source, names, correction=Uncorrected()).links)
    assert max(likely, corrected) <= most < 20
    assert plain > 300


def test_corrections_by_name_are_those_of_the_command():
    source = Records(
        {name: np.arange(8, dtype=np.uint8) >> i & 1 for i, name in enumerate("abc")},
        mq.Policy.clear(mq.Schema({name: [0, 1] for name in "abc"})),
    )
    rules = {
        "likelihood": mq.learn.Likelihood(),
        "design-effect": mq.learn.DesignEffect(),
        "none": mq.learn.Uncorrected(),
        "constant:4": mq.learn.Constant(4),
        "eta:0.99": mq.learn.Eta(0.99),
    }
    read = mq.learn.learner("structure").read
    for name, rule in rules.items():
        by_name, by_rule = (structure(source, list("abc"), correction=it) for it in (name, rule))
        assert (by_name.structure, by_name.strengths) == (by_rule.structure, by_rule.strengths)
        assert by_name.correction == by_rule.correction
        assert read({"correction": name}, source.schema)["correction"] == rule
    for wrong in ("constant", "constant:x", "eta:", "bic", 4):
        with pytest.raises(InputError, match="one of likelihood, design-effect, none, constant:C and eta:E"):
            structure(source, correction=wrong)
    for wrong in ("constant:-1", "eta:2"):
        with pytest.raises(InputError, match="must be"):
            structure(source, correction=wrong)


def test_true_links_survive_the_correction():
    """A chain of strong links, p = .2: each is far beyond any bound (D ≈ 300 against log n = 9.2)."""
    schema = mq.Schema({name: [0, 1] for name in "abcd"})
    chain = {"a": (), "b": ("a",), "c": ("b",), "d": ("c",)}
    rows = np.array([[0.85, 0.15], [0.15, 0.85]])
    network = known_network(schema, chain, {name: rows if name != "a" else rows.mean(0) for name in chain})
    policy = mq.Policy.build(schema, {name: mq.channels.symmetric(2, "0.2") for name in schema})
    source = Records(simulate_codes(network.sample_codes(10_000, 5), policy, 5), policy)
    for score, order in product(("bic", "aic", "k2", bdeu(5.0)), (list("abcd"), None)):
        found = structure(source, order, score=score)
        assert differences(found.structure, chain)[1] == 0, score
    strengths = structure(source, list("abcd")).strengths
    assert max(s.p_value for s in strengths if (s.parent, s.child) in {("a", "b"), ("b", "c")}) < 1e-6


def test_ties_are_settled_by_the_names():
    generator = np.random.default_rng(9)
    b = generator.integers(0, 2, 2000).astype(np.uint8)
    y = np.where(generator.random(2000) < 0.8, b, 1 - b).astype(np.uint8)
    schema = mq.Schema({name: [0, 1] for name in ("copy", "b", "y")})
    source = Records({"copy": b.copy(), "b": b, "y": y}, mq.Policy.clear(schema))
    for order in (["copy", "b", "y"], ["b", "copy", "y"]):
        assert structure(source, order).structure["y"] == ("b",)


def test_links_are_required_and_forbidden():
    source = clear(asia(), 5000, seed=7)
    rules = {"required": [("xray", "dysp")], "forbidden": [("either", "dysp"), ("bronc", "smoke")]}
    for order in (list(ASIA), None):
        found = structure(source, order, **rules, restarts=1, seed=3)
        assert ("xray", "dysp") in found.links
        assert not set(rules["forbidden"]) & set(found.links)
    assert structure(source, list(ASIA), max_parents=0).links == []
    limited = structure(source, max_parents=1)
    assert max(map(len, limited.structure.values())) == 1


@pytest.mark.parametrize(("score", "rule"), [("bic", Constant(1e9)), ("k2", Eta(1e-6))])
def test_the_papers_rules_can_refuse_everything(score, rule):
    source = clear(asia(), 5000, seed=7)
    assert structure(source, list(ASIA), score=score, correction=rule).links == []
    assert structure(source, score=score, correction=rule).links == []


def test_tabu_never_ends_below_plain_climbing():
    source = mq.Cached(clear(random_network(8, np.random.default_rng(4)), 3000, seed=1))
    plain, tabu = (structure(source, tabu=length) for length in (0, 15))
    assert plain.links
    assert bic_of(source, tabu.structure) >= bic_of(source, plain.structure) - 1e-6
    again = structure(source, tabu=5, restarts=3, seed=2)
    assert structure(source, tabu=5, restarts=3, seed=2).structure == again.structure


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": ["asia"]}, "every variable once"),
        ({"order": [*list(ASIA)[:-1], "asia"]}, "every variable once"),
        ({"max_parents": -1}, "max_parents"),
        ({"score": "mdl"}, "no score"),
        ({"required": [("asia", "moon")]}, "unknown variable"),
        ({"required": [("asia", "tub")], "forbidden": [("asia", "tub")]}, "both required and forbidden"),
        ({"required": [("asia", "tub"), ("tub", "asia")]}, "cycle"),
        ({"required": [("asia", "tub")], "max_parents": 0}, "required parents"),
        ({"order": [*ASIA], "required": [("tub", "asia")]}, "against 'order'"),
    ],
)
def test_impossible_wishes_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        structure(clear(asia(), 100, seed=1), **options)


def test_no_records_and_single_variables():
    empty = Records(
        {"a": np.zeros(0, np.uint8), "b": np.zeros(0, np.uint8)},
        mq.Policy.clear(mq.Schema({"a": [0, 1], "b": [0, 1]})),
    )
    with pytest.raises(InputError, match="no records"):
        structure(empty)
    one = Records({"a": np.zeros(9, np.uint8)}, mq.Policy.clear(mq.Schema({"a": [0, 1]})))
    assert structure(one).structure == structure(one, ["a"]).structure == {"a": ()}


def test_the_likelihood_is_the_default():
    source = clear(asia(), 2000, seed=7)
    assert structure(source, list(ASIA)).correction == Likelihood().to_dict() == {"kind": "likelihood"}


def dependent(p: str, n: int, generator: np.random.Generator):
    """Return two dependent variables of five categories, shares ∝ .4^k, behind symmetric channels."""
    share = 0.4 ** np.arange(5)
    share /= share.sum()
    a = generator.choice(5, n, p=share)
    b = np.where(generator.random(n) < 0.25, a, generator.choice(5, n, p=share))
    schema = mq.Schema({"a": list(range(5)), "b": list(range(5))})
    policy = mq.Policy.build(schema, {name: mq.channels.symmetric(5, p) for name in schema})
    codes = {"a": a.astype(np.uint8), "b": b.astype(np.uint8)}
    return Records(simulate_codes(codes, policy, generator), policy)


def test_rare_categories_hide_no_link_between_frequent_ones():
    """b is a in a quarter of 10,000 records: D is many times the price of 16 parameters, always found."""
    generator = np.random.default_rng(10)
    sources = [dependent("0.2", 10_000, generator) for _ in range(50)]
    assert sum(bool(structure(source, ["a", "b"]).links) for source in sources) == 50
    assert not any(structure(source, ["a", "b"], correction=DesignEffect()).links for source in sources[:5])


@pytest.mark.parametrize(("p", "score"), [("0", "bic"), ("0.1", "bic"), ("0.1", "k2")])
def test_the_order_of_variables_in_the_policy_changes_nothing(p, score):
    network = random_network(8, np.random.default_rng(12))
    codes = network.sample_codes(5000, 4)
    sizes = {name: len(network.schema[name]) for name in network.schema}
    channels = {} if p == "0" else {name: mq.channels.symmetric(size, p) for name, size in sizes.items()}
    reports = simulate_codes(codes, mq.Policy.build(network.schema, channels), 5)
    found = []
    for seed in range(3):
        names = [str(name) for name in np.random.default_rng(seed).permutation(list(sizes))]
        policy = mq.Policy.build({name: network.schema[name].categories for name in names}, channels)
        source = Records({name: reports[name] for name in names}, policy)
        learned = structure(source, score=score, max_parents=2, restarts=1)
        assert list(learned.structure) == names
        found.append(as_sets(learned))
    assert found[0] == found[1] == found[2]
    assert sum(map(len, found[0].values())) > 3


def test_a_copy_of_a_noisy_parent_is_no_parent():
    """c copies b, which is disguised heavily; y depends on b alone. Whatever came first, c is not wanted."""
    generator = np.random.default_rng(13)
    b = generator.integers(0, 2, 20_000)
    c = np.where(generator.random(20_000) < 0.9, b, 1 - b)
    y = np.where(generator.random(20_000) < 0.85, b, 1 - b)
    schema = mq.Schema({name: [0, 1] for name in "bcy"})
    channels = {"b": mq.channels.symmetric(2, "0.3"), "c": mq.channels.symmetric(2, "0.05")}
    policy = mq.Policy.build(schema, channels)
    codes = {"b": b.astype(np.uint8), "c": c.astype(np.uint8), "y": y.astype(np.uint8)}
    judge = Judge(Records(simulate_codes(codes, policy, generator), policy), BIC, Likelihood())
    judge.learn(steps_of(2, (0, 1)))
    first_b = judge.value(2, (0,)) + judge.gain[judge.either(CandidateLink(2, (0,), 1))]
    first_c = judge.value(2, (1,)) + judge.gain[judge.either(CandidateLink(2, (1,), 0))]
    assert first_c > first_b + 100  # of clear counts the two sums are equal
    assert judge.value(2, (0, 1)) == first_b < judge.value(2, (0,))


def test_weighted_records_pay_by_their_effective_number():
    generator = np.random.default_rng(14)
    codes = {name: generator.integers(0, 2, 900).astype(np.uint8) for name in "ab"}
    weights = generator.choice([1.0, 9.0], 900)
    policy = mq.Policy.clear(mq.Schema({"a": [0, 1], "b": [0, 1]}))
    (table,) = Records(codes, policy, weights).answer([Query(by=("a", "b"))])
    assert effective_records(table) == pytest.approx(weights.sum() ** 2 / (weights**2).sum(), rel=1e-9)
    (plain,) = Records(codes, policy).answer([Query(by=("a", "b"))])
    assert effective_records(plain) == 900


@pytest.mark.parametrize("disguise", ["clear", "even", "mixed"])
def test_links_that_a_source_lays_out_together_are_judged_as_from_their_tables(disguise):
    """To the last digit: the same structure and strengths by K2 and climbing, few rows merged or not."""
    generator = np.random.default_rng()
    sizes = dict(zip("abcdef", (2, 3, 2, 4, 3, 2), strict=True))
    a = generator.integers(0, 2, 3000)
    codes = {"a": a.astype(np.uint8)}
    for name in "bcdef":
        parent = codes[str(generator.choice(list(codes)))]
        noise = generator.integers(0, sizes[name], 3000)
        codes[name] = np.where(generator.random(3000) < 0.6, parent % sizes[name], noise).astype(np.uint8)
    skewed = from_weights([[7, 2, 1, 0], [1, 7, 1, 1], [3, 1, 3, 3]])
    channels = {
        "clear": {},
        "even": {name: mq.channels.symmetric(size, "0.1") for name, size in sizes.items()},
        "mixed": {"a": mq.channels.symmetric(2, "0.1"), "b": skewed},
    }[disguise]
    policy = mq.Policy.build({name: list(range(size)) for name, size in sizes.items()}, channels)
    for rows in (3000, 60):
        reports = {k: v[:rows].copy() for k, v in simulate_codes(codes, policy, generator).items()}
        for order in (list("abcdef"), None):
            together, one_by_one = (
                structure(source, order, max_parents=3, score=BIC)
                for source in (Records(reports, policy), Asked(Records(reports, policy)))
            )
            assert together.to_dict() == one_by_one.to_dict()
    assert Records(reports, policy).links(["a", "b"], np.array([[0, 1]])) is not None


def test_what_cannot_be_laid_out_together_is_asked_as_tables():
    """Weights, strata, joint reports, and tables that are refused: with the words that they always have."""
    generator = np.random.default_rng()
    codes = {name: generator.integers(0, 2, 500).astype(np.uint8) for name in "ab"}
    clear = mq.Policy.clear(mq.Schema({"a": [0, 1], "b": [0, 1]}))
    pair = np.array([[0, 1]])
    assert Records(codes, clear, np.ones(500)).links(["a", "b"], pair) is None
    joint = mq.Policy.build({"a": [0, 1], "b": [0, 1]}, {("a", "b"): mq.channels.symmetric(4, "0.2")})
    assert Records(codes, joint).links(["a", "b"], pair) is None
    empty = Records({name: column[:0] for name, column in codes.items()}, clear)
    assert empty.links(["a", "b"], pair) is None
    with pytest.raises(InputError, match="no records"):
        structure(empty)
    wide = mq.Schema({name: list(range(1000)) for name in "abc"})
    codes = {name: generator.integers(0, 1000, 500).astype(np.uint16) for name in "abc"}
    records = Records(codes, mq.Policy.clear(wide))
    assert records.links(["a", "b", "c"], np.array([[0, 1, 2]])) is None
    assert records.links(["a", "b", "c"], np.array([[0, 1, -1]])) is not None


def test_records_that_do_not_say_how_they_were_disguised_warn_where_links_are_laid_out_too():
    generator = np.random.default_rng()
    frame = pd.DataFrame({"a": np.repeat("x", 3000), "b": generator.choice(["x", "y"], 3000)})
    channels = {name: mq.channels.symmetric(2, "0.3") for name in "ab"}
    policy = mq.Policy.build({"a": ["x", "y"], "b": ["x", "y"]}, channels)
    source = mq.tally(frame, policy)
    with pytest.warns(MasqueradeWarning, match="No truth explains the reports of 'a'"):
        structure(source, ["a", "b"])
