"""Counts through designed channels are unbiased with the errors they claim; false alarms at most 1e-6."""

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import assert_unbiased, assert_variance

import masquerade as mq

LABELS = list("abcdefg")
CHANNELS = {
    "optimal": lambda: mq.channels.optimal(7, epsilon=1, queries="cumulative"),
    "block design": lambda: mq.channels.block_design(7, epsilon=1, size=3),
    "block design with points left out": lambda: mq.channels.block_design(7, epsilon="0.5", size=5),
    "subsets": lambda: mq.channels.subset_selection(7, epsilon=1),
    "Hadamard response": lambda: mq.channels.hadamard_response(7, epsilon=1),
    "bounds by pair": lambda: (
        mq.channels.optimal_pairwise(mq.channels.only_sensitive(7, [0, 1], gamma=3)).channel
    ),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_counts_are_unbiased_with_the_errors_they_claim(name):
    policy = mq.Policy.build({"x": LABELS}, {"x": CHANNELS[name]()})
    truth = np.array([700, 450, 300, 250, 150, 100, 50])
    people = pd.DataFrame({"x": np.repeat(LABELS, truth)})
    estimates, claimed = [], []
    for seed in range(150):
        [table] = mq.tally(mq.simulate(people, policy, seed=seed), policy).answer([mq.Query(by="x")])
        estimates.append(table.values)
        claimed.append(table.stderr("given_records") ** 2)
    assert_unbiased(estimates, truth)
    assert_variance(estimates, claimed)


def test_unary_bits_count_many_categories():
    variable = mq.Variable("town", tuple(f"t{i}" for i in range(40)))
    policy = mq.channels.unary_encoding(variable, epsilon=2)
    truth = np.arange(1, 41) * 5
    bits = pd.DataFrame(np.repeat(np.eye(40, dtype=bool), truth, axis=0), columns=list(policy.schema))
    queries = [mq.Query(where={name: True}) for name in policy.schema]
    estimates, claimed = [], []
    for seed in range(30):
        tables = mq.tally(mq.simulate(bits, policy, seed=seed), policy).answer(queries)
        estimates.append([float(table.values) for table in tables])
        claimed.append([float(table.stderr("given_records")) ** 2 for table in tables])
    assert_unbiased(estimates, truth)
    assert_variance(estimates, claimed)
