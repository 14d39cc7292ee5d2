"""γ of the releases in a ledger: the rule by which it adds up."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.services.common.test_release_ledger import RELEASE

from masquerade.core.record_gamma import describe_gamma
from masquerade.services.common.ledger_totals import spending, summary, total
from masquerade.services.common.release_ledger import FILE, START, ReleaseLedger, entry_of


def ledger_of(tmp_path, *releases):
    with ReleaseLedger.open(tmp_path / FILE) as ledger:
        for changes in releases:
            ledger.append(replace(RELEASE, **changes))
        return ledger.entries()


def test_distinct_draws_multiply_and_repeats_do_not(tmp_path):
    entries = ledger_of(
        tmp_path,
        {"draw": "1", "gamma": Fraction(3)},
        {"draw": "1", "gamma": Fraction(3), "session": "s2"},  # the same reports again
        {"draw": "2", "gamma": Fraction(5, 2)},
        {"draw": None, "gamma": Fraction(2)},
        {"draw": None, "gamma": Fraction(2)},  # of which nothing is known: counted each time
        {"draw": "1", "gamma": Fraction(3), "recipient": "other"},
    )
    miner, other = spending(entries)
    assert (miner.recipient, miner.variables) == ("miner", ("region", "smoker"))
    assert miner.gamma == 3 * Fraction(5, 2) * 2 * 2
    assert (miner.releases, miner.repeats) == (5, 1)
    assert (other.gamma, other.releases, other.repeats) == (3, 1, 0)


def test_variables_are_a_set_and_other_sets_are_apart(tmp_path):
    entries = ledger_of(
        tmp_path,
        {"draw": "1", "gamma": Fraction(3), "variables": ("a", "b")},
        {"draw": "1", "gamma": Fraction(3), "variables": ("b", "a")},
        {"draw": "2", "gamma": Fraction(7), "variables": ("b", "c")},
    )
    spent = spending(entries)
    assert [(item.variables, item.gamma) for item in spent] == [(("a", "b"), 3), (("b", "c"), 7)]
    assert total(spent) == 21  # a record: both shift a belief about it


def test_without_a_bound_there_is_none(tmp_path):
    entries = ledger_of(tmp_path, {"gamma": None, "draw": "1"}, {"draw": "2"}, {"recipient": "other"})
    assert [item.gamma for item in spending(entries)] == [None, Fraction(9, 2)]
    assert total(spending(entries)) is None
    assert "no bound" in summary(entries)


def test_should_one_draw_have_two_gammas_the_larger_holds(tmp_path):
    entries = ledger_of(tmp_path, {"gamma": Fraction(3)}, {"gamma": Fraction(5)}, {"gamma": Fraction(2)})
    assert total(spending(entries)) == 5


def test_a_summary_can_be_read(tmp_path):
    assert summary(()) == "Nothing was released."
    entries = ledger_of(tmp_path, {}, {}, {"recipient": "helper", "gamma": Fraction(1), "variables": ()})
    assert summary(entries).split("\n") == [
        f"One person: {describe_gamma(Fraction(9, 2))}",
        "miner: a belief about a person can have shifted by γ = 4.5 (ε = 1.50) in all.",
        "- region, smoker: γ = 4.5 (ε = 1.50), 2 releases, 1 of them repeated.",
        "helper: a belief about a person can have shifted by γ = 1 (ε = 0) in all.",
        "- no variable: γ = 1 (ε = 0), 1 release.",
    ]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("AB"),
            st.sampled_from(["1", "2", None]),
            st.sampled_from(["ab", "ba", "c"]),
            st.sampled_from(["columns", "keys"]),
        ),
        max_size=8,
    )
)
def test_the_rule_against_a_count_by_hand(chosen):
    """γ = 2 each: 2 to the number of (recipient, draw, variables, kind) seen; without a draw always new."""
    entries = [
        entry_of(replace(RELEASE, recipient=r, draw=d, variables=tuple(v), kind=k, gamma=Fraction(2)), START)
        for r, d, v, k in chosen
    ]
    distinct = {(r, i if d is None else d, "".join(sorted(v)), k) for i, (r, d, v, k) in enumerate(chosen)}
    assert total(spending(entries)) == 2 ** len(distinct)
