"""What must survive: nothing leaves before it is written, and what is written is found again."""

import pytest
from tests.unit.protocols.secure_aggregation.people import CLEAR, DISGUISED, again, people, server_of, until

from masquerade.core.errors import FileError, InputError, QueryRefused
from masquerade.protocols.people.ledger import FileLedger, MemoryLedger
from masquerade.protocols.people.questions import Question
from masquerade.protocols.people.reports import reports_of
from masquerade.protocols.secure_aggregation.agreement import QuestionBatch
from masquerade.protocols.secure_aggregation.messages import Announcement, Delivery, MessageRefused, Survivors
from masquerade.protocols.secure_aggregation.server import Server
from masquerade.protocols.secure_aggregation.user import AggregationUser


class Full(MemoryLedger):
    """A disk that is full from some moment on."""

    full = False

    def claim(self, entries):
        if self.full:
            raise FileError("the ledger cannot be written")
        super().claim(entries)


@pytest.mark.parametrize("stage", [Delivery, Survivors])
def test_nothing_leaves_when_it_cannot_be_written(stage):
    population = people()
    ledger = Full()
    population.users[0] = again(population, 0, ledger)
    server = server_of(population)
    outgoing = until(population, server, stage)
    ledger.full = True
    with pytest.raises(FileError):
        population.users[0].receive(outgoing[0])
    ledger.full = False
    assert population.users[0].receive(outgoing[0]) is not None  # nothing had changed


def test_a_vote_stays_spent_after_a_restart(tmp_path):
    population = people()
    ledger = FileLedger(tmp_path / "ledger")
    population.users[0] = again(population, 0, ledger)
    server = server_of(population)
    announcement = until(population, server, Announcement)[0]
    for place, user in enumerate(population.users):
        server.receive(place, user.receive(announcement))
    until(population, server, Survivors)
    ledger.close()
    restarted = again(population, 0, FileLedger(tmp_path / "ledger"))
    with pytest.raises(QueryRefused, match="was sent already") as refused:
        restarted.receive(announcement)
    assert refused.value.refusals[0].code == "already_spent"
    later = server_of(population, number=2)
    with pytest.raises(QueryRefused, match="never saw"):
        restarted.receive(later.advance()[0])


def twins(tmp_path, policy=CLEAR):
    """Return a population, and its first user once more: a second process with the same ledger."""
    population = people(policy=policy)
    both = [again(population, 0, FileLedger(tmp_path / "ledger")) for _ in range(2)]
    population.users[0] = both[0]
    return population, both[1]


@pytest.mark.parametrize(("number", "nonce"), [(1, bytes(16)), (2, bytes(16)), (1, bytes([1] * 16))])
def test_of_two_processes_of_one_user_only_one_votes(tmp_path, number, nonce):
    """Both have joined before either votes: in the same round, a later one, another session."""
    population, twin = twins(tmp_path)
    first = server_of(population)
    delivered = until(population, first, Delivery)
    one, population.users[0] = population.users[0], twin
    other = server_of(population, number=number, nonce=nonce)
    for user in population.users[1:]:
        user._round = None  # the others have not seen the first round
    later = until(population, other, Delivery)
    assert one.receive(delivered[0]) is not None
    with pytest.raises(QueryRefused, match="in another process") as refused:
        twin.receive(later[0])
    assert refused.value.refusals[0].code == "already_spent"


def test_disguised_votes_of_two_processes_may_leave_in_two_sessions(tmp_path):
    population, twin = twins(tmp_path, DISGUISED)
    delivered = until(population, server_of(population), Delivery)
    one, population.users[0] = population.users[0], twin
    for user in population.users[1:]:
        user._round = None
    later = until(population, server_of(population, nonce=bytes([1] * 16)), Delivery)
    assert one.receive(delivered[0]) is not None
    assert twin.receive(later[0]) is not None


def test_a_clear_record_is_not_counted_in_two_sessions():
    population = people()
    assert not until(population, server_of(population), None)
    other = server_of(population, nonce=bytes([1] * 16))
    with pytest.raises(QueryRefused, match="another session"):
        population.users[0].receive(other.advance()[0])


def test_a_disguised_record_may_be_counted_again():
    population = people(policy=DISGUISED)
    for nonce in (bytes(16), bytes([1] * 16)):
        assert not until(population, server_of(population, nonce=nonce), None)


def test_a_report_is_drawn_once_for_a_person(tmp_path):
    reports = set()
    for _ in range(20):
        ledger = FileLedger(tmp_path / "ledger")
        reports.add(tuple(reports_of({"a": 1, "b": 2}, DISGUISED, "ann", ledger).values()))
        ledger.close()
    assert len(reports) == 1
    drawn = [reports_of({"a": 1, "b": 2}, DISGUISED, "ann", MemoryLedger()) for _ in range(60)]
    fresh = {tuple(report.values()) for report in drawn}
    assert len(fresh) > 1  # all alike with probability 0.56^59 < 1e-14


def test_users_do_not_print_their_records():
    assert repr(people().users[3]) == "AggregationUser('user 3')"


def test_wrong_records_and_identities_are_refused():
    population = people()
    key, terms = population.users[1]._identity, population.terms
    with pytest.raises(InputError, match="no category of 'a'"):
        AggregationUser("user 1", key, {"a": 2, "b": 0}, terms)
    with pytest.raises(InputError, match="no category of 'b'"):
        AggregationUser("user 1", key, {"a": 1}, terms)
    with pytest.raises(InputError, match="not enrolled"):
        AggregationUser("user 0", key, {"a": 0, "b": 0}, terms)


def test_another_batch_under_the_same_round_is_refused():
    population = people()
    first = server_of(population)
    population.users[0].receive(first.advance()[0])
    other = Server(population.terms, bytes(16), 1, QuestionBatch((Question(("a",)),), population.terms.sizes))
    with pytest.raises(MessageRefused, match="different questions"):
        population.users[0].receive(other.advance()[0])
    with pytest.raises(MessageRefused, match="already"):
        population.users[0].receive(server_of(population).advance()[0])
