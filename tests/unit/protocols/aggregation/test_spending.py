"""What must survive: nothing leaves before it is written, and what is written is found again."""

import pytest
from tests.unit.protocols.aggregation.people import CLEAR, DISGUISED, people, server_of, until

from masquerade.core.errors import FileError, InputError, QueryRefused
from masquerade.protocols.aggregation.messages import Kind, MessageRefused
from masquerade.protocols.aggregation.record import Record, reported
from masquerade.protocols.aggregation.user import User
from masquerade.protocols.people.ledger import FileLedger, MemoryLedger


class Full(MemoryLedger):
    """A disk that is full from some moment on."""

    full = False

    def claim(self, entries):
        if self.full:
            raise FileError("the ledger cannot be written")
        super().claim(entries)


@pytest.mark.parametrize("stage", [Kind.DELIVERY, Kind.SURVIVORS])
def test_nothing_leaves_when_it_cannot_be_written(stage):
    population = people()
    ledger = Full()
    old = population.users[0]
    population.users[0] = User(0, old._key, population.terms, old._record, ledger)
    server = server_of(population)
    outgoing = until(population, server, stage)
    ledger.full = True
    with pytest.raises(FileError):
        population.users[0].receive(outgoing[0])
    ledger.full = False
    assert population.users[0].receive(outgoing[0]) is not None  # nothing had changed


def test_a_vote_stays_spent_after_a_restart(tmp_path):
    population = people()
    old = population.users[0]
    ledger = FileLedger(tmp_path / "ledger")
    population.users[0] = User(0, old._key, population.terms, old._record, ledger)
    server = server_of(population)
    announcement = until(population, server, Kind.ANNOUNCEMENT)[0]
    for place, user in enumerate(population.users):
        server.receive(place, user.receive(announcement))
    until(population, server, Kind.SURVIVORS)
    ledger.close()
    again = User(0, old._key, population.terms, old._record, FileLedger(tmp_path / "ledger"))
    with pytest.raises(QueryRefused, match="has left already") as refused:
        again.receive(announcement)
    assert refused.value.refusals[0].code == "already_spent"
    later = server_of(population, number=2)
    with pytest.raises(QueryRefused, match="never saw"):
        again.receive(later.advance()[0])


def twins(tmp_path, policy=CLEAR):
    """Return a population, and its first user once more: a second process with the same ledger."""
    population = people(policy=policy)
    old = population.users[0]
    ledgers = [FileLedger(tmp_path / "ledger") for _ in range(2)]
    both = [User(0, old._key, population.terms, old._record, ledger) for ledger in ledgers]
    population.users[0] = both[0]
    return population, both[1]


@pytest.mark.parametrize(("number", "nonce"), [(1, bytes(16)), (2, bytes(16)), (1, bytes([1] * 16))])
def test_of_two_processes_of_one_user_only_one_votes(tmp_path, number, nonce):
    """Both have joined before either votes: in the same round, a later one, another session."""
    population, twin = twins(tmp_path)
    first = server_of(population)
    delivered = until(population, first, Kind.DELIVERY)
    one, population.users[0] = population.users[0], twin
    other = server_of(population, number=number, nonce=nonce)
    for user in population.users[1:]:
        user._round = None  # the others have not seen the first round
    again = until(population, other, Kind.DELIVERY)
    assert one.receive(delivered[0]) is not None
    with pytest.raises(QueryRefused, match="in another process") as refused:
        twin.receive(again[0])
    assert refused.value.refusals[0].code == "already_spent"


def test_disguised_votes_of_two_processes_may_leave_in_two_sessions(tmp_path):
    population, twin = twins(tmp_path, DISGUISED)
    delivered = until(population, server_of(population), Kind.DELIVERY)
    one, population.users[0] = population.users[0], twin
    for user in population.users[1:]:
        user._round = None
    again = until(population, server_of(population, nonce=bytes([1] * 16)), Kind.DELIVERY)
    assert one.receive(delivered[0]) is not None
    assert twin.receive(again[0]) is not None


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
        reports.add(reported((1, 2), DISGUISED, ledger).codes)
        ledger.close()
    assert len(reports) == 1
    fresh = {reported((1, 2), DISGUISED, MemoryLedger()).codes for _ in range(60)}
    assert len(fresh) > 1  # all alike with probability 0.56^59 < 1e-14


def test_records_do_not_print_themselves():
    assert "1" not in repr(Record((1, 1), CLEAR.id))


def test_wrong_records_and_identities_are_refused():
    population = people()
    with pytest.raises(InputError, match="known category"):
        reported((2, 0), CLEAR, MemoryLedger())
    key = population.users[1]._key
    with pytest.raises(InputError, match="not the one enrolled"):
        User(0, key, population.terms, Record((0, 0), CLEAR.id), MemoryLedger())
    with pytest.raises(InputError, match="policy"):
        User(1, key, population.terms, Record((0, 0), DISGUISED.id), MemoryLedger())


def test_another_batch_under_the_same_round_is_refused():
    from masquerade.protocols.aggregation.batch import Batch, Table  # noqa: PLC0415
    from masquerade.protocols.aggregation.server import Server  # noqa: PLC0415

    population = people()
    first = server_of(population)
    population.users[0].receive(first.advance()[0])
    other = Server(population.terms, bytes(16), 1, Batch((Table((0,)),), population.terms.sizes))
    with pytest.raises(MessageRefused, match="other questions"):
        population.users[0].receive(other.advance()[0])
    with pytest.raises(MessageRefused, match="already"):
        population.users[0].receive(server_of(population).advance()[0])
