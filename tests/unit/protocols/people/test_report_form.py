"""A policy as devices have it: what it bounds, and that it draws what the library draws."""

import secrets
from dataclasses import replace

import pytest
from tests.statistical.checks import normal_bound

import masquerade as mq
from masquerade.core.errors import InputError, PolicyError
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.people.ledger import MemoryLedger
from masquerade.protocols.people.report_form import (
    ReportForm,
    bounded_in,
    sizes_of,
    tells_without_bound,
)
from masquerade.protocols.people.reports import reports_of

SCHEMA = mq.Schema({"smoker": ["yes", "no"], "town": ["a", "b", "c"], "age": [1, 2, 3, 4]})
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
}


@pytest.fixture(params=POLICIES)
def policy(request):
    return POLICIES[request.param]


def test_a_form_knows_what_its_policy_knows(policy):
    form = ReportForm.decode(ReportForm.of(policy).encode())
    assert form.id == policy.id
    assert sizes_of(form) == sizes_of(policy)
    assert bounded_in(form) == bounded_in(policy)
    assert tells_without_bound(form) == tells_without_bound(policy)
    assert set(form.disguised) == set(policy.disguised)


def test_a_device_draws_what_the_library_draws_from_the_same_secret(policy):
    form = ReportForm.of(policy)
    for person in range(100):
        ledger, record = MemoryLedger(), {"smoker": person % 2, "town": person % 3, "age": person % 4}
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
    assert "'hat' is no variable" in str(told.value)
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


def test_blocks_have_no_form():
    binary = {name: {"categories": ["no", "yes"]} for name in "abcd"}
    blocks = {"variables": list(binary), "k": 2, "gamma": 5}
    policy = mq.Policy.from_dict({"masquerade": 1, "variables": binary, "blocks": [blocks]})
    with pytest.raises(PolicyError, match="blocks"):
        ReportForm.of(policy)
