"""What a plan says of its errors is what happens: realised errors of random plans; false alarms ≤ 1e-6."""

import numpy as np
import pandas as pd
import pytest
from tests.statistical.checks import normal_bound

import masquerade as mq

RUNS = 120


@pytest.mark.parametrize(
    "case", [*range(3), *(pytest.param(case, marks=pytest.mark.slow) for case in range(3, 6))]
)
def test_realised_errors_are_those_planned(case):
    """Summed over the cells: the relative error of a variance over R runs is √(2/R) at most for each cell."""
    rng = np.random.default_rng([77, case])
    sizes = rng.integers(2, 5, size=rng.integers(2, 4))
    schema = mq.Schema({f"x{i}": list(range(size)) for i, size in enumerate(sizes)})
    prior = {name: rng.dirichlet(np.full(len(schema[name]), 4.0)).tolist() for name in schema}
    per = "record" if case % 2 else "variable"
    made = mq.plan(schema, privacy=float(rng.uniform(1, 3)), n=600, prior=prior, per=per)
    shares = [made.task.shares[name] for name in schema]
    errors = []
    for seed in range(RUNS):
        draw = np.random.default_rng([case, seed])
        people = pd.DataFrame(
            {name: draw.choice(len(share), 600, p=share) for name, share in zip(schema, shares, strict=True)}
        )
        source = mq.tally(mq.simulate(people, made.policy, seed=seed), made.policy)
        tables = source.answer([mq.Query(by=table) for table in made.task.tables])
        errors.append(
            [
                float(((table.values / 600 - _product(made, item.table)) ** 2).mean())
                for table, item in zip(tables, made.errors, strict=True)
            ]
        )
    realised = np.mean(errors, axis=0)
    planned = np.array([item.variance / 600 for item in made.errors])
    noise = np.std(errors, axis=0, ddof=1) / np.sqrt(RUNS)
    assert np.all(np.abs(realised - planned) <= normal_bound(len(planned)) * noise)


def _product(made, table):
    result = np.ones(())
    for name in table:
        result = np.multiply.outer(result, made.task.shares[name])
    return result
