"""A policy as devices have it: what it bounds, and that it draws what the library draws."""

import secrets
from dataclasses import replace

import pytest
from tests.statistical.checks import normal_bound

import masquerade as mq
from masquerade.channels.policy.record import record_gamma
from masquerade.core.errors import InputError, PolicyError
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.people.ledger import MemoryLedger
from masquerade.protocols.people.report_form import (
    ReportForm,
    bounded_in,
    exceeds_limit,
    sizes_of,
)
from masquerade.protocols.people.reports import reports_of

SCHEMA = mq.Schema({"smoker": ["yes", "no"], "town": ["a", "b", "c"], "age": [1, 2, 3, 4]})


def dealt_policy(variables=("smoker", "town", "age"), **blocks):
    """Return a policy that deals variables in blocks with γ = 9."""
    known = {variable.name: {"categories": list(variable.categories)} for variable in SCHEMA.variables}
    block = {"variables": list(variables), "gamma": 9, **blocks}
    return mq.Policy.from_dict({"masquerade": 1, "variables": known, "blocks": [block]})


POLICIES = {
    "clear": mq.Policy.clear(SCHEMA),
    "some": mq.Policy.build(
        SCHEMA, {"smoker": mq.channels.binary("1/4"), "town": mq.channels.symmetric(3, "1/3")}
    ),
    "all": mq.Policy.build(
        SCHEMA,
        {
            "smoker": mq.channels.binary("1/4"),
            "town": mq.channels.symmetric(3, "2/7"),
            "age": mq.channels.symmetric(4, "3/5"),
        },
    ),
    "dealt": dealt_policy(k=2),
    "dealt with one in clear": dealt_policy(["smoker", "town"], k=1),
    "dealt together": dealt_policy([["smoker", "town"], "age"], k=1),
    "dealt by a design": dealt_policy(
        design=[{"variables": ["smoker", "town"], "weight": 3}, {"variables": ["age"], "weight": 2}]
    ),
    "dealt with differences": mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {name: {"categories": [0, 1]} for name in ("smoker", "town", "age")},
            "blocks": [{"variables": ["smoker", "town", "age"], "k": 1, "gamma": 9, "cells": "1/3"}],
        }
    ),
}


@pytest.fixture(params=POLICIES)
def policy(request):
    return POLICIES[request.param]


def test_a_form_knows_what_its_policy_knows(policy):
    form = ReportForm.parse(ReportForm.of(policy).encode())
    assert form.id == policy.id
    assert sizes_of(form) == sizes_of(policy)
    assert bounded_in(form) == bounded_in(policy)
    assert exceeds_limit(form) == exceeds_limit(policy)
    assert form.record_gamma == record_gamma(policy)
    assert set(form.disguised) == set(policy.disguised)


def test_a_device_draws_what_the_library_draws_from_the_same_secret(policy):
    form = ReportForm.of(policy)
    for person in range(100):
        ledger, record = MemoryLedger(), {name: person % len(policy.schema[name]) for name in policy.schema}
        ours = reports_of(record, form, f"person {person}", ledger)
        assert reports_of(record, policy, f"person {person}", ledger) == ours


def test_reports_are_as_likely_as_the_channel_says():
    form, people = ReportForm.of(POLICIES["all"]), 3000
    record = {"smoker": 0, "town": 0, "age": 2}
    drawn = [form.reports(record, "ann", secrets.token_bytes(32))["age"] for _ in range(people)]
    chances = POLICIES["all"].group("age").channel.row(2)
    for code in range(4):
        chance = float(chances[code])
        error = (chance * (1 - chance) / people) ** 0.5
        assert abs(drawn.count(code) / people - chance) < normal_bound(4) * error


def test_labels_become_codes_and_everything_wrong_is_said_at_once():
    form = ReportForm.of(POLICIES["clear"])
    assert form.codes({"age": 3, "town": "c", "smoker": "no"}) == {"smoker": 1, "town": 2, "age": 2}
    with pytest.raises(InputError) as told:
        form.codes({"town": "secret town", "smoker": "no", "hat": 1})
    assert "'town' must be one of" in str(told.value)
    assert "'age' is missing" in str(told.value)
    assert "'hat' is not a variable" in str(told.value)
    assert "secret town" not in str(told.value)


def test_a_form_whose_parts_do_not_fit_is_refused():
    form = ReportForm.of(POLICIES["some"])
    (everybody,) = form.strata
    group, *others = everybody.groups
    for damaged in (
        replace(form, by="smoker"),
        replace(form, observed=form.observed[1:]),
        replace(form, variables=form.variables[:2]),
        replace(form, strata=(replace(everybody, groups=(replace(group, rows=group.rows[:1]), *others)),)),
        replace(form, strata=(replace(everybody, groups=tuple(others)),)),
    ):
        with pytest.raises(DecodingError):
            ReportForm.decode(damaged.encode())


def test_blocks_that_are_too_many_are_refused_with_what_to_do():
    names = [f"v{i}" for i in range(40)]
    binary = {name: {"categories": [0, 1]} for name in names}
    blocks = {"variables": names, "k": 4, "gamma": 5}
    policy = mq.Policy.from_dict({"masquerade": 1, "variables": binary, "blocks": [blocks]})
    with pytest.raises(PolicyError, match=r"at most 16,384 blocks .* Lower 'k'"):
        ReportForm.of(policy)


def with_first(dealt, **changes):
    """Return blocks of which the first one is changed."""
    return replace(dealt, blocks=(replace(dealt.blocks[0], **changes), *dealt.blocks[1:]))


@pytest.mark.parametrize(
    "change",
    [
        lambda dealt: replace(dealt, blocks=dealt.blocks[1:]),
        lambda dealt: replace(dealt, channels=dealt.channels[1:]),
        lambda dealt: with_first(dealt, members=(0, 9)),
        lambda dealt: with_first(dealt, members=()),
        lambda dealt: with_first(dealt, differences=True),
        lambda dealt: replace(dealt, blocks=tuple(replace(one, weight=0) for one in dealt.blocks)),
        lambda dealt: replace(dealt, sizes=dealt.sizes[::-1]),
        lambda dealt: replace(dealt, names=dealt.names[:-1]),
    ],
)
def test_blocks_that_do_not_fit_are_refused(change):
    form = ReportForm.of(POLICIES["dealt"])
    bad = replace(form, dealt=(change(form.dealt[0]),)).encode()
    with pytest.raises(DecodingError):
        ReportForm.parse(bad)


def test_a_form_without_blocks_is_written_as_ever():
    form = ReportForm.of(POLICIES["all"])
    assert type(form) is ReportForm
    assert ReportForm.parse(form.encode()) == ReportForm.decode(form.encode()) == form
