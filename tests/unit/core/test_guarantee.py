"""The laws of combining guarantees."""

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.guarantee import ADVERSARIES, INTEGRITIES, Disclosure, Guarantee

gammas = st.none() | st.fractions(1, 20, max_denominator=9)
disclosures = st.builds(
    Disclosure,
    st.sampled_from(["miner", "client"]),
    st.sampled_from(["values", "sums"]),
    st.sampled_from([("a",), ("a", "b")]),
    gammas,
)
limits = st.none() | st.integers(0, 5)
guarantees = st.builds(
    Guarantee,
    st.lists(disclosures, max_size=3, unique_by=lambda item: (item.role, item.kind, item.variables)).map(
        tuple
    ),
    st.lists(st.sampled_from(["x", "y", "z"]), max_size=3, unique=True).map(tuple),
    st.dictionaries(st.sampled_from(["miner", "client"]), st.sampled_from(ADVERSARIES)),
    limits,
    st.lists(st.sampled_from([("a", "b"), ("c",)]), max_size=2, unique=True).map(tuple),
    limits,
    st.sampled_from(INTEGRITIES),
)


def by_key(guarantee):
    return {(item.role, item.kind, item.variables): item.gamma for item in guarantee.disclosures}


@pytest.mark.parametrize(("law", "join"), [("combine", lambda x, y: x * y), ("combine_disjoint", max)])
@given(first=guarantees, second=guarantees)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_gamma_joins_the_rest_is_the_union_and_the_weakest_holds(law, join, first, second):
    both = getattr(first, law)(second)
    left, right = by_key(first), by_key(second)
    for key, gamma in by_key(both).items():
        known = [side[key] for side in (left, right) if key in side]
        expected = None if None in known else known[0] if len(known) == 1 else join(*known)
        assert gamma == expected
    assert set(by_key(both)) == set(left) | set(right)
    assert set(both.assumptions) == set(first.assumptions) | set(second.assumptions)
    assert set(both.excluded_coalitions) == set(first.excluded_coalitions) | set(second.excluded_coalitions)
    for role, adversary in both.adversaries.items():
        assert (adversary == "semi-honest") == (
            "semi-honest" in {first.adversaries.get(role), second.adversaries.get(role)}
        )
    assert set(both.adversaries) == set(first.adversaries) | set(second.adversaries)
    for limit in ("colluders", "dropouts"):
        known = [value for value in (getattr(first, limit), getattr(second, limit)) if value is not None]
        assert getattr(both, limit) == (min(known) if known else None)
    worst = min(INTEGRITIES.index(first.integrity), INTEGRITIES.index(second.integrity))
    assert both.integrity == INTEGRITIES[worst]


@pytest.mark.parametrize("law", ["combine", "combine_disjoint"])
@given(first=guarantees, second=guarantees, third=guarantees)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_order_of_joining_does_not_matter(law, first, second, third):
    def join(one, other):
        return getattr(one, law)(other)

    assert join(join(first, second), third) == join(first, join(second, third))
    assert by_key(join(first, second)) == by_key(join(second, first))


@given(guarantees)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_plain_values_survive_json(guarantee):
    plain = json.loads(json.dumps(guarantee.to_dict(), allow_nan=False))
    assert [None if item["gamma"] is None else Fraction(item["gamma"]) for item in plain["disclosures"]] == [
        item.gamma for item in guarantee.disclosures
    ]
    assert plain["adversaries"] == guarantee.adversaries


def test_epsilon_is_the_logarithm_also_beyond_floating_point():
    assert Disclosure("m", "v", ("a",), Fraction(15, 2)).epsilon == pytest.approx(math.log(7.5))
    assert Disclosure("m", "v", ("a",), None).epsilon == math.inf
    # a thousand releases with γ = 3 each: 3^1000 is no float, ε is 1000 ln 3
    many = Disclosure("m", "v", ("a",), Fraction(3) ** 1000)
    assert many.epsilon == pytest.approx(1000 * math.log(3))
    assert "γ = 1.32×10^477 (ε = 1,099)" in Guarantee((many,)).summary()  # 1000 log₁₀ 3 = 477.1213


def test_the_summary_says_who_learns_what_and_on_which_assumption():
    text = Guarantee(
        (
            Disclosure("miner", "disguised values", ("a", "b"), Fraction(19)),
            Disclosure("all", "sums", ("c",), None),
        ),
        ("nobody colludes",),
    ).summary()
    assert text.splitlines() == [
        "miner learns disguised values of a, b: γ = 19 (ε = 2.94)",
        "all learns sums of c: no bound",
        "assuming nobody colludes",
    ]


def test_the_summary_says_against_whom_and_who_must_not_collude():
    text = Guarantee(
        (Disclosure("miner", "sums", ("a",), None),),
        (),
        {"miner": "malicious", "party": "semi-honest"},
        2,
        (("miner", "helper"),),
        0,
    ).summary()
    assert text.splitlines()[1:] == [
        "against a semi-honest party",
        "against a malicious miner",
        "as long as no more than 2 collude",
        "never if miner and helper collude",
        "nobody may drop out",
    ]
