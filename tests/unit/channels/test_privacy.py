"""What a whole policy guarantees."""

import json
import math
from fractions import Fraction

import pytest

from masquerade import channels as ch
from masquerade.channels.policy import Policy
from masquerade.channels.policy.privacy import ASSUMPTIONS, READER, guarantee_of, privacy
from masquerade.core.errors import InputError
from masquerade.core.guarantee import Disclosure

BINARY = {"categories": ["a", "b"]}


def policy_of(variables, **more):
    return Policy.from_dict({"masquerade": 1, "variables": variables, **more})


@pytest.fixture
def mixed():
    """Return one variable of every sort: alone, clear, grouped, two together."""
    return policy_of(
        {
            "alone": {**BINARY, "channel": {"kind": "binary", "p1": 0.1, "p2": 0.25}},
            "clear": BINARY,
            "i": BINARY,
            "j": BINARY,
        },
        joint=[{"variables": ["i", "j"], "channel": {"kind": "symmetric", "p": 0.3}}],
    )


def test_gamma_multiplies_over_the_disguised_groups_of_a_record(mixed):
    result = privacy(mixed)
    # binary(.1, .25): 15/2; symmetric on two binary items: .7·3/.3 = 7
    assert result.record_gamma == Fraction(15, 2) * 7
    assert result.clear == ("clear",)
    assert result.policy_id == mixed.id
    assert [item.variables for item in result.variables] == [("alone",), ("i",), ("j",)]
    assert [item.gamma for item in result.variables] == [Fraction(15, 2), 4, 4]  # Prop. 7.2: (.7+.1)/.2
    assert [(item.variables, item.gamma) for item in result.groups] == [(("i", "j"), 7)]


def test_figures_of_one_variable(mixed):
    item = privacy(mixed, {"alone": [0.5, 0.5]}, beliefs=[0.1]).variables[0]
    P = [[0.9, 0.1], [0.25, 0.75]]
    chance = [(P[0][m] + P[1][m]) / 2 for m in range(2)]
    H = -sum(P[l][m] / 2 * math.log2(P[l][m] / 2 / chance[m]) for l in range(2) for m in range(2))
    assert item.entropy == pytest.approx(H)
    assert item.prior_entropy == pytest.approx(1)
    assert item.vulnerability == pytest.approx((0.9 + 0.75) / 2)
    assert item.capacity == pytest.approx(0.9 + 0.75)
    assert item.k == 2
    assert item.breach == ((0.1, pytest.approx(7.5 * 0.1 / (1 + 6.5 * 0.1))),)
    assert item.epsilon == pytest.approx(math.log(7.5))
    assert item.disclosed_groups == ()
    skewed = privacy(mixed, {"alone": [0.9, 0.1]}).variables[0]
    assert skewed.prior_entropy == pytest.approx(-0.9 * math.log2(0.9) - 0.1 * math.log2(0.1))


def test_grouped_channels_disclose_the_group_by_its_labels():
    policy = policy_of(
        {
            "x": {
                "categories": ["a", "b", "c"],
                "channel": {"kind": "grouped", "groups": [["a", "c"], ["b"]], "p": 0.2},
            }
        }
    )
    (item,) = privacy(policy).variables
    assert (item.gamma, item.gamma_within) == (math.inf, 4)
    assert item.disclosed_groups == (("a", "c"), ("b",))
    assert privacy(policy).record_gamma == math.inf
    (plain,) = privacy(policy).to_dict()["variables"]
    assert (plain["gamma"], plain["within_group"]["gamma_exact"]) == (None, "4")
    assert guarantee_of(policy).disclosures == (Disclosure(READER, "disguised values", ("x",), None),)


def strata(first, second):
    """Return two variables x, y and a stratum s with the given channels of x in its two categories."""
    own = {label: {"x": channel} for label, channel in (("n", first), ("s", second)) if channel}
    return policy_of(
        {
            "x": {**BINARY, "channel": {"kind": "binary", "p": 0.2}},
            "y": {**BINARY, "channel": {"kind": "binary", "p": 0.25}},
            "s": {"categories": ["n", "s"]},
        },
        strata={"by": "s", "channels": own},
    )


def test_the_worst_stratum_counts_for_a_record():
    result = privacy(strata({"kind": "binary", "p": 0.1}, None))
    assert result.record_gamma == 9 * 3  # .9/.1 in the first stratum, .75/.25 of y
    assert result.clear == ("s",)
    # both channels of x are listed, the policy's own under no stratum, whichever stratum comes first
    listed = {(item.variables, item.stratum): item.gamma for item in result.variables}
    assert listed == {(("x",), "n"): 9, (("x",), None): 4, (("y",), None): 3}
    assert guarantee_of(strata({"kind": "binary", "p": 0.1}, None)).disclosures == (
        Disclosure(READER, "disguised values", ("x",), Fraction(9)),
        Disclosure(READER, "disguised values", ("y",), Fraction(3)),
        Disclosure(READER, "clear values", ("s",), None),
    )


def test_a_variable_seen_as_it_is_in_one_stratum_has_no_bound():
    result = privacy(strata(None, {"kind": "identity"}))
    assert result.record_gamma == math.inf
    assert result.guarantee.disclosures[0] == Disclosure(READER, "disguised values", ("x",), None)


def test_a_variable_without_a_channel_of_its_own_has_only_the_figures_of_its_group():
    rows = [["0.9", "0.1", 0, 0], ["0.5", "0.1", "0.4", 0], [0, 0, "0.9", "0.1"], [0, 0, "0.1", "0.9"]]
    policy = policy_of(
        {"x": BINARY, "y": BINARY},
        joint=[{"variables": ["x", "y"], "channel": {"kind": "matrix", "rows": rows}}],
    )
    result = privacy(policy)
    assert result.variables == ()
    assert [item.variables for item in result.groups] == [("x", "y")]


def test_thirteen_variables_flipped_together_have_their_figures():
    names = [f"v{i}" for i in range(13)]
    result = privacy(
        Policy.build({name: ["a", "b"] for name in names}, {tuple(names): ch.flip([2] * 13, "0.7")})
    )
    (group,) = result.groups
    assert (group.gamma, group.gamma_within, group.entropy) == (math.inf, Fraction(7, 3), None)
    assert [item.gamma for item in result.variables] == [Fraction(7, 3)] * 13


def test_a_policy_that_hides_nothing_assumes_nothing():
    guarantee = guarantee_of(policy_of({"x": BINARY, "y": BINARY}))
    assert guarantee.disclosures == (Disclosure(READER, "clear values", ("x", "y"), None),)
    assert guarantee.assumptions == ()
    assert privacy(policy_of({"x": BINARY})).variables == ()


def test_the_guarantee_of_a_disguise_names_its_assumptions(mixed):
    guarantee = guarantee_of(mixed)
    assert guarantee.assumptions == ASSUMPTIONS
    assert [(item.variables, item.gamma) for item in guarantee.disclosures] == [
        (("alone",), Fraction(15, 2)),
        (("i", "j"), Fraction(7)),
        (("clear",), None),
    ]


def test_plain_values_are_json_without_infinities(mixed):
    plain = json.loads(json.dumps(privacy(mixed).to_dict(), allow_nan=False))
    assert plain["record"] == {
        "gamma": 52.5,
        "gamma_exact": "105/2",
        "epsilon": pytest.approx(math.log(52.5)),
    }
    assert plain["disclosed_in_clear"] == ["clear"]
    assert plain["variables"][0]["breach"][1]["rho1"] == 0.05


def test_a_thousand_variables_do_not_overflow():
    # γ = 3 each: 3^1000 ≈ 10^477 is beyond floating point, ε is not
    names = [f"v{i}" for i in range(1000)]
    policy = Policy.build({name: ["a", "b"] for name in names}, {name: ch.binary("0.25") for name in names})
    record = privacy(policy).to_dict()["record"]
    assert record["gamma"] is None
    assert Fraction(record["gamma_exact"]) == 3**1000
    assert record["epsilon"] == pytest.approx(1000 * math.log(3))


def test_figures_that_are_too_long_to_write_are_rounded_up():
    """The attack: Python refuses to write numbers of 4,300 digits, after the records were released."""
    channel, names = ch.symmetric(3, "0.123456789012345"), [f"v{i}" for i in range(600)]
    policy = Policy.build({name: ["a", "b", "c"] for name in names}, dict.fromkeys(names, channel))
    found = privacy(policy)
    assert found.record_gamma == channel.gamma**600
    with pytest.raises(ValueError, match="Exceeds the limit"):
        str(found.record_gamma)
    told = found.to_dict()["record"]
    assert found.record_gamma <= Fraction(told["gamma_exact"]) <= found.record_gamma * Fraction(1001, 1000)
    twice = found.guarantee
    for _ in range(400):
        twice = twice.combine(found.guarantee)
    (first, *_) = twice.to_dict()["disclosures"]
    assert channel.gamma**401 <= Fraction(first["gamma"]) <= channel.gamma**401 * Fraction(1001, 1000)


def test_priors_are_for_variables_that_exist_and_are_distributions(mixed):
    with pytest.raises(InputError, match=r"'alon', an unknown variable\. Did you mean 'alone'\?"):
        privacy(mixed, {"alon": [0.5, 0.5]})
    with pytest.raises(InputError, match="2 probabilities"):
        privacy(mixed, {"alone": [0.5, 0.6]})
