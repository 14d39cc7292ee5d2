"""A device draws nothing that reveals more than its owner accepts, over the whole row."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from tests.survey.vectors import POLICIES

import masquerade as mq
from masquerade.channels.policy.record import record_gamma
from masquerade.core.errors import InputError
from masquerade.core.record_gamma import FollowUp
from masquerade.survey.device.device_mechanism import Mechanism
from masquerade.survey.device.participation import Participation, Record
from masquerade.survey.device.terms import DeviceTerms
from masquerade.survey.page.mechanism import mechanism

FOLLOW_UPS = 13
PEOPLE = 400


def mechanism_of(policy):
    sizes = {name: len(policy.schema[name]) for name in policy.schema}
    return Mechanism.of(mechanism(policy), sizes, [len(variable) for variable in policy.observed.variables])


def terms_of(policy, follow_ups=()):
    """Return terms as a collector that says nothing else would write them."""
    conditions = {one.name: one for one in follow_ups}
    questions = [
        {
            "name": variable.name,
            "text": variable.name,
            "labels": list(variable.categories),
            "shown": {
                name: list(codes)
                for name, codes in (
                    conditions[variable.name].shown if variable.name in conditions else {}
                ).items()
            },
            "not_asked": conditions[variable.name].not_asked if variable.name in conditions else None,
        }
        for variable in policy.schema.variables
    ]
    values = {
        "masquerade_gather": 1,
        "title": "t",
        "contact": "c",
        "consent": "c",
        "closes": None,
        "delete_after": None,
        "collector": "https://gather.example.org",
        "authority": None,
        "issuer": None,
        "policy": policy.id,
        "questions": questions,
        "report_sizes": [len(variable) for variable in policy.observed.variables],
        "mechanism": mechanism(policy),
        "size": 4096,
    }
    return DeviceTerms.parse(json.dumps(values))


@pytest.mark.parametrize("name", POLICIES)
def test_a_device_finds_the_gamma_of_a_record_that_the_policy_has(name):
    policy = mq.Policy.from_dict(POLICIES[name])
    assert mechanism_of(policy).record_gamma() == record_gamma(policy)


def test_thirteen_follow_ups_of_one_answer_are_refused(tmp_path):
    """Each question has γ = 3. Whoever answers no sends the same to all that follow: one answer 14 times."""
    names = ["pills", *(f"more{i}" for i in range(FOLLOW_UPS))]
    yes_no = mq.channels.binary("1/4")
    policy = mq.Policy.build({name: ["yes", "no"] for name in names}, dict.fromkeys(names, yes_no))
    follow_ups = [FollowUp(name, {"pills": (0,)}, 1) for name in names[1:]]
    terms = terms_of(policy, follow_ups)
    assert set(terms.gammas.values()) == {3}  # all that a limit for each answer sees: at most 75% sure
    assert terms.record_gamma == Fraction(3) ** (FOLLOW_UPS + 1)
    right = 0
    for i in range(PEOPLE):  # the attack, on devices whose owners accept everything
        yes = i % 2 == 0
        row = dict.fromkeys(names, "yes") if yes else {"pills": "no"}
        part = Participation(terms, tmp_path / f"{i}")
        part.draw(row, limit="gamma=1e9")
        reports = Record.load(tmp_path / f"{i}").reports
        right += (reports.count(0) >= len(names) / 2) == yes
    assert right > 0.85 * PEOPLE  # about 96% of 400 are expected; fewer than 340 once in 10^12 runs
    refused = Participation(terms, tmp_path / "mine")
    with pytest.raises(
        InputError, match=r"your limit \(γ = 19.*at most >99.9% likely.*γ = 4.78×10\^6 per person"
    ):
        refused.draw({"pills": "no"})
    assert not (tmp_path / "mine").exists()
    with pytest.raises(InputError, match=r"your limit \(γ = 3\)"):
        refused.draw({"pills": "no"}, limit="gamma=3")


def test_follow_ups_that_exclude_each_other_are_counted_once(tmp_path):
    """What cannot be asked together is not multiplied: one follow-up for yes, another one for no."""
    names = ["pills", "dose", "why"]
    policy = mq.Policy.build(
        {name: ["a", "b"] for name in names}, dict.fromkeys(names, mq.channels.binary("1/4"))
    )
    both = [FollowUp("dose", {"pills": (0,)}, 0), FollowUp("why", {"pills": (1,)}, 0)]
    terms = terms_of(policy, both)
    assert terms.record_gamma == record_gamma(policy, both)
    assert terms.record_gamma == 27 == record_gamma(policy)
    with pytest.raises(InputError, match="Nothing was drawn"):
        Participation(terms, tmp_path / "mine").draw({"pills": "a", "dose": "b"})
    assert Participation(terms, tmp_path / "mine").draw({"pills": "a", "dose": "b"}, limit="gamma=27")


def test_what_is_sent_in_clear_is_named_and_needs_the_owners_word(tmp_path):
    policy = mq.Policy.build({"age": [1, 2], "ill": ["yes", "no"]}, {"ill": mq.channels.binary("1/4")})
    part = Participation(terms_of(policy), tmp_path / "mine")
    row = {"age": 1, "ill": "no"}
    with pytest.raises(InputError, match=r"these terms send age in clear.*--clear age"):
        part.draw(row)
    assert part.terms.disclosure().startswith("Sent in clear: age. Someone who thought it 5% likely")
    assert part.draw(row, clear=("age",))


def test_a_stratum_that_is_disguised_has_no_bound():
    """By which channel others are drawn tells the stratum, however it is disguised itself."""
    policy = mq.Policy.from_dict(POLICIES["joint"])
    values = mechanism(policy)
    sizes = {name: len(policy.schema[name]) for name in policy.schema}
    (groups,) = values["groups"]
    by = next(name for group in groups if "channel" in group for name in group["names"])
    hostile = {"by": by, "groups": [groups] * sizes[by]}
    reports = [len(variable) for variable in policy.observed.variables]
    assert Mechanism.of(hostile, sizes, reports).record_gamma() == float("inf")


@pytest.mark.parametrize(
    "change",
    [
        {"blocks": [[0, 0]]},
        {"blocks": [[1, 0]]},
        {"blocks": [[9]]},
        {"blocks": [[]]},
        {"blocks": "all"},
        {"weights": ["1"]},
        {"weights": ["0", "0", "0"]},
        {"weights": [1, 1, 1]},
        {"k": 1},
    ],
)
def test_listed_blocks_that_are_none_are_refused(change):
    blocks = [[0, 1], [1, 2], [2]]
    group = {
        "names": ["a", "b", "c"],
        "columns": [0, 1],
        "sizes": [2, 2, 2],
        "blocks": blocks,
        "weights": ["1"] * len(blocks),
        "channels": {str(n): [n, "3", "1"] for n in sorted({2 ** len(block) for block in blocks})},
    }
    sizes, reports = dict.fromkeys("abc", 2), [len(blocks), 2 ** max(map(len, blocks))]
    assert Mechanism.of({"by": None, "groups": [[group]]}, sizes, reports).record_gamma() == 3
    with pytest.raises(InputError, match="Nothing was drawn"):
        Mechanism.of({"by": None, "groups": [[group | change]]}, sizes, reports)


def yes_or_no(name, p):
    return terms_of(mq.Policy.build({name: ["yes", "no"]}, {name: mq.channels.binary(p)}))


def test_waves_under_other_policies_add_up_on_a_device(tmp_path):
    """The attack: the same question again and again, each time under a policy that differs a little.

    Every wave has γ of about 9, within 5%:50%; together they tell the answer. The third time is refused, and
    so is the second: 9 · 8.9 is above 19.
    """
    first, second = yes_or_no("pills", "1/10"), yes_or_no("pills", "101/1000")
    assert max(first.record_gamma, second.record_gamma) < 19
    assert Participation(first, tmp_path / "first").draw({"pills": "yes"})
    part = Participation(second, tmp_path / "second")
    said = part.disclosure()
    assert "With what you sent under 1 other policy: Someone who thought it 5% likely can think it" in said
    assert "γ = 80.11 in all" in said
    with pytest.raises(InputError, match=r"Nothing was drawn: .*your limit \(γ = 19.*γ = 80.11 per person"):
        part.draw({"pills": "yes"})
    assert not (tmp_path / "second").exists()
    with pytest.raises(InputError, match="Nothing was drawn"):  # a refusal costs nothing, and changes nothing
        Participation(second, tmp_path / "second").draw({"pills": "yes"}, limit="gamma=80")
    small = yes_or_no("smokes", "1/3")
    assert Participation(small, tmp_path / "small").draw({"smokes": "no"})  # 9 · 2 = 18
    assert Participation(first, tmp_path / "first").draw({"pills": "yes"}) is False  # the same draw, kept
    assert Participation(second, tmp_path / "second").draw({"pills": "yes"}, limit="gamma=161")


def test_a_policy_for_two_collectors_is_drawn_twice_and_counts_twice(tmp_path):
    terms = yes_or_no("pills", "1/10")
    other = replace(terms, collector="https://other.example.org")
    assert Participation(terms, tmp_path / "first").draw({"pills": "yes"})
    with pytest.raises(InputError, match=r"γ = 81 per person"):
        Participation(other, tmp_path / "second").draw({"pills": "yes"})


def test_a_note_of_a_draw_that_cannot_be_read_has_no_bound(tmp_path):
    terms = yes_or_no("pills", "1/10")
    assert Participation(terms, tmp_path / "first").draw({"pills": "yes"})
    (note,) = tmp_path.glob("*.spent")
    note.write_text("little\n")
    part = Participation(yes_or_no("smokes", "1/3"), tmp_path / "second")
    with pytest.raises(InputError, match="Nothing was drawn"):
        part.draw({"smokes": "no"}, limit="gamma=1e9")
