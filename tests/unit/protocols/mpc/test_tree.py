"""A tree that is grown on shares is ID3's on the joined records, ties and small nodes included."""

import warnings
from math import log

import numpy as np
import pandas as pd
import pytest
from tests.unit.protocols.mpc.programs import Watched

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.protocols.mpc.family_counts import HiddenColumns
from masquerade.protocols.mpc.tree import Growth, tree, x_ln_x

TENNIS = [
    "sunny hot high weak no", "sunny hot high strong no", "overcast hot high weak yes",
    "rain mild high weak yes", "rain cool normal weak yes", "rain cool normal strong no",
    "overcast cool normal strong yes",
    "sunny mild high weak no", "sunny cool normal weak yes", "rain mild normal weak yes",
    "sunny mild normal strong yes", "overcast mild high strong yes", "overcast hot normal weak yes",
    "rain mild high strong no",
]  # fmt: skip


def tennis():
    """Quinlan's (1986) fourteen days."""
    names = ["outlook", "temperature", "humidity", "wind", "play"]
    return pd.DataFrame([line.split() for line in TENNIS], columns=names)


def parity(n=64):
    """Exclusive or, which nothing gains on at first, with features that say the same twice."""
    bits = np.array([[i >> place & 1 for place in range(3)] for i in range(n)])
    frame = pd.DataFrame(bits, columns=list("abc")).assign(d=bits[:, 0], e=1 - bits[:, 1])
    noisy = bits[:, 0] ^ (bits[:, 1] & (np.arange(n) % 7 == 0))
    return frame.assign(play=noisy)


def drawn(seed, n=200):
    """People of asia, some of whose states never occur together."""
    return mq.data.network("asia").sample(n, seed=seed).rename(columns={"dysp": "play"})


def grown(frame, owners=2, **told):
    schema = mq.tally(frame).schema
    features = [name for name in schema if name != "play"]
    growth = Growth.of("play", features, **told)
    parties = tuple("abcd"[:owners])
    holder = {name: parties[place % owners] for place, name in enumerate(schema)}
    codes = {name: np.array([schema[name].categories.index(v) for v in frame[name]]) for name in schema}
    sizes = {name: len(schema[name]) for name in schema}
    watched = Watched(parties, len(frame))

    def program(engine):
        own = {name: column for name, column in codes.items() if holder[name] == engine.name}
        return tree(engine, HiddenColumns(sizes, holder, own, len(frame)), growth)

    return watched.run(program), watched


def clear(frame, **told):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nodes are empty
        found = mq.learn.decision_tree(mq.tally(frame), "play", significance=None, **told)
    return [
        (None, (), node.best) if node.split is None else (node.split.feature, node.split.branches, None)
        for node in found.nodes
    ]


@pytest.mark.parametrize(
    ("frame", "owners", "told"),
    [
        (tennis(), 2, {}),
        (tennis(), 3, {"max_depth": 1, "min_records": 5}),
        (parity(), 2, {}),
        (drawn(5), 2, {"max_depth": 3}),
        (drawn(6), 3, {"max_depth": 2, "min_records": 20}),
        (tennis().assign(play="yes").iloc[:5], 2, {}),
        (tennis(), 2, {"max_depth": 0}),
    ],
    ids=["tennis", "tennis of three", "ties", "asia", "asia of three", "one class", "no question"],
)
def test_the_tree_is_the_clear_one(frame, owners, told):
    found, _ = grown(frame, owners, **told)
    assert [(node.feature, node.branches, node.label) for node in found] == clear(frame, **told)


def test_a_table_is_rounded_and_the_same_everywhere():
    table = x_ln_x(1000)
    due = [0.0] + [count * log(count) for count in range(1, 1001)]
    assert np.allclose(table / 2**30, due, rtol=0, atol=1e-8)
    assert abs(int(table[8] - 12 * table[2])) <= 13 / 2  # 8 ln 8 = 12 · 2 ln 2, but for half a unit each
    assert x_ln_x(2).tolist()[:2] == [0, 0]


def test_how_much_a_tree_tells_is_the_number_of_trees():
    sizes = {"x": 2, "y": 2, "t": 2}
    assert Growth.of("t", ["x", "y"]).bits_told(sizes) == 7  # of 2 + 2·(2 + 2²)² = 74 trees
    assert Growth.of("t", ["x"], 0).bits_told(sizes) == 1
    wide = {f"v{i}": 4 for i in range(30)} | {"t": 4}
    assert Growth.of("t", [f"v{i}" for i in range(30)]).bits_told(wide) is None


def test_too_large_tables_are_refused():
    frame = drawn(1, 30)
    wide = dict.fromkeys(frame, 6) | {"play": 2}
    with pytest.raises(InputError, match="smaller max_depth"):
        Growth.of("play", [name for name in frame if name != "play"]).check(wide)
    with pytest.raises(InputError, match="negative"):
        Growth("play", (), -1)
