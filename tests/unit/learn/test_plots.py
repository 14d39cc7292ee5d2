"""Every model has a picture, on axes of one's own or of a new figure."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import masquerade as mq
from masquerade.sources.records import Records

SCHEMA = mq.Schema({"a": ["x", "y"], "b": [1, 2], "bin": ["[0, 1)", "[1, 2)", "[2, 5)"]})
CHAIN = {"a": (), "b": ("a",), "bin": ("b",)}


def source(n=600):
    generator = np.random.default_rng(1)
    a = generator.integers(0, 2, n)
    b = np.where(generator.random(n) < 0.8, a, 1 - a)
    codes = {"a": a, "b": b, "bin": generator.integers(0, 3, n)}
    policy = mq.Policy.build(SCHEMA, {"a": mq.channels.binary("0.1")})
    return Records({name: column.astype(np.uint8) for name, column in codes.items()}, policy)


MODELS = {
    "naive Bayes": lambda: mq.learn.naive_bayes(source(), "a"),
    "tree": lambda: mq.learn.decision_tree(source(), "a"),
    "linear": lambda: mq.learn.linear_classifier(source(), "a", ["b", "bin"], "squares"),
    "pocket": lambda: mq.learn.linear_classifier(source(), "bin", ["a", "b"], steps=500),
    "rules": lambda: mq.learn.association_rules(source(), 0.1, 0.5),
    "no rules": lambda: mq.learn.association_rules(source(), 0.1, 1.0),
    "itemsets": lambda: mq.learn.frequent_itemsets(source()),
    "structure": lambda: mq.learn.structure(source()),
    "averaged": lambda: mq.learn.average_structures([CHAIN, {"a": (), "b": (), "bin": ("a",)}], 0.4),
    "network": lambda: mq.learn.bayesian_network(source(), CHAIN),
    "conditional table": lambda: mq.learn.bayesian_network(source(), CHAIN)["b"],
    "table without parents": lambda: mq.learn.bayesian_network(source(), CHAIN)["a"],
    "density": lambda: mq.learn.reconstructed_density(source(), "bin"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_drawn_on_new_axes_and_on_given_ones(name, tmp_path):
    model = MODELS[name]()
    axes = model.plot()
    axes.figure.savefig(tmp_path / "new.png")
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert model.plot(ax=right) is right
    figure.savefig(tmp_path / "given.png")
    assert len(right.get_children()) > len(left.get_children())
    for text in (*axes.texts, *axes.get_yticklabels()):
        assert "nan" not in text.get_text()


def test_on_small_axes_letters_shrink():
    network = MODELS["network"]()
    whole = {text.get_fontsize() for text in network.plot().texts}
    small = {text.get_fontsize() for text in network.plot(Figure(figsize=(1.5, 1)).subplots()).texts}
    assert max(small) < min(whole)


def test_links_are_as_wide_as_the_counts_speak_for_them():
    found = MODELS["averaged"]()
    widths = {arrow.get_linewidth() for arrow in found.plot().patches if "Arrow" in type(arrow).__name__}
    assert len(widths) == 1  # each of the links kept occurred in one structure of two
    assert found.frequency["a", "b"] == 0.5


def test_leaves_with_the_same_class_may_share_a_box():
    jobs = [f"job {place}" for place in range(12)]
    buys = ["yes" if (place % 12 < 4) != (place % 7 == 0) else "no" for place in range(720)]
    frame = pd.DataFrame({"job": jobs * 60, "buys": buys})
    tree = mq.learn.decision_tree(mq.tally(frame), "buys")
    apart, together = tree.plot(), tree.plot(grouped=True)
    boxes = [sum(isinstance(patch, FancyBboxPatch) for patch in axes.patches) for axes in (apart, together)]
    assert boxes == [13, 3]
    assert together.figure.get_size_inches()[0] < apart.figure.get_size_inches()[0] <= 11
    texts = [text.get_text() for text in together.texts]
    assert any(text.startswith("job 0, job 1") for text in texts)
    assert any(text.endswith("4 leaves") for text in texts)
    assert any(text.endswith("8 leaves") for text in texts)
