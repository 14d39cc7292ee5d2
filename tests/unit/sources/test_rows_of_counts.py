"""Rows of a likelihood from tables of reports alone: the same rows as from the records, in another order."""

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.likelihood_rows import NoLikelihood
from masquerade.sources import likelihood_rows
from masquerade.sources.people.count_rounds import JointCounts

CATEGORIES = {"a": ["no", "yes"], "b": ["x", "y", "z"], "c": ["no", "yes"], "d": ["u", "v"]}
PEOPLE = pd.DataFrame(
    {
        name: np.random.default_rng(i).choice(labels, 900)
        for i, (name, labels) in enumerate(CATEGORIES.items())
    }
)
POLICIES = {
    "clear": mq.Policy.clear(mq.Schema(CATEGORIES)),
    "some disguised": mq.Policy.build(CATEGORIES, {"a": mq.channels.binary("0.2")}),
    "disguised together": mq.Policy.build(
        CATEGORIES, {("a", "c"): mq.channels.symmetric(4, "1/4"), "b": mq.channels.symmetric(3, "1/5")}
    ),
}


class Counted(JointCounts):
    """Joint tables of the reports of records, which this class does not show."""

    most_cells = 100

    def __init__(self, reports, policy):
        super().__init__(policy)
        self.n, self.asked = len(reports), []
        self._reports = mq.tally(pd.DataFrame(reports.to_dict("list")), schema=policy.observed)

    def count(self, questions):
        self.asked += questions
        tables = self._reports.answer([mq.Query(by=question.columns) for question in questions])
        return [table.values.round().astype(np.int64) for table in tables]


def described(rows):
    """Return the chances and known codes of all records, sorted."""
    known = [rows.known[name] for name in sorted(rows.known)]
    whole = np.column_stack([rows.chances[rows.report], *known]) if known else rows.chances[rows.report]
    return whole[np.lexsort(whole.T[::-1])]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("over", [("b",), ("c", "a"), ("d", "b", "a")], ids=".".join)
def test_rows_of_counts_are_those_of_the_records(name, over):
    policy = POLICIES[name]
    reports = mq.simulate(PEOPLE, policy, seed=5)
    expected = mq.tally(reports, policy).likelihood_rows(over)
    source = Counted(reports, policy)
    found = likelihood_rows.likelihood_rows_of_joint(source, over)
    assert (found.names, found.shape, found.n) == (expected.names, expected.shape, 900)
    assert set(found.known) == set(expected.known)
    assert not found.is_ordered
    assert described(found) == pytest.approx(described(expected))
    assert len(source.asked) == 1  # the one table of these variables


def test_regressions_of_counts_are_those_of_the_records():
    for policy in POLICIES.values():
        reports = mq.simulate(PEOPLE, policy, seed=6)
        source = Counted(reports, policy)
        source.likelihood_rows = lambda over, own=source: likelihood_rows.likelihood_rows_of_joint(own, over)
        found, expected = (
            mq.stats.logistic(it, "d[v] ~ a + c") for it in (source, mq.tally(reports, policy))
        )
        assert found.values == pytest.approx(expected.values, abs=1e-6)
        assert found.bse.to_numpy() == pytest.approx(expected.bse.to_numpy(), rel=1e-5)


def test_tables_that_are_too_large_have_no_rows(monkeypatch):
    policy = POLICIES["clear"]
    source = Counted(mq.simulate(PEOPLE, policy, seed=5), policy)
    source.most_cells = 11
    with pytest.raises(NoLikelihood, match="more than 11 cells"):
        likelihood_rows.likelihood_rows_of_joint(source, ("a", "b", "c"))
    assert not source.asked
    monkeypatch.setattr(likelihood_rows, "MOST_COUNTED", 899)
    with pytest.raises(NoLikelihood, match="at most 899 records"):
        likelihood_rows.likelihood_rows_of_joint(source, ("a",))
