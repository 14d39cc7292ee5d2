"""Queries against the whole joint distribution, and what is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning, SchemaError
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes, eleven_nodes_policy
from masquerade.learn.networks._inference import elimination_order, query
from masquerade.learn.networks.network import known_network
from masquerade.sources.records import Records


def random_network(seed, nodes=7):
    """Return a network of two to four categories a node, with up to three parents."""
    generator = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(nodes)]
    sizes = {name: int(generator.integers(2, 5)) for name in names}
    structure, tables = {}, {}
    for i, name in enumerate(names):
        picked = generator.choice(i, size=min(i, int(generator.integers(0, 4))), replace=False)
        structure[name] = tuple(names[j] for j in picked)
        shape = [sizes[parent] for parent in structure[name]]
        tables[name] = generator.dirichlet(np.ones(sizes[name]), size=shape or None)
    schema = mq.Schema({name: [f"{name}={k}" for k in range(size)] for name, size in sizes.items()})
    return known_network(schema, structure, tables)


def whole(net):
    """Return the joint distribution of all nodes, axes in their order."""
    names = list(net.structure)
    joint = np.ones([len(net.schema[name]) for name in names])
    for cell in np.ndindex(joint.shape):
        at = dict(zip(names, cell, strict=True))
        for table in net.tables:
            joint[cell] *= table.probabilities[tuple(at[axis.name] for axis in table.axes)]
    return joint


@pytest.mark.parametrize("seed", range(5))
def test_answers_are_those_of_the_joint_distribution(seed):
    net, generator = random_network(seed), np.random.default_rng(100 + seed)
    joint, names = whole(net), list(net.structure)
    for _ in range(12):
        shuffled = generator.permutation(names).tolist()
        targets, known = shuffled[: generator.integers(1, 4)], shuffled[4 : 4 + generator.integers(0, 4)]
        codes = {name: int(generator.integers(len(net.schema[name]))) for name in known}
        evidence = {name: net.schema[name].categories[code] for name, code in codes.items()}
        found = net.query(targets, evidence)
        part = joint[tuple(codes.get(name, slice(None)) for name in names)]
        left = [name for name in names if name not in codes]
        summed = part.sum(axis=tuple(i for i, name in enumerate(left) if name not in targets))
        order = [name for name in left if name in targets]
        expected = summed.transpose([order.index(name) for name in targets]) / summed.sum()
        np.testing.assert_allclose(found.probabilities, expected, atol=1e-12)
        assert [axis.name for axis in found.axes] == targets


def test_a_distribution_says_what_it_is():
    net = eleven_nodes()
    found = net.query("T", {"A": 1})
    assert found[1] == pytest.approx(0.1)
    assert found[2] == pytest.approx(0.9)
    assert net.query("A")[1] == pytest.approx(0.7)
    # P(A=1 | T=1) = .7·.1/(.7·.1 + .3·.9)
    assert net.query("A", {"T": 1})[1] == pytest.approx(0.07 / 0.34)
    both = net.query(("A", "T"))
    assert both[1, 2] == pytest.approx(0.63)
    assert both.to_frame().columns.tolist() == ["A", "T", "probability"]
    assert both.to_frame()["probability"].sum() == pytest.approx(1)
    assert found.summary().startswith("P(T | A=1)\n")
    with pytest.raises(InputError, match="over A, T"):
        both[1]
    with pytest.raises(SchemaError, match="not a category"):
        found[3]


def test_questions_that_are_none_are_refused():
    net = eleven_nodes()
    for target, evidence, error, message in [
        ("Z", {}, SchemaError, "no node 'Z'"),
        ("A", {"Z": 1}, SchemaError, "no node 'Z'"),
        ("A", {"T": 3}, SchemaError, "not a category of 'T'"),
        ("A", {"A": 1}, InputError, "named twice"),
        (("A", "A"), {}, InputError, "named twice"),
        ((), {}, InputError, "at least one target"),
    ]:
        with pytest.raises(error, match=message):
            net.query(target, evidence)


def test_impossible_evidence_is_refused():
    schema = mq.Schema({"a": [0, 1], "b": [0, 1]})
    net = known_network(schema, {"a": (), "b": ("a",)}, {"a": np.array([1.0, 0]), "b": np.eye(2)})
    with pytest.raises(InputError, match="probability 0"):
        net.query("a", {"b": 1})


def test_negative_estimates_must_be_projected_first():
    policy = eleven_nodes_policy()
    codes = {name: np.zeros(3, dtype=np.uint8) for name in ELEVEN_NODES}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MasqueradeWarning)
        net = mq.learn.bayesian_network(Records(codes, policy), ELEVEN_NODES)
    with pytest.raises(InputError, match=r"project\(\) for inference"):
        net.query("A")
    assert net.project().query("A").probabilities.sum() == pytest.approx(1)


def grid(size):
    """Return a grid of binary nodes, each with the one above and the one to the left as parents."""
    names = {(i, j): f"g{i}_{j}" for i in range(size) for j in range(size)}
    structure = {
        name: tuple(names[spot] for spot in ((i - 1, j), (i, j - 1)) if spot in names)
        for (i, j), name in names.items()
    }
    schema = mq.Schema({name: [0, 1] for name in structure})
    generator = np.random.default_rng(1)
    tables = {name: generator.dirichlet([1, 1], size=[2] * len(p) or None) for name, p in structure.items()}
    return known_network(schema, structure, tables)


def test_what_is_too_wide_is_refused_before_any_work_and_says_where_to_go():
    net = grid(30)
    with pytest.raises(InputError, match="use engine='pyagrum'"):
        net.query("g29_29")
    small = grid(4)
    wanted = small.query("g3_3")
    with pytest.raises(InputError, match="the limit is 4"):
        query(small, "g3_3", max_cells=4)
    # 4 × 4: the cut between rows is 4 nodes and one more, so 2^5 cells are enough
    np.testing.assert_allclose(query(small, "g3_3", max_cells=2**5).probabilities, wanted.probabilities)
    # only ancestors matter
    assert net.query("g0_1").probabilities.shape == (2,)


def test_the_order_fills_in_no_links_where_none_are_needed():
    sizes = dict.fromkeys("abcde", 2)
    order, largest = elimination_order(["ab", "bc", "cd", "de"], ["c"], sizes)
    assert sorted(order) == ["a", "b", "d", "e"]
    assert largest == 4
    # a star: the leaves first, else the centre would tie them all together
    order, largest = elimination_order(["ab", "ac", "ad", "ae"], [], sizes)
    assert order[-1] in "ae"
    assert largest == 4


def test_long_chains_do_not_underflow():
    names = [f"n{i}" for i in range(3000)]
    schema = mq.Schema({name: [0, 1] for name in names})
    structure = {name: (names[i - 1],) if i else () for i, name in enumerate(names)}
    rows = np.array([[0.5, 0.5], [0.5, 0.5]])
    net = known_network(schema, structure, {name: rows if structure[name] else rows[0] for name in names})
    evidence = dict.fromkeys(names[1:], 0)
    # P(evidence) = 2^−2999 is no float
    assert net.query("n0", evidence)[0] == pytest.approx(0.5)


def test_pyagrum_gives_the_same_answers():
    generator = np.random.default_rng(3)
    schema = mq.Schema({name: [f"{name}{k}" for k in range(3)] for name in "abcdef"})
    structure = {"a": (), "b": ("a",), "c": ("a", "b"), "d": ("c", "a"), "e": ("d", "b"), "f": ("e", "c")}
    tables = {
        name: generator.dirichlet(np.ones(3), size=schema.shape(parents))
        for name, parents in structure.items()
    }
    network = known_network(schema, structure, tables)
    for target in (["f"], ["f", "a"], ["b", "e", "c"]):
        own = query(network, target, {"d": "d1"})
        theirs = query(network, target, {"d": "d1"}, engine="pyagrum")
        np.testing.assert_allclose(theirs.probabilities, own.probabilities, atol=1e-12)


def test_an_engine_that_is_not_there_is_refused_with_what_to_do(monkeypatch):
    schema = mq.Schema({"a": [0, 1], "b": [0, 1]})
    network = known_network(
        schema, {"a": (), "b": ("a",)}, {"a": np.array([0.4, 0.6]), "b": np.full((2, 2), 0.5)}
    )

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr("masquerade.learn.networks._inference.import_module", absent)
    with pytest.raises(InputError, match="pip install 'masquerade"):
        query(network, "b", engine="pyagrum")
    with pytest.raises(InputError, match="must be 'built-in' or 'pyagrum'"):
        query(network, "b", engine="oracle")
