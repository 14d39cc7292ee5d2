"""Network parameters: exact on clear records, with correct errors on disguised ones."""

from __future__ import annotations

import json
import sys
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import assert_unbiased, assert_variance, normal_bound

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeWarning, SchemaError
from masquerade.data.example_networks import ELEVEN_NODES, eleven_nodes, eleven_nodes_policy
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn import model_file
from masquerade.learn.networks.graph import ancestral_order
from masquerade.learn.networks.network import BayesianNetwork, known_network
from masquerade.learn.networks.network_plot import (
    BOX_HEIGHT,
    Box,
    assign_layers,
    coordinates,
    crossings,
    order_layers,
)
from masquerade.sources.records import Records


def test_clear_parameters_are_the_relative_frequencies():
    frame = pd.DataFrame({"a": ["x", "x", "y", "y", "y"], "b": [0, 1, 1, 1, 1]})
    net = mq.learn.bayesian_network(mq.tally(frame), {"a": (), "b": ("a",)})
    np.testing.assert_allclose(net["a"].probabilities, [0.4, 0.6])
    np.testing.assert_allclose(net["b"].probabilities, [[0.5, 0.5], [0, 1]])
    np.testing.assert_allclose(net["a"].stderr, np.sqrt(0.4 * 0.6 / 5))
    np.testing.assert_allclose(net["b"].stderr, [[np.sqrt(0.25 / 2)] * 2, [0, 0]])


def test_unseen_parents_have_uniform_rows_and_say_so():
    schema = mq.Schema({"a": ["x", "y"], "b": [0, 1, 2]})
    source = mq.tally(pd.DataFrame({"a": ["x"] * 4, "b": [0, 1, 2, 2]}), schema=schema)
    with pytest.warns(MasqueradeWarning, match="1 of 3 configurations"):
        table = mq.learn.bayesian_network(source, {"a": (), "b": ("a",)})["b"]
    np.testing.assert_allclose(table.probabilities[1], 1 / 3)
    assert np.isinf(table.stderr[1]).all()
    assert table.has_records.tolist() == [True, False]


def test_structures_that_are_none_are_refused():
    source = mq.tally(pd.DataFrame({"a": [0, 1], "b": [0, 1]}))
    with pytest.raises(InputError, match="cycle"):
        mq.learn.bayesian_network(source, {"a": ("b",), "b": ("a",)})
    with pytest.raises(InputError, match="not a node"):
        mq.learn.bayesian_network(source, {"a": ("z",)})
    with pytest.raises(SchemaError, match="no variable 'z'"):
        mq.learn.bayesian_network(source, {"z": ()})
    assert ancestral_order({"c": ("b",), "b": ("a",), "a": ()}) == ["a", "b", "c"]


def test_the_papers_network_is_as_printed():
    net = eleven_nodes()
    assert net["L"].probabilities.tolist() == [[0.3, 0.4, 0.3], [0.7, 0.15, 0.15]]
    assert net["D"].probabilities[1, 2].tolist() == [0.35, 0.65]
    # 2 + 2 for A and S, 4 for T, X, F and G, 6 for L and B, 12 for E and D, 8 for C
    assert sum(table.probabilities.size for table in net.tables) == 64
    assert {float(eleven_nodes_policy().group(name).channel.gamma) for name in "CF"} == {7.5}
    assert eleven_nodes_policy().disguised == tuple(name for name in ELEVEN_NODES if name not in "TSG")


def test_sampling_follows_the_parameters():
    sample = eleven_nodes().sample_codes(40_000, seed=3)
    first = {name: (codes == 0).mean() for name, codes in sample.items()}
    # P(A=1) = 0.7; P(T=1) = .7·.1 + .3·.9 = 0.34; P(L=1) = (.3+.7)/2; z at 1e-6 for three
    bound = normal_bound(3)
    for name, p in (("A", 0.7), ("T", 0.34), ("L", 0.5)):
        assert abs(first[name] - p) < bound * np.sqrt(p * (1 - p) / 40_000)
    frame = eleven_nodes().sample(10, seed=1)
    assert list(frame.columns) == list(ELEVEN_NODES)
    assert set(frame["L"]) <= {1, 2, 3}


@pytest.mark.slow
def test_parameters_from_disguised_records_are_right_with_right_errors():
    """Node D of the papers' network, both parents disguised, over repeated samples."""
    structure, policy = {name: ELEVEN_NODES[name] for name in "SBTLEAD"}, eleven_nodes_policy()
    truth = eleven_nodes()["D"].probabilities
    estimates, variances = [], []
    generator = np.random.default_rng(14)
    for _ in range(400):
        codes = eleven_nodes().sample_codes(20_000, generator)
        source = Records(simulate_codes(codes, policy, generator), policy)
        table = mq.learn.bayesian_network(source, structure)["D"]
        estimates.append(table.probabilities)
        variances.append(table.stderr**2)
    # the ratio's own bias is of order variance/n: far below the Monte-Carlo error here
    assert_unbiased(estimates, truth)
    assert_variance(estimates, variances)


def test_impossible_parameters_are_refused():
    schema = mq.Schema({"a": [0, 1]})
    with pytest.raises(InputError, match="sum to 1"):
        known_network(schema, {"a": ()}, {"a": np.array([0.5, 0.6])})
    net = known_network(schema, {"a": ()}, {"a": np.array([1.1, -0.1])})
    with pytest.raises(InputError, match="negative estimates"):
        net.sample(5, seed=0)
    with pytest.raises(InputError, match="no node 'b'"):
        net["b"]
    assert "P(a)" in net.summary()


def learned(n=2000):
    """Return the papers' network from disguised records, some of its rows negative or unseen."""
    generator = np.random.default_rng(3)
    codes = simulate_codes(eleven_nodes().sample_codes(n, generator), eleven_nodes_policy(), generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MasqueradeWarning)
        return mq.learn.bayesian_network(Records(codes, eleven_nodes_policy()), ELEVEN_NODES)


@pytest.mark.parametrize("net", [eleven_nodes(), learned(), learned(60), learned(60).project()], ids=range(4))
def test_a_saved_network_is_the_same(net, tmp_path):
    model_file.save(net, tmp_path / "net.json")
    again = model_file.load(tmp_path / "net.json")
    assert again.schema == net.schema
    assert again.structure == net.structure
    for one, other in zip(net.tables, again.tables, strict=True):
        for name in ("probabilities", "stderr", "reliable", "estimate"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        for ours, theirs in zip(one.conf_int(0.9), other.conf_int(0.9), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(one.is_bounded(), other.is_bounded())
    assert again.to_dict() == net.to_dict()


def broken(change):
    values = json.loads(json.dumps(learned().to_dict()))
    change(values)
    return values


def test_files_that_are_no_network_are_refused():
    nodes = {name: place for place, name in enumerate(ELEVEN_NODES)}

    def put(name, key, value):
        return broken(lambda values: values["nodes"][nodes[name]].update({key: value}))

    cases = [
        (broken(lambda v: v.update(masquerade_model=2)), "format 2 is not known"),
        (broken(lambda v: v.update(kind="decision_tree")), "not 'bayesian_network'"),
        (broken(lambda v: v.pop("nodes")), "lacks 'nodes'"),
        (broken(lambda v: v["nodes"].append(3)), "a node must be an object"),
        (broken(lambda v: v["nodes"].append(v["nodes"][0])), "a variable twice"),
        (put("T", "parents", ["Z"]), "'Z' that is not a node"),
        (put("T", "parents", [["A"]]), "must be names"),
        (put("A", "parents", ["T"]), "cycle"),
        (put("A", "probabilities", [0.5, 0.6]), "rows that sum to 1"),
        (put("A", "probabilities", [0.5]), "must be 2 numbers"),
        (put("A", "probabilities", ["inf", "-inf"]), "finite numbers"),
        (put("A", "stderr", [0.1, -0.1]), "must not be negative"),
        (put("A", "reliable", 1), "'reliable' must be of type list or bool"),
        (put("T", "reliable", [True]), "'reliable' must be 2 times true or false"),
        (put("A", "unbiased", [1, 1]), "rows that sum to 1"),
        (put("A", "evidence", {}), "lacks 'records'"),
        (broken(lambda v: v["nodes"][0]["evidence"].update(records="inf")), "must be finite"),
        (broken(lambda v: v["nodes"][0]["evidence"].update(n=True)), "'n' must be of type int"),
    ]
    for values, message in cases:
        with pytest.raises(InputError, match=message):
            BayesianNetwork.from_dict(values)


def test_labels_of_several_types_survive_sampling():
    net = known_network(mq.Schema({"a": [1, "one"]}), {"a": ()}, {"a": np.array([0.5, 0.5])})
    assert set(net.sample(50, seed=1)["a"]) == {1, "one"}


def test_more_categories_than_a_byte_holds():
    shares = np.zeros(300)
    shares[299] = 1
    net = known_network(mq.Schema({"a": list(range(300))}), {"a": ()}, {"a": shares})
    assert set(net.sample(5, seed=1)["a"]) == {299}


def test_to_networkx():
    graph = eleven_nodes().to_networkx()
    assert sorted(graph.edges) == sorted((p, child) for child, own in ELEVEN_NODES.items() for p in own)
    assert list(graph.nodes) == list(ELEVEN_NODES)
    assert graph.nodes["D"]["parents"] == ("E", "B")
    assert graph.nodes["D"]["probabilities"].shape == (2, 3, 2)
    assert graph.nodes["L"]["categories"] == (1, 2, 3)


def test_frames_with_variables_named_like_columns():
    net = known_network(mq.Schema({"stderr": [0, 1]}), {"stderr": ()}, {"stderr": np.array([0.5, 0.5])})
    frame = net["stderr"].to_frame()
    assert list(frame.columns) == ["stderr", "probability", "stderr_", "lower", "upper", "reliable"]


@pytest.mark.parametrize("net", [eleven_nodes(), learned(60)], ids=["known", "learned"])
def test_the_picture_has_every_node_and_arrow_and_no_box_on_another(net, tmp_path):
    before = "matplotlib.pyplot" in sys.modules
    axes = net.plot()
    axes.figure.savefig(tmp_path / "net.png")
    assert (tmp_path / "net.png").read_bytes().startswith(b"\x89PNG")
    assert ("matplotlib.pyplot" in sys.modules) == before  # no global state
    kinds = [type(patch).__name__ for patch in axes.patches]
    assert kinds.count("FancyArrowPatch") == sum(len(parents) for parents in ELEVEN_NODES.values())
    assert kinds.count("FancyBboxPatch") == len(ELEVEN_NODES)
    assert {text.get_text() for text in axes.texts} >= set(ELEVEN_NODES)
    assert any("dashed" in text.get_text() for text in axes.texts) == (net is not eleven_nodes())
    boxes = [patch.get_bbox() for patch in axes.patches if type(patch).__name__ == "FancyBboxPatch"]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert axes.get_xlim()[0] < box.x0 < box.x1 < axes.get_xlim()[1]


def test_parents_stand_above_children_and_crossings_are_undone():
    structure = {"a": (), "b": (), "c": (), "x": ("c",), "y": ("b",), "z": ("a", "x")}
    layers, segments = assign_layers(structure)
    level = {spot: at for at, layer in enumerate(layers) for spot in layer}
    assert all(level[lower] == level[upper] + 1 for upper, lower in segments)
    below = {}
    for upper, lower in segments:
        below.setdefault(upper, []).append(lower)
    assert crossings([["a", "b"], ["c", "d"]], {"a": ["d"], "b": ["c"]}) == 1
    best = order_layers(layers, segments)
    assert crossings(best, below) == 0
    assert [sorted(map(str, layer)) for layer in best] == [sorted(map(str, layer)) for layer in layers]
    widths = dict.fromkeys(structure, 1.0)
    across = coordinates(best, segments, widths)
    for layer in best:
        names = [spot for spot in layer if isinstance(spot, str)]
        assert all(across[b] - across[a] > 1.0 for a, b in pairwise(names))


def test_long_names_are_cut_and_dollars_are_dollars():
    name = "$income$ of the household in thousands"
    net = known_network(mq.Schema({name: [0, 1]}), {name: ()}, {name: np.array([0.5, 0.5])})
    axes = net.plot()
    assert axes.texts[0].get_text() == r"\$income\$ of the house…"
    assert Box(name).width > BOX_HEIGHT
