"""Policies by which nothing could be learnt are named, and no report is drawn by them."""

import pandas as pd
import pytest

import masquerade as mq
from masquerade.channels.policy.estimability import refuse_unusable, unusable
from masquerade.core.errors import PolicyError

SURVEY = {"smoker": ["yes", "no"], "region": ["n", "s", "w"]}
COIN = {"smoker": mq.channels.binary("1/2"), "region": mq.channels.symmetric(3, "0.3")}
BLIND = {"region": mq.channels.symmetric(3, "2/3")}
ALIKE = {"region": mq.channels.matrix([["1/2", "1/4", "1/4"], ["1/2", "1/4", "1/4"], ["1/4", "1/4", "1/2"]])}
CLEAR = pd.DataFrame({"smoker": ["yes", "no"], "region": ["n", "s"]})


@pytest.mark.parametrize(
    ("channels", "name", "says"),
    [
        (COIN, "smoker", r"\(γ = 1\): nothing can be learnt\. .*unrelated_question"),
        (BLIND, "region", r"\(γ = 1\): nothing can be learnt\. Take a smaller probability"),
        (ALIKE, "region", "Two truths give the same reports"),
    ],
)
def test_what_tells_nothing_is_named_and_refused_before_anything_is_drawn(channels, name, says, tmp_path):
    policy = mq.Policy.build(SURVEY, channels)
    assert list(unusable(policy)) == [(name,)]
    CLEAR.to_csv(tmp_path / "clear.csv", index=False)
    for draw in (
        lambda: mq.disguise(CLEAR, policy),
        lambda: mq.disguise(tmp_path / "clear.csv", policy),
        lambda: mq.disguise_file(tmp_path / "clear.csv", tmp_path / "out.csv", policy),
    ):
        with pytest.raises(PolicyError, match=f"^{name}: .*{says}"):
            draw()
    assert not (tmp_path / "out.csv").exists()
    mq.simulate(CLEAR, policy, 1)  # studies may look at what happens there


def test_all_that_tell_nothing_are_named_at_once():
    with pytest.raises(PolicyError, match=r"smoker: .* region: "):
        refuse_unusable(mq.Policy.build(SURVEY, COIN | BLIND))


def test_a_large_channel_is_not_inverted_on_the_way_to_a_release():
    labels = list(range(300))
    refuse_unusable(mq.Policy.build({"a": labels}, {"a": (fine := mq.channels.symmetric(300, "0.5"))}))
    assert "inverse" not in vars(fine)
    with pytest.raises(PolicyError, match="nothing can be learnt"):
        refuse_unusable(mq.Policy.build({"a": labels}, {"a": mq.channels.symmetric(300, "299/300")}))


def test_a_variable_that_some_stratum_tells_of_is_drawn():
    coin, clear = {"kind": "binary", "p": "1/2"}, {"kind": "binary", "p": "1/4"}
    values = {
        "masquerade": 1,
        "variables": {
            "region": {"categories": ["n", "s"]},
            "smoker": {"categories": ["yes", "no"], "channel": coin},
        },
        "strata": {"by": "region", "channels": {"n": {"smoker": clear}}},
    }
    refuse_unusable(mq.Policy.from_dict(values))
    values["strata"]["channels"] = {"n": {"smoker": coin}}
    with pytest.raises(PolicyError, match="smoker: "):
        refuse_unusable(mq.Policy.from_dict(values))
