"""What sources that are people refuse, where a table of records would answer; and why."""

from __future__ import annotations

import pytest
from tests.conformance.cases import Case, case
from tests.conformance.people import FEW, SOME, by_aggregation, by_frequency_mining

import masquerade as mq
from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.simulation.aggregation import Aggregation as Masked

BOTH = {"frequency mining": by_frequency_mining, "secure aggregation": by_aggregation}
ALL = mq.Query(by=("C", "D", "A", "B"))


def undisguised() -> Case:
    """Return people whose clear records are counted: what one answered may show in a difference."""
    known = case("independent")
    return Case("clear", known.policy.without_channels(), known.clear, known.clear)


def leave(people) -> None:
    """Take one person away."""
    people.gone.add(SOME - 1 if isinstance(people, Masked) else f"user {FEW}")


@pytest.mark.parametrize("protocol", BOTH)
def test_one_departed_ends_new_questions_about_clear_records_and_keeps_the_old_answers(protocol):
    people, tally = BOTH[protocol](undisguised())
    (before,) = tally.answer([mq.Query(by=("A", "B"))])
    leave(people)
    with pytest.raises((QueryRefused, RoundAborted)):
        tally.answer([mq.Query(by="D")])
    assert [refusal.code for refusal in tally.check([mq.Query(by="D")])] == ["departed_too_few"]
    (after,) = tally.answer([mq.Query(by="A")])
    assert after.values.tolist() == before.marginal(("A",)).values.tolist()
    assert after.n == before.n


@pytest.mark.parametrize("protocol", BOTH)
def test_a_batch_with_too_many_cells_is_refused_as_a_whole(protocol):
    sizes = {name: list(range(40)) for name in "VWXY"}
    policy = mq.Policy.clear(mq.Schema(sizes))
    frame = case("independent").clear.iloc[:SOME].reset_index(drop=True)
    frame = frame.assign(**dict.fromkeys(sizes, 0))[list(sizes)]
    _, tally = BOTH[protocol](Case("wide", policy, frame, frame))
    queries = [mq.Query(by="V"), mq.Query(by=("V", "W", "X", "Y"))]
    assert "too_many_cells" in {refusal.code for refusal in tally.check(queries)}
    with pytest.raises(QueryRefused, match=r"cells|pairs of keys"):
        tally.answer(queries)
    assert tally.check(queries[:1]) == []
