"""A device of counts adds up what it sends under several policies, and keeps its owner's limit."""

from __future__ import annotations

from fractions import Fraction

import pytest

from masquerade.channels.privacy_level import DEFAULT_LIMIT
from masquerade.core.errors import InputError
from masquerade.protocols.people.owner_budget import OwnerBudget
from masquerade.services.common.problems import PartyUnreachable
from masquerade.services.common.settings import load
from masquerade.services.counting.device import Device
from masquerade.services.counting.example import write_count
from masquerade.services.counting.person_file import Admission, PersonFile
from masquerade.services.counting.settings import CountDescription

PEOPLE = 12


def policy_of(p):
    channel = {"kind": "binary", "p": p}
    return {"masquerade": 1, "variables": {"a": {"categories": ["yes", "no"], "channel": channel}}}


@pytest.fixture
def counts(tmp_path):
    """Return a person's file, and how to admit it to a count under a policy: no server is asked."""
    made = {}

    def admit(name, p, protocol="frequency"):
        files = write_count(
            tmp_path / name, protocol=protocol, records=[{"a": "yes"}] * PEOPLE, policy=policy_of(p)
        )
        names = files["names"].read_text().split()
        if not made:
            made["keys"] = {one: PersonFile.make(tmp_path / f"{one}.person", one) for one in names}
            made["person"] = PersonFile(tmp_path / f"{names[0]}.person")
        terms = load(files["count"], CountDescription, environment={}).terms(made["keys"])
        admission = Admission(name, "http://127.0.0.1:9", (), "", terms.digest.hex())
        made["person"].admit(admission)
        made["person"].keep_terms(admission, terms.encode())
        return made["person"], admission

    yield admit
    if made:
        made["person"].close()


def begin(person, admission, **told):
    """Let a device begin a count, and return what it says; the miner is not there."""
    said = []
    device = Device(person, admission, {"a": "yes"}, tell=said.append, **told)
    device.http = device.admission.client(patience=0)
    with device.http, pytest.raises(PartyUnreachable):
        device.step()
    return " ".join(said)


@pytest.mark.parametrize("protocol", ["frequency", "aggregation", "mix"])
def test_counts_under_other_policies_add_up(counts, protocol):
    """The attack: the same question in two counts, γ = 9 and 8.9; each alone is within 5%:50%."""
    begin(*counts("first", "1/10", protocol))
    person, second = counts("second", "101/1000", protocol)
    with pytest.raises(InputError, match=r"Nothing was drawn: .*γ = 80.11 per person"):
        begin(person, second)
    assert list(person.gammas_spent().values()) == [9]  # nothing was begun
    said = begin(person, second, accept_clear=True)
    assert "With what you sent under 1 other policy" in said
    assert "the entire record counts as clear here" in said
    assert sorted(person.gammas_spent().values()) == [Fraction(899, 101), 9]


def test_the_same_policy_again_is_the_same_draw(counts):
    begin(*counts("first", "1/10"))
    person, again = counts("second", "1/10")
    begin(person, again)
    assert list(person.gammas_spent().values()) == [9]


def test_what_is_left_of_a_limit_decides_what_counts_as_clear():
    budget = OwnerBudget({"first": Fraction(9)}, DEFAULT_LIMIT)
    assert budget.left("first") == DEFAULT_LIMIT
    assert budget.left("second").gamma == Fraction(19, 9)
    spent = OwnerBudget({"first": Fraction(9), "second": Fraction(9)}, DEFAULT_LIMIT)
    assert spent.left("third").gamma == 1
    assert OwnerBudget({"first": float("inf")}, DEFAULT_LIMIT).left("second").gamma == 1
