"""Ledgers of people, made by the first version, still say what has left their device."""

from __future__ import annotations

import pytest
from tests.compatibility.first_version import copied, expected

import masquerade as mq
from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.frequency_mining.messages import FrequencyTerms
from masquerade.protocols.frequency_mining.roles import MiningUser
from masquerade.protocols.people.ledger import FileLedger, MemoryLedger
from masquerade.protocols.people.reports import reports_of
from masquerade.sources.people.frequency import FrequencyTally

SAID = expected("ledgers")
PERSON = "user 00"
MINIMUM = 5
ILL, SMOKES = mq.Query(by="ill"), mq.Query(by="smokes")


@pytest.fixture
def folder(tmp_path):
    return copied("ledgers", tmp_path)


def counted(folder, file, policy, query, *, epoch="spring", users=None):
    """Ask people as the miner does; the person with the kept ledger is among them."""
    keys = {name: SigningKey.from_seed(bytes.fromhex(seed)) for name, seed in SAID["keys"].items()}
    keys = {name: key for name, key in keys.items() if users is None or name in users}
    terms = FrequencyTerms(epoch, policy, {name: key.public for name, key in keys.items()}, MINIMUM)
    if epoch == "spring":
        assert terms.id.hex() == SAID[file]["terms"]
    people = {
        name: MiningUser(
            name,
            key,
            SAID["rows"][name],
            terms,
            ledger=FileLedger(folder / file) if name == PERSON else MemoryLedger(),
        )
        for name, key in keys.items()
    }
    source = FrequencyTally(terms, lambda user, message: people[user].receive(message))
    return source.answer([query])[0]


@pytest.mark.parametrize(("file", "policy"), [("votes.sqlite", "clear"), ("noised-votes.sqlite", "noised")])
def test_a_vote_that_has_left_is_not_cast_again(folder, file, policy):
    with pytest.raises((RoundAborted, QueryRefused), match="was already sent in this epoch"):
        counted(folder, file, mq.Policy.load(folder / f"{policy}.yaml"), ILL)


def test_another_question_is_answered(folder):
    table = counted(folder, "votes.sqlite", mq.Policy.load(folder / "clear.yaml"), SMOKES)
    assert table.values.tolist() == [4.0, 8.0]


def test_an_epoch_that_differs_by_one_person_is_refused(folder):
    policy = mq.Policy.load(folder / "clear.yaml")
    with pytest.raises((RoundAborted, QueryRefused), match="spring"):
        counted(folder, "votes.sqlite", policy, SMOKES, epoch="summer", users=list(SAID["keys"])[:-1])


def test_the_same_people_are_counted_in_another_epoch(folder):
    table = counted(folder, "votes.sqlite", mq.Policy.load(folder / "clear.yaml"), ILL, epoch="summer")
    assert table.values.tolist() == [6.0, 6.0]


def test_a_report_is_the_one_that_was_drawn(folder):
    policy = mq.Policy.load(folder / "noised.yaml")
    drawn = reports_of(SAID["rows"][PERSON], policy, PERSON, FileLedger(folder / "aggregation.sqlite"))
    assert list(drawn.values()) == SAID["aggregation.sqlite"]["codes"]
