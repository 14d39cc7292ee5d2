"""Kinds of channel that other packages bring: read, built, counted and refused like ours."""

from fractions import Fraction

import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import PluginError, PolicyError

KINDS = """
from typing import Literal

from masquerade.channels import matrix
from masquerade.channels.policy.channel_models import Number, PolicyPart

class Lazy(PolicyPart):
    kind: Literal["lazy"]
    p: Number

    def build(self, variables):
        (variable,) = variables
        size = len(variable)
        return matrix([[1 - self.p + self.p / size if l == m else self.p / size for m in range(size)]
                       for l in range(size)])
"""


def policy(channel):
    values = {"masquerade": 1, "variables": {"a": {"categories": ["x", "y", "z"], "channel": channel}}}
    return mq.Policy.from_dict(values)


def test_a_kind_of_another_package_builds_a_channel(install):
    install("lazy", {"channels": {"lazy": "Lazy"}}, KINDS)
    found = policy({"kind": "lazy", "p": "0.3"})
    assert found.group("a").channel.gamma == Fraction(8)
    assert found == policy({"kind": "symmetric", "p": "0.2"})  # the same mechanism, the same id
    assert mq.Policy.from_dict(found.to_dict()) == found
    frame = pd.DataFrame({"a": ["x", "y", "z"] * 100})
    (table,) = mq.tally(mq.simulate(frame, found, seed=1), found).answer([mq.Query(by="a")])
    assert table.n == 300


def test_a_kind_of_another_package_stands_within_others(install):
    install("lazy", {"channels": {"lazy": "Lazy"}}, KINDS)
    steps = [{"kind": "identity"}, {"kind": "lazy", "p": 0.3}]
    assert policy({"kind": "composition", "steps": steps}) == policy({"kind": "lazy", "p": 0.3})


@pytest.mark.parametrize(
    ("channel", "said"),
    [
        ({"kind": "lazy"}, "variables.a.channel.p: is missing."),
        ({"kind": "lazy", "p": 0.3, "q": 1}, "variables.a.channel.q: is not a known key."),
        ({"kind": "lazy", "p": "much"}, "variables.a.channel.p: must be a number"),
        ({"kind": "lazi", "p": 0.3}, "unknown kind 'lazi'. Did you mean 'lazy'?"),
        ({"kind": "lazy", "p": 2}, "variables.a.channel: "),
    ],
)
def test_what_is_wrong_is_told_by_its_place(install, channel, said):
    install("lazy", {"channels": {"lazy": "Lazy"}}, KINDS)
    with pytest.raises(PolicyError) as error:
        policy(channel)
    assert said in str(error.value)


def test_a_kind_that_is_none_is_named_by_its_package(install):
    install("lazy", {"channels": {"odd": "matrix", "symmetric": "Lazy"}}, KINDS)
    with pytest.raises(PluginError, match=r"The channel 'odd' of the package lazy 1.0 cannot be used"):
        policy({"kind": "odd"})
    assert policy({"kind": "symmetric", "p": "0.2"}).group("a").channel.gamma == 8  # ours cannot be taken


def test_without_the_package_its_policies_are_refused():
    with pytest.raises(PolicyError, match="unknown kind 'lazy'"):
        policy({"kind": "lazy", "p": 0.3})
