"""A policy's limit on what a whole record may reveal."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import masquerade as mq
from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit, gamma_of
from masquerade.core.errors import ChannelError, PolicyError

YES_NO = ["yes", "no"]


def _values(*gammas: int | None, **head: Any) -> dict[str, Any]:
    """Return a policy of one yes/no variable per γ; None is a clear one."""
    variables = {
        f"q{index}": {"categories": YES_NO}
        | ({} if gamma is None else {"channel": {"kind": "for_gamma", "gamma": gamma}})
        for index, gamma in enumerate(gammas)
    }
    return {"masquerade": 1, **head, "variables": variables}


def test_default_limit_is_a_belief_of_5_percent_that_rises_to_50_percent() -> None:
    assert DEFAULT_LIMIT.gamma == 19
    assert str(DEFAULT_LIMIT) == "γ = 19, a belief of 5% rises to at most 50%"


def test_policy_within_its_limit_loads_and_a_policy_above_it_is_refused() -> None:
    assert mq.Policy.from_dict(_values(3, 6, limit={"breach": "5%:50%"})).record_gamma == 18
    with pytest.raises(PolicyError, match=r"a whole record has γ = 21 .* above the policy's limit \(γ = 19"):
        mq.Policy.from_dict(_values(3, 7, limit={"breach": "5%:50%"}))
    with pytest.raises(PolicyError, match="above the policy's limit"):
        mq.Policy.build({"q": YES_NO}, {"q": mq.channels.for_gamma(2, 20)}, limit={"breach": "5%:50%"})


def test_clear_variables_need_to_be_accepted_where_a_limit_is_stated() -> None:
    with pytest.raises(PolicyError, match=r"disclose in clear: q1.*'clear: accepted'"):
        mq.Policy.from_dict(_values(3, None, limit={"gamma": 3}))
    policy = mq.Policy.from_dict(_values(3, None, limit={"gamma": 3}, clear="accepted"))
    assert policy.clear_variables == ("q1",)
    with pytest.raises(PolicyError, match="clear: must be 'accepted'"):
        mq.Policy.from_dict(_values(3, None, clear="yes"))


def test_limit_is_no_part_of_the_id_so_memos_and_older_files_keep_working() -> None:
    bare = mq.Policy.from_dict(_values(3, 6))
    limited = mq.Policy.from_dict(_values(3, 6, limit={"gamma": 18}))
    assert bare.limit is None
    assert limited.id == bare.id == limited.with_limit(None).id
    assert limited.with_limit(None).limit is None
    with pytest.raises(PolicyError, match="above the policy's limit"):
        bare.with_limit(PrivacyLimit.parse({"gamma": 17}))


@pytest.mark.parametrize(
    "limit",
    [
        {"breach": "5%:50%"},
        {"gamma": "37/2"},
        {"epsilon": "2.95", "delta": 0},
        {"epsilon": "2.95", "delta": "0.000001"},
        {"breach": "5%:50%", "delta": "0.000001"},
    ],
)
def test_limit_survives_files_selections_and_policies_made_in_code(
    limit: dict[str, Any], tmp_path: Any
) -> None:
    policy = mq.Policy.from_dict(_values(3, 6, limit=limit))
    policy.save(tmp_path / "policy.yaml")
    assert mq.Policy.load(tmp_path / "policy.yaml").limit == policy.limit
    assert policy.select(["q0"]).limit == policy.limit
    text = policy.public_text()
    assert text is not None
    assert mq.Policy.from_public_text(text, policy.id).limit == policy.limit
    built = mq.Policy.build({"q": YES_NO}, {"q": mq.channels.for_gamma(2, 3)}, limit=limit)
    assert mq.Policy.from_dict(built.to_dict()).limit == built.limit


def test_limit_in_epsilon_admits_the_channel_of_that_epsilon() -> None:
    for epsilon in ("0.1", "1", "2.5", "5", "8"):
        limit = PrivacyLimit.parse({"epsilon": epsilon})
        assert gamma_of(epsilon=epsilon) <= limit.gamma
        channel = {"kind": "for_epsilon", "epsilon": epsilon}
        values = {
            "masquerade": 1,
            "limit": {"epsilon": epsilon},
            "variables": {"q": {"categories": YES_NO, "channel": channel}},
        }
        assert mq.Policy.from_dict(values).limit == limit


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({}, "one of"),
        ({"gamma": 19, "epsilon": 1}, "one of"),
        ({"gamma": 1}, "above 1"),
        ({"epsilon": 0}, "above 0"),
        ({"epsilon": 1, "delta": "1e-11"}, "must be 0, or from 1e-10"),
        ({"gamma": 19, "delta": "0.1"}, "must be 0, or from 1e-10"),
        ({"breach": "50%:5%"}, "the second above the first"),
        ({"breach": "5%"}, "two beliefs"),
        ({"breach": "5%:x%"}, "must be a number"),
    ],
)
def test_limit_that_cannot_be_computed_is_refused(limit: dict[str, Any], message: str) -> None:
    with pytest.raises(ChannelError, match=message):
        PrivacyLimit.parse(limit)
    with pytest.raises(PolicyError, match=rf"limit: .*{message}"):
        mq.Policy.from_dict(_values(3, limit=limit))


def test_unbounded_channel_under_a_limit_is_named() -> None:
    channel = {"kind": "matrix", "rows": [[1, 0], ["1/2", "1/2"]]}
    values = _values(3, limit={"gamma": 19})
    values["variables"]["sure"] = {"categories": YES_NO, "channel": channel}
    with pytest.raises(PolicyError, match="reveals the truth of sure: change the channel"):
        mq.Policy.from_dict(values)


def test_privacy_limit_states_itself_in_the_words_it_was_given() -> None:
    assert str(PrivacyLimit.parse({"gamma": 19})) == "γ = 19"
    assert str(PrivacyLimit.parse({"epsilon": 5})) == "ε = 5.00 (γ = 148.4)"
    assert PrivacyLimit.parse({"breach": (0.05, "1/2")}).gamma == Fraction(19)
