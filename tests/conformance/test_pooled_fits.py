"""Models fitted to what several parties hold are those of their records in one place.

To the last bit, but for merged blocks and groups, whose samples are added up in another order.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.conformance.cases import SPECS, case
from tests.conformance.sources import SOURCES

import masquerade as mq

ROUNDING = 1e-11
POOLED = {source.name: source for source in SOURCES if source.name in ("merged", "pooled parties")}


@pytest.mark.parametrize("source", POOLED)
@pytest.mark.parametrize("name", SPECS)
def test_a_model_is_fitted_as_to_the_joined_records(source, name):
    one, several = mq.tally(case(name).disguised, case(name).policy), POOLED[source].make(case(name))
    rtol = ROUNDING if source == "merged" and name in {"blocks", "more reports than truths"} else 0
    for query in (mq.Query(by=("A", "B")), mq.Query(by=("B", "C"), where={"A": "yes"})):
        (joined,), (pooled,) = one.answer([query]), several.answer([query])
        for model in ([[name] for name in query.by], [query.by]):
            wanted, found = joined.fit(model), pooled.fit(model)
            np.testing.assert_allclose(found.expected, wanted.expected, rtol=rtol)
            told = [(fit.deviance, fit.df, fit.pearson) for fit in (found, wanted)]
            np.testing.assert_allclose(*told, rtol=rtol, atol=rtol * joined.n)
        np.testing.assert_allclose(pooled.nonnegative().values, joined.nonnegative().values, rtol=rtol)


def test_both_kinds_of_pools_are_there():
    assert len(POOLED) == 2
