"""Links that admit several reports: each use is one blind token, and nothing shows the order of uses."""

from __future__ import annotations

import secrets

import pytest
from tests.survey.test_cli import run
from tests.survey.world import collecting, store_url

from masquerade.core.errors import InputError
from masquerade.crypto import oprf
from masquerade.crypto.errors import KeySpent
from masquerade.survey.collector.collector import load_token_key
from masquerade.survey.collector.example import body_of
from masquerade.survey.collector.store import MOST_USES, SurveyStore


@pytest.fixture(params=["folder", "PostgreSQL"])
def store(request, tmp_path):
    place = tmp_path / "invitations"
    if request.param == "PostgreSQL":
        place = store_url(request.getfixturevalue("postgres"), tmp_path)
    with SurveyStore(tmp_path / "reports", place, accept=("statements",)) as found:
        yield found


def test_a_link_admits_its_number_of_uses_and_no_more(store):
    [code] = store.invite(1, uses=5)
    elements = [secrets.token_bytes(32) for _ in range(5)]
    for element in elements:
        store.exchange(code, element)
    for element in elements:  # sent again after a lost reply: no further use
        store.exchange(code, element)
    assert store.count_invitations() == {"invited": 5, "begun": 5}
    with pytest.raises(KeySpent, match="used already"):
        store.exchange(code, secrets.token_bytes(32))


@pytest.mark.parametrize("end", ["~500", "~", "~0", "~x", "~9999999", "~5~5", ""])
def test_the_number_of_uses_cannot_be_changed(store, end):
    [code] = store.invite(1, uses=5)
    with pytest.raises(InputError, match="not an invitation"):
        store.exchange(code.partition("~")[0] + end, secrets.token_bytes(32))


def test_uses_are_taken_in_random_order(tmp_path):
    """False alarms: 1/20! for uses in sequence."""
    with SurveyStore(tmp_path) as store:
        [code] = store.invite(1, uses=20)
        taken = []
        for _ in range(20):
            store.exchange(code, secrets.token_bytes(32))
            rows = store._invitations.run("SELECT digest, used_for FROM invitations")
            used = {bytes(name) for name, mark in rows if any(bytes(mark))}
            taken += used - set(taken)
        assert len(taken) == 20
        from masquerade.survey.collector.store import _digests  # noqa: PLC0415

        assert taken != _digests(code)


@pytest.mark.parametrize(("number", "uses"), [(1, 0), (1, MOST_USES + 1), (1001, 1000), (0, 5)])
def test_too_many_invitations_are_refused(tmp_path, number, uses):
    with SurveyStore(tmp_path) as store, pytest.raises(InputError, match="from 1 to"):
        store.invite(number, uses)


def test_people_of_one_link_each_send_one_report(tmp_path):
    with collecting(tmp_path / "work", invited=True) as (collector, _, http):
        key = load_token_key(collector.settings)
        [code] = collector.store.invite(1, uses=3)
        codes = tuple(0 for _ in collector.survey.policy.observed)

        def submit():
            hidden = oprf.blind(secrets.token_bytes(32))
            message = body_of(collector.survey, codes)  # its length is that of all messages
            asked = oprf_request(code, hidden).ljust(len(message))
            reply = http.post("/v1/token", content=asked)
            if reply.status_code != 200:
                return reply.status_code
            token = hidden.value.hex() + oprf.output_by(key, hidden.value).hex()
            return http.post("/v1/reports", content=body_of(collector.survey, codes, token=token)).status_code

        assert [submit() for _ in range(4)] == [200, 200, 200, 409]
        assert collector.store.counts() | {"reports": 3, "begun": 3} == collector.store.counts()


def oprf_request(code, hidden):
    return f'{{"invitation":"{code}","blinded":"{hidden.element.encode().hex()}"}}'.encode()


def test_the_command_makes_links_for_groups_and_says_what_that_means(tmp_path):
    run("init", tmp_path / "work", "--invited", "--collector", "https://survey.example.org")
    told = run(
        "invite", tmp_path / "work" / "collector.yaml", "--n", 2, "--uses", 30, "--out", tmp_path / "links"
    )
    assert "each link admits 30 reports: one person who has it can send several of them" in told
    assert "send each to a group of 30" in told
    links = (tmp_path / "links").read_text().split()
    assert len(links) == 2
    assert all(link.endswith("~30") for link in links)
