"""Models fitted to what several parties hold are those of their records in one place, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conformance.cases import SPECS, case
from tests.conformance.sources import SOURCES

import masquerade as mq

POOLED = {source.name: source for source in SOURCES if source.name in ("merged", "pooled parties")}


@pytest.mark.parametrize("source", POOLED)
@pytest.mark.parametrize("name", SPECS)
def test_a_model_is_fitted_as_to_the_joined_records(source, name):
    one, several = mq.tally(case(name).disguised, case(name).policy), POOLED[source].make(case(name))
    for query in (mq.Query(by=("A", "B")), mq.Query(by=("B", "C"), where={"A": "yes"})):
        (joined,), (pooled,) = one.answer([query]), several.answer([query])
        for model in ([[name] for name in query.by], [query.by]):
            wanted, found = joined.fit(model), pooled.fit(model)
            np.testing.assert_array_equal(found.expected, wanted.expected)
            assert (found.deviance, found.df, found.pearson) == (wanted.deviance, wanted.df, wanted.pearson)
        np.testing.assert_array_equal(pooled.nonnegative().values, joined.nonnegative().values)


def test_both_kinds_of_pools_are_there():
    assert len(POOLED) == 2
