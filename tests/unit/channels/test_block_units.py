"""Variables that are dealt together in blocks, such as a question and its follow-up."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.channels import ClassResponse
from masquerade.core.errors import ChannelError

UNITS = ((0, 2), (1,), (3,))
VALUES = {
    "masquerade": 1,
    "limit": {"gamma": 19},
    "variables": {name: {"categories": ["yes", "no"]} for name in ("pills", "smoker", "doses", "exams")},
    "blocks": [{"variables": [["pills", "doses"], "smoker", "exams"], "k": 2, "gamma": 19}],
}


def test_units_are_dealt_whole_and_classes_are_their_combinations() -> None:
    response = ClassResponse(sizes=(2, 3, 2, 2), k=2, gamma=Fraction(19), units=UNITS)
    assert response.by_cells.tolist() == [[0, 1, 2, 4], [0, 2, 3, 4], [1, 3, 4, 4]]
    assert response.block_classes.tolist() == [12, 8, 6]
    assert (response.blocks, response.classes) == (3, 12)
    columns = [np.array([1, 0, 1]), np.array([2, 1, 0]), np.array([0, 1, 1]), np.array([1, 1, 0])]
    # the class of a block is the combination of its variables in order, the last varying fastest
    assert response.classes_of(columns, np.array([0, 1, 2])).tolist() == [
        1 * 6 + 2 * 2 + 0,
        0 * 4 + 1 * 2 + 1,
        0,
    ]


@pytest.mark.parametrize("places", [(0,), (2,), (0, 2), (0, 1), (2, 3), (0, 1, 2), (1, 3)])
def test_reports_of_units_reveal_tables_as_the_whole_mechanism_does(places: tuple[int, ...]) -> None:
    """The chances of lumped reports are those of the full mechanism, summed over what is not asked."""
    sizes = (2, 3, 2, 2)
    response = ClassResponse(sizes=sizes, k=2, gamma=Fraction(5), units=UNITS)
    sampled = response.sampled_channel(places)
    truths = np.stack(np.unravel_index(np.arange(np.prod(sizes)), sizes), axis=1)
    asked = np.ravel_multi_index(tuple(truths[:, place] for place in places), [sizes[p] for p in places])
    dealt = response.dealing.matrix[0]
    for truth, cell in zip(truths, asked, strict=True):
        expected = np.zeros(sampled.chances.shape[1])
        for block in range(response.blocks):
            classes = int(response.block_classes[block])
            code = int(response.classes_of([np.array([value]) for value in truth], np.array([block]))[0])
            chances = response.channel_of(classes).matrix[code]
            lumps = sampled.lump.reshape(response.blocks, response.classes)[block, :classes]
            np.add.at(expected, lumps, dealt[block] * chances)
        assert sampled.channel(sampled.shares)[cell] == pytest.approx(expected)


def test_policy_file_with_units_reads_back_and_estimates_follow_ups() -> None:
    policy = mq.Policy.from_dict(VALUES)
    assert policy.record_gamma == 19
    group = policy.group("doses")
    assert group.names == ("pills", "doses", "smoker", "exams")
    built = mq.Policy.build(policy.schema, {group.names: group.channel}, limit={"gamma": 19})
    assert built.to_dict()["blocks"][0]["variables"] == [["pills", "doses"], "smoker", "exams"]
    assert mq.Policy.from_dict(built.to_dict()).id == built.id == policy.id
    plain = mq.Policy.from_dict(
        VALUES | {"blocks": [{"variables": ["pills", "doses", "smoker", "exams"], "k": 2, "gamma": 19}]}
    )
    assert plain.id != policy.id


def test_estimates_from_units_are_unbiased() -> None:
    policy = mq.Policy.from_dict(VALUES)
    rng = np.random.default_rng(8)
    n = 40_000
    pills = rng.random(n) < 0.3
    doses = pills & (rng.random(n) < 0.5)
    frame = {
        "pills": np.where(pills, "yes", "no"),
        "doses": np.where(doses, "yes", "no"),
        "smoker": np.where(rng.random(n) < 0.2 + 0.3 * pills, "yes", "no"),
        "exams": np.where(rng.random(n) < 0.5, "yes", "no"),
    }
    data = pd.DataFrame(frame)
    source = mq.tally(mq.disguise(data, policy), policy)
    for names in (("pills", "doses"), ("doses", "smoker"), ("doses",)):
        (table,) = source.answer([mq.Query(names)])
        errors = table.stderr()
        truth = data.groupby(list(names)).size()
        for place, cell in np.ndenumerate(table.values):
            labels = tuple(policy.schema[name].categories[i] for name, i in zip(names, place, strict=True))
            expected = truth.get(labels if len(labels) > 1 else labels[0], 0)
            assert abs(cell - expected) < 6 * errors[place], (names, labels)  # false alarms below 1e-7


def test_units_that_leave_out_or_repeat_a_variable_are_refused() -> None:
    for units in (((0,), (1,)), ((0, 1), (1, 2)), ((0, 1, 3),)):
        with pytest.raises(ChannelError, match="exactly one unit"):
            ClassResponse(sizes=(2, 2, 2), k=1, gamma=Fraction(3), units=units)
    with pytest.raises(ChannelError, match="differences are of single variables"):
        ClassResponse(sizes=(2, 2, 2), k=1, gamma=Fraction(3), cells=Fraction(1, 2), units=((0, 1), (2,)))
