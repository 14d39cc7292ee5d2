"""What all releases in a ledger reveal about one person, against cases computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.services.common.test_release_ledger import RELEASE

from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit
from masquerade.core.errors import InputError
from masquerade.services.common.ledger_totals import person_total
from masquerade.services.common.release_ledger import CLEAR, FILE, ReleaseLedger, inspect


def made(**changes):
    return replace(RELEASE, **{"draw": None, "gamma": Fraction(2)} | changes)


def test_waves_multiply_and_the_same_draw_counts_once_whoever_gets_it():
    total = person_total(
        [
            made(draw="memo p1", gamma=Fraction(3)),
            made(draw="memo p1", gamma=Fraction(3), recipient="other"),  # the same reports elsewhere
            made(draw="memo p2", gamma=Fraction(4)),  # a wave under another policy
            made(gamma=Fraction(3, 2)),  # without a memo: always a new draw
        ]
    )
    assert (total.gamma, total.bound) == (18, 18)
    assert (total.releases, total.draws, total.recipients) == (4, 3, ("miner", "other"))
    assert total.is_within(DEFAULT_LIMIT)
    assert total.left(DEFAULT_LIMIT) == Fraction(19, 18)


def test_some_variables_of_a_draw_add_nothing_to_all_of_them():
    draws = [
        made(draw="m", variables=("a",), gamma=Fraction(2)),
        made(draw="m", variables=("b", "a"), gamma=Fraction(6)),
        made(draw="m", variables=("c",), gamma=Fraction(5)),
    ]
    assert person_total(draws).gamma == 30
    larger = made(draw="m", variables=("a",), gamma=Fraction(7))  # a ledger that contradicts itself
    assert person_total([*draws, larger]).gamma == 210


def test_noise_of_sums_adds_and_is_bounded_from_above():
    noisy = {"gamma": Fraction(1), "kind": "sum with noise"}
    total = person_total(
        [
            made(gamma=Fraction(3), draw="m"),
            made(**noisy, epsilon=Fraction(1, 2), delta=Fraction(1, 1000)),
            made(**noisy, epsilon=Fraction(1, 4), delta=Fraction(1, 1000)),
        ]
    )
    assert (total.epsilon, total.delta) == (Fraction(3, 4), Fraction(1, 500))
    assert total.bound >= 3 * Fraction(math.exp(0.75)) - Fraction(1, 10**12)
    assert float(total.bound) == pytest.approx(3 * math.exp(0.75), rel=1e-12)
    assert total.bound < DEFAULT_LIMIT.gamma
    assert not total.is_within(DEFAULT_LIMIT)  # a limit has δ = 0
    assert "δ = 0.002" in " ".join(total.lines(DEFAULT_LIMIT))
    assert "Only δ exceeds" in " ".join(total.lines(DEFAULT_LIMIT))
    allowed = PrivacyLimit.parse({"breach": "5%:50%", "delta": "0.002"})
    assert total.is_within(allowed)
    assert float(total.left(allowed)) == pytest.approx(19 / (3 * math.exp(0.75)))
    assert not total.is_within(PrivacyLimit.parse({"epsilon": "1.8", "delta": "0.002"}))  # ln 3 + ¾ = 1.85


def test_clear_is_clear_and_the_rest_is_bounded_given_it():
    clear = made(kind=CLEAR, gamma=None, variables=("region",))
    total = person_total([clear, made(gamma=Fraction(9), draw="m")])
    assert (total.clear, total.unbounded, total.bound) == (("region",), (), 9)
    exact = made(kind="counts", gamma=None, variables=("ill",))
    unbounded = person_total([clear, exact])
    assert (unbounded.unbounded, unbounded.bound) == (("ill",), math.inf)
    assert not unbounded.is_within(PrivacyLimit.parse({"gamma": 10**9}))
    assert unbounded.lines(DEFAULT_LIMIT)[0].endswith("may be certain after seeing everything.")


def test_noise_is_kept_in_the_file_and_earlier_lines_stay_as_they_were(tmp_path):
    plain, noisy = made(draw="m"), made(gamma=Fraction(1), epsilon=Fraction(1, 3), delta=Fraction(1, 9))
    with ReleaseLedger.open(tmp_path / FILE) as ledger:
        ledger.append(plain)
        ledger.append(noisy)
    first, second = (tmp_path / FILE).read_text().splitlines()
    assert "epsilon" not in first
    assert '"epsilon":"1/3"' in second
    assert [entry.release for entry in inspect(tmp_path / FILE)[0]] == [plain, noisy]
    for changes in ({"delta": Fraction(1, 2)}, {"epsilon": Fraction(0)}, {"epsilon": 0.5}):
        with pytest.raises(InputError, match=r"epsilon|delta"):
            made(**changes)


HISTORIES = st.lists(
    st.tuples(
        st.sampled_from(["1", "2", None]),
        st.sampled_from(["a", "ab", "ba", "abc"]),
        st.sampled_from("AB"),
        st.booleans(),
    ),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(HISTORIES)
def test_any_history_against_a_count_by_hand(history):
    """γ = 2 to the number of variables: of a draw the largest set counts, all sets here are nested."""
    releases = [
        made(draw=draw, variables=tuple(names), recipient=who, gamma=Fraction(2 ** len(names)))
        for draw, names, who, _ in history
    ]
    named = {draw: 0 for draw, *_ in history if draw}
    for draw, names, *_ in history:
        named |= {draw: max(named[draw], len(names))} if draw else {}
    exponent = sum(named.values()) + sum(len(names) for draw, names, *_ in history if draw is None)
    total = person_total(releases)
    assert total.bound == 2**exponent
    assert person_total(reversed(releases)).bound == total.bound
    for number in range(len(releases)):  # nothing that was learned is forgotten
        assert person_total(releases[:number]).bound <= total.bound
    by_recipient = [person_total(one for one in releases if one.recipient == who) for who in "AB"]
    assert total.bound <= math.prod(one.bound for one in by_recipient)
