"""Which associations records can show: the least φ of every pair, against simulated tests."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, chi2, ncx2

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.core.links.deviance_test import link_tests
from masquerade.plan import visible_pairs
from masquerade.plan.power import associated_table, largest_association
from masquerade.sources.records import Records

SCHEMA = {"a": ["no", "yes"], "b": ["low", "middle", "high"], "c": ["u", "v"]}


def frame_of(n, seed, phi=0.0):
    draw = np.random.default_rng(seed)
    table = associated_table(np.array([0.6, 0.4]), np.array([0.3, 0.4, 0.3]), phi)
    cells = draw.choice(6, p=table.ravel(), size=n)
    codes = {"a": cells // 3, "b": cells % 3, "c": draw.integers(2, size=n)}
    return pd.DataFrame({name: np.array(SCHEMA[name])[codes[name]] for name in SCHEMA})


def test_clear_records_detect_what_the_textbook_says():
    result = visible_pairs(mq.tally(frame_of(2000, 1), schema=mq.Schema(SCHEMA)), ["a", "b"])
    centre = brentq(lambda c: ncx2.sf(chi2.isf(0.05, 2), 2, c) - 0.8, 1, 100)
    assert result.least[0] == pytest.approx(math.sqrt(centre / 2000), rel=0.05)  # margins are estimated
    assert result.medium[0] > 0.999
    assert result.to_frame()["shows"].tolist() == ["small associations"]


@pytest.mark.parametrize("together", [False, True])
def test_the_least_association_is_detected_with_the_stated_power(together):
    """False alarms: 1e-6, in 400 simulated tests, if the power is between 0.7 and 0.9."""
    channels = {("a", "b"): mq.channels.symmetric(6, 0.45)} if together else {
        "a": mq.channels.symmetric(2, 0.2), "b": mq.channels.symmetric(3, 0.25)
    }  # fmt: skip
    policy = mq.Policy.build(SCHEMA, channels)
    n = 4000
    first = mq.tally(mq.simulate(frame_of(n, 2), policy, seed=5), policy)
    least = float(visible_pairs(first, ["a", "b"]).least[0])
    first_margin, second_margin = np.array([0.6, 0.4]), np.array([0.3, 0.4, 0.3])
    change, largest = largest_association(first_margin, second_margin)
    assert least < largest < 1
    truth = np.outer(first_margin, second_margin) + least * change
    assert truth.min() >= 0
    group = policy.group("a")
    if together:
        law = truth.ravel() @ group.matrix_channel.matrix
    else:
        matrices = [policy.group(name).matrix_channel.matrix for name in "ab"]
        law = (matrices[0].T @ truth @ matrices[1]).ravel()
    cells, draw, found = np.indices((2, 3)).reshape(2, -1).astype(np.uint8), np.random.default_rng(3), 0
    runs = 400 if not together else 100
    for counts in draw.multinomial(n, law, size=runs):
        a, b = np.repeat(cells, counts, axis=1)
        records = Records({"a": a, "b": b, "c": np.zeros(n, dtype=np.uint8)}, policy)
        [table] = records.answer([mq.Query(by=("a", "b"))])
        [test] = link_tests([table], [(0, 1)], lambda: np.random.default_rng(0))
        found += test.p_value < 0.05
    assert binom.cdf(found, runs, 0.7) > 5e-7
    assert binom.sf(found - 1, runs, 0.9) > 5e-7


def test_a_thick_mask_shows_nothing_and_says_so():
    policy = mq.Policy.build(SCHEMA, {name: mq.channels.symmetric(len(SCHEMA[name]), 0.45) for name in "ac"})
    source = mq.tally(mq.simulate(frame_of(300, 2), policy, seed=5), policy)
    result = visible_pairs(source)
    assert result.least[result.pairs.index(("a", "c"))] == math.inf
    assert result.largest[result.pairs.index(("a", "c"))] <= 1 + 1e-9
    assert "No test can show an association, even if one variable rises with the other: " in result.summary()
    assert json.loads(json.dumps(result.to_dict()))["rows"][1]["least_phi"] is None
    assert result.plot().figure
    with pytest.raises(InputError, match="at least two"):
        visible_pairs(source, ["a"])
    with pytest.raises(InputError, match="between 0 and 1"):
        visible_pairs(source, power=80)
