"""One of something is told as one, wherever models and simulations are summed up."""

import pandas as pd

import masquerade as mq
from masquerade.cli.simulation_report import people

FRAME = pd.DataFrame({"sex": ["f", "m", "f", "m"], "ill": ["no", "yes", "no", "no"]})


def test_one_feature_one_leaf_one_person():
    source = mq.tally(FRAME)
    assert ": 1 feature, alpha" in mq.learn.naive_bayes(source, "ill").summary()
    tree = mq.learn.decision_tree(source, "ill", max_depth=0)
    assert ": 1 leaf, depth 0" in tree.summary()
    assert "1 leaf, depth 0" in repr(tree)
    assert (people(1), people(2)) == ("1 person", "2 people")
