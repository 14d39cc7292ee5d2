"""A device without NumPy draws by exactly the chances of the policy, and knows what they promise."""

from __future__ import annotations

import copy
import itertools
import json
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from tests.survey.vectors import POLICIES

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.survey.device.device_mechanism import UNBOUNDED, Mechanism
from masquerade.survey.page.consequences import gamma_of
from masquerade.survey.page.mechanism import mechanism

OWN = {
    "wide and asymmetric": {
        "masquerade": 1,
        "variables": {
            "a": {"categories": [1, 2, 3], "channel": {"kind": "symmetric", "p": 0.4}},
            "b": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p1": 0.1, "p2": 0.25}},
        },
    }
}
ALL = POLICIES | OWN
MOST_RECORDS = 12  # each takes all numbers that could be drawn


def device(policy):
    values = json.loads(json.dumps(mechanism(policy)))
    sizes = {name: len(policy.schema[name]) for name in policy.schema}
    return Mechanism.of(values, sizes, [len(variable) for variable in policy.observed.variables])


def by_device(group, codes):
    """Return the chances of a group's reports: every number that could be drawn is."""

    class Numbers:
        def __init__(self):
            self.given, self.chance = [], Fraction(1)

        def __call__(self, bound):
            self.chance /= bound
            place = len(self.given)
            self.given.append((bound, script[place] if place < len(script) else 0))
            return self.given[-1][1]

    found, script = Counter(), []
    while True:
        numbers = Numbers()
        found[group.draw(codes, numbers)] += numbers.chance
        given = numbers.given
        while given and given[-1][1] + 1 == given[-1][0]:
            given.pop()
        if not given:
            return found
        script = [number for _, number in given[:-1]] + [given[-1][1] + 1]


def by_policy(group, codes):
    """Return the chances of a group's reports from the policy's own channels."""
    found = Counter()
    response = group.response
    if response is None:
        channel = group.matrix_channel
        code = int(np.ravel_multi_index(codes, group.sizes))
        for report, weight in zip(channel.outcomes[code], channel.weights[code], strict=True):
            parts = np.unravel_index(int(report), group.report_sizes)
            found[tuple(map(int, parts))] += Fraction(int(weight), int(channel.denominators[code]))
        return +found
    dealing = response.dealing
    for block, weight in zip(dealing.outcomes[0], dealing.weights[0], strict=True):
        columns = [np.array([code]) for code in codes]
        code = int(response.classes_of(columns, np.array([block]))[0])
        channel = response.channel_of(int(response.block_classes[block]))
        dealt = Fraction(int(weight), int(dealing.denominators[0]))
        for report, own in zip(channel.outcomes[code], channel.weights[code], strict=True):
            found[int(block), int(report)] += dealt * Fraction(int(own), int(channel.denominators[code]))
    return +found


@pytest.mark.parametrize("name", ALL)
def test_every_report_has_exactly_the_chance_that_the_policy_says(name):
    policy = Policy.from_dict(ALL[name])
    own = device(policy)
    for stratum, label in enumerate(policy.strata or (None,)):
        for group, said in zip(own.strata[stratum], policy.groups_of(label), strict=True):
            assert group.names == tuple(said.names)
            records = list(itertools.product(*map(range, group.sizes)))
            for codes in records[:: -(-len(records) // MOST_RECORDS)]:
                assert by_device(group, codes) == by_policy(said, codes)


@pytest.mark.parametrize("name", ALL)
def test_what_is_promised_follows_from_the_numbers_that_are_drawn_by(name):
    policy = Policy.from_dict(ALL[name])
    expected = {}
    for label in policy.strata or (None,):
        for group in policy.groups_of(label):
            gamma = gamma_of(group)
            for variable in group.names:
                expected[variable] = max(expected.get(variable, 1), UNBOUNDED if gamma is None else gamma)
    if policy.stratum_variable is not None:
        expected[policy.stratum_variable] = UNBOUNDED
    assert device(policy).gammas() == expected


def test_reports_stand_in_the_columns_of_the_policy():
    policy = Policy.from_dict(ALL["joint"])
    own, columns = device(policy), list(policy.observed)
    reports = own.draw({"a": 1, "b": 2, "c": 1})
    assert reports[columns.index("c")] == 1
    assert len(reports) == len(columns)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: m.pop("by"), "its keys must be"),
        (lambda m: m["groups"][0].pop(), "every variable"),
        (lambda m: m["groups"][0][1].update(channel=[2, "3", "-1"]), "weight"),
        (lambda m: m["groups"][0][1].update(channel=[2, "0", "0"]), "add up"),
        (lambda m: m["groups"][0][1].update(channel=[3, "3", "1"]), "size"),
        (lambda m: m["groups"][0][1].update(channel=[[[0, "1"]], [[2, "1"]]]), "report"),
        (lambda m: m["groups"][0][1].update(channel=[[[0, "1"], [0, "1"]], [[1, "1"]]]), "twice"),
        (lambda m: m["groups"][0][1].update(columns=[0]), "every variable"),
        (lambda m: m["groups"][0][1].update(columns=[7]), "column"),
        (lambda m: m["groups"][0][1].update(more=1), "missing or unknown keys"),
        (lambda m: m["groups"][0][1].update(channel=[2, "9" * 19, "9" * 19]), "add up"),
    ],
)
def test_a_mechanism_that_was_tampered_with_draws_nothing(change, told):
    policy = Policy.from_dict(POLICIES["alone"])
    values = copy.deepcopy(mechanism(policy))
    change(values)
    sizes = {name: len(policy.schema[name]) for name in policy.schema}
    with pytest.raises(InputError, match=told):
        Mechanism.of(values, sizes, [len(variable) for variable in policy.observed.variables])
